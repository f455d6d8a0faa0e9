"""Models behind OpenAI-compatible endpoints, through the `openai` package."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import openai
from openai import RequestOptions

from ttsgraph.base.errors import CallFailed, ContextOverflow, EndpointError, FormRefused
from ttsgraph.base.secrets import environment_secrets, redact
from ttsgraph.endpoints.answers import read_answer, read_answers, with_prompt
from ttsgraph.endpoints.choices import read_choice_stream, read_choices
from ttsgraph.endpoints.endpoints import (
    TRANSIENT,
    FailurePolicy,
    Fault,
    RetryBudget,
    Server,
    place,
    stop_if_given_up,
)
from ttsgraph.endpoints.learning import Learned, said_in
from ttsgraph.endpoints.posting import Poster
from ttsgraph.endpoints.streaming import read_stream
from ttsgraph.endpoints.transport import (
    MAX_BODY_BYTES,
    connect,
    fault_of,
    listed_by,
    reason_of,
)
from ttsgraph.endpoints.wire import Endpoint as Endpoint
from ttsgraph.endpoints.wire import body_of, probe
from ttsgraph.models.client import (
    CHARGE,
    OUTGOING,
    Charge,
    Client,
    Completion,
    Request,
    Sampling,
)
from ttsgraph.models.dialect import Dialect, Habits, habit_name

LONGEST_WAIT_S = 30.0
_UNLISTED = (403, 404, 405, 501)
"""How servers without a list of models, or with keys that may not see it, answer to /models."""


@dataclass(frozen=True, slots=True)
class Retries:
    """How often an attempt that may go better is made again, seconds before the first and per
    attempt.

    The wait doubles each time, is drawn at random below that (full jitter), and is never shorter
    than the server's retry-after. A `budget` bounds the further attempts of all calls together.
    """

    most: int = 8
    first_wait_s: float = 0.5
    timeout_s: float = 120
    budget: RetryBudget | None = None


AskServer = Callable[[Server, Request, float], Awaitable[Completion]]
"""One attempt at a server that started then (monotonic seconds)."""

Piece = TypeVar("Piece")
ReadStream = Callable[
    [AsyncIterator[Any], Sampling, float, Callable[[Piece], object]], Awaitable[Completion]
]
"""Reads the chunks of an attempt that started then, and hands each piece over as it comes."""

_REFUSED_FORM = (400, 422, 501)

DEFAULT_RETRIES = Retries()
DEFAULT_POLICY = FailurePolicy()
_NOTHING_MORE: Mapping[str, Any] = {}
_STREAMED: Mapping[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}


class OpenAIClient(Client):
    """Chat completions for a pool of models. Each attempt goes to the model's least busy replica
    that works.

    Retries are made here and nowhere else: the `openai` package, which would retry some faults and
    not others, makes one attempt at a time. What still fails raises CallFailed; a prompt that the
    model can't hold ContextOverflow; RunStopped is raised when a model has no server left that
    works, or too many calls failed (`FailurePolicy`).
    """

    def __init__(
        self,
        endpoints: Mapping[str, Endpoint],
        retries: Retries = DEFAULT_RETRIES,
        policy: FailurePolicy = DEFAULT_POLICY,
        habits: Habits | None = None,
    ) -> None:
        self._habits = habits or Habits()
        self._learned = dict[tuple[str, str | None, str | None], Learned]()
        self._options = {name: endpoint.options() for name, endpoint in endpoints.items()}
        self._endpoints = dict(endpoints)
        self._retries = retries
        self._secrets = environment_secrets()
        self._clients: dict[str, openai.AsyncOpenAI] = {}
        self._servers: dict[str, Server] = {}
        for endpoint in self._endpoints.values():
            for url in endpoint.base_urls:
                if url not in self._clients:
                    self._clients[url] = connect(url, endpoint.api_key(), retries.timeout_s)
                    self._servers[url] = Server(url, policy)
        self._posters = {
            (url, name): Poster(
                self._clients[url], "/chat/completions", self._options[name], MAX_BODY_BYTES
            )
            for name, endpoint in endpoints.items()
            for url in endpoint.base_urls
        }
        self._replicas = {
            name: [self._servers[url] for url in endpoint.base_urls]
            for name, endpoint in endpoints.items()
        }

    async def check(self) -> None:
        """Ask every endpoint for its models, and where it lists none each model for an answer.

        Raises EndpointError when an endpoint refuses the key, or does not have a model of the pool.
        """
        lists: dict[tuple[str, str | None], set[str] | None] = {}
        for name, endpoint in self._endpoints.items():
            for url in endpoint.base_urls if endpoint.lists_models else ():
                at = (url, endpoint.api_key_env)
                if at not in lists:
                    lists[at] = await self.listed(url, name)
                if (served := lists[at]) is None:
                    await self._require(name, url)
                elif not {endpoint.served_as, f"{endpoint.served_as}:latest"} & served:
                    raise EndpointError(
                        f"{url}: expected model {endpoint.served_as!r} (pool name {name!r}), "
                        f"but the server has {', '.join(sorted(served)) or 'none'}"
                    )

    async def _require(self, name: str, url: str) -> None:
        """Raises EndpointError when the server there does not know the model, or refuses its key or
        the request.
        """
        try:
            async with asyncio.timeout(self._retries.timeout_s):
                await self.once(url, probe(name))
        except openai.APIStatusError as error:
            if 400 <= error.status_code < 500 and error.status_code not in TRANSIENT:
                said = f" ({words})" if (words := said_in(error, self._secrets)) else ""
                raise EndpointError(
                    f"{url}: expected model {self._endpoints[name].served_as!r} (pool name"
                    f" {name!r}) to answer, found HTTP {error.status_code}{said}"
                ) from None
        except Exception:
            pass  # which calls meet again, and know what to do

    async def listed(self, url: str, model: str) -> set[str] | None:
        """The names that the endpoint lists to this model's key; None where it lists none. Raises
        EndpointError as `check`.
        """
        asking = self._clients[url].with_options(max_retries=min(self._retries.most, 3))
        options = self._options[model]
        try:
            async with asyncio.timeout(self._retries.timeout_s):
                headers = options.get("headers", {})
                return set(map(redact, await listed_by(asking, headers, options.get("params", {}))))
        except Exception as error:  # whatever a server that is none of models makes of it
            if isinstance(error, openai.APIStatusError) and error.status_code in _UNLISTED:
                return None
            raise EndpointError(f"{url}: {_why_unlisted(error)}") from None

    async def once(self, url: str, request: Request) -> Completion:
        """One attempt at one base URL. Raises what comes of it as the `openai` package does, and
        Fault for an odd answer.
        """
        return await self._ask(self._servers[url], request, time.monotonic())

    def manner(self, request: Request) -> Dialect:
        """How a request like this one is asked, as far as it is known by now."""
        return self._how(request).dialect

    def keep(self, request: Request) -> None:
        """Keep how such a request is asked, also where nothing is left out."""
        how = self._how(request)
        how.keep(how.dialect)

    async def complete(self, request: Request) -> Completion:
        """Answer one request; `latency_s` is the time the server took for the attempt that
        succeeded.
        """
        return await self._answer(request, self._ask)

    def draws(self, request: Request) -> bool:
        """Whether the endpoint may be asked for several draws at once: not where each has a seed,
        and not once it refused.
        """
        return (
            not self._endpoints[request.model].seeds
            and "n" not in self._how(request).dialect.left_out
        )

    async def several(self, request: Request, count: int) -> list[Completion]:
        """Up to `count` draws of one request, at least one, with the latency of them all. Raises as
        `complete`.
        """
        found: list[Completion] = []

        async def ask(server: Server, request: Request, started: float) -> Completion:
            body, started = await self._body(server, request, started, {"n": count})
            found[:], choices = read_answers(body, time.monotonic() - started, request.sampling)
            if choices == 1 and "n" not in (how := self._how(request)).dialect.left_out:
                how.leave_out("n")  # ignored
            found[:] = [with_prompt(each, request.messages) for each in found]
            return found[0]

        await self._answer(request, ask)
        return [self._redacted(completion) for completion in found[:count]]

    async def stream(self, request: Request, on_text: Callable[[str], None]) -> Completion:
        """As `complete`, and hands the text over while it is written; a fault after that is not
        mended by another attempt.
        """
        return await self._streamed(request, read_stream, on_text)

    async def stream_choices(
        self, request: Request, on_piece: Callable[[dict[str, Any]], None]
    ) -> Completion:
        """As `stream`, for a request with a form."""
        return await self._streamed(request, read_choice_stream, on_piece)

    async def _streamed(
        self, request: Request, read: ReadStream[Piece], on_piece: Callable[[Piece], None]
    ) -> Completion:
        handed = False

        def hand_over(piece: Piece) -> None:
            nonlocal handed
            handed = True
            on_piece(piece)

        async def ask(server: Server, request: Request, started: float) -> Completion:
            async def post(body: dict[str, Any]) -> openai.AsyncStream[object]:
                nonlocal started
                started = time.monotonic()
                return await self._clients[server.url].post(
                    "/chat/completions",
                    cast_to=object,
                    body=body,
                    options=_carrying(self._options[request.model]),
                    stream=True,
                    stream_cls=openai.AsyncStream[object],
                )

            endpoint = self._endpoints[request.model]
            chunks = await self._how(request).send(
                lambda dialect: body_of(endpoint, request, dialect, _STREAMED), post
            )
            async with chunks:
                found = await read(chunks, request.sampling, started, hand_over)
                return with_prompt(found, request.messages)

        return await self._answer(request, ask, lambda: not handed)

    async def _answer(
        self, request: Request, ask: AskServer, again: Callable[[], bool] = lambda: True
    ) -> Completion:
        """Attempts until one succeeds, as long as there may be another."""
        servers = self._replicas[request.model]
        how = self._how(request)
        used = servers[0]

        async def attempt() -> Completion:
            nonlocal used
            if how.settled:  # as it mostly is: then there is no turn to wait for
                used = await place(servers)
                return await self._attempt(used, request, ask)
            async with how.turn():
                used = await place(servers)
                return await self._attempt(used, request, ask)

        attempts = _Attempts(self._retries, used.policy)
        try:
            while True:
                try:
                    completion = await attempt()
                    break
                except Fault as fault:
                    if not (fault.retry and again()) or attempts.over(fault):
                        raise
                    await asyncio.sleep(attempts.wait_s(fault))
        except Fault as fault:
            stop_if_given_up(servers)
            used.finish(fault)
            said = f" ({fault.said})" if fault.said else ""
            failed = f"{request.model} at {used.url}: {fault.kind}{said}"
            if fault.status in _REFUSED_FORM and request.wishes:
                raise FormRefused(failed, fault.said) from None
            raise CallFailed(failed) from fault
        used.finish(None)
        return self._redacted(completion)

    def _redacted(self, completion: Completion) -> Completion:
        text = redact(completion.text, self._secrets)
        reasoning = redact(completion.reasoning, self._secrets)
        choices = redact(completion.choices, self._secrets)
        if (text, reasoning, choices) == (
            completion.text,
            completion.reasoning,
            completion.choices,
        ):
            return completion
        return replace(completion, text=text, reasoning=reasoning, choices=choices)

    async def _attempt(self, server: Server, request: Request, ask: AskServer) -> Completion:
        """One attempt on a place that is held; the place is given back."""
        started = time.monotonic()
        charge = CHARGE.get(None) or Charge()
        charge.sent = True
        try:
            # A limit on the whole attempt: one per read would wait for ever on a server that sends
            # a byte now and then.
            async with asyncio.timeout(self._retries.timeout_s):
                with OUTGOING.get() or nullcontext():
                    completion = await ask(server, request, started)
        except Exception as error:  # whatever an answer makes of those who read it
            fault = self._fault_of(error, server, request)
            fault.said = said_in(error, self._secrets)
            server.failed(fault, started)
            charge.sent = False
            if fault.charged:
                charge.lost(fault.tokens)
            raise fault from None
        else:
            server.succeeded()
            return completion
        finally:
            server.release()

    def _fault_of(self, error: Exception, server: Server, request: Request) -> Fault:
        try:
            return fault_of(error, f"{request.model} at {server.url}")
        except ContextOverflow:
            server.succeeded()
            raise

    async def _ask(self, server: Server, request: Request, started: float) -> Completion:
        body, started = await self._body(server, request, started, _NOTHING_MORE)
        read = read_answer if request.form is None else read_choices
        return with_prompt(
            read(body, time.monotonic() - started, request.sampling), request.messages
        )

    async def _body(
        self, server: Server, request: Request, started: float, more: Mapping[str, Any]
    ) -> tuple[bytes, float]:
        """The body of a server's answer, and when it was asked for that."""
        endpoint = self._endpoints[request.model]
        poster = self._posters[server.url, request.model]

        async def post(body: dict[str, Any]) -> bytes:
            nonlocal started
            started = time.monotonic()  # what was refused before is no part of an answer's latency
            return await poster.post(body)

        answer = await self._how(request).send(
            lambda dialect: body_of(endpoint, request, dialect, more), post
        )
        return answer, started

    def _how(self, request: Request) -> Learned:
        """How the request's model wants to be asked: what reasons more or less may take other
        parameters.
        """
        sampling = request.sampling
        endpoint = self._endpoints[request.model]
        manner = (request.model, sampling.reasoning_effort, sampling.extra_body)
        if manner not in self._learned:
            name = habit_name(endpoint.base_urls[0], endpoint.served_as, sampling)
            known = self._habits.get(name)
            dialect = endpoint.dialect if known is None else endpoint.dialect.joined(known)
            where = f"{request.model} at {endpoint.base_urls[0]}"
            keep = Habits().keeper(name) if endpoint.local else self._habits.keeper(name)
            self._learned[manner] = Learned(where, dialect, keep, known is not None)
        return self._learned[manner]

    async def aclose(self) -> None:
        """Close all connections."""
        for client in self._clients.values():
            await client.close()


def _why_unlisted(error: Exception) -> str:
    """What was expected of an endpoint's list of models, and what came."""
    if isinstance(error, openai.APIError) and not isinstance(error, openai.APIStatusError):
        advice = "start it, or correct base_url; `ttsgraph doctor` lists all that is missing"
        return f"expected an OpenAI-compatible server, but {reason_of(error)}; {advice}"
    found = "found something else"
    if isinstance(error, openai.APIStatusError):
        found = f"found HTTP {error.status_code}"
    elif isinstance(error, TimeoutError):
        found = "but it timed out"
    return f"expected a list of models from /models, {found}"


def _carrying(options: RequestOptions) -> RequestOptions:
    """These options with the headers that the call's requests carry."""
    out = OUTGOING.get()
    if out is None or not out.headers:
        return options
    return {**options, "headers": {**options.get("headers", {}), **out.headers}}


class _Attempts:
    """When one call has been attempted often enough, and how long it waits before it is again.

    A server that is being started again refuses connections for as long as that takes: those
    attempts are no fault of the call, and end with the time that a server may be down.
    """

    def __init__(self, retries: Retries, policy: FailurePolicy) -> None:
        self._retries = retries
        self._policy = policy
        self._made = 0
        self._failed = 0
        self._since = 0.0

    def over(self, fault: Fault) -> bool:
        """Whether a call that failed so is not attempted again."""
        self._made += 1
        now = time.monotonic()
        if self._policy.waits and fault.unreached:
            self._since = self._since or now
            return now - self._since > self._policy.down_s
        self._since = 0.0
        self._failed += 1
        if self._failed > self._retries.most:
            return True
        budget = self._retries.budget
        return budget is not None and not budget.take()

    def wait_s(self, fault: Fault) -> float:
        """Seconds before another attempt: what the server asks for, and a random time on top whose
        bound doubles (full jitter).
        """
        most = min(LONGEST_WAIT_S, self._retries.first_wait_s * 2.0 ** min(self._made - 1, 60))
        return (fault.retry_after_s or 0.0) + random.uniform(0.0, most)
