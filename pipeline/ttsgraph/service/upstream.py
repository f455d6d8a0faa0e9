"""What the calls of one served version tell of its models: what a call uses, and which model hangs.

Timeouts of single calls, second requests and other models in place of one that fails are a
gateway's work (docs/steady.md).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from ttsgraph.endpoints.endpoints import RetryBudget
from ttsgraph.models.client import Completion, Request

CHARACTERS_PER_TOKEN = 4
"""Of a model none of whose calls has been answered yet."""

HANGING = 3
"""Calls of a model in a row that used up their share of a request's time, after which it is waited
for no longer than for the others.
"""

LOOK_AGAIN_S = 30.0
"""Between two calls of such a model that are waited for."""


@dataclass(slots=True)
class Typical:
    """What the calls of a model use: sums over them of characters asked, of tokens read and
    written, of squares and of products. Tokens read are taken as a straight line over characters,
    since every prompt has tokens that no text of it accounts for.
    """

    calls: int = 0
    asked: float = 0.0
    read: float = 0.0
    written: float = 0.0
    asked_squared: float = 0.0
    asked_by_read: float = 0.0

    def add(self, characters: int, completion: Completion) -> None:
        """One more call."""
        self.calls += 1
        self.asked += characters
        self.read += completion.prompt_tokens
        self.written += completion.completion_tokens
        self.asked_squared += characters**2
        self.asked_by_read += characters * completion.prompt_tokens

    def tokens(self, characters: int) -> tuple[int, int]:
        """Those that a call of so many characters reads and writes, as far as can be told."""
        if not self.calls:
            return characters // CHARACTERS_PER_TOKEN, 0
        spread = self.asked_squared * self.calls - self.asked**2
        slope = (self.asked_by_read * self.calls - self.asked * self.read) / spread if spread else 0
        slope = min(max(0.0, slope), self.read / self.asked)  # no call reads fewer than none
        read = self.read / self.calls + slope * (characters - self.asked / self.calls)
        return round(read), round(self.written / self.calls)


class Upstream:
    """What is known of the models of one version; `budget` bounds further attempts of its calls."""

    def __init__(self, budget: RetryBudget) -> None:
        self.budget = budget
        self._typical: defaultdict[str, Typical] = defaultdict(Typical)
        self._hanging: dict[str, tuple[int, float]] = {}  # calls in a row, and when it was seen

    def hangs(self, model: str, now: float) -> bool:
        """Whether a call of this model that begins now is not worth waiting for; once in a while
        one is, to see whether the model is back.
        """
        count, seen = self._hanging.get(model, (0, now))
        if count >= HANGING and now >= seen + LOOK_AGAIN_S:
            self._hanging[model] = count, now
            return False
        return count >= HANGING

    def gave_up(self, model: str, now: float) -> None:
        """A call of this model used up its share of the request's time."""
        self._hanging[model] = self._hanging.get(model, (0, now))[0] + 1, now

    def learn(self, model: str, request: Request, completion: Completion) -> None:
        """A call was answered; what it used says what one uses that is not."""
        self._hanging.pop(model, None)
        self._typical[model].add(_characters(request), completion)

    def expected(self, model: str, request: Request) -> Completion:
        """What a call uses that was given up on the way: an estimate, since nobody says. Whoever
        bills a call bills it whole.
        """
        return Completion("", *self._typical[model].tokens(_characters(request)), 0.0)


def _characters(request: Request) -> int:
    return sum(len(message.whole or message.content) for message in request.messages) or 1
