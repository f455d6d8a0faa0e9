"""How an endpoint wants its requests: which parameters it takes, under which names, and whether it knows the system role.

Servers that call themselves OpenAI-compatible differ in this, and say so with HTTP 400 and the name of what they refuse. The first
call to a model is the probe: what is refused is left out, and what the server took in the end is kept.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

import openai

from pipeline.models.client import Message
from pipeline.secrets import redact

TokensKey = Literal["max_tokens", "max_completion_tokens"]
Parameter = Literal["temperature", "top_p", "stop", "seed", "reasoning_effort", "max_tokens", "stream_options"]

TOKENS_KEYS: tuple[TokensKey, ...] = ("max_tokens", "max_completion_tokens")
_LEAST_MISSED = ("stream_options", "seed", "top_p", "reasoning_effort", "stop", "temperature")
"""Parameters that can be left out; where an error names several, the first of these goes first."""

_REFUSING = (400, 422)
_UNSUPPORTED = re.compile(
    r"unsupported|not (be )?(support|permit|allow|accept|enabl|recogni)|n't support|unknown|unrecogni[sz]ed|unexpected"
    r"|extra_forbidden|extra (input|field)|deprecated|cannot both|only the default|only .{1,40} (is|are) (supported|allowed)"
    r"|no longer",
    re.IGNORECASE,
)
_NO_SYSTEM = re.compile(
    r"(system|developer).{0,80}(not (support|enabl|allow|permit)|unsupported)|not support.{0,40}\bsystem"
    r"|roles must alternate|only user,? (and )?assistant roles|(unsupported|invalid|unknown|unexpected).{0,40}\brole",
    re.IGNORECASE,
)
LONGEST_SAID = 200
"""Characters of a server's words that an error shows."""

T = TypeVar("T")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Refusal:
    """What a server says when it refuses a request: in words, and the parameter that it is about where it tells that apart."""

    words: str
    param: str | None = None

    @property
    def unsupported(self) -> bool:
        """Whether it says that something is not supported, rather than that a value is out of bounds."""
        return _UNSUPPORTED.search(self.words) is not None

    def names(self, parameter: str) -> bool:
        """Whether it is about this parameter."""
        if self.param is not None and re.fullmatch(r"\w+", self.param):
            return self.param == parameter
        return re.search(rf"(?<![A-Za-z_]){parameter}(?![A-Za-z_])", self.words) is not None


@dataclass(frozen=True, slots=True)
class Dialect:
    """What a request to an endpoint looks like.

    `left_out` are parameters that are not sent, `tokens_key` is the name that the bound on an answer's tokens goes by unless it is
    among those; without `system`, system messages stand at the head of the user's turn.
    """

    tokens_key: TokensKey = "max_tokens"
    left_out: frozenset[str] = frozenset()
    system: bool = True

    @property
    def bound(self) -> TokensKey | None:
        """The name under which the bound on tokens is sent, if any is taken."""
        return next((key for key in (self.tokens_key, *TOKENS_KEYS) if key not in self.left_out), None)

    def body(self, messages: Sequence[Message], max_tokens: int, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Messages, the bound on tokens, and what of these parameters the endpoint takes."""
        spoken = messages if self.system else without_system(messages)
        body: dict[str, Any] = {"messages": [{"role": message.role, "content": message.content} for message in spoken]}
        body |= {name: value for name, value in parameters.items() if name not in self.left_out}
        return body | ({self.bound: max_tokens} if self.bound else {})

    def after(self, refusal: Refusal, body: Mapping[str, Any]) -> Dialect | None:
        """How to ask the same after this body was refused so; None where the words name nothing that could be left out."""
        if self.system and any(message["role"] == "system" for message in body["messages"]) and _NO_SYSTEM.search(refusal.words):
            return replace(self, system=False)
        if not refusal.unsupported:
            return None
        if self.bound and refusal.names(self.bound):
            return replace(self, left_out=self.left_out | {self.bound})
        named = next((name for name in _LEAST_MISSED if name in body and refusal.names(name)), None)
        return None if named is None else replace(self, left_out=self.left_out | {named})

    def joined(self, other: Dialect) -> Dialect:
        """What both take."""
        return replace(self, left_out=self.left_out | other.left_out, system=self.system and other.system)

    @property
    def words(self) -> str:
        """ "without temperature, top_p; max_completion_tokens for max_tokens; system messages in the user's turn"; or nothing."""
        missing = sorted(self.left_out - set(TOKENS_KEYS))
        missing += ["any bound on tokens"] if self.bound is None else []
        told = [f"without {', '.join(missing)}"] if missing else []
        told += [f"{self.bound} for max_tokens"] if self.bound == "max_completion_tokens" else []
        told += [] if self.system else ["system messages in the user's turn"]
        return "; ".join(told)

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {"tokens_key": self.tokens_key, "left_out": sorted(self.left_out), "system": self.system}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Dialect:
        """What `to_dict` made."""
        key: TokensKey = "max_completion_tokens" if data["tokens_key"] == "max_completion_tokens" else "max_tokens"
        return cls(key, frozenset(map(str, data["left_out"])), bool(data["system"]))


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


def refusal_of(error: Exception) -> Refusal | None:
    """What the server says in an answer that refuses the request itself (HTTP 400 or 422); None for anything else."""
    if not isinstance(error, openai.APIStatusError) or error.status_code not in _REFUSING:
        return None
    return _read(_text_of(error))


def said_in(error: Exception, secrets: Sequence[str] | None = None) -> str:
    """The server's own words in an answer with an error status, in one line without secrets; nothing where it says nothing."""
    if not isinstance(error, openai.APIStatusError):
        return ""
    words = "".join(letter if letter.isprintable() else " " for letter in _read(_text_of(error)).words)
    line = redact(" ".join(words.split()), secrets)
    return line if len(line) <= LONGEST_SAID else f"{line[:LONGEST_SAID]} ..."


def _text_of(error: openai.APIStatusError) -> str:
    return error.response.content.decode(errors="replace")


def _read(text: str) -> Refusal:
    """The words of an error in one of the shapes that servers give it: OpenAI's, vLLM's, FastAPI's, or plain text."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return Refusal("" if text.lstrip().startswith("<") else text[:2000])  # a page of HTML says nothing
    inner = data.get("error", data) if isinstance(data, dict) else data
    if isinstance(inner, Mapping):
        words = inner.get("message") or inner.get("detail") or inner
        param = inner.get("param")
        return Refusal(_plain(words), param if isinstance(param, str) and param else None)
    return Refusal(_plain(inner))


def _plain(words: Any) -> str:
    return (words if isinstance(words, str) else json.dumps(words))[:2000]


@dataclass
class Learned:
    """What is known of how one model wants to be asked: at first what its profile says, then what its endpoint took.

    `keep` is told when the endpoint has answered and what is known has changed.
    """

    where: str
    dialect: Dialect
    keep: Callable[[Dialect], None] = lambda dialect: None
    known: bool = False
    _first: asyncio.Event | None = None

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """For one attempt; until the first one is over, whatever came of it, the others wait, as they would be refused like it."""
        if self._first is not None:
            await self._first.wait()
        if self.known:
            yield
            return
        self._first = first = asyncio.Event()
        try:
            yield
        finally:
            self.known, self._first = True, None
            first.set()

    async def send(self, body: Callable[[Dialect], dict[str, Any]], post: Callable[[dict[str, Any]], Awaitable[T]]) -> T:
        """What the endpoint answers, without what it refuses. Raises what `post` raises when nothing is left to leave out."""
        dialect = self.dialect
        while True:
            sent = body(dialect)
            try:
                answer = await post(sent)
            except openai.APIStatusError as error:
                refusal = refusal_of(error)
                other = None if refusal is None else dialect.after(refusal, sent)
                if other is None:
                    raise
                dialect = other
            else:
                self._settle(dialect)
                return answer

    def _settle(self, dialect: Dialect) -> None:
        if (joined := self.dialect.joined(dialect)) != self.dialect:
            self.dialect = joined
            _log.warning("%s refuses some of what it is asked with; it is asked %s", self.where, joined.words)
            self.keep(joined)
