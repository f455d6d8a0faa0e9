"""The agent's exchanges as a page to read: why a graph came to be."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any


def trace_page(exchanges: Sequence[Mapping[str, Any]]) -> str:
    """Markdown: each exchange with what was asked, answered, applied and refused. Takes `asdict` of
    exchanges.
    """
    parts = ["# What the agent was asked, and answered"]
    for number, exchange in enumerate(exchanges, 1):
        parts.append(f"## {number}. {exchange['stage']}, attempt {exchange['attempt']}")
        used = (
            f"{exchange['prompt_tokens']} + {exchange['completion_tokens']} tokens,"
            f" ${exchange['dollars']:.6f}"
        )
        if "seconds" in exchange:  # which the files of earlier stages don't say
            source = "from the call cache" if exchange["cached"] else "asked now"
            used += f", {exchange['seconds']:.1f} s, {source}"
        parts.append(used)
        parts += [_block(message["role"], message["content"]) for message in exchange["messages"]]
        parts.append(_block("answer", exchange["answer"]))
        parts.append(_block("applied", json.dumps(exchange["applied"])))
        refused = "\n".join(f"- {problem}" for problem in exchange["refused"])
        parts.append(_block("refused", refused or "nothing"))
    return "\n\n".join(parts) + "\n"


def _block(title: str, text: str) -> str:
    """A titled block of literal text, indented so that no text in it can end it."""
    return f"### {title}\n\n" + "\n".join(f"    {line}" for line in text.splitlines() or [""])
