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
        return _written(json.loads(text, parse_float=_number, parse_constant=_number))
    except (ValueError, OverflowError, RecursionError):
        return None


def text_of(message: Mapping[str, Any]) -> str:
    """Return a choice's message as one text: its content, or its tool calls in normal form."""
    if calls := message.get(CALLS):
        return _written({CALLS: [_plain(call["function"]) for call in calls]})
    return message.get("content") or ""


def calls_in(text: str) -> tuple[str, str] | None:
    """Return the names of the called tools and the calls themselves, both as JSON in normal form,
    or None if the text is not such calls.
    """
    if not text.startswith(f'{{"{CALLS}":['):
        return None
    try:
        calls = json.loads(text, parse_float=_number)[CALLS]
        return _written([call["name"] for call in calls]), _written(calls)
    except (ValueError, OverflowError, TypeError, KeyError, RecursionError):
        return None


def delta_of(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a complete message as one delta of a stream."""
    calls = [{"index": k, **call} for k, call in enumerate(message.get(CALLS) or ())]
    return {**message, CALLS: calls} if calls else {**message}


def _plain(function: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call's name and arguments; arguments that are not JSON remain text."""
    known = normal_json(function["arguments"])
    arguments = function["arguments"] if known is None else json.loads(known)
    return {"name": function["name"], "arguments": arguments}


def _written(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _number(digits: str) -> float:
    """Return a number, as an int if it is whole. Raises ValueError for NaN and OverflowError for
    infinities, which JSON lacks.
    """
    found = float(digits)
    whole = int(found)
    return whole if whole == found else found
