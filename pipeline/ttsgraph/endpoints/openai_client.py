"""Client of OpenAI-compatible endpoints. It learns a model's dialect from refusals: a refused
request is retried in another form, and the accepted form is kept.
"""

import asyncio
import logging
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ttsgraph.base import errors
from ttsgraph.base.ending import GO_ON
from ttsgraph.base.secrets import environment_secrets, redact
from ttsgraph.endpoints.endpoint import Endpoint, Http, fault_of, probe
from ttsgraph.endpoints.endpoints import FailurePolicy, Replicas, Server
from ttsgraph.endpoints.faults import CAUSES, OF_ONE_PROMPT, SETTLED, Fault
from ttsgraph.endpoints.replies import ReplyReader
from ttsgraph.models.client import OUTGOING, Client, Completion, OnPiece, Request
from ttsgraph.models.dialect import FORMS, Dialect, DialectStore, habit_name

LEAST_BOUND = 512
"""Smallest token bound to which a refused bound is halved."""

_LEAST_MISSED = ("stream_options", "seed", "top_p", "reasoning_effort", "stop", "temperature")
"""Optional parameters, the most dispensable first; if an error names several, the first of them is
left out first.
"""

log = logging.getLogger(__name__)


def weaker(
    dialect: Dialect, refusal: Fault, sent: Mapping[str, Any], schema: bool, guess: bool
) -> Dialect:
    """Return the dialect to try after a refusal of the body `sent`, or the same one if there is
    none: what the refusal names is left out, or else a `schema` is asked for in a weaker form, or
    else one more parameter is left out on a `guess`.
    """
    meaning = refusal.meaning
    has_system = dialect.system and any(each["role"] == "system" for each in sent["messages"])
    if meaning == "system" and has_system:
        return replace(dialect, system=False)
    if meaning in ("full", "less room"):
        return _with_lower_bound(dialect, refusal, sent)
    optional = [name for name in (*_LEAST_MISSED, dialect.bound or "") if name in sent]
    told = meaning in ("parameter", "system")
    named = [name for name in optional if told and refusal.names(name)]
    if not named and schema and dialect.form != "text":
        return replace(dialect, form=FORMS[FORMS.index(dialect.form) + 1])
    # Only a refusal that names it may cost the last bound on tokens, without which limits can pass.
    guessed = [name for name in optional if guess and name != "max_completion_tokens"]
    if first := (named or guessed)[:1]:
        return replace(dialect, left_out=dialect.left_out.union(first))
    return replace(dialect, system=dialect.system and not (guess and has_system))


def _with_lower_bound(dialect: Dialect, refusal: Fault, sent: Mapping[str, Any]) -> Dialect:
    """Return the dialect with a lower token bound: the largest one that the server names, if it is
    at least half of the requested bound, otherwise that half. If the server names no such bound and
    the half is below LEAST_BOUND, return the dialect unchanged.
    """
    asked = sent.get(dialect.bound, 0) if dialect.bound else 0
    named = [int(number) for number in re.findall(r"\d+", refusal.words)]
    half = asked // 2 if asked // 2 >= LEAST_BOUND else dialect.most_tokens
    most = max((each for each in named if asked / 2 <= each < asked), default=half)
    return replace(dialect, most_tokens=most)


@dataclass
class LearnedDialect:
    """Dialect of one model: at first the profile's, then updated to what the endpoint accepts, and
    stored under `name`. `known`: the endpoint has given an answer.
    """

    name: str
    dialect: Dialect
    known: bool
    store: DialectStore

    def learn(self, dialect: Dialect) -> None:
        """Add the restrictions of a dialect in which the endpoint has given an answer."""
        self.known = True
        joined = self.dialect.joined(dialect)
        if joined != self.dialect:
            self.dialect = joined
            line = "%s refuses or ignores parts of the requests; requests are now sent %s"
            log.warning(line, redact(self.name), joined.words)
            self.store.keep(self.name, joined)


class OpenAIClient(Client):
    """Client for chat completions from a pool of models; each attempt uses the least busy working
    replica.

    Raises CallFailed if all attempts fail, ContextOverflow if the prompt doesn't fit, PromptRefused
    if a filter or policy refuses the prompt, EndpointError if only the user can fix the failure,
    and RunStopped if a model has no working server left, its account is empty, or too many calls
    failed (`FailurePolicy`).
    """

    def __init__(
        self,
        endpoints: Mapping[str, Endpoint],
        policy: FailurePolicy,
        habits: DialectStore | None = None,
    ) -> None:
        self._habits = habits or DialectStore()
        self._learned: dict[tuple[str, str | None, str | None], LearnedDialect] = {}
        self._endpoints = dict(endpoints)
        self._policy = policy
        self._secrets = environment_secrets()
        self.http = Http(policy.timeout_s)
        self._answered: set[str] = set()
        changed = asyncio.Event()
        places = [(url, name) for name, each in endpoints.items() for url in each.base_urls]
        self._targets = {(url, name): endpoints[name].target(url) for url, name in places}
        servers = {url: Server(url, policy, changed) for url, _ in places}
        self._replicas = {
            name: Replicas([servers[url] for url in each.base_urls])
            for name, each in endpoints.items()
        }

    async def check(self) -> None:
        """Check that each endpoint that can list models serves its model: query the list, and
        request an answer if there is none, or the model isn't in it.

        Raises EndpointError if an endpoint can't be reached, refuses the key, or lacks a model of
        the pool.
        """
        checked = {name: each for name, each in self._endpoints.items() if each.lists_models}
        asked = {(url, e.api_key_env): e for e in checked.values() for url in e.base_urls}
        lists = {at: await endpoint.listed(self.http, at[0]) for at, endpoint in asked.items()}
        for name, endpoint in checked.items():
            for url in endpoint.base_urls:
                served = lists[url, endpoint.api_key_env]
                if served is None or not endpoint.serves(served):
                    await self._require(name, url, served)

    async def _require(self, name: str, url: str, listed: Iterable[str] | None = None) -> None:
        """Send a short test request. Raises EndpointError if the server can't or won't serve the
        model, or if the request fails and the server has `listed` only other models.
        """
        try:
            await self.once(url, probe(name))
        except Exception as error:  # other failures recur in calls, which handle them
            fault = fault_of(error)
            if listed is not None and fault.cause not in ("key", "quota"):
                unlisted = Fault("unlisted", words=fault.words)
                raise self._wrong(unlisted, name, url, listed=listed) from None
            if not fault.retry and fault.meaning not in OF_ONE_PROMPT:
                raise self._wrong(fault, name, url) from None

    def _wrong(self, error: Exception, name: str, url: str, **facts: Any) -> errors.EndpointError:
        found, advice = self._endpoints[name].trouble(error, url, **facts)
        return errors.EndpointError(f"model {name!r}: {found}", advice)

    def manner(self, request: Request) -> LearnedDialect:
        """Return the dialect learned for the request's model, reasoning effort and extra body."""
        sampling = request.sampling
        at = (request.model, sampling.reasoning_effort, sampling.extra_body)
        if at not in self._learned:
            endpoint = self._endpoints[request.model]
            name = habit_name(endpoint.base_urls[0], endpoint.served_as, sampling)
            known = self._habits.get(name)
            dialect = endpoint.dialect.joined(known or endpoint.dialect)
            store = DialectStore() if endpoint.local else self._habits
            self._learned[at] = LearnedDialect(name, dialect, known is not None, store)
        return self._learned[at]

    async def stream(self, request: Request, on_piece: OnPiece | None = None) -> Completion:
        """Answer one request, and pass the answer's pieces to `on_piece`. The call is not retried
        once a piece has been delivered; `latency_s` is the duration of the successful attempt.
        """
        replicas = self._replicas[request.model]
        used = replicas.servers[0]
        made = failed = 0
        while True:
            try:
                used = await replicas.place()
                completion = await self._try(used, request, on_piece)
            except Fault as fault:
                made += 1
                # Connections that a restarting server refuses don't count as failed attempts.
                waits = self._policy.waits and fault.unreached
                failed += not waits
                over = used.is_gone if waits else self._policy.over(failed)
                if fault.retry and not over:
                    await asyncio.sleep(self._policy.wait_s(made, fault))
                    continue
                if fault.meaning not in OF_ONE_PROMPT:
                    replicas.stop_if_given_up()
                    used.finish(fault)
                if fault.status == 403 and not fault.meaning and self._is_unproven(request.model):
                    await self._require(request.model, used.url)  # is it this prompt, or the key?
                raise self._failed(request, used.url, fault) from fault
            used.finish(None)
            self._answered.add(request.model)
            return self._redacted(completion)

    complete = stream

    async def _try(self, server: Server, request: Request, on_piece: OnPiece | None) -> Completion:
        """Make one attempt in a reserved place, and release the place."""
        started = time.monotonic()
        requests = OUTGOING.get()
        reply = ReplyReader(request, on_piece)
        requests.begun += 1
        try:
            completion = await self.once(server.url, request, reply)
            server.succeeded()
            requests.ended += 1  # which a cancelled request never does
            return completion
        except Exception as error:  # parsing an arbitrary answer may raise anything
            requests.ended += 1
            fault = fault_of(error)
            if fault.meaning in OF_ONE_PROMPT:
                server.succeeded()
                fault.retry = False
            else:
                server.failed(fault, started)
            if fault.meaning == "more room":
                # Reasoning used up all tokens: treat the reply as a cut answer, so that the
                # request is repeated with a higher token bound.
                reply.add({"choices": [{"message": {"content": ""}, "finish_reason": "length"}]})
                return reply.completion(time.monotonic() - started)
            if fault.status is None and not fault.unreached:  # the attempt may be billed
                requests.lost(reply.tokens)
            fault.retry = fault.retry and not reply.shown
            raise fault from None
        finally:
            server.release()

    async def once(
        self, url: str, request: Request, reply: ReplyReader | None = None
    ) -> Completion:
        """Send a request to one base URL, in weaker dialects until it accepts one, and read the
        reply. Raises Fault if the attempt fails, or the refusal is final.
        """
        reply = reply or ReplyReader(request)
        how = self.manner(request)
        dialect = how.dialect
        full = False
        while True:
            body = self._endpoints[request.model].body(request, dialect, reply.on_piece is not None)
            started = time.monotonic()
            try:
                await self.http.ask(self._targets[url, request.model], reply.add, body)
                break
            except Fault as fault:
                if fault.status not in (400, 413, 422) or fault.meaning in SETTLED:
                    raise
                full = full or fault.meaning == "full"
                # A refusal may be of the caller's form, which is no reason to leave out others.
                guess = request.form is None and not how.known
                other = weaker(dialect, fault, body, request.schema is not None, guess)
                if other == dialect:
                    other = dialect.joined(how.dialect)  # learned by another call in the meantime
                if other == dialect:
                    raise
                dialect = other
        completion = reply.completion(time.monotonic() - started)
        if full:  # this prompt left no more room, but shorter prompts may
            dialect = replace(dialect, most_tokens=how.dialect.most_tokens)
        if dialect is not how.dialect or not how.known:
            how.learn(dialect)
        return completion

    def _failed(self, request: Request, url: str, fault: Fault) -> Exception:
        """Return the exception for a call whose attempts all failed."""
        where = f"{request.model} at {redact(url)}: "
        said, quoted = fault.said(), fault.quoted()
        if fault.meaning == "filter":
            return errors.PromptRefused(f"{where}{errors.REFUSED}: {said or fault.kind}")
        if fault.meaning in OF_ONE_PROMPT:
            full = f"{where}the prompt does not fit the model's context{quoted}"
            return errors.ContextOverflow(full)
        if self._policy.ends and fault.meaning == "quota":
            return errors.RunStopped(f"{self._wrong(fault, request.model, url)}; {GO_ON}")
        users = CAUSES[fault.cause].users and fault.status != 403  # 403: perhaps this prompt only
        unproven = users and self._is_unproven(request.model)
        if unproven or (self._policy.ends and fault.meaning == "key"):
            return self._wrong(fault, request.model, url)
        failed = f"{where}{fault.kind}{quoted}"
        more = request.form or request.schema or any(each.whole for each in request.messages)
        if more and fault.status in (400, 422, 501):
            return errors.FormRefused(failed, said)
        return errors.CallFailed(failed)

    def _redacted(self, completion: Completion) -> Completion:
        said = f"{completion.text}\n{completion.reasoning}\n{completion.choice}"
        if not (found := [secret for secret in self._secrets if secret in said]):
            return completion
        names = ("text", "reasoning", "choice")
        clean: dict[str, Any] = {n: redact(getattr(completion, n), found) for n in names}
        return replace(completion, **clean)

    def _is_unproven(self, model: str) -> bool:
        """Return True if a model has given no answer yet, so that a mistake in its settings, which
        ends the run, explains a refusal.
        """
        return self._policy.ends and model not in self._answered

    async def aclose(self) -> None:
        """Close all connections."""
        await self.http.aclose()
