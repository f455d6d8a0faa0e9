"""Grading that is done once: graders are pure, so the same answer to the same question is not
graded again.
"""

from __future__ import annotations

import asyncio

from ttsgraph.base.errors import SettingsError
from ttsgraph.models.client import Completion, ModelClient
from ttsgraph.tasks.base import AskingTask, Question, QuickTask, Task, can_vote

Key = tuple[str, str, str, str | None]

MAX_REMEMBERED = 200_000
"""Verdicts kept; beyond it all are forgotten, which costs time only."""


class Grader:
    """A task's grader with a memory of its verdicts, by text and by the answer extracted from
    it.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        # Looked up once: to compare with a protocol takes longer than most grades.
        self._asking = task if isinstance(task, AskingTask) else None
        self._quick = task if isinstance(task, QuickTask) and _same_class(task) else None
        self._verdicts: dict[Key, float] = {}
        self.judged: list[Completion] = []
        """Of a kind that asks models: the calls that grading took."""

    async def grade(
        self, question: Question, text: str, client: ModelClient | None = None
    ) -> float:
        """Whether a text answers the question, or its score in [0, 1].

        A kind that asks models does so through `client`. Raises CallFailed as the task's grader
        does, which is not remembered, and SettingsError for a grade that is none.
        """
        as_text = (question.id, question.text, "text", text)
        verdict = self._verdicts.get(as_text)
        if verdict is None:
            form = self.task.extract(text)
            as_answer = self._as_answer(question, text, form)
            verdict = self._verdicts.get(as_answer)
            if verdict is None:
                # Graders can be slow (a program is run, an expression simplified), so they leave
                # the event loop free.
                verdict = self._checked(await self._graded(question, text, form, client), question)
            self._keep(as_text, as_answer, verdict)
        return verdict

    async def _graded(
        self, question: Question, text: str, form: str | None, client: ModelClient | None
    ) -> float:
        if client is None or self._asking is None:
            if self._quick is not None:
                verdict = self._quick.at_once(question, form)
                if verdict is not None:
                    return verdict
            return await asyncio.to_thread(self.task.grade, question, text)
        verdict, completions = await self._asking.judge(question, text, client)
        self.judged += completions
        return verdict

    def _checked(self, verdict: float, question: Question) -> float:
        if isinstance(verdict, int | float) and 0 <= verdict <= 1:  # which NaN is not
            return verdict
        raise SettingsError(
            f"kind {self.task.name!r}: expected a grade that is right, wrong or a score from 0 to"
            f" 1, found {verdict!r} for question {question.id}"
        )

    def remember(self, question: Question, text: str, verdict: float) -> None:
        """Take a verdict as known, for this text and for all with the same answer."""
        as_answer = self._as_answer(question, text, self.task.extract(text))
        self._keep((question.id, question.text, "text", text), as_answer, verdict)

    def _keep(self, as_text: Key, as_answer: Key, verdict: float) -> None:
        if len(self._verdicts) >= MAX_REMEMBERED:
            self._verdicts.clear()
        self._verdicts[as_text] = self._verdicts[as_answer] = verdict

    def _as_answer(self, question: Question, text: str, form: str | None) -> Key:
        """The key of all texts with this one's answer, or of this text alone where a kind has no
        answers.
        """
        if form is None and not can_vote(self.task):
            return (question.id, question.text, "text", text)
        return (question.id, question.text, "answer", form)


def _same_class(task: Task) -> bool:
    """Whether `at_once` is of the class that `grade` is of: one that inherits it may grade
    otherwise.
    """
    return len({_definer(task, name) for name in ("grade", "at_once")}) == 1


def _definer(task: Task, name: str) -> type | None:
    return next((kind for kind in type(task).__mro__ if name in vars(kind)), None)
