"""Providers with habits of their own, on real sockets, that keep their own books."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from typing import Any

from tests.support.stub_server import StubServer


class Quirky(StubServer):
    """Answers from memory, rightly with a probability by model, question and draw."""

    def __init__(
        self,
        skills: dict[str, float],
        prices: tuple[float, float] = (1.0, 2.0),
        known: dict[str, str] | None = None,
        key: str | None = None,
        thinks: int = 0,
        usage: bool = True,
        refuses: tuple[str, ...] = (),
        lists_prices: bool = False,
    ) -> None:
        super().__init__(tuple(skills), delay_s=0.0)
        self.skills = skills
        self.prices = prices
        self.known = known or {}
        self.thinks = thinks
        self.tells_usage = usage
        self.dollars = 0.0
        self.refused = 0
        self._books = threading.Lock()
        self.key = key
        self.lists = self._lists
        self.lists_prices = lists_prices
        self._refuses = refuses
        self.misbehave = self._misbehave

    def _lists(self, path: str, headers: dict[str, str]) -> tuple[int, dict[str, str], str]:
        if self.key and headers.get("authorization") != f"Bearer {self.key}":
            return 401, {}, json.dumps({"error": {"message": "wrong key"}})
        price = {"pricing": {"prompt": self.prices[0] / 1e6, "completion": self.prices[1] / 1e6}}
        more = price if self.lists_prices else {}
        data = [{"id": name, "object": "model"} | more for name in self.models]
        return 200, {}, json.dumps({"object": "list", "data": data})

    def _misbehave(
        self, count: int, body: dict[str, Any]
    ) -> tuple[int, dict[str, str], str] | None:
        if self.key and self.headers[-1].get("authorization") != f"Bearer {self.key}":
            return 401, {}, json.dumps({"error": {"message": "wrong key"}})
        for name in self._refuses:
            if name in body:
                self.refused += 1
                said = {"message": f"Unsupported parameter: '{name}'", "param": name}
                return 400, {}, json.dumps({"error": said})
        return None

    def completion(self, body: dict[str, Any], count: int) -> dict[str, Any]:
        text = "\n".join(message["content"] for message in body["messages"])
        asked = next((q for q in self.known if q in text), None)
        right = self.known.get(asked or "", "none")
        # A client that sends seeds gets the same answer to the same call, whenever it asks.
        of = [body["model"], asked, body.get("reasoning_effort"), body.get("seed", count)]
        digest = hashlib.sha256(json.dumps([of, text]).encode()).digest()
        draw = digest[0] / 256
        wrong = sorted(set(self.known.values()) - {right}) or ["nothing"]
        reply = right if draw < self.skills[body["model"]] else wrong[digest[1] % len(wrong)]
        if re.search(r"^A[.)]", text, re.MULTILINE):
            reply = f"The answer is ({reply})."
        bound = body.get("max_tokens") or body.get("max_completion_tokens") or 10**6
        effort = body.get("reasoning_effort")
        thought = self.thinks // (4 if effort == "low" else 1)
        cut = thought + 8 > bound
        usage = {
            "prompt_tokens": len(text) // 4 + 1,
            "completion_tokens": min(bound, thought + 8),
            "completion_tokens_details": {"reasoning_tokens": min(bound, thought)},
        }
        with self._books:
            self.dollars += (
                usage["prompt_tokens"] * self.prices[0]
                + usage["completion_tokens"] * self.prices[1]
            ) / 1e6
        choice = {
            "index": 0,
            "finish_reason": "length" if cut else "stop",
            "message": {"role": "assistant", "content": "" if cut else reply},
        }
        told = {"id": f"q-{count}", "object": "chat.completion", "created": 0}
        told |= {"model": body["model"], "choices": [choice]}
        return told | ({"usage": usage} if self.tells_usage else {})
