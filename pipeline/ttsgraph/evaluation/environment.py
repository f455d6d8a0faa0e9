"""The environment, which evaluates a candidate graph on a batch of questions and returns feedback
(paper, section 5.2), and the grading of answers. Graders are pure, so the same answer to the same
question is graded only once.
"""

import asyncio
import hashlib
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from statistics import NormalDist
from typing import Any, Protocol, Self
from weakref import WeakKeyDictionary

import numpy as np

from ttsgraph.base.errors import CallFailed, InputError, NoAnswer, RunStopped, SettingsError
from ttsgraph.base.waiting import together
from ttsgraph.evaluation.executor import GraphRunner, NodeAnswer
from ttsgraph.evaluation.progress import NO_USAGE, Publish, QuestionDone, ignore
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import check_roles
from ttsgraph.models.client import Client, Completion, Sampling, Usage
from ttsgraph.pool.judge import judge_specs
from ttsgraph.pool.spec import ModelPool
from ttsgraph.tasks.base import (
    AskingTask,
    Question,
    Task,
    can_vote,
    lacks_check,
    passes,
    read_answer,
)
from ttsgraph.tasks.prompts import Prompt

CONFIDENCE = 0.95
NO_CALL = Completion("", 0, 0, 0.0)

LONGEST_FORM = 40
"""Maximum length of an answer's form as it is kept; a longer form is cut, and ends in a digest of
the whole form.
"""

MAX_REMEMBERED = 200_000
"""Maximum number of verdicts that a grader keeps; beyond it all are dropped, which only costs
time.
"""

MOST_UNDER_WAY = 4096
"""Maximum number of questions that one environment answers in parallel, over all graphs: more than
endpoints can handle in parallel, but few enough to bound memory (about 16 kB per question).
"""


@dataclass(frozen=True, slots=True)
class NodeResult:
    """One node's answer to a question: its grade, its extracted form (which identifies it), and the
    usage of the node's call, if it made one. `passes` tells whether the answer passes the check of
    its question; it is None if there is no check.
    """

    correct: float
    form: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    latency_s: float = 0.0
    passes: bool | None = None


def short_form(form: str) -> str:
    """Return the form shortened to a bounded length, so that different forms stay different."""
    if len(form) <= LONGEST_FORM:
        return form
    digest = hashlib.blake2b(form.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
    return f"{form[: LONGEST_FORM - 13]}\N{HORIZONTAL ELLIPSIS}{digest}"


@dataclass(frozen=True, slots=True)
class QuestionResult:
    """Outcome of one question. `correct` is its grade: True or False, or for graded kinds a score
    in [0, 1]. It is None if a call failed after all retries: the question is unscored, not wrong,
    and `error` gives the reason. For a scored question, `error` says why a node had no answer: its
    prompt did not fit its model, or was refused. `nodes` are the answers of all nodes by id, if the
    environment grades them. `refused` marks an unscored question that was refused, and would be
    refused again. `usage` is the usage of the calls that the answer took.
    """

    question_id: str
    correct: float | None
    answer: str = ""
    latency_s: float = math.nan
    error: str = ""
    nodes: Mapping[int, NodeResult] = field(default_factory=dict)
    refused: bool = False
    usage: Usage = field(default=NO_USAGE, compare=False)


@dataclass(frozen=True, slots=True)
class Feedback:
    """Results of a graph on a batch, per question and in total. `accuracy` covers the scored
    questions, with an `interval`, and is NaN if there are none; `latency_s` is the mean critical
    path of a question; `wall_s` is the duration of this evaluation, including cached calls and
    waiting.
    """

    results: tuple[QuestionResult, ...]
    usage: Usage = NO_USAGE
    wall_s: float = 0.0

    @property
    def n_scored(self) -> int:
        """Number of questions with a grade."""
        return len(self.grades)

    @property
    def n_unscored(self) -> int:
        """Number of questions without a grade, whether lost or refused."""
        return len(self.results) - self.n_scored

    @property
    def n_lost(self) -> int:
        """Number of questions lost to infrastructure failures, not refused by a provider."""
        return self.n_unscored - sum(result.refused for result in self.results)

    @property
    def grades(self) -> list[float]:
        """Grades of the scored questions."""
        return [result.correct for result in self.results if result.correct is not None]

    @property
    def n_correct(self) -> float:
        """Number of right answers; for graded kinds the sum of the scores."""
        return sum(self.grades)

    @property
    def accuracy(self) -> float:
        """Share of scored questions answered right; for graded kinds the mean score."""
        return self.n_correct / self.n_scored if self.n_scored else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """Interval of the accuracy at CONFIDENCE: Wilson's, or Student's for scores; (0, 1) if
        nothing was scored.
        """
        return interval_of(self.grades)

    @property
    def latency_s(self) -> float:
        """Mean critical path of the scored questions in seconds, from the latencies measured when
        the calls were made.
        """
        latencies = [result.latency_s for result in self.results if result.correct is not None]
        return sum(latencies) / len(latencies) if latencies else math.nan

    @property
    def error(self) -> str:
        """Reason why the first lost question, or else the first refused one, has no grade; "" if
        there is neither.
        """
        unscored = (result for result in self.results if result.correct is None)
        return next((each.error for each in sorted(unscored, key=lambda r: r.refused)), "")


def total_of(accuracy: float, n_scored: int) -> float:
    """Return the sum of grades behind a mean, as a whole number if it differs from one only by
    rounding.
    """
    total = accuracy * n_scored
    return round(total) if abs(total - round(total)) < 1e-6 else total


def wilson(successes: int, trials: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the Wilson score interval for a proportion; (0, 1) without trials."""
    if trials == 0:
        return 0.0, 1.0
    share = successes / trials
    z = NormalDist().inv_cdf(0.5 + 0.5 * confidence)
    whole = 2 * (trials + z**2)
    middle = (2 * trials * share + z**2) / whole
    half = z / whole * math.sqrt(4 * trials * share * (1 - share) + z**2)
    return middle - half if successes else 0.0, middle + half if successes < trials else 1.0


def binary(grades: Iterable[float]) -> bool:
    """Return True if every grade is right or wrong, with nothing in between."""
    return all(grade in (0, 1) for grade in grades)


def mean_interval(grades: Sequence[float], confidence: float) -> tuple[float, float]:
    """Return Student's interval for a mean of grades, within [0, 1]; (0, 1) without grades. Its
    variance includes two extra grades, 0 and 1, so that a few equal grades never look certain.
    """
    n = len(grades)
    if n == 0:
        return 0.0, 1.0
    mean = float(np.mean(np.array(grades, dtype=float)))
    deviation = float(np.std(np.array([*grades, 0.0, 1.0], dtype=float), ddof=1))
    half = student_quantile(0.5 + confidence / 2, n + 1) * deviation / math.sqrt(n)
    return max(0.0, mean - half), min(1.0, mean + half)


def student_quantile(p: float, freedom: int) -> float:
    """Return the p-quantile of Student's t distribution, from Fisher's expansion (formula 26.7.5
    of Abramowitz and Stegun).

    At p = 0.975 it is 0.7 % too small for 2 degrees of freedom, and 0.1 % for 3.
    """
    z = NormalDist().inv_cdf(p)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / freedom**k for k, term in enumerate(terms, 1))


def interval_of(grades: Sequence[float]) -> tuple[float, float]:
    """Return the interval of the mean of grades at CONFIDENCE: Wilson's, or Student's for
    scores.
    """
    if binary(grades):
        return wilson(round(sum(grades)), len(grades))
    return mean_interval(grades, CONFIDENCE)


AnswerKey = tuple[str, str, bool, str]
"""Key of a verdict: the question's id and text; True and the extracted answer, or False and the
whole text of a reply without one.
"""

Job = tuple[CollaborationGraph, Sequence[Question]]


def feedback_of(results: Sequence[QuestionResult], wall_s: float) -> Feedback:
    """Sum up the results of a graph's questions in the order of the questions, so that sums don't
    depend on where each question was answered.
    """
    return Feedback(tuple(results), sum((result.usage for result in results), NO_USAGE), wall_s)


class Grader:
    """A task's grader that remembers its verdicts, by extracted answer."""

    def __init__(self, task: Task) -> None:
        self.task = task
        # The protocol is matched only once, because matching takes longer than most grading.
        self._asking = task if isinstance(task, AskingTask) else None
        self._verdicts: dict[AnswerKey, float] = {}
        self.judged: list[Completion] = []
        """Calls made for grading, if the kind asks models."""

    async def grade(self, question: Question, text: str, client: Client | None = None) -> float:
        """Grade a text as right, wrong, or a score in [0, 1]. A kind whose grader asks models does
        so through `client`. Raises CallFailed if the task's grader fails (failures are not
        remembered); NoAnswer if a judge gives no answer; and SettingsError if the grade is invalid.
        """
        try:
            key = self._key(question, text)
            if key not in self._verdicts:
                self.remember(question, text, await self._graded(question, text, client))
            return self._verdicts[key]
        except (CallFailed, NoAnswer, InputError):
            raise
        except Exception as error:
            raise CallFailed(
                f"the grader of kind {self.task.name} failed on an answer to question"
                f" {question.id}: {type(error).__name__}: {str(error)[:200]}"
            ) from error

    async def _graded(self, question: Question, text: str, client: Client | None) -> float:
        if client is None or self._asking is None:
            # Graders can be slow (they run programs, simplify expressions), so they leave the event
            # loop free.
            verdict = await asyncio.to_thread(self.task.grade, question, text)
        else:
            verdict, completions = await self._asking.judge(question, text, client)
            self.judged += completions
        # The comparison also rejects NaN.
        if isinstance(verdict, int | float) and 0 <= verdict <= 1:
            return verdict
        raise SettingsError(
            f"kind {self.task.name!r}: expected a grade that is right, wrong or a score"
            f" from 0 to 1, found {verdict!r} for question {question.id}"
        )

    def remember(self, question: Question, text: str, verdict: float) -> None:
        """Remember a verdict for this text and for all texts with the same extracted answer."""
        if len(self._verdicts) >= MAX_REMEMBERED:
            self._verdicts.clear()
        self._verdicts[self._key(question, text)] = verdict

    def _key(self, question: Question, text: str) -> AnswerKey:
        form = self.task.extract(text)
        return question.id, question.text, form is not None, text if form is None else form


class Evaluator(Protocol):
    """The environment as a search uses it: it evaluates graphs, on this machine or on several."""

    def failed(self, feedback: Feedback) -> bool:
        """Return True if an evaluation is unusable because none of its questions was scored, or too
        many were lost to infrastructure.
        """

    async def evaluate_all(self, jobs: Sequence[Job], publish: Publish = ignore) -> list[Feedback]:
        """Return the feedback for each graph on its questions; publish each question once it is
        done.
        """

    async def evaluate(
        self, graph: CollaborationGraph, questions: Sequence[Question], publish: Publish = ignore
    ) -> Feedback:
        """Evaluate one graph, like `evaluate_all`."""
        (feedback,) = await self.evaluate_all([(graph, questions)], publish)
        return feedback


def lost(environment: Evaluator, feedback: Feedback) -> bool:
    """Return True if an evaluation failed but might succeed if run again: some of its questions
    were lost, not refused. Refused questions stay refused.
    """
    return environment.failed(feedback) and feedback.n_lost > 0


def stopped(what: str, feedback: Feedback) -> RunStopped:
    """Return the error for an evaluation that lost too many questions."""
    return RunStopped(
        f"{what}: {feedback.n_unscored} of {len(feedback.results)} questions unscored"
        f" ({feedback.error}); run again to continue"
    )


@dataclass(eq=False)
class Environment(Evaluator):
    """Environment that runs graphs on the questions of one task, with one pool and one client.
    `max_unscored` is the largest permitted share of lost questions: an evaluation that loses more
    has failed, because the remaining questions would not be a fair comparison; questions refused by
    a provider don't count. With `grade_nodes` every node's answer is graded, not only the sink's.
    At most `most_under_way` questions run in parallel, over all graphs.
    """

    task: Task
    prompt: Prompt
    sampling: Sampling
    pool: ModelPool
    client: Client
    max_unscored: float = 0.25
    grade_nodes: bool = False
    most_under_way: int = MOST_UNDER_WAY

    def __post_init__(self) -> None:
        self.grader = Grader(self.task)
        self._rooms = WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]()

    def altered(self, **changes: Any) -> Self:
        """Return a copy with some fields changed, such as the client. Both share the grader's
        memory, and the bound on questions that run in parallel.
        """
        other = copy(self)
        vars(other).update(changes)
        return other

    def with_node_grades(self, if_free: bool = False) -> Self:
        """Return a copy that grades every node's answer; with `if_free`, this environment if
        grading takes model calls.
        """
        asks = if_free and isinstance(self.task, AskingTask)
        return self if asks else self.altered(grade_nodes=True)

    @property
    def paid(self) -> ModelPool:
        """Models whose calls are paid for: the pool's models, and the judges of the task's kind."""
        return ModelPool((*self.pool.values(), *judge_specs(self.task)))

    def failed(self, feedback: Feedback) -> bool:
        """Return True if none of an evaluation's questions was scored, or if too many of the
        questions that were not refused were lost to infrastructure.
        """
        lost = feedback.n_lost
        return not feedback.n_scored or lost > self.max_unscored * (feedback.n_scored + lost)

    async def evaluate_all(self, jobs: Sequence[Job], publish: Publish = ignore) -> list[Feedback]:
        """Run each graph on its questions, all in parallel as far as there is room; grade the
        answers, and publish each question once it is done.
        """

        async def one(job: Job) -> Feedback:
            started = time.perf_counter()
            results = await self.results(*job, publish)
            return feedback_of(results, time.perf_counter() - started)

        return await together(map(one, jobs))

    async def results(
        self, graph: CollaborationGraph, questions: Sequence[Question], publish: Publish = ignore
    ) -> list[QuestionResult]:
        """Return the result of each question, in order."""
        loop = asyncio.get_running_loop()
        room = self._rooms.setdefault(loop, asyncio.Semaphore(self.most_under_way))
        runner = GraphRunner(graph, self.task, self.prompt, self.sampling, self.pool, self.client)
        check_roles(graph)

        async def one(question: Question) -> QuestionResult:
            result = await self._answer(runner, question)
            publish(QuestionDone(result.usage))
            return result

        tasks: list[asyncio.Task[QuestionResult]] = []
        try:
            async with asyncio.TaskGroup() as group:
                for question in questions:
                    await room.acquire()
                    tasks.append(group.create_task(one(question)))
                    tasks[-1].add_done_callback(lambda task: room.release())
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return [task.result() for task in tasks]

    async def _answer(self, runner: GraphRunner, question: Question) -> QuestionResult:
        answer = await runner.answer(question)
        text = answer.text
        result = partial(QuestionResult, question.id, usage=answer.usage)
        if text is None:
            return result(None, error=answer.error, refused=answer.refused)
        try:
            correct = await self.grader.grade(question, text, self.client)
            nodes = await self._grade_nodes(question, answer) if self.grade_nodes else {}
        except (CallFailed, NoAnswer) as error:
            return result(None, text, error=str(error), refused=isinstance(error, NoAnswer))
        return result(correct, text, answer.latency_s, answer.note, nodes)

    async def _grade_nodes(self, question: Question, answer: NodeAnswer) -> dict[int, NodeResult]:
        """Grade each node's answer. Raises CallFailed if the task's grader fails, and NoAnswer if a
        judge gives no answer.
        """
        task, texts = self.task, answer.node_texts

        def check() -> dict[str, bool]:
            return {text: passes(task, question, text) for text in {*texts.values()}}

        # Checks may start programs, so they run in a thread.
        passed = {} if lacks_check(task, [question]) else await asyncio.to_thread(check)
        found = {}
        for i, text in texts.items():
            # If a kind has no form that several answers can share, each text is a separate answer.
            form = read_answer(task, text) or ("" if can_vote(task) else text)
            correct = await self.grader.grade(question, text, self.client)
            call = answer.completions.get(i, NO_CALL)
            took = call.prompt_tokens, call.completion_tokens, call.latency_s
            found[i] = NodeResult(correct, form, *took, passed.get(text))
        return found
