"""Answers in words: the same words, words that must occur, and words in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any, Literal

from ttsgraph.base.errors import SettingsError
from ttsgraph.base.parsing import Closed
from ttsgraph.tasks.base import Question, register_task
from ttsgraph.tasks.plain import PlainTask, ReadTask, normalised, stated, words_of


def form_in(text: str) -> str | None:
    """What a reply says its answer is, else all of it, in normal form."""
    return normalised(stated(text)) or None


class ExactTask(ReadTask):
    """Right if the answer is one of those accepted, but for case, punctuation at the edges of
    words, spaces and articles.
    """

    name = "exact"
    instruction = (
        "Answer the question. End with the answer alone, in as few words as possible: Answer: ..."
    )
    read = staticmethod(form_in)

    def grade(self, question: Question, text: str) -> bool:
        """Whether it is one of the answers."""
        return self.extract(text) in {normalised(answer) for answer in self.accepted(question)}


class ContainsTask(PlainTask):
    """The share of the required phrases that occur in the reply, as whole words."""

    name = "contains"
    instruction = "Answer the question."
    same_answer = ""

    def extract(self, text: str) -> str | None:
        """Nothing that a vote could count: replies are texts."""
        return None

    def grade(self, question: Question, text: str) -> float:
        """The share of the row's answers that occur."""
        said = f" {normalised(text)} "
        phrases = self.accepted(question)
        return sum(f" {normalised(phrase)} " in said for phrase in phrases) / len(phrases)


class SimilarityOptions(Closed):
    """How near a reply comes to the reference.

    token_f1  the harmonic mean of precision and recall of its words, as for SQuAD
    rouge1    ROUGE's F-measure: of words, of pairs of words, of the longest common subsequence
              (package rouge-score)
    """

    metric: Literal["token_f1", "rouge1", "rouge2", "rougeL"] = "token_f1"


class SimilarityTask(PlainTask):
    """Free text, scored by what it has in common with the nearest of the references."""

    name = "similarity"
    instruction = "Answer the question, briefly."
    same_answer = ""
    Options = SimilarityOptions

    def extract(self, text: str) -> str | None:
        """Nothing that a vote could count: replies are texts."""
        return None

    def grade(self, question: Question, text: str) -> float:
        """The best score against any of the references, within [0, 1]."""
        if not text.strip():
            return 0.0
        metric = self.options.metric
        score = token_f1 if metric == "token_f1" else _rouge(metric)
        return max(score(reference, text) for reference in self.accepted(question))


def token_f1(reference: str, text: str) -> float:
    """F1 of a text's words against the reference's, each counted as often as it occurs."""
    wanted = words_of(reference)
    said = words_of(text)
    common = _in_common(wanted, said)
    return 2 * common / (len(wanted) + len(said)) if common else 0.0


def _in_common(first: Sequence[str], second: Sequence[str]) -> int:
    return sum((Counter(first) & Counter(second)).values())


@cache
def _rouge(metric: str) -> Any:
    try:
        from rouge_score.rouge_scorer import RougeScorer
    except ImportError:
        raise SettingsError(
            f"metric {metric} needs the package rouge-score: pip install 'ttsgraph[rouge]'"
        ) from None
    scorer = RougeScorer([metric], use_stemmer=True)

    def score(reference: str, text: str) -> float:
        return float(scorer.score(reference, text)[metric].fmeasure)

    return score


register_task(ExactTask())
register_task(ContainsTask())
register_task(SimilarityTask())
