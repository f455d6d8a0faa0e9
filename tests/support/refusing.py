"""Providers that refuse prompts, in their own forms."""

import json
from collections.abc import Callable, Collection
from typing import Any

from tests.support.answers import PROVIDERS, table
from tests.support.stub_server import Answer, Misbehave

REFUSALS = table("refusals")
FILTERED: str = PROVIDERS["refusals"]["Azure"]["says"]


def refusing(
    refused: Callable[[str], bool], models: Collection[str], asked: list[str]
) -> Misbehave:
    """Refuses prompts to these models, which are added to `asked`."""

    def misbehave(count: int, body: dict[str, Any]) -> Answer | None:
        text = "\n".join(message["content"] for message in body["messages"])
        if body["model"] not in models or not refused(text):
            return None
        asked.append(json.dumps(body, sort_keys=True))
        return REFUSALS["Azure"]

    return misbehave
