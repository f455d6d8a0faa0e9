"""How an endpoint wants its requests: which parameters, under which names, and whether it knows the
system role.

"OpenAI-compatible" servers differ in this, and say so with HTTP 400 (`endpoints/refusals.py`). The
first call to a model is the probe: what is refused is left out, and what was taken is kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from ttsgraph.base.files import keep, kept
from ttsgraph.models.client import Message, Sampling, whole_text

TokensKey = Literal["max_tokens", "max_completion_tokens"]
Parameter = Literal[
    "temperature", "top_p", "stop", "seed", "reasoning_effort", "max_tokens", "stream_options"
]

TOKENS_KEYS: tuple[TokensKey, ...] = ("max_tokens", "max_completion_tokens")

AnswerForm = Literal["schema", "object", "text"]
FORMS: tuple[AnswerForm, ...] = ("schema", "object", "text")
"""Ways to ask for an answer's form: a JSON schema, any JSON object, the prompt only."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """What a request to an endpoint looks like: parameters `left_out`, the bound on tokens by its
    name (`tokens_key`, unless left out) and at most `most_tokens`, an answer's `form`; without
    `system`, system messages are at the head of the user's turn.
    """

    tokens_key: TokensKey = "max_tokens"
    left_out: frozenset[str] = frozenset()
    system: bool = True
    most_tokens: int | None = None
    form: AnswerForm = "schema"

    @property
    def bound(self) -> TokensKey | None:
        """The name under which the bound on tokens is sent, if any is taken."""
        keys = (self.tokens_key, *TOKENS_KEYS)
        return next((key for key in keys if key not in self.left_out), None)

    def body(
        self, messages: Sequence[Message], max_tokens: int, parameters: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Messages, the bound on tokens, and what of these parameters the endpoint takes."""
        spoken = messages if self.system else without_system(messages)
        body: dict[str, Any] = {
            "messages": [
                {"role": message.role, "content": whole_text(message.content)}
                if message.whole is None
                else json.loads(message.whole)
                for message in spoken
            ]
        }
        body |= {name: value for name, value in parameters.items() if name not in self.left_out}
        return body | ({self.bound: self.bounded(max_tokens)} if self.bound else {})

    def bounded(self, max_tokens: int) -> int:
        """Return the bound on an answer's tokens that is sent if this one is wanted."""
        return max_tokens if self.most_tokens is None else min(max_tokens, self.most_tokens)

    def response_format(self, schema: tuple[str, str]) -> dict[str, Any]:
        """Return the part of a body that asks for an answer of this schema, given with its name."""
        if self.form == "text":
            return {}
        asked: dict[str, Any] = {"type": "json_object"}
        if self.form == "schema":
            described = {"name": schema[0], "schema": json.loads(schema[1]), "strict": True}
            asked = {"type": "json_schema", "json_schema": described}
        return {"response_format": asked}

    def joined(self, other: Dialect) -> Dialect:
        """What both take."""
        bounds = [each.most_tokens for each in (self, other) if each.most_tokens is not None]
        left_out = self.left_out | other.left_out
        system = self.system and other.system
        most = min(bounds, default=None)
        form = max(self.form, other.form, key=FORMS.index)
        return replace(self, left_out=left_out, system=system, most_tokens=most, form=form)

    @property
    def words(self) -> str:
        """ "without temperature; max_completion_tokens for max_tokens", or nothing."""
        missing = sorted(self.left_out - set(TOKENS_KEYS))
        missing += ["any bound on tokens"] if self.bound is None else []
        told = [f"without {', '.join(missing)}"] if missing else []
        told += [f"{self.bound} for max_tokens"] if self.bound == "max_completion_tokens" else []
        told += [] if self.most_tokens is None else [f"for at most {self.most_tokens} tokens"]
        told += [] if self.system else ["system messages in the user's turn"]
        told += ["for any JSON object in place of a schema"] if self.form == "object" else []
        told += ["without a form of the answer"] if self.form == "text" else []
        return "; ".join(told)


ANY = Dialect()
"""Of an endpoint of which nothing is known."""


def without_system(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The same messages, what system messages say put at the head of the user's next turn."""
    spoken: list[Message] = []
    said: list[str] = []
    for message in messages:
        if message.role == "system":
            said.append(message.content)
        elif message.role == "user" and said:
            spoken.append(Message("user", "\n\n".join([*said, message.content])))
            said = []
        else:
            spoken.append(message)
    return (*spoken, Message("user", "\n\n".join(said))) if said else tuple(spoken)


HABITS = "endpoints.json"
"""Where it is kept what endpoints were found to take, in a project's state folder."""


def habit_name(url: str, served_as: str, sampling: Sampling) -> str:
    """Under what it is kept how a model, at this effort, wants to be asked."""
    parts = (url, served_as, sampling.reasoning_effort, sampling.extra_body)
    return " ".join(part for part in parts if part is not None)


class Habits:
    """A JSON file of dialects by endpoint, if there is a path; unreadable ones are found anew."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path

    def get(self, name: str) -> Dialect | None:
        """What is kept under this name."""
        try:
            found = self._read()[name]
            return Dialect(**found | {"left_out": frozenset(found["left_out"])})
        except (TypeError, KeyError):
            return None

    def keep(self, name: str, dialect: Dialect) -> None:
        """Keep what is found out under this name."""
        if self._path is not None:
            found = asdict(dialect) | {"left_out": sorted(dialect.left_out)}
            with suppress(OSError):  # it is found out anew
                keep(self._path, self._read() | {name: found})

    def _read(self) -> dict[str, Any]:
        found = None if self._path is None else kept(self._path)
        return found if isinstance(found, dict) else {}
