"""Requests over the `openai` package's own connections, without what the package does anew for each
of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import httpx2
import openai
from openai import RequestOptions
from openai._models import FinalRequestOptions

_LEFT_OUT = (b"content-length", b"transfer-encoding", b"x-stainless-")
"""How headers begin that are of one body, or tell the package's makers of this machine: no endpoint
needs them.
"""

_NO_OPTIONS: RequestOptions = {}


class Poster:
    """Posts JSON to one path of an endpoint.

    The URL, the headers (the key among them) and the time limits are those that the package gives a
    request to it with these options, made once; proxies, TLS, connections and the client's response
    hooks are the package's. That spares most of a call's core time: options, headers and URL would
    be made anew, and merged three times.
    """

    def __init__(
        self, client: openai.AsyncOpenAI, path: str, options: RequestOptions = _NO_OPTIONS
    ) -> None:
        made = client._build_request(
            FinalRequestOptions.construct(method="post", url=path, json_data={}, **options)
        )
        self._url = made.url
        self._extensions = made.extensions
        self._headers = [
            (name, value)
            for name, value in made.headers.raw
            if not name.lower().startswith(_LEFT_OUT)
        ]
        self._http = client._client
        self._transport = self._http._transport_for_url(
            self._url
        )  # the proxy's, where the environment has one for it

    async def post(self, body: Mapping[str, Any]) -> bytes:
        """The answer's body. Raises the package's errors: APIStatusError, APITimeoutError,
        APIConnectionError.
        """
        content = json.dumps(
            body, ensure_ascii=False, separators=(",", ":"), allow_nan=False
        ).encode()
        request = httpx2.Request(
            "POST", self._url, headers=self._headers, content=content, extensions=self._extensions
        )
        try:
            response = await self._read(request)
        except httpx2.TimeoutException as error:
            raise openai.APITimeoutError(request=request) from error
        except httpx2.HTTPError as error:
            raise openai.APIConnectionError(request=request) from error
        if not response.is_success:
            raise openai.APIStatusError(
                f"HTTP {response.status_code}", response=response, body=None
            )
        return response.content

    async def _read(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._transport.handle_async_request(request)
        response.request = request
        try:
            for hook in self._http.event_hooks["response"]:
                await hook(response)
            await response.aread()
        finally:
            await response.aclose()
        return response
