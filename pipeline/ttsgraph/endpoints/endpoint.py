"""Address of an endpoint (key, path, proxy, scheme), and one-line diagnoses of failed requests."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import yarl

from ttsgraph.base.errors import EndpointError
from ttsgraph.base.secrets import key_problem, redact
from ttsgraph.base.waiting import run
from ttsgraph.endpoints.faults import CAUSES
from ttsgraph.endpoints.transport import (
    HEADERS,
    Http,
    Target,
    fault_of,
    listed_by,
    plain_name,
    proxy_of,
)
from ttsgraph.models.client import Message, Request, Sampling, whole_text
from ttsgraph.models.dialect import ANY, Dialect, without_system

PATH = "/chat/completions"
LIST = "/models"
UNLISTED = (403, 404, 405, 501)
"""Statuses with which /models answers if a server has no model list, or if the key may not read it.
"""
LONGEST_LIST = 200
"""Maximum number of characters of a list of model names in a message."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Address of one model: the base URLs of its replicas and the name under which they serve it.

    `api_key_env` names the environment variable that holds the key, `key_header` the header that
    carries it if it is not Authorization. `seeds`: requests may carry a seed. `lists_models`: the
    model list at /models can be queried. `query` is added to every URL, `extra_body` (JSON) to
    every request body. The dialect of a `local` server is not stored, because another server may
    get its port later.
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

    def target(self, url: str, path: str = PATH) -> Target:
        """Return the target for requests to `url`, one of the base URLs, with the endpoint's key.
        Raises EndpointError if the key isn't set or can't be sent.
        """
        key = self._key()
        own = self.key_header
        headers = {"Authorization": f"Bearer {key}"} if own is None else {own: key}
        place = yarl.URL(url.rstrip("/") + path).update_query(dict(self.query))
        return Target(place, HEADERS | headers, proxy_of(url))

    def _key(self) -> str:
        """Return the key, or a placeholder if the endpoint needs none."""
        if self.api_key_env is None:
            return "none"
        key = os.environ.get(self.api_key_env, "").strip()
        problem = f": {key_problem(key)}" if key_problem(key) else ""
        if not key:
            problem = ", which is not set; export it"
        if problem:
            where = redact(self.base_urls[0])
            variable = f"the environment variable {self.api_key_env}"
            raise EndpointError(f"{where}: expected a key in {variable}{problem}")
        return key

    async def listed(self, http: Http, url: str) -> dict[str, dict[str, Any]] | None:
        """Return the entries of the server's model list by name, or None if it has no list. Raises
        EndpointError if the endpoint can't be reached, refuses the key, or is no such server.
        """
        target = self.target(url, LIST)
        try:
            return await listed_by(http, target)
        except Exception as error:  # the server may be anything, so any error is possible
            fault = fault_of(error)
            if fault.status in UNLISTED or (fault.status and not self.lists_models):
                return None
            raise EndpointError("; ".join(self.trouble(fault, url, path=LIST))) from fault

    def serves(self, listed: Iterable[str]) -> bool:
        """Return True if the endpoint's model is among the listed names."""
        name = plain_name(self.served_as)
        return not {name, f"{name}:latest"}.isdisjoint(listed)

    def body(self, request: Request, dialect: Dialect, streamed: bool = False) -> dict[str, Any]:
        """Return a request's JSON body in this dialect."""
        sampling = request.sampling
        most = sampling.max_tokens
        parameters: dict[str, Any] = {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "stop": list(sampling.stop) or None,
            "reasoning_effort": sampling.reasoning_effort,
            # The seed is derived from the content key, so that a deterministic server gives the
            # same answers again if the cache is lost.
            "seed": int(request.key()[:8], 16) if self.seeds else None,
            "stream": streamed or None,
            "stream_options": {"include_usage": True} if streamed else None,
        }
        refused = dialect.left_out.union(sampling.left_out)
        spoken = request.messages if dialect.system else without_system(request.messages)
        body: dict[str, Any] = {"model": self.served_as, "messages": [*map(_sent, spoken)]}
        body |= {n: v for n, v in parameters.items() if v is not None and n not in refused}
        if dialect.bound:
            body[dialect.bound] = min(most, dialect.most_tokens or most)
        if request.schema is not None:
            body |= dialect.response_format(request.schema)
        # The profile or the caller sets these: if the endpoint rejects one, the request fails.
        for extra in (self.extra_body, sampling.extra_body, request.form):
            body |= json.loads(extra) if extra else {}
        return body

    def trouble(
        self, error: Exception, url: str, listed: Iterable[str] = (), path: str = PATH
    ) -> tuple[str, str]:
        """Return a diagnosis of a failed attempt at a base URL and a remedy, each as a short
        phrase. The diagnosis quotes the server's message.
        """
        fault = fault_of(error)
        cause = CAUSES[fault.cause]
        key = self.api_key_env
        scheme = urlsplit(url).scheme.upper()
        status = "" if fault.status is None else f": HTTP {fault.status}"
        facts = {
            "where": redact(url),
            "kind": fault.kind,
            "status": f"{status}{fault.quoted()}",
            "key": f"the key in {key}" if key else "a request without a key",
            "variable": key or "the key's variable (api_key_env, --key-env)",
            "model": self.served_as,
            "listed": f"; the server has {names_of(listed)}" if listed else "",
            "path": path,
            "path_advice": path_advice(url),
            "proxy": f"the proxy {redact(proxy_of(url) or '')} that {scheme}_PROXY names",
        }
        return cause.found.format(**facts), cause.advice.format(**facts)


def _sent(message: Message) -> dict[str, Any]:
    """Return a message as it is sent."""
    if message.whole is None:
        return {"role": message.role, "content": whole_text(message.content)}
    return dict(json.loads(message.whole))


def probe(model: str) -> Request:
    """Return a short test request to a model, without parameters that a server might refuse."""
    sampling = Sampling(None, max_tokens=16, left_out=("top_p", "seed"))
    return Request(model, "probe", (Message("user", "Say OK."),), sampling)


def list_models(endpoint: Endpoint, url: str, timeout_s: float) -> dict[str, dict[str, Any]] | None:
    """Return what `Endpoint.listed` does, within `timeout_s`. This function can be called from
    anywhere, even inside a running event loop.
    """

    async def asked() -> dict[str, dict[str, Any]] | None:
        async with aclosing(Http(timeout_s)) as http:
            return await endpoint.listed(http, url)

    return run(asked())


def names_of(listed: Iterable[str]) -> str:
    """Return the names of a list, sorted and shortened, for a message."""
    return textwrap.shorten(", ".join(sorted(listed)) or "none in its list", LONGEST_LIST)


def path_advice(url: str) -> str:
    """Return the remedy for a base URL at which no OpenAI-compatible API was found."""
    if urlsplit(url).path.rstrip("/").endswith(PATH):
        return f"leave {PATH} out of base_url; it usually ends in /v1"
    return "correct base_url; it usually ends in /v1"
