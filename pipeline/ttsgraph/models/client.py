"""What a model call is: request, completion, usage, and the one protocol every client follows."""

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
    """One chat message; `role` is system, user, assistant or tool. `whole` is it as JSON, and sent
    so, where it is more than a text (calls of tools, a tool's result); `content` is the text in it.
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
    """How a completion is drawn; part of a call's identity. Without a temperature it is the
    endpoint's. `reasoning_effort`, `extra_body` (JSON) and `left_out` (parameters) are part of it
    only if set.
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
        """Whether the same call has the same answer, the likeliest token each time."""
        return self.temperature == 0 and "temperature" not in self.left_out

    def to_dict(self) -> dict[str, Any]:
        """As plain data, without what few calls set where it is not set."""
        return {name: value for name, value in asdict(self).items() if value or name not in _SELDOM}


@dataclass(frozen=True, slots=True)
class Request:
    """One model call. `replica` tells apart the k identical calls of k parallel nodes. `schema` is
    the answer's JSON schema, with its name. `form` are parameters of the body, as JSON, for another
    form than one text (tools, response_format, n, logprobs); the completion then has `choices`.
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
        """Whether it asks for more than a text as the answer to texts."""
        return self.form is not None or any(message.whole for message in self.messages)

    def key(self) -> str:
        """The call's content key: SHA-256 over everything that shapes the answer's distribution,
        and the replica. Texts stand with their lengths, so that no two requests read alike.
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
    """The part of a key that most calls of a run share: making it costs more than hashing it."""
    return json.dumps([model, revision, sampling.to_dict(), schema])


@dataclass(frozen=True, slots=True)
class Completion:
    """What came back. `latency_s` is as measured when the call was made, also from a cache.

    `reasoning` is what the model thought first, in `reasoning_tokens` of the completion's;
    `known_tokens` of the prompt's were in the endpoint's cache. `choices` (JSON, see
    `ttsgraph.models.actions`) answer a form; `text` is what of the first can be counted. `cut`: the
    bound on tokens stopped it; `estimated`: tokens were counted here, as the endpoint told none.
    `refused`: there is none, and a store has the PromptRefused's words as its text.
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
        """As plain data for a store, the last part only where there is any of it."""
        plain = [self.text, self.prompt_tokens, self.completion_tokens, self.latency_s]
        more = [self.reasoning, self.reasoning_tokens, self.known_tokens]
        more += [self.choices, self.cut, self.estimated, self.refused]
        while len(more) > 3 and not more[-1]:
            more.pop()
        return [*plain, more] if any(more) else plain

    @classmethod
    def from_list(cls, plain: list[Any]) -> Completion:
        """What `to_list` made, as it comes from a store."""
        text, prompt_tokens, completion_tokens, latency_s, *rest = plain
        reasoning, *more = rest[0] if rest else ("",)
        counts = (prompt_tokens, completion_tokens, latency_s)
        return cls(whole_text(text), *counts, True, whole_text(reasoning), *more)


def estimate_tokens(text: str) -> int:
    """Return tokens of a text without its tokenizer, rather too many: one for each six letters of a
    word begun, two capitals, two letters of other alphabets, digit, blank before a number, sign.
    """
    return len(_PIECES.findall(text))


def cut_at_stop(text: str, stop: tuple[str, ...]) -> str:
    """The text up to the first stop sequence: not every server stops there."""
    return text[: min((at for at in map(text.find, stop) if at >= 0), default=len(text))]


def whole_text(text: str) -> str:
    """The text as valid Unicode: halves of a surrogate pair joined, and U+FFFD in place of a half
    that stands alone. JSON can carry such a half, and nothing that is sent or written can.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


ROOM = 4
"""A cut answer is asked for once more, with so many times the tokens."""


def with_room(begin: Begin) -> Begin:
    """Asks once more, with ROOM times the tokens, for an answer that was cut: the completion is the
    second, with what both took; or the first where that can't be made.
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
    """The request that asks once more for an answer that was cut."""
    sampling = request.sampling
    return replace(request, sampling=replace(sampling, max_tokens=ROOM * sampling.max_tokens))


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens, dollars and calls of some work, cached or not but for `spent_dollars`; adds up with
    `+`.
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
class Outgoing:
    """The requests that one call makes: the headers that each carries (W3C trace context), and how
    many were `begun` and `ended`. The rest was given up, and is billed all the same. A context
    manager around each request.
    """

    headers: Mapping[str, str] = field(default_factory=dict)
    begun: int = 0
    ended: int = 0

    def __enter__(self) -> None:
        self.begun += 1

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self.ended += kind is None or issubclass(kind, Exception)  # a cancellation is neither

    def lost(self, tokens: tuple[int, int] | None = None) -> None:
        """A failed attempt may be charged for, by so many tokens if known; here nobody counts."""


OUTGOING: ContextVar[Outgoing | None] = ContextVar("outgoing", default=None)
"""Whose requests those are that this task and its children make, if somebody counts them."""


class Deferred(Awaitable[Completion]):
    """A call that begins when it is awaited, and leaves no coroutine behind if it never is."""

    def __init__(self, make: Callable[[], Awaitable[Completion]]) -> None:
        self._make = make

    def __await__(self) -> Generator[Any, None, Completion]:
        return self._make().__await__()


Begin = Callable[[Request], Completion | Awaitable[Completion]]
"""A way to a completion that may be there at once."""


Piece = dict[str, Any]
"""What an answer grows by: {delta: {content}} of a text, {index, delta, logprobs} of a choice."""

OnPiece = Callable[[Piece], object]


class Client:
    """The one seam between ttsgraph and a language model: who answers, and who stands before (a
    cache, a recorder, a meter). Who inherits writes `complete`, or `begin` where an answer may be
    there at once: that spares a task of the event loop, which costs more than most answers from a
    cache or a simulation.
    """

    def begin(self, request: Request) -> Completion | Awaitable[Completion]:
        """The completion, or what to await for it. Raises as `complete`, here or when awaited."""
        return Deferred(partial(self.complete, request))

    async def complete(self, request: Request) -> Completion:
        """Answer one request. Raises CallFailed when that failed for good."""
        found = self.begin(request)
        return found if isinstance(found, Completion) else await found

    async def stream(self, request: Request, on_piece: OnPiece) -> Completion:
        """As `complete`; `on_piece` gets the text as it is written, or else whole; of a request
        with a form nothing, where choices come at once. Raises CallFailed, perhaps after pieces.
        """
        completion = await self.complete(request)
        if request.form is None:
            on_piece({"delta": {"content": completion.text}})
        return completion

    async def aclose(self) -> None:
        """Release connections; here there are none."""


class Wrapper(Client):
    """A client that stands before another one, and closes it."""

    def __init__(self, inner: Client) -> None:
        self._inner = inner

    async def aclose(self) -> None:
        """Close the inner client."""
        await self._inner.aclose()


@dataclass(frozen=True, slots=True)
class AgentReply:
    """An agent model's completion, and its price in dollars."""

    completion: Completion
    dollars: float


Chat = Callable[[Sequence[Message], str, str], AgentReply]
"""(messages, the answer's name, its JSON schema) -> reply: how an agent reaches its model."""


NEW_OBJECTS = 50_000
"""New objects between two looks for garbage, instead of Python's 700.

A look goes through the objects of all waiting calls and finds next to nothing: with 700 it took up
to a fifth of the client's core time, the more the more calls waited (lab/benchmarks/growth.py).
"""


@contextmanager
def rare_collections() -> Iterator[None]:
    """Look for garbage seldom while models are asked, unless the collector is off."""
    before = gc.get_threshold()
    if before[0]:
        gc.set_threshold(max(NEW_OBJECTS, before[0]), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
