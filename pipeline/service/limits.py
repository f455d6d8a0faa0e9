"""What is checked before a request costs anything: its key, the size of its body, and whether there
is room for it.
"""

from __future__ import annotations

import asyncio
import hmac
from typing import Any

from fastapi import Request
from starlette.datastructures import Headers

from ttsgraph.service.errors import ApiError
from ttsgraph.settings.service import Tier, TierSettings

BODY_S = 30
"""Seconds that a client has to send its request's body."""

RETRY_AFTER_S = 1


def check_key(request: Request, key: str | None) -> None:
    """Raises ApiError 401 unless the request carries the key; without one, everybody may ask."""
    if key is None:
        return
    scheme, _, sent = request.headers.get("authorization", "").partition(" ")
    # In constant time, so that how much of a guess is right can't be timed.
    if scheme.lower() != "bearer" or not hmac.compare_digest(
        sent.strip().encode("latin-1"), key.encode()
    ):
        raise ApiError(
            401,
            "expected the server's API key as a bearer token",
            headers={"www-authenticate": "Bearer"},
        )


def check_framing(headers: Headers) -> None:
    """Raises ApiError 400 for a request of two lengths.

    A proxy before this server may see another end of its body, and take the rest for a request of
    somebody else.
    """
    if "content-length" in headers and "transfer-encoding" in headers:
        raise ApiError(
            400,
            "expected Content-Length or Transfer-Encoding, found both",
            headers={"connection": "close"},
        )


async def read_body(request: Request, max_bytes: int) -> bytes:
    """The request's body, read no further than allowed. Raises ApiError 413, 408 or 415."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(415, f"expected Content-Type application/json, found {kind or 'none'}")
    too_large = ApiError(413, f"expected a body of at most {max_bytes} bytes")
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > max_bytes:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > max_bytes:
                    raise too_large
    except TimeoutError:
        raise ApiError(408, f"expected the whole body within {BODY_S} seconds") from None
    return bytes(body)


class Admission:
    """How many requests are answered at once, each tier's up to its share of the places: when
    they run out, what can wait is turned away first.
    """

    def __init__(self, places: int, tiers: TierSettings) -> None:
        self._places = {
            tier: max(1, round(share * places)) for tier, share in tiers.model_dump().items()
        }
        self.taken = 0

    def check(self, tier: Tier = "default") -> None:
        """Raises ApiError 429 when there is no room for a request of this tier."""
        places = self._places[tier]
        if self.taken >= places:
            said = f"all {places} places for the service tier {tier} are taken; try again soon"
            raise ApiError(429, said, headers={"retry-after": str(RETRY_AFTER_S)})

    def hold(self, task: asyncio.Task[Any]) -> None:
        """Take a place until the task ends."""
        self.taken += 1
        task.add_done_callback(self._leave)

    def _leave(self, task: asyncio.Task[Any]) -> None:
        self.taken -= 1
