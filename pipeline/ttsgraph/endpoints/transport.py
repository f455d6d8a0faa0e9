"""How endpoints are reached, and what an exception on the way means.

A server gone wrong may send without end, pack gigabytes into a megabyte, or pass the prompt on:
answers are read and unpacked up to a bound, and redirects are not followed.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import ssl
import time
import zlib
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any, TypeVar

import aiohttp
import httpx2
import openai
import yarl
from multidict import CIMultiDict
from openai import RequestOptions
from openai._models import FinalRequestOptions
from openai._vendor.httpx_aiohttp.transport import (
    AiohttpResponseStream,
    AiohttpTransport,
    map_aiohttp_exceptions,
)

from ttsgraph.base.errors import ContextOverflow
from ttsgraph.base.secrets import redact
from ttsgraph.endpoints.endpoints import Fault, fault_of_status, refused
from ttsgraph.endpoints.refusals import STATUSES, refusal_in
from ttsgraph.models.client import OUTGOING, whole_text

MAX_BODY_BYTES = 4 * 2**20
"""More than the longest answer that a model of today gives."""

NO_CONNECTION = "connection refused or broken"
LONGEST_RETRY_AFTER_S = 600.0
OVERFLOW = re.compile(
    r"context[ _](length|window|size)|maximum (model|context)|max_model_len|prompt is too long",
    re.IGNORECASE,
)
"""How OpenAI, vLLM, llama.cpp and others say that a prompt does not fit."""

T = TypeVar("T")
_NOT_MADE = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS
_LEFT_OUT = (b"content-length", b"transfer-encoding", b"x-stainless-")
"""How headers begin that are of one body, or tell the package's makers of this machine."""

_NO_OPTIONS: RequestOptions = {}
_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def connect(url: str, key: str, timeout_s: float) -> openai.AsyncOpenAI:
    """A client that makes one attempt, follows no redirect, and reads up to MAX_BODY_BYTES."""
    http = openai.DefaultAioHttpClient(
        timeout=timeout_s,
        follow_redirects=False,
        verify=_certificates(),
        headers={"accept-encoding": "identity"},
        event_hooks={"response": [_bound]},
    )
    return openai.AsyncOpenAI(
        base_url=url, api_key=key, timeout=timeout_s, max_retries=0, http_client=http
    )


@cache
def _certificates() -> ssl.SSLContext:
    # Each client would read them all anew, which takes as long as a hundred calls.
    return httpx2.create_ssl_context()


async def _bound(response: httpx2.Response) -> None:
    # Unpacked by _Bounded: httpx knows no bound.
    packed = response.headers.pop("content-encoding", "").strip().lower()
    if packed not in ("identity", "", "gzip", "x-gzip", "deflate"):
        raise Fault("expected an answer that is not compressed, found one that is")
    response.stream = _Bounded(response.stream, packed not in ("identity", ""))


class _Bounded(httpx2.AsyncByteStream):
    """A body that is read, and unpacked where it is packed, up to a bound."""

    def __init__(self, stream: Any, packed: bool) -> None:
        self._stream = stream
        self._unpack = zlib.decompressobj(_GZIP_OR_ZLIB) if packed else None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = MAX_BODY_BYTES
        async for chunk in self._stream:
            try:
                # At most one byte too many is unpacked.
                piece = chunk if self._unpack is None else self._unpack.decompress(chunk, left + 1)
            except zlib.error:
                raise Fault(
                    "expected an answer in gzip, as its header says, found something else"
                ) from None
            left -= len(piece)
            if left < 0:
                raise Fault(
                    f"expected an answer of at most {MAX_BODY_BYTES / 2**20:g} MiB, found a longer"
                    " one"
                )
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


class Poster:
    """Posts JSON to one path of an endpoint, over the `openai` package's own connections.

    URL, headers and time limits are those that the package gives such a request, made once rather
    than anew and merged three times, which spares most of a call's core time. A plain answer (a
    success, not packed, its length told and within `max_bytes`) is read as it comes; others go the
    package's way.
    """

    def __init__(
        self,
        client: openai.AsyncOpenAI,
        path: str,
        options: RequestOptions = _NO_OPTIONS,
        max_bytes: int = MAX_BODY_BYTES,
    ) -> None:
        self._made = client._build_request(
            FinalRequestOptions.construct(method="post", url=path, json_data={}, **options)
        )
        self._max_bytes = max_bytes
        self._hooks = client._client.event_hooks["response"]
        # The proxy's, where the environment has one for this URL.
        transport = client._client._transport_for_url(self._made.url)
        assert isinstance(transport, AiohttpTransport), "a client that is not over aiohttp"
        self._transport = transport
        limits = self._made.extensions.get("timeout", {})
        proxy = transport.proxy
        # As the package's transport hands a request to aiohttp, but for its body.
        self._sent: dict[str, Any] = {
            "url": yarl.URL(str(self._made.url)),
            "headers": CIMultiDict(
                (name.decode(), value.decode())
                for name, value in self._made.headers.raw
                if not name.lower().startswith(_LEFT_OUT)
            ),
            "allow_redirects": False,
            "auto_decompress": False,
            "timeout": aiohttp.ClientTimeout(
                sock_connect=limits.get("connect"),
                sock_read=limits.get("read"),
                connect=limits.get("pool"),
            ),
            "proxy": proxy and str(proxy.url),
            "proxy_auth": aiohttp.BasicAuth(*proxy.auth) if proxy and proxy.auth else None,
            "proxy_headers": proxy and proxy.headers,
        }

    async def post(self, body: Mapping[str, Any]) -> bytes:
        """The body. Raises APIStatusError, APITimeoutError, APIConnectionError."""
        transport = self._transport
        if not isinstance(transport.client, aiohttp.ClientSession):
            transport.client = transport.get_client()
        sent = self._sent
        if (out := OUTGOING.get()) is not None and out.headers:
            sent = sent | {"headers": CIMultiDict(sent["headers"], **out.headers)}
        try:
            with map_aiohttp_exceptions():
                async with transport.client.post(data=_dumps(body).encode(), **sent) as answer:
                    if 200 <= answer.status < 300 and self._is_plain(answer.headers):
                        return await answer.read()
                    response = await self._read(answer)
        except httpx2.TimeoutException as error:
            raise openai.APITimeoutError(request=self._made) from error
        except httpx2.HTTPError as error:
            raise openai.APIConnectionError(request=self._made) from error
        if not response.is_success:
            raise openai.APIStatusError(
                f"HTTP {response.status_code}", response=response, body=None
            )
        return response.content

    def _is_plain(self, headers: Mapping[str, str]) -> bool:
        packed = headers.get("Content-Encoding", "identity") != "identity"
        length = headers.get("Content-Length", "")
        known = length.isdecimal() and "Transfer-Encoding" not in headers
        return known and not packed and len(length) < 19 and int(length) <= self._max_bytes

    async def _read(self, answer: aiohttp.ClientResponse) -> httpx2.Response:
        """Any answer, as the package has it."""
        stream = AiohttpResponseStream(answer)
        response = httpx2.Response(
            answer.status, headers=answer.raw_headers, stream=stream, request=self._made
        )
        try:
            for hook in self._hooks:
                await hook(response)
            await response.aread()
        finally:
            await response.aclose()
        return response


def ask_once(
    url: str,
    key: str,
    timeout_s: float,
    work: Callable[[openai.AsyncOpenAI], Coroutine[Any, Any, T]],
) -> T:
    """What comes of a question before any work, such as what is served, within so many seconds;
    from anywhere, a running loop included. Raises TimeoutError, Fault as `connect`, and the
    package's.
    """

    async def asked() -> T:
        async with asyncio.timeout(timeout_s), connect(url, key, timeout_s) as client:
            return await work(client)

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, asked()).result()


async def listed_by(
    client: openai.AsyncOpenAI, options: RequestOptions = _NO_OPTIONS
) -> dict[str, dict[str, Any]]:
    """Name -> entry of each model in /models, in any shape. Raises Fault, and the package's."""
    data: Any = await client.get("/models", cast_to=object, options=options)
    rows = data.get("data", data.get("models")) if isinstance(data, dict) else data
    entries = rows if isinstance(rows, list) else [None]
    found = {}
    for entry in entries:
        name = (entry.get("id") or entry.get("name")) if isinstance(entry, dict) else entry
        if not isinstance(name, str):
            raise Fault("no list of models is there")
        found[whole_text(name)] = entry if isinstance(entry, dict) else {}
    return found


def fault_of(error: Exception, where: str) -> Fault | ContextOverflow:
    """What an exception of one attempt means: a fault, whose kind is in our words, never the
    server's, which end in logs and reports; or a prompt that does not fit the model.
    """
    if isinstance(error, Fault):
        return error
    # aiohttp's transport takes any trouble with a connection for one that timed out while it was
    # made.
    if isinstance(error.__cause__, httpx2.ConnectTimeout | httpx2.ConnectError):
        return Fault(NO_CONNECTION, unreached=isinstance(error.__cause__.__cause__, _NOT_MADE))
    if isinstance(error, TimeoutError | openai.APITimeoutError):
        return Fault("timed out", overload=True)
    if isinstance(error, openai.APIStatusError):
        status = error.status_code
        if status in (400, 413, 422) and OVERFLOW.search(said_by(error)):
            return ContextOverflow(f"{where}: the prompt does not fit the model's context")
        redirect = (
            " (a redirect, which is not followed; correct base_url)" if 300 <= status < 400 else ""
        )
        wait_s = retry_after(error.response.headers, time.time())
        kind = f"HTTP {status}{redirect}"
        fault = refused(kind) if refuses(error) else fault_of_status(status, kind, wait_s)
        fault.status = status
        return fault
    if isinstance(error, openai.APIConnectionError):
        return Fault(NO_CONNECTION)
    if isinstance(error, openai.APIError):  # what a stream holds in place of a chunk
        kind = "an error inside HTTP 200"
        return refused(kind, error.message) if refusal_in(error.body) else Fault(kind)
    if isinstance(error, ValueError):
        return Fault("expected JSON, found something else")
    return Fault(f"expected an HTTP response, found something else ({type(error).__name__})")


def said_by(error: openai.APIStatusError) -> str:
    """All that an answer with an error status holds."""
    return error.response.content.decode(errors="replace")


def refuses(error: openai.APIStatusError) -> bool:
    """Whether a filter or policy refuses the prompt, not the server the request's form."""
    if error.status_code not in STATUSES:
        return False
    text = said_by(error)
    try:
        return bool(refusal_in(json.loads(text)))
    except (ValueError, RecursionError):
        return bool(refusal_in(text))


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds that the server asks to wait, as a number or a date; `now` in Unix seconds."""
    said = headers.get("retry-after", "")
    try:
        seconds = float(said)
    except ValueError:
        try:
            when = parsedate_to_datetime(said)
            seconds = (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() - now
        except (ValueError, OverflowError):
            return None
    return min(max(seconds, 0.0), LONGEST_RETRY_AFTER_S) if math.isfinite(seconds) else None


def reason_of(error: Exception) -> str:
    """One line without request headers or bodies (a key could be in them)."""
    if isinstance(error, openai.APIStatusError):
        return f"HTTP {error.status_code}"
    if not isinstance(error, openai.APIError):
        return str(fault_of(error, ""))
    # aiohttp's transport takes a refused connection for a connection that timed out.
    refused = isinstance(error.__cause__, httpx2.ConnectTimeout)
    what = "Connection error" if refused else error.message.rstrip(".")
    cause = f" ({error.__cause__})" if error.__cause__ else ""
    return redact(f"{what}{cause}")
