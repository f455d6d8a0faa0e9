"""Several draws of one prompt in one request: alike calls that come at once are asked for together.

The k parallel nodes of a graph differ in the number of the draw alone. Each call is answered, kept
and paid for as if it had been asked alone: an upper bound where a prompt is read once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from ttsgraph.models.client import Client, Completion, Request, Wrapper

Drawn = list[Completion | BaseException]


class DrawingClient(Wrapper):
    """Asks another client for at most `most` draws of a prompt in one request."""

    def __init__(self, inner: Client, most: int) -> None:
        super().__init__(inner)
        self._most = most
        # By prompt: draws that are yet to be asked for together, and what asks for them.
        self._open: dict[Request, tuple[list[Request], asyncio.Task[Drawn]]] = {}
        self._tasks: set[asyncio.Task[Drawn]] = set()

    async def complete(self, request: Request) -> Completion:
        """The inner client's answer, perhaps one of several that it gave at once."""
        if self._most == 1 or request.sampling.greedy or not self._inner.draws(request):
            return await self._inner.complete(request)
        prompt = replace(request, replica=0)
        if prompt not in self._open or len(self._open[prompt][0]) == self._most:
            draws: list[Request] = []
            # Calls that are ready now are made before it begins, as they stand in the loop's queue.
            task = asyncio.create_task(self._ask(prompt, draws))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            self._open[prompt] = draws, task
        draws, task = self._open[prompt]
        place = len(draws)
        draws.append(request)
        answer = (await asyncio.shield(task))[place]
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def _ask(self, prompt: Request, draws: Sequence[Request]) -> Drawn:
        """One request for these draws, and further ones for those that it did not answer."""
        if prompt in self._open and self._open[prompt][0] is draws:
            del self._open[prompt]
        try:
            count = len(draws)
            found = await self._inner.several(draws[0], count) if count > 1 else []
        except Exception as error:  # is that of all
            return [error] * count
        alone = (self._inner.complete(draw) for draw in draws[len(found) :])
        return [*found, *await asyncio.gather(*alone, return_exceptions=True)]

    async def aclose(self) -> None:
        """Give up what is under way, and close the inner client."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await super().aclose()
