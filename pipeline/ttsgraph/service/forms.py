"""In which form a client wants its answer: tools, JSON, several choices, log probabilities.

The nodes that act are asked in that form: the last node of a graph, or where that chooses among
answers (a vote, a judge, a closed gate) those that it chooses among. All others advise in text, and
are told what the answer will look like.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ttsgraph.models.actions import calls_in, normal_json
from ttsgraph.service.errors import ApiError
from ttsgraph.tasks.base import Question, Task

MOST_CHOICES = 128
MOST_STOPS = 16

_KINDS = ("json_object", "json_schema")

TOOLS_ADVICE = (
    "Another model gives the answer and reads yours as advice. It can call these functions, which "
    "you can't:\n{tools}\nSay in words which of them to call with which arguments, or what to "
    "answer without."
)
"""What nodes that advise are told where the answer may be a call."""

JSON_ADVICE = (
    "Another model gives the answer as JSON{schema} and reads yours as advice. "
    "Say in words what it should hold."
)
"""What they are told where it is JSON."""


@dataclass(frozen=True, slots=True)
class Form:
    """What a request asks of its answer.

    `parameters` are those of the acting nodes' bodies, as JSON, if there are any; `schemas` those
    of the tools' arguments, as JSON, by name; `stop` are the client's own stop sequences. With
    `tools` the answer may be calls, `as_json` says that a text is JSON; `choices` are how many.
    `advice` is what advising nodes are told.
    """

    parameters: str | None = None
    stop: tuple[str, ...] = ()
    tools: bool = False
    as_json: bool = False
    choices: int = 1
    advice: str = ""
    schemas: tuple[tuple[str, str], ...] = ()

    @property
    def structured(self) -> bool:
        """Whether the answer is more than free text: it has its own stops, and another vote."""
        return self.tools or self.as_json


def parse_form(others: dict[str, Any]) -> Form | None:
    """The form that these parameters ask for, which are taken out of them; None where they ask for
    nothing. Raises ApiError for one that can't be used.
    """
    stop = _stops(others.pop("stop", None))
    tools = others.pop("tools", None) or []
    choice = others.pop("tool_choice", None)
    parallel = others.pop("parallel_tool_calls", None)
    wanted: dict[str, Any] = {}
    if tools:
        _check_tools(tools)
        wanted |= {"tools": tools}
        wanted |= {} if choice is None else {"tool_choice": choice}
        wanted |= {} if parallel is None else {"parallel_tool_calls": parallel}
    elif choice not in (None, "none", "auto"):
        raise ApiError(400, "tool_choice: expected tools to choose from", "tool_choice")
    output = others.pop("response_format", None)
    as_json = output is not None and _is_json(output)
    wanted |= {"response_format": output} if as_json else {}
    wanted |= _counts(others)
    if not wanted and not stop:
        return None
    parameters = _dumped(wanted) if wanted else None
    advice = TOOLS_ADVICE.format(tools="\n".join(map(_dumped, tools))) if tools else ""
    if as_json and not tools:
        schema = (output.get("json_schema") or {}).get("schema")
        shape = f" of this schema:\n{_dumped(schema)}\n" if schema else ","
        advice = JSON_ADVICE.format(schema=shape)
    schemas = tuple(
        (tool["function"]["name"], _dumped(tool["function"].get("parameters") or {}))
        for tool in tools
    )
    return Form(parameters, stop, bool(tools), as_json, wanted.get("n", 1), advice, schemas)


def _dumped(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError):
        raise ApiError(400, "expected JSON that is less deep") from None


def _stops(stop: Any) -> tuple[str, ...]:
    found = [stop] if isinstance(stop, str) else stop or []
    if not isinstance(found, list) or not all(isinstance(s, str) and s for s in found):
        raise ApiError(400, "stop: expected a text or a list of texts", "stop")
    if len(found) > MOST_STOPS:
        raise ApiError(400, f"stop: expected at most {MOST_STOPS} texts", "stop")
    return tuple(found)


def _check_tools(tools: Any) -> None:
    if not isinstance(tools, list):
        raise ApiError(400, "tools: expected a list", "tools")
    for tool in tools:
        function = tool.get("function") if isinstance(tool, Mapping) else None
        if not isinstance(function, Mapping) or tool.get("type") != "function":
            raise ApiError(400, "tools: expected tools of type function", "tools")
        if not isinstance(function.get("name"), str) or not function["name"]:
            raise ApiError(400, "tools: expected a name of each function", "tools")


def _is_json(output: Any) -> bool:
    kind = output.get("type") if isinstance(output, Mapping) else None
    if kind == "text":
        return False
    if kind not in _KINDS:
        raise ApiError(
            400, f"response_format: expected type text or {', '.join(_KINDS)}", "response_format"
        )
    if kind == "json_schema" and not isinstance(output.get("json_schema"), Mapping):
        raise ApiError(400, "response_format: expected a json_schema", "response_format")
    return True


def _counts(others: dict[str, Any]) -> dict[str, Any]:
    """n, logprobs and top_logprobs, as far as they ask for something."""
    n = others.pop("n", None)
    logprobs = others.pop("logprobs", None)
    top = others.pop("top_logprobs", None)
    if n is not None and not (type(n) is int and 1 <= n <= MOST_CHOICES):
        raise ApiError(400, f"n: expected a whole number from 1 to {MOST_CHOICES}", "n")
    if logprobs not in (None, True, False):
        raise ApiError(400, "logprobs: expected true or false", "logprobs")
    if top is not None and not (type(top) is int and 0 <= top <= 20):
        raise ApiError(400, "top_logprobs: expected a whole number from 0 to 20", "top_logprobs")
    wanted: dict[str, Any] = {"n": n} if n is not None and n > 1 else {}
    if logprobs:
        wanted |= {"logprobs": True} | ({} if top is None else {"top_logprobs": top})
    return wanted


class FormedTask:
    """A kind of question whose answers are counted in the form that a client asked for.

    Calls of tools are told apart by the tools' names first, then by their arguments; JSON by its
    normal form; and other texts as the kind itself does, or else as they stand. Calls of a tool
    that there is not, or whose arguments are no JSON of the tool's schema, do not count.
    """

    def __init__(self, inner: Task, form: Form) -> None:
        self.name = inner.name
        self.instruction = inner.instruction
        self.inner = inner
        self.form = form
        self._schemas = dict(form.schemas)

    def parse(self, row: Mapping[str, Any], where: str) -> Question:
        """As the kind does."""
        return self.inner.parse(row, where)

    def render(self, question: Question) -> str:
        """As the kind does."""
        return self.inner.render(question)

    def extract(self, text: str) -> str | None:
        """What votes count: with tools, the names of those that are called, an end of line, and
        the calls.
        """
        if not self.form.tools:
            return normal_json(text)
        if (calls := calls_in(text)) is not None:
            return "\n".join(calls) if all(map(self._fits, json.loads(calls[1]))) else None
        said = normal_json(text) if self.form.as_json else self.inner.extract(text)
        return f"\n{text.strip() if said is None else said}"

    def _fits(self, call: Mapping[str, Any]) -> bool:
        """Whether a call can be made: its tool is there, and the arguments are of its schema."""
        name = call["name"]
        arguments = _dumped(call["arguments"] or {})  # some send no text where there are none
        return name in self._schemas and _is_valid(self._schemas[name], arguments)

    def head(self, form: str) -> str:
        """What a vote counts first: the names; for JSON alone, all there is."""
        return form.partition("\n")[0] if self.form.tools else form

    def grade(self, question: Question, text: str) -> float:
        """As the kind does."""
        return self.inner.grade(question, text)


@lru_cache(maxsize=1024)
def _validator(schema: str) -> Any:
    """What checks values by a schema of the client's; None where it is no schema.

    It fetches nothing that the schema refers to, and searches no texts by its patterns, which could
    take for ever.
    """
    from jsonschema import Draft202012Validator, SchemaError, validators  # slow to import
    from referencing import Registry

    skipped = dict.fromkeys(("pattern", "patternProperties"), _passes)
    kind = validators.extend(Draft202012Validator, skipped)
    try:
        kind.check_schema(json.loads(schema))
    except SchemaError:
        return None
    return kind(json.loads(schema), registry=Registry())


def _passes(*_: Any) -> tuple[()]:
    return ()


@lru_cache(maxsize=1024)
def _is_valid(schema: str, arguments: str) -> bool:
    given = json.loads(arguments)
    if not isinstance(given, dict):
        return False
    try:
        validator = _validator(schema)
        return validator is None or bool(validator.is_valid(given))
    except Exception:  # what it refers to is not there, or it is too deep: nobody can tell
        return True


def check_place(form: Form, few_shot: bool, sink_acts: bool) -> None:
    """Raises ApiError 400 where a graph can't answer in this form."""
    if form.structured and few_shot:
        what = "tools" if form.tools else "response_format"
        said = f"{what}: this model continues worked examples; expected a question in plain text"
        raise ApiError(400, said, what, "unsupported_parameter")
    if form.choices > 1 and not sink_acts:
        said = "n: expected 1, as the last node of this graph chooses among the others' answers"
        raise ApiError(400, said, "n", "unsupported_parameter")


def as_choice(text: str) -> Sequence[dict[str, Any]]:
    """One choice that is a text."""
    message = {"role": "assistant", "content": text, "refusal": None}
    return [{"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}]
