"""Model clients for tests, given by injection: no patching."""

import hashlib
from collections import Counter
from collections.abc import Callable

from ttsgraph.base.errors import REFUSED, CallFailed, PromptRefused
from ttsgraph.models.client import Client, Completion, Request


class ScriptedClient(Client):
    """Answers with `reply(request)`, notes what it was asked; calls that `fails` fail for good, and
    those that `refuses` get no answer.
    """

    def __init__(
        self,
        reply: Callable[[Request], str] = lambda request: "7",
        fails: Callable[[Request], bool] = lambda request: False,
        refuses: Callable[[Request], bool] = lambda request: False,
    ) -> None:
        self.reply = reply
        self.fails = fails
        self.refuses = refuses
        self.requests: list[Request] = []

    async def complete(self, request: Request) -> Completion:
        self.requests.append(request)
        if self.fails(request):
            raise CallFailed("the server went away")
        if self.refuses(request):
            raise PromptRefused(f"{request.model} at x: {REFUSED}: filtered")
        return Completion(self.reply(request), prompt_tokens=10, completion_tokens=2, latency_s=0.5)


def unit_draw(request: Request) -> float:
    """A number in [0, 1) that depends on the request's content alone."""
    return int(hashlib.sha256(request.key().encode()).hexdigest()[:8], 16) / 2**32


class ArithmeticClient(ScriptedClient):
    """Adds, rightly with a probability per model, and more surely with a draft to look at."""

    def __init__(self, skill: dict[str, float]) -> None:
        super().__init__(self._answer)
        self.skill = skill

    def _answer(self, request: Request) -> str:
        lines = [
            line for line in request.messages[-1].content.splitlines() if line.startswith("Q: ")
        ]
        right = sum(int(part) for part in lines[-1].removeprefix("Q: ").split("+"))
        chance = self.skill[request.model]
        seen = request.messages[-1].content.rsplit("Q: ", 1)[1]
        votes = Counter(part for part in seen.replace(",", " ").split() if part == str(right))
        chance = min(0.95, chance + 0.1 * sum(votes.values()))
        draw = unit_draw(request)
        return str(right) if draw < chance else str(right + 1 + int(draw * 100) % 5)
