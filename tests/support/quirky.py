"""Providers with habits of their own, on real sockets, that keep their own books."""

import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import Any

from tests.support.habits import refusing
from tests.support.stub_server import Answer, StubServer, answered


@dataclass(eq=False)
class Quirky(StubServer):
    """Answers from memory, rightly with a probability by model, question and draw."""

    skills: dict[str, float]
    prices: tuple[float, float] = (1.0, 2.0)
    known: dict[str, str] = field(default_factory=dict)
    key: str | None = None
    thinks: int = 0
    usage: bool = True
    refuses: tuple[str, ...] = ()
    lists_prices: bool = False
    dollars: float = 0.0
    refused: int = 0

    def __post_init__(self) -> None:
        super().__init__(tuple(self.skills))

    def _wrong_key(self, headers: dict[str, str]) -> Answer | None:
        if self.key is None or headers.get("authorization") == f"Bearer {self.key}":
            return None
        return 401, {}, json.dumps({"error": {"message": "wrong key"}})

    def lists(self, path: str, headers: dict[str, str]) -> Answer:
        prompt, completion = (price / 1e6 for price in self.prices)
        prices = {"pricing": {"prompt": prompt, "completion": completion}}
        more = prices if self.lists_prices else {}
        data = [{"id": name, "object": "model"} | more for name in self.models]
        return self._wrong_key(headers) or (200, {}, json.dumps({"object": "list", "data": data}))

    def misbehave(self, count: int, body: dict[str, Any]) -> Answer | None:
        if wrong := self._wrong_key(self.headers[-1]):
            return wrong
        if refusal := refusing(self.refuses)(count, body):
            self.refused += 1
        return refusal

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
        thought = self.thinks // (4 if body.get("reasoning_effort") == "low" else 1)
        cut = thought + 8 > bound
        read, written = len(text) // 4 + 1, min(bound, thought + 8)
        told = answered("" if cut else reply, body["model"], count, read, written)
        told["choices"][0]["finish_reason"] = "length" if cut else "stop"
        details = {"reasoning_tokens": min(bound, thought)}
        told["usage"]["completion_tokens_details"] = details
        with self.lock:
            self.dollars += (read * self.prices[0] + written * self.prices[1]) / 1e6
        if not self.usage:
            del told["usage"]
        return told
