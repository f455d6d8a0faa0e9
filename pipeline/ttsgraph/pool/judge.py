"""Grading of answers by language models that follow a rubric: the median score of the judges.

A judge sees the question, the reference and the answer, quoted so that none of them can pose as an
instruction, and ends its reply with a score from 0 to 10. Judging makes ordinary model calls, which
are cached and paid for. The judges' reliability is measured before they are used
(ttsgraph/evaluation/judging.py).
"""

import asyncio
import re
import statistics
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, PositiveInt

from ttsgraph.base.errors import CallFailed, SettingsError
from ttsgraph.base.parsing import ClosedModel
from ttsgraph.models.client import Client, Completion, Message, Request, Sampling
from ttsgraph.pool.settings import ModelSettings, price_of
from ttsgraph.pool.spec import ModelSpec
from ttsgraph.tasks.base import AskingTask, Fields, PlainTask, Question, Task, register_task
from ttsgraph.tasks.prompts import quotations

HIGHEST = 10
JUDGE = "judge:"
"""Prefix of judges' names where calls are routed and priced."""

NO_REFERENCE = "-"

_SCORE = re.compile(rf"(?i:score)\W*(\d+(?:\.\d+)?)(?:\s*/\s*{HIGHEST})?")
_ASKED = f"Judge the answer by the rubric. End with one line: Score: <0 to {HIGHEST}>"


def _reachable(models: dict[str, ModelSettings]) -> dict[str, ModelSettings]:
    for name, model in models.items():
        if not model.base_urls:
            raise ValueError(f"judge {name!r}: expected a base_url, found none")
    return models


class JudgeOptions(ClosedModel):
    """`models`: the judges by name, with the keys of pool models (base_url, price, ...). `known`:
    file of answers scored by people, one object per line (question, answer, reply, score from 0 to
    1). The judges' agreement with these scores is reported first; if it is too low, the run stops.
    """

    rubric: str = Field(min_length=1)
    models: Annotated[dict[str, ModelSettings], AfterValidator(_reachable)] = Field(min_length=1)
    known: Path | None = None
    agreement: float = Field(default=0.2, ge=-1, le=1)
    """minimum for the lower 95 % bound of kappa with the known scores"""
    reference: bool = True
    """false: rows have no answer, and judges see none"""
    max_tokens: PositiveInt = 512
    temperature: float = Field(default=0.0, ge=0)


def judge_specs(task: Task) -> tuple[ModelSpec, ...]:
    """Return the judges of a task as pool members, under their names in calls; empty if the task's
    kind asks no models.
    """
    models = task.options.models if isinstance(task, AskingTask) else {}
    return tuple(
        ModelSpec.outside(f"{JUDGE}{name}", name, price_of(model.price), model.revision)
        for name, model in models.items()
    )


class JudgeTask(PlainTask):
    """Task with rows {question, answer}; the answer is a reference for the judges."""

    name = "judge"
    instruction = "Answer the question, briefly."
    Options = JudgeOptions

    def answers(self, row: Fields, where: str) -> list[str]:
        """Return the row's reference, or NO_REFERENCE if judges see none. Raises DataError if the
        reference is missing.
        """
        return super().answers(row, where) if self.options.reference else [NO_REFERENCE]

    def grade(self, question: Question, text: str) -> float:
        """Return 0 for an empty answer. Raises SettingsError for any other answer, because only a
        judge can grade it.
        """
        if not text.strip():
            return 0.0
        raise SettingsError(
            "kind judge: expected a client that can ask the judges, found a grader without a client"
        )

    async def judge(
        self, question: Question, text: str, client: Client
    ) -> tuple[float, list[Completion]]:
        """Return the median of the judges' scores in [0, 1], and the judges' completions. Raises
        CallFailed if a judge gives no score, and SettingsError if there are no judges.
        """
        if not text.strip():
            return 0.0, []
        if not self.options.models:
            raise SettingsError("kind judge: expected a judge in grading.models, found none")
        asked = (self._ask(name, question, text, client) for name in self.options.models)
        replies = await asyncio.gather(*asked)
        completions = [each for _, made in replies for each in made]
        return statistics.median(score for score, _ in replies), completions

    async def _ask(
        self, name: str, question: Question, text: str, client: Client
    ) -> tuple[float, list[Completion]]:
        completions = []
        for replica in range(2):  # retry once if the reply has no score
            request = self.request(name, question, text, replica)
            completions.append(await client.complete(request))
            if (score := read_score(completions[-1].text)) is not None:
                return score, completions
        raise CallFailed(
            f"judge {name}: expected a line 'Score: <0 to {HIGHEST}>', found"
            f" {completions[-1].text[-60:]!r}"
        )

    def request(self, name: str, question: Question, text: str, replica: int = 0) -> Request:
        """Return the request that asks a judge for the score of an answer."""
        parts = [("Question", question.text), ("Answer", text.strip())]
        if question.answer != NO_REFERENCE:
            parts.insert(1, ("Reference", question.answer))
        user = "\n\n".join([*quotations([self.options.rubric], parts), _ASKED])
        messages = Message("system", self.options.rubric.strip()), Message("user", user)
        sampling = Sampling(self.options.temperature, 1.0, self.options.max_tokens)
        model = self.options.models[name]
        revision = f"{model.revision}-{model.served_as or name}"
        return Request(f"{JUDGE}{name}", revision, messages, sampling, replica)


def read_score(text: str) -> float | None:
    """Return the last score in a judge's reply, scaled to [0, 1], or None if there is none or it is
    out of range.
    """
    found = _SCORE.findall(text)
    score = float(found[-1]) / HIGHEST if found else None
    return score if score is not None and score <= 1 else None


# Unlike other kinds, this one can only be used with settings.
register_task(JudgeTask(JudgeOptions.model_construct(rubric="", models={})))
