"""Protocol of model clients: requests, completions and usage."""

from __future__ import annotations

import gc
import hashlib
import json
import operator
import re
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple

from ttsgraph.base.errors import CallFailed, NoAnswer


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message; `role` is system, user, assistant or tool.

    `whole` is the JSON of a message with more than text (tool calls, a tool's result), which is
    sent in place of `content`; `content` is then the text within it.
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
        """True if the likeliest token is always taken, so a repeated call should get the same
        answer.
        """
        return self.temperature == 0 and "temperature" not in self.left_out


@dataclass(frozen=True, slots=True)
class Request:
    """One model call.

    `replica` distinguishes the k identical calls of k parallel nodes. `schema` is the name and the
    JSON schema of the answer. `form` holds body parameters, as JSON, for answers other than one
    text (tools, response_format); the completion then has a `choice`.
    """

    model: str
    revision: str
    messages: tuple[Message, ...]
    sampling: Sampling
    replica: int = 0
    schema: tuple[str, str] | None = None
    form: str | None = None
    _key: str = field(default="", init=False, compare=False, repr=False)

    def key(self) -> str:
        """Return the call's content key: a SHA-256 over everything that determines the distribution
        of the answer, and over the replica.

        Each string is preceded by its length, so different requests never give the same text to
        hash.
        """
        if self._key:  # the cache, a simulation and a seed ask for it
            return self._key
        head = _key_head(self.model, self.revision, self.sampling, self.schema)
        text = f"{head}\n{self.replica}"
        if self.form is not None:
            text += f"\nform\n{len(self.form)}\n{self.form}"
        for message in self.messages:
            role, content = message.role, message.content
            text += f"\n{len(role)}\n{role}\n{len(content)}\n{content}"
            if message.whole is not None:
                text += f"\nwhole\n{len(message.whole)}\n{message.whole}"
        key = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        object.__setattr__(self, "_key", key)
        return key


@lru_cache(maxsize=1024)
def _key_head(model: str, revision: str, sampling: Sampling, schema: tuple[str, str] | None) -> str:
    """Return the part of the key that most calls of a run share; building it costs more than
    hashing. Rarely used parameters are omitted unless they are set.
    """
    used = {n: value for n, value in asdict(sampling).items() if value or n not in _SELDOM}
    return json.dumps([model, revision, used, schema])


@dataclass(frozen=True, slots=True)
class Completion:
    """A model's answer.

    `latency_s` is the latency measured when the call was made, even if the completion comes from a
    cache. `reasoning` is the text of the reasoning before the answer; `reasoning_tokens` is its
    share of `completion_tokens`. `known_tokens` is the number of prompt tokens that were in the
    endpoint's cache. `choice` (JSON, see `ttsgraph.models.actions`) answers a request with a form;
    `text` is then its text. `cut`: the token bound stopped the answer.
    `estimated`: the endpoint reported no token counts. `refused`: there is no answer, and `text` is
    the message of a PromptRefused.
    """

    text: str
    prompt_tokens: int
    completion_tokens: int
    latency_s: float
    cached: bool = field(default=False, compare=False)
    reasoning: str = ""
    reasoning_tokens: int = 0
    known_tokens: int = 0
    choice: str = ""
    cut: bool = False
    estimated: bool = False
    refused: bool = False

    def to_list(self) -> list[Any]:
        """Return plain data for a store."""
        more = [self.reasoning, self.reasoning_tokens, self.known_tokens]
        more += [self.choice, self.cut, self.estimated, self.refused]
        return [self.text, self.prompt_tokens, self.completion_tokens, self.latency_s, more]

    @classmethod
    def from_list(cls, plain: list[Any]) -> Completion:
        """Return a completion from the data of `to_list`, marked as cached; older stores omitted
        trailing values.
        """
        text, read, written, latency_s, *rest = plain
        reasoning, *more = rest[0] if rest else ("",)
        return cls(whole_text(text), read, written, latency_s, True, whole_text(reasoning), *more)


def estimate_tokens(text: str) -> int:
    """Return a high estimate of the number of tokens in a text, without its tokenizer.

    Each of these counts as one token: up to six letters of a word, up to two capitals, up to two
    letters of another alphabet, any other letter, a digit, a space before a digit, and a symbol.
    """
    return len(_PIECES.findall(text))


def cut_at_stop(text: str, stop: tuple[str, ...]) -> str:
    """Return the text up to the first stop sequence; not every server cuts it there."""
    found = [at for at in map(text.find, stop) if at >= 0] if stop else ()
    return text[: min(found)] if found else text


def whole_text(text: str) -> str:
    """Return the text as valid Unicode: surrogate pairs are joined, and lone surrogates are
    replaced with U+FFFD.

    JSON can contain lone surrogates, but they can't be sent or written.
    """
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


_ADDED = ("prompt_tokens", "completion_tokens", "reasoning_tokens", "known_tokens", "latency_s")
"""Counts of a completion that add up over two calls."""

ROOM = 4
"""Factor on the token bound when a cut answer is requested again."""


def with_room(begin: Begin) -> Begin:
    """Wrap `begin` so that a cut answer is requested once more with ROOM times the tokens.

    The completion is the second answer with the usage of both calls, or the first answer if the
    second call fails.
    """

    async def whole(request: Request, found: Completion | Awaitable[Completion]) -> Completion:
        first = found if isinstance(found, Completion) else await found
        if not first.cut:
            return first
        try:
            found = begin(roomier(request))
            more = found if isinstance(found, Completion) else await found
        except (CallFailed, NoAnswer):
            return first
        both: dict[str, Any] = {name: getattr(first, name) + getattr(more, name) for name in _ADDED}
        cached, estimated = first.cached and more.cached, first.estimated or more.estimated
        return replace(more, **both, cached=cached, estimated=estimated)

    def roomy(request: Request) -> Completion | Awaitable[Completion]:
        found = begin(request)
        if isinstance(found, Completion) and not found.cut:
            return found
        return Deferred(partial(whole, request, found))

    return roomy


def roomier(request: Request) -> Request:
    """Return the request that repeats a cut answer with ROOM times the token bound."""
    sampling = request.sampling
    return replace(request, sampling=replace(sampling, max_tokens=ROOM * sampling.max_tokens))


class Usage(NamedTuple):
    """Tokens, dollars and number of calls, cached or not; `spent_dollars` excludes cached calls.
    Two usages are added with `+`.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    dollars: float = 0.0
    spent_dollars: float = 0.0
    calls: int = 0
    cached_calls: int = 0

    def __add__(self, other: Usage) -> Usage:  # type: ignore[override]
        return Usage(*map(operator.add, self, other))


@dataclass(slots=True)
class OutgoingRequests:
    """HTTP requests of one call: the `headers` that each request carries (W3C trace context), and
    how many requests were `begun` and `ended`.

    Requests that began but did not end were abandoned, and are still billed. `lost` handles a
    failed attempt that may be billed, given the billed tokens, if they are known.
    """

    headers: dict[str, str] = field(default_factory=dict)
    begun: int = 0
    ended: int = 0
    lost: Callable[[tuple[int, int] | None], None] = lambda tokens: None


_UNCOUNTED = OutgoingRequests()

OUTGOING: ContextVar[OutgoingRequests] = ContextVar("outgoing", default=_UNCOUNTED)
"""Outgoing requests of the current call, for its asyncio task and that task's children. All calls
whose caller doesn't count requests share one object.
"""


@dataclass(frozen=True, slots=True)
class Deferred:
    """Call that begins when it is awaited, and leaves no coroutine behind if it never is; `make`
    begins it.
    """

    make: Callable[[], Awaitable[Completion]]

    def __await__(self) -> Generator[Any, None, Completion]:
        return self.make().__await__()


Begin = Callable[[Request], Completion | Awaitable[Completion]]
"""Function that returns a completion, or an awaitable for one."""


Piece = dict[str, Any]
"""Increment of an answer: {delta: {content}}, with tool calls in the delta of a choice."""

OnPiece = Callable[[Piece], object]


class Client:
    """Interface between ttsgraph and language models, implemented by engines and by wrappers
    (cache, recorder, meter).

    Subclasses define `complete`, or `begin` if an answer may be available immediately: `begin`
    saves an event-loop task, which costs more than most answers from a cache or a simulation.
    """

    def begin(self, request: Request) -> Completion | Awaitable[Completion]:
        """Return the completion, or an awaitable for it. Raises the errors of `complete`, here or
        when awaited.
        """
        return Deferred(partial(self.complete, request))

    async def complete(self, request: Request) -> Completion:
        """Answer one request. Raises CallFailed if all attempts failed."""
        found = self.begin(request)
        return found if isinstance(found, Completion) else await found

    async def stream(self, request: Request, on_piece: OnPiece) -> Completion:
        """Answer one request like `complete`; `on_piece` receives the text in pieces, or as a whole
        at the end.

        A request with a form may deliver no pieces. Raises CallFailed if all attempts failed,
        possibly after some pieces were delivered.
        """
        completion = await self.complete(request)
        if request.form is None:
            on_piece({"delta": {"content": completion.text}})
        return completion

    async def aclose(self) -> None:
        """Release connections; do nothing by default."""


Chat = Callable[[Sequence[Message], str, str], tuple[Completion, float]]
"""Function that calls an agent's model. Its arguments are the messages, and the name and the JSON
schema of the answer; it returns the completion and its price in dollars.
"""


NEW_OBJECTS = 50_000
"""Number of new objects between two garbage collections, in place of Python's 700.

A collection visits the objects of all waiting calls and finds almost no garbage. With 700,
collections took up to a fifth of the client's CPU time, a share that grew with the number of
waiting calls (lab/benchmarks/growth.py).
"""


@contextmanager
def rare_collections() -> Iterator[None]:
    """Collect garbage less often while models are called, unless the collector is disabled."""
    before = gc.get_threshold()
    if before[0]:
        gc.set_threshold(max(NEW_OBJECTS, before[0]), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
