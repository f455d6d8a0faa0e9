"""The protocol of model clients: request, completion and usage."""

from __future__ import annotations

import gc
import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache, partial
from typing import Any

from ttsgraph.base.errors import CallFailed, NoAnswer


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message; `role` is system, user, assistant or tool.

    `whole` is its JSON, sent in place of the text, if it is more than text (tool calls, a tool's
    result); `content` is then the text within it.
    """

    role: str
    content: str
    whole: str | None = None


_PIECES = re.compile(
    r"[A-Z]?[a-z]{1,5}|[A-Z]{1,2}|\s(?=\d)|\d|[\u00c0-\u2dff]{1,2}|[^\W\d_]|[^\w\s]|_"
)
_SELDOM = ("reasoning_effort", "extra_body", "left_out")


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling parameters; part of a call's identity.

    A temperature of None means the endpoint's default. `reasoning_effort`, `extra_body` (JSON) and
    `left_out` (parameters) enter the identity only if set.
    """

    temperature: float | None = 0.9
    top_p: float = 1.0
    max_tokens: int = 512
    stop: tuple[str, ...] = ()
    reasoning_effort: str | None = None
    extra_body: str | None = None
    left_out: tuple[str, ...] = ()

    @property
    def greedy(self) -> bool:
        """True if the likeliest token is always taken, so that the same call has the same
        answer.
        """
        return self.temperature == 0 and "temperature" not in self.left_out

    def to_dict(self) -> dict[str, Any]:
        """Return plain data; rarely used parameters are omitted if not set."""
        return {name: value for name, value in asdict(self).items() if value or name not in _SELDOM}


@dataclass(frozen=True, slots=True)
class Request:
    """One model call.

    `replica` distinguishes the k identical calls of k parallel nodes. `schema` is the answer's JSON
    schema with its name. `form` holds body parameters, as JSON, for answers other than one text
    (tools, response_format, n, logprobs); the completion then has `choices`.
    """

    model: str
    revision: str
    messages: tuple[Message, ...]
    sampling: Sampling
    replica: int = 0
    schema: tuple[str, str] | None = None
    form: str | None = None

    @property
    def wishes(self) -> bool:
        """True if the request involves more than text messages and a text answer."""
        return self.form is not None or any(message.whole for message in self.messages)

    def key(self) -> str:
        """Return the call's content key: SHA-256 over everything that shapes the answer's
        distribution, and the replica.

        Texts are preceded by their lengths, so that no two requests collide.
        """
        head = _key_head(self.model, self.revision, self.sampling, self.schema)
        parts = [head, str(self.replica)]
        if self.form is not None:
            parts += ("form", str(len(self.form)), self.form)
        for message in self.messages:
            content = message.content
            parts += (str(len(message.role)), message.role, str(len(content)), content)
            if message.whole is not None:
                parts += ("whole", str(len(message.whole)), message.whole)
        return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


@lru_cache(maxsize=1024)
def _key_head(model: str, revision: str, sampling: Sampling, schema: tuple[str, str] | None) -> str:
    """Return the part of the key that most calls of a run share; building it costs more than
    hashing.
    """
    return json.dumps([model, revision, sampling.to_dict(), schema])


@dataclass(frozen=True, slots=True)
class Completion:
    """A model's answer.

    `latency_s` is the latency measured when the call was made, also if it comes from a cache.
    `reasoning` is the text of the reasoning before the answer, `reasoning_tokens` its part of
    `completion_tokens`; `known_tokens` of the prompt's tokens were in the endpoint's cache.
    `choices` (JSON, see `ttsgraph.models.actions`) answer a form; `text` is then the countable text
    of the first. `cut`: stopped by the token bound. `estimated`: the endpoint reported no token
    counts. `refused`: no answer; `text` is the message of a PromptRefused.
    """

    text: str
    prompt_tokens: int
    completion_tokens: int
    latency_s: float
    cached: bool = field(default=False, compare=False)
    reasoning: str = ""
    reasoning_tokens: int = 0
    known_tokens: int = 0
    choices: str = ""
    cut: bool = False
    estimated: bool = False
    refused: bool = False

    def to_list(self) -> list[Any]:
        """Return plain data for a store; the trailing part is omitted if empty."""
        plain = [self.text, self.prompt_tokens, self.completion_tokens, self.latency_s]
        more = [self.reasoning, self.reasoning_tokens, self.known_tokens]
        more += [self.choices, self.cut, self.estimated, self.refused]
        while len(more) > 3 and not more[-1]:
            more.pop()
        return [*plain, more] if any(more) else plain

    @classmethod
    def from_list(cls, plain: list[Any]) -> Completion:
        """Return a completion from the data of `to_list`, marked as cached."""
        text, prompt_tokens, completion_tokens, latency_s, *rest = plain
        reasoning, *more = rest[0] if rest else ("",)
        counts = (prompt_tokens, completion_tokens, latency_s)
        return cls(whole_text(text), *counts, True, whole_text(reasoning), *more)


def estimate_tokens(text: str) -> int:
    """Return an upper estimate of a text's tokens, without its tokenizer: one for each started six
    letters of a word, two capitals, two letters of other alphabets, digit, blank before a number,
    or sign.
    """
    return len(_PIECES.findall(text))


def cut_at_stop(text: str, stop: tuple[str, ...]) -> str:
    """Return the text up to the first stop sequence, because not every server stops there."""
    return text[: min((at for at in map(text.find, stop) if at >= 0), default=len(text))]


def whole_text(text: str) -> str:
    """Return the text as valid Unicode: surrogate pairs joined, lone halves replaced by U+FFFD.

    JSON can carry lone halves, but they can't be sent or written.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


ROOM = 4
"""Factor on the tokens of a cut answer's second attempt."""


def with_room(begin: Begin) -> Begin:
    """Wrap `begin` so that a cut answer is requested once more with ROOM times the tokens.

    The completion is the second answer with the usage of both, or the first if the second call
    fails.
    """

    async def whole(request: Request, found: Completion | Awaitable[Completion]) -> Completion:
        first = found if isinstance(found, Completion) else await found
        if not first.cut:
            return first
        try:
            again = begin(roomier(request))
            more = again if isinstance(again, Completion) else await again
        except (CallFailed, NoAnswer):
            return first
        counts = ("prompt_tokens", "completion_tokens", "reasoning_tokens", "known_tokens")
        both = {name: getattr(first, name) + getattr(more, name) for name in counts}
        return replace(
            more,
            **both,
            latency_s=first.latency_s + more.latency_s,
            cached=first.cached and more.cached,
            estimated=first.estimated or more.estimated,
        )

    def roomy(request: Request) -> Completion | Awaitable[Completion]:
        found = begin(request)
        if isinstance(found, Completion) and not found.cut:
            return found
        return Deferred(partial(whole, request, found))

    return roomy


def roomier(request: Request) -> Request:
    """Return the request that repeats a cut answer with more room."""
    sampling = request.sampling
    return replace(request, sampling=replace(sampling, max_tokens=ROOM * sampling.max_tokens))


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens, dollars and calls of some work, cached or not; `spent_dollars` excludes cached calls.
    Sums with `+`.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    dollars: float = 0.0
    spent_dollars: float = 0.0
    calls: int = 0
    cached_calls: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.dollars + other.dollars,
            self.spent_dollars + other.spent_dollars,
            self.calls + other.calls,
            self.cached_calls + other.cached_calls,
        )


@dataclass(slots=True)
class OutgoingRequests:
    """HTTP requests of one call: `headers` carried by each (W3C trace context), and the numbers
    `begun` and `ended`.

    The others were abandoned, and are still billed. A context manager around each request.
    """

    headers: Mapping[str, str] = field(default_factory=dict)
    begun: int = 0
    ended: int = 0

    def __enter__(self) -> None:
        self.begun += 1

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self.ended += kind is None or issubclass(kind, Exception)  # not if it was cancelled

    def lost(self, tokens: tuple[int, int] | None = None) -> None:
        """Note that a failed attempt may be billed, for these tokens if known; ignored here."""


OUTGOING: ContextVar[OutgoingRequests | None] = ContextVar("outgoing", default=None)
"""Request counter of this task and its children, if the caller counts them."""


class Deferred(Awaitable[Completion]):
    """A call that begins when awaited, and leaves no coroutine behind if it never is."""

    def __init__(self, make: Callable[[], Awaitable[Completion]]) -> None:
        self._make = make

    def __await__(self) -> Generator[Any, None, Completion]:
        return self._make().__await__()


Begin = Callable[[Request], Completion | Awaitable[Completion]]
"""Function that returns a completion, or an awaitable for one."""


Piece = dict[str, Any]
"""One increment of an answer: {delta: {content}} of a text, {index, delta, logprobs} of a choice.
"""

OnPiece = Callable[[Piece], object]


class Client:
    """The one interface between ttsgraph and language models: engines, and wrappers (cache,
    recorder, meter).

    Subclasses define `complete`, or `begin` if an answer may be available immediately: that saves
    an event-loop task, which costs more than most answers from a cache or a simulation.
    """

    def begin(self, request: Request) -> Completion | Awaitable[Completion]:
        """Return the completion, or an awaitable for it. Raises like `complete`, here or when
        awaited.
        """
        return Deferred(partial(self.complete, request))

    async def complete(self, request: Request) -> Completion:
        """Answer one request. Raises CallFailed if all attempts failed."""
        found = self.begin(request)
        return found if isinstance(found, Completion) else await found

    async def stream(self, request: Request, on_piece: OnPiece) -> Completion:
        """Answer one request like `complete`; `on_piece` receives the text in pieces, or at the end
        as one.

        A request with a form may deliver no pieces. Raises CallFailed, possibly after pieces.
        """
        completion = await self.complete(request)
        if request.form is None:
            on_piece({"delta": {"content": completion.text}})
        return completion

    async def aclose(self) -> None:
        """Release connections; none by default."""


class Wrapper(Client):
    """Client that wraps another one, and closes it."""

    def __init__(self, inner: Client) -> None:
        self._inner = inner

    async def aclose(self) -> None:
        """Close the inner client."""
        await self._inner.aclose()


@dataclass(frozen=True, slots=True)
class AgentReply:
    """An agent model's completion and its price in dollars."""

    completion: Completion
    dollars: float


Chat = Callable[[Sequence[Message], str, str], AgentReply]
"""Function (messages, the answer's name, its JSON schema) -> reply that calls an agent's model."""


NEW_OBJECTS = 50_000
"""Number of new objects between two garbage collections, in place of Python's 700.

A collection visits the objects of all waiting calls and finds next to nothing: at 700 it took up to
a fifth of the client's CPU time, growing with the waiting calls (lab/benchmarks/growth.py).
"""


@contextmanager
def rare_collections() -> Iterator[None]:
    """Collect garbage less often while models are called, unless the collector is off."""
    before = gc.get_threshold()
    if before[0]:
        gc.set_threshold(max(NEW_OBJECTS, before[0]), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
