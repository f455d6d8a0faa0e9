"""Whether one graph is better than another: a paired test on the same test questions, and the champion's rule made of it.

Both graphs answered the same questions, so only those that one answered right and the other wrong tell them apart. If neither is
better, each of these goes either way with probability 1/2 (McNemar's test in its exact form, one-sided).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pandas as pd
from scipy.stats import binomtest

from pipeline.environment import Feedback
from pipeline.provenance import TestResult

Outcomes = Mapping[str, bool | None]
"""Question id -> whether its answer is right; None where infrastructure failed."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Two graphs on the questions that both were scored on: how many only the first has right, and only the second."""

    questions: int
    first_only: int
    second_only: int

    def p_value(self, alternative: Literal["two-sided", "greater"] = "two-sided") -> float:
        """p of McNemar's exact test; 1 where the graphs agree on every question."""
        differ = self.first_only + self.second_only
        return float(binomtest(self.first_only, differ, 0.5, alternative=alternative).pvalue) if differ else 1.0


def paired(first: Outcomes, second: Outcomes) -> Pairs:
    """Compare two graphs question by question."""
    both = [(mine, second.get(question)) for question, mine in first.items() if mine is not None]
    scored = [(mine, its) for mine, its in both if its is not None]
    return Pairs(len(scored), sum(mine and not its for mine, its in scored), sum(its and not mine for mine, its in scored))


def against_first(feedbacks: Sequence[Feedback]) -> pd.DataFrame:
    """The first graph against each on the same questions, itself included (columns of schemas.Evaluations)."""
    outcomes = [{result.question_id: result.correct for result in feedback.results} for feedback in feedbacks]
    pairs = [paired(outcomes[0], its) for its in outcomes]
    return pd.DataFrame(
        {
            "found_only": [pair.first_only for pair in pairs],
            "rival_only": [pair.second_only for pair in pairs],
            "p_differs": [pair.p_value() for pair in pairs],
        }
    )


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether to promote, and why. `p_value` is None where no test was made."""

    promote: bool
    reason: str
    p_value: float | None = None


def decide(challenger: TestResult, champion: TestResult | None, confidence: float) -> Decision:
    """Promote when there is no champion, or when the challenger is better with this confidence on the same test questions."""
    if champion is None:
        return Decision(True, "there was no champion")
    if challenger.questions != champion.questions:
        return Decision(False, "the champion was tested on other questions, so that the scores can't be compared; promote by hand")
    pairs = paired(challenger.outcomes, champion.outcomes)
    p = pairs.p_value("greater")
    mine, its = pairs.first_only, pairs.second_only
    counted = f"of {pairs.questions} test questions, {mine} only the challenger has right and {its} only the champion"
    if p < 1 - confidence:
        return Decision(True, f"better: {counted} (p = {p:.4f}, below {1 - confidence:.3g})", p)
    return Decision(False, f"not shown to be better: {counted} (p = {p:.4f}, expected below {1 - confidence:.3g})", p)
