"""HTTP requests to endpoints. They are sent with aiohttp, because `openai` and `httpx` use three
times the CPU time.

A faulty server may send without end, compress gigabytes into a megabyte, or redirect the prompt
elsewhere, so answers are read and decompressed up to a size limit, and redirects are not followed.
"""

from __future__ import annotations

import json
import math
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import certifi
import yarl

from ttsgraph.base.secrets import redact
from ttsgraph.endpoints import faults
from ttsgraph.endpoints.faults import Fault, refusal
from ttsgraph.endpoints.replies import ValueReader
from ttsgraph.models.client import OUTGOING, whole_text

MAX_BODY_BYTES = 4 * 2**20
"""Maximum size of an answer: more than any current model's longest answer."""

LONGEST_RETRY_AFTER_S = 600.0

CONNECT_S = 4.0
"""Seconds that connecting may take for a request without a body, such as listing models, so that a
wrong address is reported within 5 s.
"""

HEADERS = {
    "User-Agent": "ttsgraph",
    "Accept-Encoding": "identity",
    "Content-Type": "application/json",
}
_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


@dataclass(frozen=True, slots=True)
class Target:
    """A URL, the headers of each request to it, and the environment's proxy for it."""

    url: yarl.URL
    headers: Mapping[str, str]
    proxy: str | None


def proxy_of(url: str) -> str | None:
    """Return the environment's proxy for a URL, or None; as in curl, a proxy without a scheme is an
    HTTP proxy.
    """
    place = urlsplit(url)
    proxies = {} if proxy_bypass(place.hostname or "") else getproxies()
    proxy = proxies.get(place.scheme)
    return f"http://{proxy}" if proxy and "://" not in proxy else proxy


class Http:
    """Connections of one client, opened by the first request.

    Each request takes at most `timeout_s` in total: a limit per read would wait forever for a
    server that sends a byte now and then. A request that fails raises Fault.
    """

    def __init__(self, timeout_s: float) -> None:
        self._limit = aiohttp.ClientTimeout(timeout_s)
        self._session: aiohttp.ClientSession | None = None

    async def ask(
        self, to: Target, take: Callable[[Any], object], body: Mapping[str, Any] | None = None
    ) -> None:
        """Send a request, and pass the values of a successful response to `take` as they arrive:
        the data of its events, or its whole body. Without a body, connecting is limited to
        CONNECT_S.
        """
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ssl=_certificates()),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        sent, limit = None, aiohttp.ClientTimeout(self._limit.total, CONNECT_S)
        if body is not None:
            sent, limit = _dumps(body).encode(), self._limit
        outgoing = OUTGOING.get()
        try:
            async with self._session.request(
                "GET" if sent is None else "POST",
                to.url,
                data=sent,
                headers={**to.headers, **outgoing.headers} if outgoing else to.headers,
                proxy=to.proxy,
                allow_redirects=False,
                timeout=limit,
            ) as answer:
                await _read(answer, take)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            fault = fault_of(error)
            if to.proxy is not None and fault.kind == faults.NO_CONNECTION:
                fault = Fault(faults.NO_PROXY, unreached=fault.unreached)
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


async def _read(answer: aiohttp.ClientResponse, take: Callable[[Any], object]) -> None:
    """Read a body as it arrives, decompressed by aiohttp. Raises Fault if the body exceeds the size
    limit, and the fault of an error status.
    """
    left = MAX_BODY_BYTES
    said: list[bytes] = []
    reader = ValueReader(take)
    fine = 200 <= answer.status < 300
    add = reader.add if fine else said.append
    async for piece in answer.content.iter_any():
        left -= len(piece)
        if left < 0:
            most = MAX_BODY_BYTES / 2**20
            raise Fault(f"expected an answer of at most {most:g} MiB, found a longer one")
        add(piece)
        if reader.done:
            break
    if not fine:
        raise fault_of_answer(answer.status, answer.headers, b"".join(said))
    reader.end()


async def listed_by(http: Http, to: Target) -> dict[str, dict[str, Any]]:
    """Return the entries of /models by model name, in any known format; Gemini's names lose their
    `models/` prefix. Raises Fault if the query fails or returns no list.
    """
    found: list[Any] = []
    await http.ask(to, found.append)
    data = found[0]
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


_UNREACHED: dict[str, tuple[type[Exception], ...]] = {
    faults.NO_HTTP: (aiohttp.NonHttpUrlClientError,),
    faults.NO_PROXY: (aiohttp.ClientProxyConnectionError, aiohttp.ClientHttpProxyError),
    faults.NO_CERTIFICATE: (aiohttp.ClientConnectorCertificateError,),
    faults.NO_TLS: (aiohttp.ClientConnectorSSLError, ssl.SSLError),
    # The name of a host that can't be encoded is a UnicodeError.
    faults.NO_CONNECTION: (
        aiohttp.ClientConnectorError,
        aiohttp.ConnectionTimeoutError,
        UnicodeError,
    ),
}
"""Causes for which no server received the request, and their exceptions, in the order in which they
are tried.
"""


def fault_of(error: Exception) -> Fault:
    """Return the fault that describes an exception raised in one attempt.

    The fault's kind is our own text, never the server's, because it appears in logs and reports.
    """
    if isinstance(error, Fault):
        return error
    for kind, kinds in _UNREACHED.items():
        if isinstance(error, kinds):
            return Fault(kind, retry=not faults.CAUSES[kind].users, unreached=True)
    if isinstance(error, TimeoutError):
        return Fault(faults.TIMED_OUT, overload=True)
    if isinstance(error, aiohttp.ClientError | OSError):
        return Fault(faults.NO_CONNECTION)
    return Fault(f"expected an HTTP response, but it can't be read ({type(error).__name__})")


def fault_of_answer(status: int, headers: Mapping[str, str], said: bytes) -> Fault:
    """Return the fault for a response with an error status, including the server's message and its
    meaning.
    """
    kind = f"HTTP {status}"
    if 300 <= status < 400:
        kind += " (a redirect, which is not followed; correct base_url)"
    more = {"status": status, "retry_after_s": retry_after(headers)}
    return refusal(kind, said.decode(errors="replace"), status, **more)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return how many seconds the server asks to wait, at most LONGEST_RETRY_AFTER_S, or None if it
    names no number of seconds.
    """
    with suppress(ValueError):
        seconds = float(headers.get("retry-after", ""))
        if math.isfinite(seconds):
            return min(max(seconds, 0.0), LONGEST_RETRY_AFTER_S)
    return None
