"""Endpoints: address (key, path, proxy, scheme), requests over HTTP, and one-line diagnoses of
failed requests, which are sent with aiohttp, because `openai` and `httpx` use three times the CPU
time.

A faulty server may send without end, compress gigabytes into a megabyte, or redirect the prompt
elsewhere, so answers are read and decompressed up to a size limit, and redirects are not followed.
"""

import json
import math
import os
import ssl
import textwrap
from collections.abc import Iterable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import certifi
import yarl

from ttsgraph.base.errors import EndpointError
from ttsgraph.base.secrets import redact
from ttsgraph.base.waiting import run
from ttsgraph.endpoints.faults import CAUSES, NO_CONNECTION, NO_PROXY, Fault, refusal
from ttsgraph.endpoints.replies import Take, ValueReader
from ttsgraph.models.client import OUTGOING, Message, Request, Sampling, whole_text
from ttsgraph.models.dialect import ANY, Dialect, without_system

MAX_BODY_BYTES = 4 * 2**20
"""Maximum size of an answer: more than any current model's longest answer."""

LONGEST_RETRY_AFTER_S = 600.0

CONNECT_S = 4.0
"""Seconds that connecting may take for a request without a body, such as listing models, so that a
wrong address is reported within 5 s.
"""

HEADERS = {"User-Agent": "ttsgraph", "Accept-Encoding": "identity"}
_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


Target = tuple[yarl.URL, Mapping[str, str], str | None]
"""A URL, the headers of each request to it, and the environment's proxy for it."""


def proxy_of(url: str) -> str | None:
    """Return the environment's proxy for a URL, or None; as in curl, a proxy without a scheme is an
    HTTP proxy.
    """
    place = urlsplit(url)
    proxy = None if proxy_bypass(place.hostname or "") else getproxies().get(place.scheme)
    return f"http://{proxy}" if proxy and "://" not in proxy else proxy


class Http:
    """Connections of one client, opened by the first request.

    Each request takes at most `timeout_s` in total: a limit per read would wait forever for a
    server that sends a byte now and then. A request that fails raises Fault.
    """

    def __init__(self, timeout_s: float) -> None:
        self._limit = aiohttp.ClientTimeout(timeout_s)
        self._quick = aiohttp.ClientTimeout(timeout_s, CONNECT_S)
        self._session: aiohttp.ClientSession | None = None

    async def ask(self, to: Target, take: Take, body: Mapping[str, Any] | None = None) -> None:
        """Send a request, and pass the values of a successful response to `take` as they arrive:
        the data of its events, or its whole body. Without a body, connecting is limited to
        CONNECT_S.
        """
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ssl=_certificates()),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers=HEADERS,
                json_serialize=_dumps,
            )
        url, headers, proxy = to
        try:
            async with self._session.request(
                "GET" if body is None else "POST",
                url,
                json=body,
                headers={**headers, **OUTGOING.get().headers},
                proxy=proxy,
                allow_redirects=False,
                timeout=self._quick if body is None else self._limit,
            ) as answer:
                await _read(answer, take)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            fault = fault_of(error)
            if proxy is not None and fault.kind == NO_CONNECTION:
                fault = Fault(NO_PROXY, unreached=fault.unreached)
            raise fault from None

    async def aclose(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()


@cache
def _certificates() -> ssl.SSLContext:
    # Loading the certificates for each client would take as long as a hundred calls.
    context = ssl.create_default_context()  # certificates of this machine, or from SSL_CERT_FILE
    context.load_verify_locations(certifi.where())
    return context


async def _read(answer: aiohttp.ClientResponse, take: Take) -> None:
    """Read a body as it arrives, decompressed by aiohttp. Raises Fault if the body exceeds the size
    limit, and the fault of an error status.
    """
    left = MAX_BODY_BYTES
    said: list[bytes] = []
    reader = ValueReader(take)
    fine = 200 <= answer.status < 300
    add = reader.add if fine else said.append
    while not answer.content.at_eof():  # cheaper than iterating, which waits for the end as well
        piece = await answer.content.readany()
        left -= len(piece)
        if left < 0:
            most = MAX_BODY_BYTES / 2**20
            raise Fault(f"expected an answer of at most {most:g} MiB, found a longer one")
        add(piece)
        if reader.done:
            break
    if not fine:
        kind = f"HTTP {answer.status}"
        if 300 <= answer.status < 400:
            kind += " (a redirect, which is not followed; correct base_url)"
        more = {"status": answer.status, "retry_after_s": retry_after(answer.headers)}
        raise refusal(kind, b"".join(said).decode(errors="replace"), answer.status, **more)
    reader.end()


def _entries(data: Any) -> dict[str, dict[str, Any]]:
    """Return the entries of a model list, in any known format, by model name. Raises Fault if it is
    no list.
    """
    rows = data.get("data", data.get("models")) if isinstance(data, dict) else data
    listed = {}
    for entry in rows if isinstance(rows, list) else [None]:
        name = (entry.get("id") or entry.get("name")) if isinstance(entry, dict) else entry
        if not isinstance(name, str):
            raise Fault("it has no list of models", retry=False)
        listed[redact(whole_text(plain_name(name)))] = entry if isinstance(entry, dict) else {}
    return listed


def plain_name(name: str) -> str:
    """Return a model's name without the `models/` prefix of Gemini's names."""
    return name.removeprefix("models/")


def fault_of(error: Exception) -> Fault:
    """Return the fault that describes an exception raised in one attempt.

    The fault's kind is our own text, never the server's, because it appears in logs and reports.
    """
    if isinstance(error, Fault):
        return error
    names = {kind.__name__ for kind in type(error).__mro__}
    for kind, cause in CAUSES.items():
        if not names.isdisjoint(cause.errors):
            return Fault(kind, retry=not cause.users, unreached=True)
    if isinstance(error, TimeoutError):
        return Fault("timed out", overload=True)
    if isinstance(error, aiohttp.ClientError | OSError):
        return Fault(NO_CONNECTION)
    return Fault(f"expected an HTTP response, but it can't be read ({type(error).__name__})")


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return how many seconds the server asks to wait, at most LONGEST_RETRY_AFTER_S, or None if it
    names no number of seconds.
    """
    with suppress(ValueError):
        seconds = float(headers.get("retry-after", ""))
        return min(max(seconds, 0.0), LONGEST_RETRY_AFTER_S) if math.isfinite(seconds) else None
    return None


PATH = "/chat/completions"
LIST = "/models"
LONGEST_LIST = 200
"""Maximum number of characters of a list of model names in a message."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Address of one model: the base URLs of its replicas and the name under which they serve it.

    `api_key_env` names the environment variable that holds the key, `key_header` the header that
    carries it if it is not Authorization. `seeds`: requests may carry a seed. `lists_models`: the
    server can list its models. `extra_body` (JSON) is added to every request body. The dialect of a
    `local` server is not stored, because another server may get its port later.
    """

    base_urls: tuple[str, ...]
    served_as: str
    api_key_env: str | None = None
    seeds: bool = False
    lists_models: bool = True
    dialect: Dialect = ANY
    key_header: str | None = None
    extra_body: str | None = None
    local: bool = False

    def target(self, url: str, path: str = PATH) -> Target:
        """Return the target for requests to `url`, one of the base URLs, with the endpoint's key.
        Raises EndpointError if the key isn't set or can't be sent.
        """
        name, own = self.api_key_env, self.key_header
        key = "none" if name is None else os.environ.get(name, "").strip()
        problem = "" if key else ", which is not set; export it"
        if not (key.isascii() and key.isprintable()) or " " in key:
            problem = ": expected printable ASCII without blanks"
        if problem:
            where = redact(self.base_urls[0])
            variable = f"the environment variable {name}"
            raise EndpointError(f"{where}: expected a key in {variable}{problem}")
        headers = {"Authorization": f"Bearer {key}"} if own is None else {own: key}
        base, mark, query = url.partition("?")
        place = yarl.URL(base.rstrip("/") + path)
        return yarl.URL(f"{place}{mark}{query}", encoded=True), headers, proxy_of(url)

    async def listed(self, http: Http, url: str) -> dict[str, dict[str, Any]] | None:
        """Return the entries of the server's model list by name, or None if it has no list. Raises
        EndpointError if the endpoint can't be reached, refuses the key, or is no such server.
        """
        target = self.target(url, LIST)
        found: list[Any] = []
        try:
            await http.ask(target, found.append)
            return _entries(found[0])
        except Exception as error:  # the server may be anything, so any error is possible
            fault = fault_of(error)
            # There is no list, or the key may not read it.
            if fault.status in (403, 404, 405, 501):
                return None
            raise EndpointError(*self.trouble(fault, url, path=LIST)) from fault

    def serves(self, listed: Iterable[str]) -> bool:
        """Return True if the endpoint's model is among the listed names."""
        name = plain_name(self.served_as)
        return not {name, f"{name}:latest"}.isdisjoint(listed)

    def body(self, request: Request, dialect: Dialect, streamed: bool = False) -> dict[str, Any]:
        """Return a request's JSON body in this dialect."""
        sampling = request.sampling
        spoken = request.messages if dialect.system else without_system(request.messages)
        body: dict[str, Any] = {"model": self.served_as, "messages": [*map(_sent, spoken)]}
        body |= _parameters(sampling, dialect, streamed)
        if self.seeds and "seed" not in dialect.left_out.union(sampling.left_out):
            # The seed is derived from the content key, so that a deterministic server gives the
            # same answers again if the cache is lost.
            body["seed"] = int(request.key()[:8], 16)
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
            "where": redact(url.partition("?")[0]),
            "kind": fault.kind,
            "status": f"{status}{fault.quoted()}",
            "key": f"the key in {key}" if key else "a request without a key",
            "variable": key or "the key's variable (api_key_env, --key-env)",
            "model": self.served_as,
            "listed": textwrap.shorten(", ".join(sorted(listed)) or "none", LONGEST_LIST),
            "path": path,
            "path_advice": path_advice(url),
            "proxy": f"the proxy {redact(proxy_of(url) or '')} that {scheme}_PROXY names",
        }
        return cause.found.format(**facts), cause.advice.format(**facts)


@lru_cache(maxsize=256)
def _parameters(sampling: Sampling, dialect: Dialect, streamed: bool) -> Mapping[str, Any]:
    """Return the parameters of a request's body that most requests of a run share."""
    names = ("temperature", "top_p", "stop", "reasoning_effort")
    parameters: dict[str, Any] = {name: getattr(sampling, name) for name in names}
    if streamed:
        parameters |= {"stream": True, "stream_options": {"include_usage": True}}
    refused = dialect.left_out.union(sampling.left_out)
    body = {n: v for n, v in parameters.items() if v not in (None, ()) and n not in refused}
    if dialect.bound:
        body[dialect.bound] = min(sampling.max_tokens, dialect.most_tokens or sampling.max_tokens)
    return body


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


def path_advice(url: str) -> str:
    """Return the remedy for a base URL at which no OpenAI-compatible API was found."""
    if urlsplit(url).path.rstrip("/").endswith(PATH):
        return f"leave {PATH} out of base_url; it usually ends in /v1"
    return "correct base_url; it usually ends in /v1"
