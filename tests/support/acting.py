"""Models that call tools and answer in JSON: what a PoolStub says, by what it is asked alone."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

_TOOLS: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("tools.yaml").read_text())
WEATHER, STOCK = _TOOLS["get_weather"], _TOOLS["get_stock"]


class Weather(BaseModel):
    city: str
    degrees: int


def calling(*calls: tuple[str, Any]) -> dict[str, Any]:
    """An assistant's message with these calls of tools; arguments are a text, or JSON's values."""
    made = []
    for name, given in calls:
        arguments = given if isinstance(given, str) else json.dumps(given)
        number = hashlib.sha256(f"{name}{arguments}".encode()).hexdigest()[:8]
        function = {"name": name, "arguments": arguments}
        made.append({"id": f"call_{number}", "type": "function", "function": function})
    return {"role": "assistant", "content": None, "tool_calls": made}


def saying(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def acts(body: dict[str, Any]) -> dict[str, Any]:
    """Calls the weather of every city of the question; with the results, says them; else JSON."""
    last = body["messages"][-1]
    question = next(m["content"] for m in body["messages"][::-1] if m["role"] == "user")
    cities = re.findall(r"\b(Paris|Oslo|Lima)\b", question.partition("\n")[0])
    results = [m["content"] for m in body["messages"] if m["role"] == "tool"]
    if body.get("tools") and body.get("tool_choice") != "none" and cities and not results:
        return calling(*(("get_weather", {"city": city}) for city in cities))
    if body.get("response_format"):
        return saying(json.dumps({"city": cities[0] if cities else "", "degrees": 21}, indent=1))
    if results:
        return saying(f"It is {' and '.join(results)}.")
    return saying(f"Advice on {str(last['content']).splitlines()[0]}")
