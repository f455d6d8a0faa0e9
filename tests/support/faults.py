"""Every way in which an endpoint can go wrong, for a StubServer."""

import json
import random
import time
from collections import Counter
from typing import Any

from tests.support.stub_server import Answer, answered

HANG_S = 1.5


def _answer(changed: tuple[str, str] = ("", ""), text: str = "7") -> str:
    return json.dumps(answered(text)).replace(*changed)


def _reset() -> Answer:
    raise ConnectionResetError


def _hang() -> Answer:
    time.sleep(HANG_S)
    raise ConnectionResetError


FAULTS = {
    "timeout": _hang,
    "reset": _reset,
    "429": lambda: (429, {}, "{}"),
    "429 with retry-after": lambda: (429, {"retry-after": "0.05"}, "{}"),
    "500": lambda: (500, {}, "{}"),
    "garbage": lambda: (200, {}, "<html>busy</html>"),
    "no choices": lambda: (200, {}, '{"choices": [], "usage": null}'),
    "error beside an answer": lambda: (200, {}, _answer(('"id"', '"error": {"code": 502}, "id"'))),
    "filtered": lambda: (200, {}, _answer(('"stop"', '"error"'))),
    "negative usage": lambda: (200, {}, _answer(('"prompt_tokens": 1', '"prompt_tokens": -9'))),
    "nested": lambda: (200, {}, "[" * 50_000),
    "long headers": lambda: (200, {"x-long": "x" * 20_000}, _answer()),
    "long answer": lambda: (200, {}, _answer(text="x" * 200_000)),
    "endless answer": lambda: (200, {}, _answer(text="x" * 6_000_000)),
}


class Faults:
    """A `misbehave` that goes wrong with this chance, in one of these ways, by the seed."""

    def __init__(self, share: float, seed: int = 0) -> None:
        self.share = share
        self.seed = seed
        self.made: Counter[str] = Counter()

    def __call__(self, count: int, body: dict[str, Any]) -> Answer | None:
        rng = random.Random(f"{self.seed} {count}")
        if rng.random() >= self.share:
            return None
        kind = rng.choice(tuple(FAULTS))
        self.made[kind] += 1
        return FAULTS[kind]()
