"""Several draws of one prompt in one request: alike calls that come at once are asked for together.

The k parallel nodes of a graph differ in the number of the draw alone. Each call is answered, kept
and paid for as if it had been asked alone: an upper bound where a prompt is read once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from ttsgraph.models.client import Client, Completion, Request, Wrapper


class DrawingClient(Wrapper):
    """Asks another client for at most `most` draws of a prompt in one request."""

    def __init__(self, inner: Client, most: int) -> None:
        super().__init__(inner)
        self._most = most
        self._waiting: dict[Request, list[tuple[Request, asyncio.Future[Completion]]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def complete(self, request: Request) -> Completion:
        """The inner client's answer, perhaps one of several that it gave at once."""
        if self._most == 1 or request.sampling.greedy or not self._inner.draws(request):
            return await self._inner.complete(request)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Completion] = loop.create_future()
        prompt = replace(request, replica=0)
        if prompt not in self._waiting:
            # Calls that are ready now have been made by then: they stand in the loop's queue before
            # it.
            loop.call_soon(self._send, prompt)
        self._waiting.setdefault(prompt, []).append((request, answer))
        return await answer

    def _send(self, prompt: Request) -> None:
        """Ask for all that has come of a prompt."""
        alike = self._waiting.pop(prompt)
        for start in range(0, len(alike), self._most):
            task = asyncio.create_task(self._ask(alike[start : start + self._most]))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _ask(self, alike: Sequence[tuple[Request, asyncio.Future[Completion]]]) -> None:
        """One request for these calls, and further ones for those that it did not answer."""
        wanted = [(request, answer) for request, answer in alike if not answer.done()]
        try:
            found = []
            if len(wanted) > 1:
                found = await self._inner.several(wanted[0][0], len(wanted))
            for (_, answer), completion in zip(wanted, found, strict=False):
                _settle(answer, completion)
            await asyncio.gather(*(self._alone(*one) for one in wanted[len(found) :]))
        except BaseException as error:
            for _, answer in wanted:
                _settle(answer, error)
            if not isinstance(error, Exception):
                raise

    async def _alone(self, request: Request, answer: asyncio.Future[Completion]) -> None:
        try:
            _settle(answer, await self._inner.complete(request))
        except Exception as error:  # is that of this call, and no other's
            _settle(answer, error)

    async def aclose(self) -> None:
        """Give up what is under way, and close the inner client."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await super().aclose()


def _settle(answer: asyncio.Future[Completion], found: Completion | BaseException) -> None:
    """Give a waiting call what came of it, unless it has that or is given up."""
    if answer.done():
        return
    if isinstance(found, Completion):
        answer.set_result(found)
    elif isinstance(found, asyncio.CancelledError):
        answer.cancel()
    else:
        answer.set_exception(found)
