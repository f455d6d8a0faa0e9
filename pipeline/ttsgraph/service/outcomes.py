"""Outcomes of answers. They are stored, scored by feedback, and checked for a better challenger and
for drift from the test.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import statistics
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, Field

from ttsgraph.base.errors import TTSGraphError
from ttsgraph.deployment.bundle import Loader, agreement_of
from ttsgraph.deployment.promotion import Decision
from ttsgraph.evaluation.executor import NodeAnswer
from ttsgraph.service.book import TABLE, AnswerLog, TrialKey
from ttsgraph.service.errors import ApiError
from ttsgraph.service.metrics import Metrics
from ttsgraph.settings.service import DriftSettings, FeedbackSettings
from ttsgraph.tasks.base import Question

if TYPE_CHECKING:
    from ttsgraph.service.answering import Answering
    from ttsgraph.service.deployments import LiveVersion

ERRORS = 3.0
"""Number of standard errors by which a mean may deviate by chance.

If a figure is off by exactly the tolerated amount, about one window in 1,000 gives a false alarm.
"""

Row = dict[str, Any]
_FIGURES = {"accuracy": "score", "cost": "cost", "agreement": "agreement"}
"""Map from a version's figures to the columns of the table with their values."""

_log = logging.getLogger(__name__)


class Judgement(BaseModel, extra="forbid", strict=True):
    """Feedback on an answer: its score, or the right answer."""

    id: str
    """Id of the response, or its trace id."""
    score: Annotated[float, Field(ge=0, le=1)] | None = None
    answer: Annotated[str, Field(min_length=1)] | None = None


class Outcomes:
    """Outcomes of a server's answers.

    The loader is notified of A/B tests' decisions. Raises DataError if the table of answers can't
    be used.
    """

    def __init__(self, settings: FeedbackSettings, metrics: Metrics, loader: Loader) -> None:
        self._settings = settings
        self._metrics = metrics
        self._loader = loader
        self.book = AnswerLog(TABLE)
        self._trials: set[TrialKey] = set()  # undecided A/B tests
        self._told: set[tuple[str, ...]] = set()  # decided A/B tests, drifted figures

    def side(
        self, champion: LiveVersion, challenger: LiveVersion, trace: str
    ) -> tuple[LiveVersion, Row]:
        """Return the version that is to answer and, in an open A/B test, the test's columns of the
        answer's row.

        The side is determined by the request's trace id, which is random.
        """
        if _trial(champion, challenger) not in self._trials:
            return champion, {}
        chosen = int(trace[:12], 16) / 16**12 < self._settings.trial.share
        return challenger if chosen else champion, {"champion": champion.deployed.version}

    def keep(self, answering: Answering, answer: NodeAnswer, origin: Row) -> None:
        """Store an answer in the background.

        `origin` has the row's columns that tell who asked and in which A/B test.
        """
        live, said = answering.live, answering.asked.conversation
        row: Row = {"trace": answering.id, "model": live.name, "cost": answer.usage.dollars}
        row["task"], row["version"] = live.key
        row |= {"agreement": _agreement(live, answer), "degraded": answering.degraded, **origin}
        if self._settings.keep == "texts" and not (said.history or said.system):
            row |= {"question": said.question, "answer": answer.text}
        self.book.later(partial(self.book.add, **row)).add_done_callback(_failed)

    async def judge(
        self, judgement: Judgement, tasks: Mapping[str, LiveVersion], client: str
    ) -> dict[str, object]:
        """Store a client's feedback on an answer, and return the reply.

        `tasks` maps each task to a served version. Raises ApiError if the answer is unknown or
        belongs to another client, or can't be graded.
        """
        book, score, right = self.book, judgement.score, judgement.answer
        if (score is None) == (right is None):
            why = "expected either `score`, from 0 to 1, or `answer`, the right answer"
            raise ApiError(400, why)
        kept = await book.later(book.find, judgement.id)
        if kept is None:
            raise ApiError(404, "no answer with this id is kept", "id", "unknown_answer")
        if kept["asker"] != client:
            why = "expected feedback with the same key, or from the same address, as the question"
            raise ApiError(403, why, "id", "not_your_answer")
        if score is None:
            score = await asyncio.to_thread(_graded, kept, right or "", tasks.get(kept["task"]))
        await book.later(book.judge, kept["trace"], score, right, self._settings.clients)
        self._metrics.feedback.labels(kept["model"]).inc(kept["score"] is None)
        return {"object": "feedback", "model": kept["model"], "score": score}

    def look(self, versions: Sequence[tuple[LiveVersion, LiveVersion | None]]) -> None:
        """Check the stored outcomes of each pair of a version and its challenger (or None).

        Decide open A/B tests, and detect drift from the versions' test. The method blocks.
        """
        trial, undecided = self._settings.trial, set[TrialKey]()
        for live, rival in versions:
            if rival is not None and (key := _trial(live, rival)) not in self._told:
                if decision := self.book.decision(key, trial.confidence, trial.most):
                    self._settle(key, rival, decision)
                else:
                    undecided.add(key)
            for figure, column in _FIGURES.items():
                if values := self.book.last(*live.key, column, self._settings.drift.window):
                    self._compare(live, figure, values)
        self._trials = undecided

    def _compare(self, live: LiveVersion, figure: str, values: list[float]) -> None:
        """Compare the last values of a version's figure with its test."""
        served, tested = statistics.fmean(values), getattr(live.deployed.tested, figure)
        self._metrics.figure.labels(live.name, figure).set(served)
        off = tested is not None and drifted(figure, values, tested, self._settings.drift)
        self._metrics.drifted.labels(live.name, figure).set(off)
        key = (*live.key, figure)
        if not off:
            self._told.discard(key)
        elif key not in self._told:
            self._told.add(key)
            line = "drift: %s/%s: %s of the last %d answers is %.4g; in the test it was %.4g"
            _log.warning(line, *key, len(values), served, tested)

    def _settle(self, key: TrialKey, rival: LiveVersion, decision: Decision) -> None:
        """Log the result of an A/B test, and tell the loader; if that fails, the next check repeats
        both.
        """
        _log.warning("%s: %s", "/".join(rival.key), decision.reason)
        try:
            self._loader.settled(*rival.key, decision)
            self._told.add(key)
        except TTSGraphError as error:
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
    first = [i for i in answer.completions if i in graph.reads[graph.sink]][:2]
    return agreement_of([[live.runner.task.extract(answer.node_texts[i]) for i in first]])


def _trial(champion: LiveVersion, challenger: LiveVersion) -> TrialKey:
    return (*champion.key, challenger.deployed.version)


def _graded(kept: Mapping[str, Any], right: str, live: LiveVersion | None) -> float:
    """Return the grade of a kept answer, given the right answer.

    Raises ApiError if the kept answer can't be graded.
    """
    if live is not None and kept["question"] is not None and kept["answer"] is not None:
        question = Question("asked", kept["question"], right)
        with contextlib.suppress(Exception):  # some task kinds need more than the text
            return float(live.runner.task.grade(question, kept["answer"]))
    why = "this answer can't be graded: its text wasn't kept, or its task isn't graded here"
    raise ApiError(400, f"{why}; send a `score` instead", "answer")
