"""What the calls of one served version tell of its models: what a call uses, and which model hangs.

Timeouts of single calls, second requests and other models in place of one that fails are a
gateway's work (docs/steady.md).
"""

from __future__ import annotations

from collections import defaultdict

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


class Upstream:
    """What is known of the models of one version; `budget` bounds further attempts of its calls."""

    def __init__(self, budget: RetryBudget) -> None:
        self.budget = budget
        # Of a model's calls: how many, sums of characters asked and of tokens read and written, and
        # of squares of characters and of their products with tokens read.
        self._used: defaultdict[str, tuple[int, ...]] = defaultdict(lambda: (0,) * 6)
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
        asked = _characters(request)
        read = completion.prompt_tokens
        call = (1, asked, read, completion.completion_tokens, asked**2, asked * read)
        self._used[model] = tuple(map(sum, zip(self._used[model], call, strict=True)))

    def expected(self, model: str, request: Request) -> Completion:
        """What a call uses that was given up on the way: an estimate, since nobody says. Whoever
        bills a call bills it whole.

        Tokens read are taken as a straight line over characters, since every prompt has tokens that
        no text of it accounts for.
        """
        characters = _characters(request)
        calls, asked, read, written, squared, asked_by_read = self._used[model]
        if not calls:
            return Completion("", characters // CHARACTERS_PER_TOKEN, 0, 0.0)
        spread = squared * calls - asked**2
        slope = (asked_by_read * calls - asked * read) / spread if spread else 0.0
        slope = min(max(0.0, slope), read / asked)  # no call reads fewer than none
        reads = read / calls + slope * (characters - asked / calls)
        return Completion("", round(reads), round(written / calls), 0.0)


def _characters(request: Request) -> int:
    return sum(len(message.whole or message.content) for message in request.messages) or 1
