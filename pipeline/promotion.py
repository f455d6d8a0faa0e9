"""Whether a newly found graph replaces the champion: a paired test on the same test questions.

Both graphs answered the same questions, so only those that one answered right and the other wrong tell them apart. If neither is
better, each of these goes either way with probability 1/2 (McNemar's test in its exact form, one-sided).
"""

from __future__ import annotations

from dataclasses import dataclass

from scipy.stats import binomtest

from pipeline.provenance import TestResult


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
    pairs = [
        (mine, champion.outcomes.get(question))
        for question, mine in challenger.outcomes.items()
        if mine is not None and champion.outcomes.get(question) is not None
    ]
    better = sum(mine is True and its is False for mine, its in pairs)
    worse = sum(mine is False and its is True for mine, its in pairs)
    p = float(binomtest(better, better + worse, 0.5, alternative="greater").pvalue) if better + worse else 1.0
    counted = f"of {len(pairs)} test questions, {better} only the challenger has right and {worse} only the champion"
    if p < 1 - confidence:
        return Decision(True, f"better: {counted} (p = {p:.4f}, below {1 - confidence:.3g})", p)
    return Decision(False, f"not shown to be better: {counted} (p = {p:.4f}, expected below {1 - confidence:.3g})", p)
