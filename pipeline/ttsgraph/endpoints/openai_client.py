"""Models behind OpenAI-compatible endpoints, through the `openai` package."""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import openai
from openai import RequestOptions

from ttsgraph.base.errors import (
    REFUSED,
    CallFailed,
    ContextOverflow,
    EndpointError,
    FormRefused,
    PromptRefused,
)
from ttsgraph.base.secrets import environment_secrets, key_problem, redact
from ttsgraph.endpoints.answers import (
    read_answer,
    read_choice_stream,
    read_choices,
    read_stream,
    with_prompt,
)
from ttsgraph.endpoints.endpoints import (
    TRANSIENT,
    FailurePolicy,
    Fault,
    Replicas,
    RetryBudget,
    Server,
)
from ttsgraph.endpoints.learning import Learned, said_in
from ttsgraph.endpoints.transport import Poster, connect, fault_of, listed_by, reason_of, refuses
from ttsgraph.models.client import (
    CHARGE,
    OUTGOING,
    Charge,
    Client,
    Completion,
    Message,
    OnPiece,
    Piece,
    Request,
    Sampling,
)
from ttsgraph.models.dialect import ANY, Dialect, Habits, habit_name

LONGEST_WAIT_S = 30.0
_UNLISTED = (403, 404, 405, 501)
"""How servers without a list of models, or with keys that may not see it, answer to /models."""

_REFUSED_FORM = (400, 422, 501)
_PATH = "/chat/completions"
_NOTHING_MORE: Mapping[str, Any] = {}
_STREAMED: Mapping[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where one model is served, and under which name.

    `api_key_env` is the variable with the key, `key_header` its header if unusual; several base
    URLs are replicas. `seeds` says whether requests may carry a seed, `lists_models` whether
    /models can be asked; `query` and `extra_body` (JSON) are added to URLs and bodies. What a
    `local` server takes is not kept: its port is another's next.
    """

    base_urls: tuple[str, ...]
    served_as: str
    api_key_env: str | None = None
    seeds: bool = False
    lists_models: bool = True
    dialect: Dialect = ANY
    key_header: str | None = None
    query: tuple[tuple[str, str], ...] = ()
    extra_body: str | None = None
    local: bool = False

    def options(self) -> RequestOptions:
        """What requests of this model add: its key and query. Raises as `api_key`."""
        key = self.api_key()
        headers: dict[str, str | openai.Omit] = {"Authorization": f"Bearer {key}"}
        if self.key_header is not None:
            headers = {"Authorization": openai.Omit(), self.key_header: key}
        return {"headers": headers, "params": dict(self.query)}

    def api_key(self) -> str:
        """The key, or a placeholder. Raises EndpointError for one not set or not sendable."""
        if self.api_key_env is None:
            return "none"
        key = os.environ.get(self.api_key_env, "").strip()
        if not key:
            raise EndpointError(
                f"{self.base_urls[0]}: expected a key in the environment variable"
                f" {self.api_key_env}, which is not set"
            )
        if problem := key_problem(key):
            raise EndpointError(
                f"{self.base_urls[0]}: the key in the environment variable {self.api_key_env}:"
                f" {problem}"
            )
        return key

    def body(
        self, request: Request, dialect: Dialect, more: Mapping[str, Any] = _NOTHING_MORE
    ) -> dict[str, Any]:
        """A request's body, as far as it is known what is taken, with `more` in it."""
        sampling = request.sampling
        parameters = {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "stop": list(sampling.stop) or None,
            "reasoning_effort": sampling.reasoning_effort,
            # From the content key, so that a lost cache comes back the same where the server can
            # repeat itself.
            "seed": int(request.key()[:8], 16) if self.seeds else None,
            **more,
        }
        wanted = ((name, value) for name, value in parameters.items() if value is not None)
        sent = {name: value for name, value in wanted if name not in sampling.left_out}
        spoken = dialect.body(request.messages, sampling.max_tokens, sent)
        body = {"model": self.served_as, **spoken}
        # The form is somebody's wish: what the endpoint does not take of it is refused, not left
        # out.
        for extra in (self.extra_body, sampling.extra_body, request.form):
            body |= json.loads(extra) if extra else {}
        return body


def probe(model: str) -> Request:
    """A short question to a model, with nothing that a server might refuse."""
    sampling = Sampling(None, max_tokens=16, left_out=("top_p", "seed"))
    return Request(model, "probe", (Message("user", "Say OK."),), sampling)


@dataclass(frozen=True, slots=True)
class Retries:
    """How often an attempt is made again, seconds before the first and per attempt. The wait
    doubles, is drawn below that (full jitter), and is never shorter than the server's retry-after;
    a `budget` bounds all calls together.
    """

    most: int = 8
    first_wait_s: float = 0.5
    timeout_s: float = 120
    budget: RetryBudget | None = None


AskServer = Callable[[Server, Request], Awaitable[Completion]]
"""One attempt at a server."""

DEFAULT_RETRIES = Retries()
DEFAULT_POLICY = FailurePolicy()


class OpenAIClient(Client):
    """Chat completions for a pool of models, each attempt at the least busy replica that works.
    Retries are made here alone: the `openai` package makes one attempt at a time. Raises CallFailed
    for what still fails, ContextOverflow for a prompt that the model can't hold, PromptRefused for
    one that a filter or policy refuses, RunStopped when a model has no server left that works, or
    too many calls failed (`FailurePolicy`).
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
        self._endpoints = dict(endpoints)
        self._options = {name: endpoint.options() for name, endpoint in endpoints.items()}
        self._retries = retries
        self._secrets = environment_secrets()
        self._clients: dict[str, openai.AsyncOpenAI] = {}
        self._servers: dict[str, Server] = {}
        self._posters: dict[tuple[str, str], Poster] = {}
        self._replicas: dict[tuple[str, ...], Replicas] = {}
        changed = asyncio.Event()
        for name, endpoint in endpoints.items():
            for url in endpoint.base_urls:
                if url not in self._clients:
                    self._clients[url] = connect(url, endpoint.api_key(), retries.timeout_s)
                    self._servers[url] = Server(url, policy, changed)
                self._posters[url, name] = Poster(self._clients[url], _PATH, self._options[name])
            servers = tuple(self._servers[url] for url in endpoint.base_urls)
            self._replicas.setdefault(endpoint.base_urls, Replicas(servers))

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
        """Raises EndpointError when the server there can't or won't serve the model."""
        try:
            async with asyncio.timeout(self._retries.timeout_s):
                await self.once(url, probe(name))
        except openai.APIStatusError as error:
            status = error.status_code
            if 400 <= status < 500 and status not in TRANSIENT and not refuses(error):
                said = f" ({words})" if (words := said_in(error, self._secrets)) else ""
                raise EndpointError(
                    f"{url}: expected model {self._endpoints[name].served_as!r} (pool name"
                    f" {name!r}) to answer, found HTTP {status}{said}"
                ) from None
        except Exception:
            pass  # which calls meet again, and know what to do

    async def listed(self, url: str, model: str) -> set[str] | None:
        """The names listed to this model's key; None without a list. Raises as `check`."""
        asking = self._clients[url].with_options(max_retries=min(self._retries.most, 3))
        try:
            async with asyncio.timeout(self._retries.timeout_s):
                return set(map(redact, await listed_by(asking, self._options[model])))
        except openai.APIStatusError as error:
            if error.status_code in _UNLISTED:
                return None
            why = f"expected a list of models from /models, found HTTP {error.status_code}"
        except openai.APIError as error:
            why = (
                f"expected an OpenAI-compatible server, but {reason_of(error)}; start it, or"
                " correct base_url; `ttsgraph doctor` lists all that is missing"
            )
        except TimeoutError:
            why = "expected a list of models from /models, but it timed out"
        except Exception:  # whatever a server that is none of models makes of it
            why = "expected a list of models from /models, found something else"
        raise EndpointError(f"{url}: {why}")

    async def once(self, url: str, request: Request) -> Completion:
        """One attempt at one base URL. Raises the `openai` package's errors, and Fault."""
        return await self._ask(self._servers[url], request)

    def manner(self, request: Request) -> Dialect:
        """How a request like this one is asked, as far as it is known by now."""
        return self._how(request).dialect

    def keep(self, request: Request) -> None:
        """Keep how such a request is asked, also where nothing is left out."""
        how = self._how(request)
        how.keep(how.dialect)

    async def complete(self, request: Request) -> Completion:
        """Answer one request; `latency_s` is that of the attempt that succeeded."""
        return await self._answer(request, self._ask)

    async def stream(self, request: Request, on_piece: OnPiece) -> Completion:
        """As `complete`, pieces handed over as they come; then no attempt follows."""
        read = read_stream if request.form is None else read_choice_stream
        endpoint = self._endpoints[request.model]
        options = self._options[request.model]
        if (out := OUTGOING.get()) is not None and out.headers:
            options = {**options, "headers": {**options.get("headers", {}), **out.headers}}
        handed = False

        def hand_over(piece: Piece) -> None:
            nonlocal handed
            handed = True
            on_piece(piece)

        async def ask(server: Server, request: Request) -> Completion:
            async def post(body: dict[str, Any]) -> openai.AsyncStream[object]:
                return await self._clients[server.url].post(
                    _PATH,
                    cast_to=object,
                    body=body,
                    options=options,
                    stream=True,
                    stream_cls=openai.AsyncStream[object],
                )

            chunks, started = await self._how(request).send(
                lambda dialect: endpoint.body(request, dialect, _STREAMED), post
            )
            async with chunks:
                found = await read(chunks, request.sampling, started, hand_over)
                return with_prompt(found, request.messages)

        return await self._answer(request, ask, lambda: not handed)

    async def _answer(
        self, request: Request, ask: AskServer, again: Callable[[], bool] = lambda: True
    ) -> Completion:
        """Attempts until one succeeds, as long as there may be another."""
        replicas = self._replicas[self._endpoints[request.model].base_urls]
        how = self._how(request)
        used = replicas.servers[0]
        attempts = _Attempts(self._retries, used.policy)
        try:
            while True:
                try:
                    # Mostly it is settled: then there is no turn to wait for.
                    async with nullcontext() if how.settled else how.turn():
                        used = await replicas.place()
                        completion = await self._attempt(used, request, ask)
                    break
                except Fault as fault:
                    if not (fault.retry and again()) or attempts.over(fault):
                        raise
                    await asyncio.sleep(attempts.wait_s(fault))
        except Fault as fault:
            replicas.stop_if_given_up()
            used.finish(fault)
            said = f" ({fault.said})" if fault.said else ""
            failed = f"{request.model} at {used.url}: {fault.kind}{said}"
            if fault.status in _REFUSED_FORM and request.wishes:
                raise FormRefused(failed, fault.said) from None
            raise CallFailed(failed) from fault
        used.finish(None)
        return self._redacted(completion)

    def _redacted(self, completion: Completion) -> Completion:
        told = (completion.text, completion.reasoning, completion.choices)
        text, reasoning, choices = clean = tuple(redact(each, self._secrets) for each in told)
        if clean == told:
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
                    completion = await ask(server, request)
        except Exception as error:  # whatever an answer makes of those who read it
            where = f"{request.model} at {server.url}"
            fault = fault_of(error, where)
            if isinstance(fault, ContextOverflow):
                server.succeeded()
                raise fault from None
            fault.said = said_in(
                error if fault is error or not fault.said else fault, self._secrets
            )
            if fault.refused:
                server.succeeded()
            else:
                server.failed(fault, started)
            charge.sent = False
            if fault.charged:
                charge.lost(fault.tokens)
            if fault.refused:
                raise PromptRefused(f"{where}: {REFUSED}: {fault.said or fault.kind}") from None
            raise fault from None
        else:
            server.succeeded()
            return completion
        finally:
            server.release()

    async def _ask(self, server: Server, request: Request) -> Completion:
        body, latency_s = await self._body(server, request)
        read = read_answer if request.form is None else read_choices
        return with_prompt(read(body, latency_s, request.sampling), request.messages)

    async def _body(
        self, server: Server, request: Request, more: Mapping[str, Any] = _NOTHING_MORE
    ) -> tuple[bytes, float]:
        """The body of a server's answer, and how many seconds it took."""
        endpoint = self._endpoints[request.model]
        answer, started = await self._how(request).send(
            lambda dialect: endpoint.body(request, dialect, more),
            self._posters[server.url, request.model].post,
        )
        return answer, time.monotonic() - started

    def _how(self, request: Request) -> Learned:
        """How the request's model, at this effort, wants to be asked."""
        sampling = request.sampling
        manner = (request.model, sampling.reasoning_effort, sampling.extra_body)
        if manner not in self._learned:
            endpoint = self._endpoints[request.model]
            name = habit_name(endpoint.base_urls[0], endpoint.served_as, sampling)
            known = self._habits.get(name)
            dialect = endpoint.dialect if known is None else endpoint.dialect.joined(known)
            where = f"{request.model} at {endpoint.base_urls[0]}"
            habits = Habits() if endpoint.local else self._habits
            keep = partial(habits.keep, name)
            self._learned[manner] = Learned(where, dialect, keep, known is not None)
        return self._learned[manner]

    async def aclose(self) -> None:
        """Close all connections."""
        for client in self._clients.values():
            await client.close()


class _Attempts:
    """When one call has been attempted often enough, and how long it waits. Connections refused by
    a server that starts again are not its fault: those end with the time a server may be down.
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
        """Seconds before another attempt: retry-after, and a random time that doubles."""
        most = min(LONGEST_WAIT_S, self._retries.first_wait_s * 2.0 ** min(self._made - 1, 60))
        return (fault.retry_after_s or 0.0) + random.uniform(0.0, most)
