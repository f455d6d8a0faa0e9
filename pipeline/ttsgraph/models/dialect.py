"""Request dialect of an endpoint: its parameters, their names, and support for the system role.

"OpenAI-compatible" servers differ in these, and reject with HTTP 400 what they don't support
(`endpoints/faults.py`). The first calls to a model serve as probes: refused parameters are left
out, and the accepted form is kept.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import TypeAdapter, ValidationError

from ttsgraph.base.files import keep, kept
from ttsgraph.models.client import Message, Sampling

TokensKey = Literal["max_tokens", "max_completion_tokens"]
Parameter = Literal[
    "temperature", "top_p", "stop", "seed", "reasoning_effort", "max_tokens", "stream_options"
]

TOKENS_KEYS: tuple[TokensKey, ...] = ("max_tokens", "max_completion_tokens")

AnswerForm = Literal["schema", "object", "text"]
FORMS: tuple[AnswerForm, ...] = ("schema", "object", "text")
"""Ways to request a structured answer, strongest first: by a JSON schema, as any JSON object, or by
the prompt only.
"""


@dataclass(frozen=True, slots=True)
class Dialect:
    """Format of requests to an endpoint.

    `left_out`: parameters that are not sent. `most_tokens`: maximum value of the token bound.
    `form`: way to request a structured answer. Without `system`, system messages are prepended to
    the next user message.
    """

    left_out: frozenset[str] = frozenset()
    system: bool = True
    most_tokens: int | None = None
    form: AnswerForm = "schema"

    @property
    def bound(self) -> TokensKey | None:
        """Name under which the token bound is sent, or None if none is accepted."""
        return next((key for key in TOKENS_KEYS if key not in self.left_out), None)

    def response_format(self, schema: tuple[str, str]) -> dict[str, Any]:
        """Return the part of a request's body that asks for an answer with this schema, given as
        its name and its JSON.
        """
        described = {"name": schema[0], "schema": json.loads(schema[1]), "strict": True}
        asked: dict[AnswerForm, dict[str, Any]] = {
            "schema": {"type": "json_schema", "json_schema": described},
            "object": {"type": "json_object"},
        }
        return {"response_format": asked[self.form]} if self.form in asked else {}

    def joined(self, other: Self) -> Self:
        """Return this dialect with the restrictions of another one added."""
        left_out = self.left_out | other.left_out
        system = self.system and other.system
        most = min(filter(None, (self.most_tokens, other.most_tokens)), default=None)
        form = max(self.form, other.form, key=FORMS.index)
        return replace(self, left_out=left_out, system=system, most_tokens=most, form=form)

    @property
    def words(self) -> str:
        """Description for messages, such as "without temperature; with max_completion_tokens
        instead of max_tokens", or "" if nothing differs from the default.
        """
        missing = sorted(self.left_out - set(TOKENS_KEYS))
        missing += ["a bound on tokens"] if self.bound is None else []
        parts = {
            f"without {', '.join(missing)}": bool(missing),
            f"with {self.bound} instead of max_tokens": self.bound == "max_completion_tokens",
            f"for at most {self.most_tokens} tokens": self.most_tokens is not None,
            "with system messages in the user's turn": not self.system,
            "asking for any JSON object instead of a schema": self.form == "object",
            "without response_format": self.form == "text",
        }
        return "; ".join(words for words, applies in parts.items() if applies)


ANY = Dialect()
"""Dialect that an unknown endpoint is assumed to accept."""


def without_system(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the messages with system texts prepended to the next user turn."""
    spoken: list[Message] = []
    system: list[str] = []
    for message in messages:
        if message.role == "system":
            system.append(message.content)
        elif message.role == "user" and system:
            spoken.append(Message("user", "\n\n".join([*system, message.content])))
            system = []
        else:
            spoken.append(message)
    return (*spoken, Message("user", "\n\n".join(system))) if system else tuple(spoken)


HABITS = "endpoints.json"
"""File of the learned dialects, in a project's state folder."""


def habit_name(url: str, served_as: str, sampling: Sampling) -> str:
    """Return the key under which a model's dialect is stored for this reasoning effort and extra
    body.
    """
    return " ".join(filter(None, (url, served_as, sampling.reasoning_effort, sampling.extra_body)))


class DialectStore:
    """JSON file of dialects by endpoint. Without a path nothing is stored; an unreadable file
    counts as empty.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path

    def get(self, name: str) -> Dialect | None:
        """Return the dialect stored under this name, or None."""
        with suppress(ValidationError, KeyError):
            return TypeAdapter(Dialect).validate_python(self._read()[name])
        return None

    def keep(self, name: str, dialect: Dialect) -> None:
        """Store a dialect under this name."""
        if self._path is not None:
            found = asdict(dialect) | {"left_out": sorted(dialect.left_out)}
            with suppress(OSError):  # the dialect is learned again next time
                keep(self._path, self._read() | {name: found})

    def _read(self) -> dict[str, Any]:
        found = None if self._path is None else kept(self._path)
        return found if isinstance(found, dict) else {}
