"""Calls of the client for endpoints, on a real socket."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Any

from ttsgraph.endpoints.endpoints import FailurePolicy
from ttsgraph.endpoints.openai_client import Endpoint, OpenAIClient
from ttsgraph.models.client import Begin, Client, OnPiece, Request
from ttsgraph.models.dialect import DialectStore

ONCE = FailurePolicy(max_retries=0)


def ask(
    urls: str | Sequence[str],
    *requests: Request,
    served_as: str = "served",
    policy: FailurePolicy = ONCE,
    habits: DialectStore | None = None,
    around: Callable[[Client], Client] = lambda client: client,
    pieces: list[str] | None = None,
    on_piece: OnPiece | None = None,
    begin: Callable[[Begin], Begin] | None = None,
    **endpoint: Any,
) -> list[Any]:
    """What comes of these calls at once: completions or errors; streamed with `pieces` or
    `on_piece`, begun as `begin` says.
    """
    if pieces is not None:
        on_piece = lambda piece: pieces.append(piece["delta"]["content"])  # noqa: E731
    at = (urls,) if isinstance(urls, str) else tuple(urls)
    served = {requests[0].model: Endpoint(at, served_as, **endpoint)}

    async def run() -> list[Any]:
        async with aclosing(around(OpenAIClient(served, policy, habits))) as client:
            made = client.complete if begin is None else begin(client.begin)
            calls = (
                made(request) if on_piece is None else client.stream(request, on_piece)
                for request in requests
            )
            return await asyncio.gather(*calls, return_exceptions=True)

    return asyncio.run(run())
