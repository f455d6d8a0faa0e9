"""Outcomes of answers. They are stored, scored by feedback, and checked for a better challenger and
for drift from the test.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ttsgraph.base.errors import TTSGraphError
from ttsgraph.deployment.bundle import Loader, agreement_of
from ttsgraph.deployment.promotion import Side
from ttsgraph.evaluation.executor import NodeAnswer
from ttsgraph.service.book import AnswerLog, TrialKey
from ttsgraph.service.errors import ApiError
from ttsgraph.service.metrics import Metrics
from ttsgraph.settings.service import DriftSettings, FeedbackSettings
from ttsgraph.tasks.base import Question

if TYPE_CHECKING:
    from ttsgraph.service.answering import RunningAnswer
    from ttsgraph.service.deployments import LiveVersion

ERRORS = 3.0
"""Number of standard errors by which a mean may deviate by chance.

If a figure is off by exactly the tolerated amount, about one window in 1,000 gives a false alarm.
"""

_log = logging.getLogger(__name__)


class Judgement(BaseModel):
    """Feedback on an answer: its score, or the right answer."""

    model_config = ConfigDict(extra="forbid", strict=True)

    id: str
    """Id of the response, or its trace id."""
    score: Annotated[float, Field(ge=0, le=1)] | None = None
    answer: Annotated[str, Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _says_one(self) -> Judgement:
        if (self.score is None) == (self.answer is None):
            raise ValueError("expected either `score`, from 0 to 1, or `answer`, the right answer")
        return self


class Outcomes:
    """Outcomes of a server's answers; inactive if the settings keep no outcomes.

    The loader is notified of A/B tests' decisions and of drift. Raises DataError if the table of
    answers can't be used.
    """

    def __init__(self, settings: FeedbackSettings, metrics: Metrics, loader: Loader) -> None:
        self._settings = settings
        self._metrics = metrics
        self._loader = loader
        self._book = AnswerLog(settings.path, settings.rows) if settings.keep != "nothing" else None
        self._trials: set[TrialKey] = set()  # undecided A/B tests
        self._told: set[tuple[str, ...]] = set()  # decided A/B tests, drifted figures

    def close(self) -> None:
        """Wait for pending writes, and close the table."""
        if self._book is not None:
            self._book.close()

    def side(
        self, champion: LiveVersion, challenger: LiveVersion | None, trace: str
    ) -> tuple[LiveVersion, Side | None]:
        """Return the version that is to answer and its side of the open A/B test, if there is one.

        The side is determined by the request's trace id, which is random.
        """
        if challenger is None or _trial(champion, challenger) not in self._trials:
            return champion, None
        chosen = int(trace[:12], 16) / 16**12 < self._settings.trial.share
        return (challenger, "challenger") if chosen else (champion, "champion")

    def keep(
        self,
        trace: str,
        asker: str,
        champion: LiveVersion,
        arm: Side | None,
        answering: RunningAnswer,
        answer: NodeAnswer,
    ) -> None:
        """Store an answer to the client `asker` in the background, if outcomes are kept."""
        if self._book is None:
            return
        live, said = answering.live, answering.asked.conversation
        row: dict[str, Any] = {"trace": trace, "asker": asker, "model": live.name}
        row |= {"task": live.deployed.task, "version": live.deployed.version, "arm": arm}
        row |= {"champion": champion.deployed.version if arm else None}
        row |= {"cost": answer.usage.dollars, "agreement": _agreement(live, answer)}
        row |= {"degraded": answering.degraded}
        if self._settings.keep == "texts" and not (said.history or said.system):
            row |= {"question": said.question, "answer": answer.text}
        self._book.later(partial(self._book.add, **row)).add_done_callback(_failed)

    async def judge(
        self, judgement: Judgement, tasks: Mapping[str, LiveVersion], client: str
    ) -> dict[str, object]:
        """Store a client's feedback on an answer, and return the reply.

        `tasks` maps each task to a served version. Raises ApiError if no outcomes are kept, the
        answer is unknown or belongs to another client, or the answer can't be graded.
        """
        book = self._book
        if book is None:
            why = "this server keeps no outcomes; set service.feedback.keep in params.yaml"
            raise ApiError(404, why, code="feedback_is_off")
        kept = await book.later(book.find, judgement.id)
        if kept is None:
            raise ApiError(404, "no answer with this id is kept", "id", "unknown_answer")
        if kept["asker"] != client:
            why = "expected feedback with the same key, or from the same address, as the question"
            raise ApiError(403, why, "id", "not_your_answer")
        score, right = judgement.score, judgement.answer
        if score is None:
            score = await asyncio.to_thread(_graded, kept, right or "", tasks.get(kept["task"]))
        await book.later(book.judge, kept["trace"], score, right, self._settings.clients)
        self._metrics.feedback.labels(kept["model"]).inc(kept["score"] is None)
        return {"object": "feedback", "model": kept["model"], "score": score}

    async def look(self, pairs: Iterable[tuple[LiveVersion, LiveVersion | None]]) -> None:
        """Check the stored outcomes of each pair of a version and its challenger (or None).

        Decide open A/B tests, and detect drift from the versions' test.
        """
        if self._book is not None:
            await self._book.later(self._look, self._book, list(pairs))

    def _look(
        self, book: AnswerLog, versions: list[tuple[LiveVersion, LiveVersion | None]]
    ) -> None:
        trial = self._settings.trial
        trials = {_trial(champion, rival) for champion, rival in versions if rival is not None}
        self._trials = {key for key in trials.difference(self._told) if key[1] != key[2]}
        for key in [*self._trials]:
            if decision := book.decision(key, trial.confidence, trial.most):
                self._trials.discard(key)
                task, _, challenger = key
                notify = partial(self._loader.settled, task, challenger, decision)
                self._tell(key, f"{task}/{challenger}: {decision.reason}", notify)
        for live, _ in versions:
            for figure, column in (("accuracy", "score"), ("cost", "cost"), ("agreement",) * 2):
                self._look_at(book, live, figure, column)

    def _look_at(self, book: AnswerLog, live: LiveVersion, figure: str, column: str) -> None:
        of = live.deployed.task, live.deployed.version
        tested = getattr(live.deployed.tested, figure)
        values = book.last(*of, column, self._settings.drift.window)
        if not values:
            return
        served = statistics.fmean(values)
        self._metrics.figure.labels(live.name, figure).set(served)
        off = tested is not None and drifted(figure, values, tested, self._settings.drift)
        self._metrics.drifted.labels(live.name, figure).set(off)
        if not off:
            self._told.discard((*of, figure))
        elif (*of, figure) not in self._told:
            self._told.add((*of, figure))
            line = "drift: %s/%s: %s of the last %d answers is %.4g; in the test it was %.4g"
            _log.warning(line, *of, figure, len(values), served, tested)

    def _tell(self, key: tuple[str, ...], line: str, notify: Callable[[], None]) -> None:
        """Log a line and notify the loader once; if that fails, the next check repeats both."""
        _log.warning("%s", line)
        self._told.add(key)
        try:
            notify()
        except TTSGraphError as error:
            self._told.discard(key)
            _log.warning("couldn't notify the registry, will try again later: %s", error)


def _failed(done: asyncio.Future[None]) -> None:
    if error := done.exception():
        _log.warning("an answer could not be stored: %s", error)


def drifted(figure: str, values: list[float], tested: float, settings: DriftSettings) -> bool:
    """Return True if the values' mean differs from `tested` beyond what tolerance and chance allow.

    Only a lower accuracy and a higher cost are drift, but an agreement may drift either way.
    """
    if len(values) < settings.least:
        return False
    ahead = statistics.fmean(values) - tested
    off, allowed = {
        "accuracy": (-ahead, settings.accuracy),
        "cost": (ahead, settings.cost * tested),
        "agreement": (abs(ahead), settings.agreement),
    }[figure]
    return off - ERRORS * statistics.stdev(values) / math.sqrt(len(values)) > allowed


def _agreement(live: LiveVersion, answer: NodeAnswer) -> float | None:
    """Return 1.0 if the first two answers that the last node received agree, otherwise 0.0.

    Return None if fewer than two answers were received. Counting all received answers would be
    biased: a vote ends as soon as a majority agrees, so the received answers agree too often.
    """
    graph = live.deployed.graph
    reads = graph.reads[graph.sink]
    first = [i for i in answer.completions if i in reads][:2]
    return agreement_of([[live.task.extract(answer.node_texts[i]) for i in first]])


def _trial(champion: LiveVersion, challenger: LiveVersion) -> TrialKey:
    return champion.deployed.task, champion.deployed.version, challenger.deployed.version


def _graded(kept: Mapping[str, Any], right: str, live: LiveVersion | None) -> float:
    """Return the grade of a kept answer, given the right answer.

    Raises ApiError if the kept answer can't be graded.
    """
    if live is not None and kept["question"] is not None and kept["answer"] is not None:
        question = Question("asked", kept["question"], right)
        with contextlib.suppress(Exception):  # some task kinds need more than the text
            return float(live.task.grade(question, kept["answer"]))
    why = "this answer can't be graded: its text wasn't kept, or its task isn't graded here"
    raise ApiError(400, f"{why}; send a `score` instead", "answer")
