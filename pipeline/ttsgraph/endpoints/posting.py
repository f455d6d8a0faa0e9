"""Requests over the `openai` package's own connections, without what the package does anew for each
of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

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

from ttsgraph.models.client import OUTGOING

_LEFT_OUT = (b"content-length", b"transfer-encoding", b"x-stainless-")
"""How headers begin that are of one body, or tell the package's makers of this machine: no endpoint
needs them.
"""

_NO_OPTIONS: RequestOptions = {}
_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


class Poster:
    """Posts JSON to one path of an endpoint.

    The URL, the headers (the key among them) and the time limits are those that the package gives a
    request to it with these options, made once; proxies, TLS and connections are the package's.
    That spares most of a call's core time: options, headers and URL would be made anew, and merged
    three times.

    With `max_bytes`, a plain answer (a success, not packed, its length told and within this bound)
    is read as it comes. All other answers go the package's way, through the client's response
    hooks; so do plain ones without `max_bytes`.
    """

    def __init__(
        self,
        client: openai.AsyncOpenAI,
        path: str,
        options: RequestOptions = _NO_OPTIONS,
        max_bytes: int = -1,
    ) -> None:
        made = client._build_request(
            FinalRequestOptions.construct(method="post", url=path, json_data={}, **options)
        )
        self._url = made.url
        self._headers = [
            (name, value)
            for name, value in made.headers.raw
            if not name.lower().startswith(_LEFT_OUT)
        ]
        self._http = client._client
        # The proxy's, where the environment has one for this URL.
        self._transport = _aiohttp_transport(self._http._transport_for_url(self._url))
        self._max_bytes = max_bytes
        self._sent = _arguments(made, self._headers, self._transport)

    async def post(self, body: Mapping[str, Any]) -> bytes:
        """The answer's body. Raises the package's errors: APIStatusError, APITimeoutError,
        APIConnectionError.
        """
        content = _dumps(body).encode()
        try:
            return await self._exchanged(content)
        except httpx2.TimeoutException as error:
            raise openai.APITimeoutError(request=self._request(content)) from error
        except httpx2.HTTPError as error:
            raise openai.APIConnectionError(request=self._request(content)) from error

    async def _exchanged(self, content: bytes) -> bytes:
        """The body of a successful answer. Raises the errors of the package's HTTP client."""
        transport = self._transport
        if not isinstance(transport.client, aiohttp.ClientSession):
            transport.client = transport.get_client()
        sent = self._sent
        if (out := OUTGOING.get()) is not None and out.headers:
            sent = sent | {"headers": CIMultiDict(sent["headers"], **out.headers)}
        try:
            async with transport.client.post(data=content, **sent) as answer:
                if 200 <= answer.status < 300 and self._is_plain(answer.headers):
                    return await answer.read()
                response = await self._read(answer, content)
        except (aiohttp.ClientError, TimeoutError) as error:
            with map_aiohttp_exceptions():
                raise error
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

    async def _read(self, answer: aiohttp.ClientResponse, content: bytes) -> httpx2.Response:
        """Any answer, as the package has it."""
        response = httpx2.Response(
            answer.status,
            headers=answer.raw_headers,
            stream=AiohttpResponseStream(answer),
            request=self._request(content),
        )
        try:
            for hook in self._http.event_hooks["response"]:
                await hook(response)
            await response.aread()
        finally:
            await response.aclose()
        return response

    def _request(self, content: bytes) -> httpx2.Request:
        """What was sent, as the package's errors tell it."""
        return httpx2.Request("POST", self._url, headers=self._headers, content=content)


def _aiohttp_transport(transport: Any) -> AiohttpTransport:
    """Raises TypeError for a client that is not the package's over aiohttp."""
    if not isinstance(transport, AiohttpTransport):
        raise TypeError(f"expected a client over aiohttp, found one over {type(transport)}")
    return transport


def _arguments(
    made: httpx2.Request, headers: Sequence[tuple[bytes, bytes]], transport: AiohttpTransport
) -> dict[str, Any]:
    """How the package's transport hands a request to aiohttp, but for its body."""
    limits = made.extensions.get("timeout", {})
    proxy = transport.proxy
    return {
        "url": yarl.URL(str(made.url)),
        "headers": CIMultiDict((name.decode(), value.decode()) for name, value in headers),
        "allow_redirects": False,
        "auto_decompress": False,
        "timeout": aiohttp.ClientTimeout(
            sock_connect=limits.get("connect"),
            sock_read=limits.get("read"),
            connect=limits.get("pool"),
        ),
        "proxy": None if proxy is None else str(proxy.url),
        "proxy_auth": aiohttp.BasicAuth(*proxy.auth) if proxy is not None and proxy.auth else None,
        "proxy_headers": None if proxy is None else proxy.headers,
    }
