"""Calls of the client for endpoints, on a real socket."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

from tests.support.stub_server import Answer, Misbehave, StubServer, serve
from ttsgraph.endpoints.endpoints import FailurePolicy
from ttsgraph.endpoints.openai_client import Endpoint, OpenAIClient
from ttsgraph.models.client import Begin, Client, Message, OnPiece, Request, Sampling
from ttsgraph.models.dialect import DialectStore

ONCE = FailurePolicy(max_retries=0)


def request(
    text: str = "Q: 1 + 1",
    replica: int = 0,
    system: str = "",
    form: str | None = None,
    **sampling: Any,
) -> Request:
    said = [Message("system", system)] if system else []
    messages = (*said, Message("user", text))
    return Request("m", "r", messages, Sampling(**sampling), replica, form=form)


def sums(count: int) -> list[Request]:
    """Requests whose answers are 1, 2, 3 and so on."""
    return [request(f"Q: {k} + 1", max_tokens=8) for k in range(count)]


def ask(
    urls: str | Sequence[str],
    *requests: Request,
    served_as: str = "served",
    policy: FailurePolicy = ONCE,
    habits: DialectStore | None = None,
    around: Callable[[Client], Client] = lambda client: client,
    on_piece: OnPiece | None = None,
    begin: Callable[[Begin], Begin] | None = None,
    **endpoint: Any,
) -> list[Any]:
    """What comes of these calls at once: completions or errors; streamed with `on_piece`, begun as
    `begin` says.
    """
    at = (urls,) if isinstance(urls, str) else tuple(urls)
    served = {requests[0].model: Endpoint(at, served_as, **endpoint)}

    async def run() -> list[Any]:
        async with aclosing(OpenAIClient(served, policy, habits)) as own:
            client = around(own)
            made = client.complete if begin is None else begin(client.begin)
            if on_piece is not None:
                made = partial(client.stream, on_piece=on_piece)
            return await asyncio.gather(*map(made, requests), return_exceptions=True)

    return asyncio.run(run())


def ask_stub(
    said: Answer | Misbehave | None,
    *requests: Request,
    when: Callable[[int, dict[str, Any]], bool] = lambda count, body: True,
    **more: Any,
) -> tuple[list[Any], StubServer]:
    """What comes of these calls of a stub that says this in place of sums, and the stub."""
    stub = StubServer(("served",), skill=1.0)

    def misbehave(count: int, body: dict[str, Any]) -> Answer | None:
        if not when(count, body):
            return None
        return said(count, body) if callable(said) else said

    stub.misbehave = misbehave  # type: ignore[method-assign]
    with serve(stub) as url:
        return ask(url, *requests, **more), stub
