"""Answers that are more than a text: tool calls and JSON.

A choice is plain data as endpoints send it: {index, message, finish_reason, logprobs}. Its text,
which other nodes read and votes count, is the message's content, or its tool calls as JSON in
normal form: `{"tool_calls":[{"arguments":{...},"name":"..."}]}`.
"""

import json
from collections.abc import Mapping
from typing import Any

CALLS = "tool_calls"


def normal_json(text: str) -> str | None:
    """Return JSON in a form that is the same for equal values, or None if the text is not JSON."""
    try:
        return _written(json.loads(text, parse_constant=_no_number))
    except (ValueError, RecursionError):
        return None


def text_of(message: Mapping[str, Any]) -> str:
    """Return a choice's message as one text: its content, or its tool calls in normal form."""
    calls = message.get(CALLS)
    if not calls:
        return message.get("content") or ""
    return _written({CALLS: [_plain(call["function"]) for call in calls]})


def calls_in(text: str) -> tuple[str, str] | None:
    """Return the names of the called tools and the calls themselves, both as JSON in normal form,
    or None if the text is not such calls.
    """
    if not text.startswith(f'{{"{CALLS}":['):
        return None
    try:
        calls = json.loads(text)[CALLS]
        return _written([call["name"] for call in calls]), _written(calls)
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def delta_of(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a complete message as one delta of a stream."""
    delta = dict(message)
    if delta.get(CALLS):
        delta[CALLS] = [{"index": k, **call} for k, call in enumerate(delta[CALLS])]
    return delta


def _plain(function: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call's name and arguments; arguments that are not JSON remain text."""
    arguments = function["arguments"]
    known = normal_json(arguments)
    return {
        "name": function["name"],
        "arguments": arguments if known is None else json.loads(known),
    }


def _written(value: Any) -> str:
    whole = _whole_numbers(value)
    return json.dumps(whole, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _whole_numbers(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _whole_numbers(inner) for key, inner in value.items()}
    return [_whole_numbers(inner) for inner in value] if isinstance(value, list) else value


def _no_number(name: str) -> float:
    raise ValueError(name)
