"""Evaluation of graphs by several workers: questions are divided among them, and answers are merged
in order.

A piece of work is a set of questions with all graphs that answer them, so that graphs with a common
prefix make its calls only once, in one process. The transport of pieces is injected
(`ttsgraph_flows/workers.py`). Only the stage's process keeps tables and calls, and workers request
calls from it. If a worker dies, its piece is repeated: the calls already made are in the stage's
store, so the outcome is the same.
"""

import asyncio
import json
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from multiprocessing.managers import BaseManager
from pathlib import Path

from ttsgraph.base.errors import InputError, RunStopped, TTSGraphError
from ttsgraph.base.state import STATE
from ttsgraph.base.waiting import together
from ttsgraph.evaluation.environment import Environment, Feedback, Job, QuestionResult, feedback_of
from ttsgraph.evaluation.progress import Expense, Publish, QuestionDone, ignore
from ttsgraph.models.cache import CachedClient, CallCache
from ttsgraph.models.client import Client
from ttsgraph.models.recording import Call, Calls
from ttsgraph.runtime.clients import open_client
from ttsgraph.runtime.limits import NO_SPENDING, Meter, MeteredClient
from ttsgraph.settings.profile import Profile
from ttsgraph.settings.stages import LimitSettings
from ttsgraph.stages.identity import code_digest
from ttsgraph.tasks import get_grader
from ttsgraph.tasks.base import Question

PIECES_PER_WORKER = 2
"""Number of pieces per worker: with several, a worker can make calls of one piece while it waits
for the last calls of another.
"""

StoreAddress = tuple[tuple[str, int], bytes]
"""Address and key of a process that answers requests for calls."""


@dataclass(frozen=True, slots=True)
class WorkContext:
    """Data shared by all pieces of a search: profile and examples (JSON), task, the address and key
    of the process that searches, its state folder, and its code version.
    """

    profile: str
    task: str
    shots: str
    asks: StoreAddress | None
    state: str = field(default_factory=lambda: str(STATE.resolve()))
    code: str = field(default_factory=code_digest)


@dataclass(frozen=True, slots=True)
class WorkPiece:
    """Piece of work: graphs, each with its questions; the limits, with what is spent of them; and
    whether every node is graded.
    """

    order: WorkContext
    jobs: Sequence[Job]
    limits: LimitSettings
    spent: Expense
    grade_nodes: bool = False


@dataclass(frozen=True, slots=True)
class PieceResult:
    """Result of a piece: the result of each question of each job, with spending and calls, or the
    failure that stopped the piece.
    """

    results: Sequence[Sequence[QuestionResult]] = ()
    spent: Expense = NO_SPENDING
    calls: Calls = field(default_factory=dict)
    failure: TTSGraphError | None = None


Carry = Callable[[WorkPiece], Awaitable[PieceResult]]
"""Function that sends a piece to a worker and returns the result. Raises RunStopped if no worker is
left.
"""


class _Owner(BaseManager):
    """Connection to the process that owns a store, authenticated by a key on both sides."""


_Owner.register("store", exposed=("get", "put"))


@contextmanager
def asked_for_calls(cache: CallCache, host: str) -> Iterator[StoreAddress]:
    """Serve a cache of this process to workers on a free port of `host`; yield the address and the
    key.

    Whoever has the key can run code in this process, as every worker of a cluster can.
    """
    key = secrets.token_bytes(32)
    owner = type("Owner", (BaseManager,), {})((host, 0), key)
    owner.register("store", lambda: cache, exposed=("get", "put"))
    server = owner.get_server()

    def answer() -> None:
        with suppress(SystemExit):  # raised when the server stops
            server.serve_forever()

    threading.Thread(target=answer, name="ttsgraph calls", daemon=True).start()
    try:
        yield server.address, key
    finally:
        server.stop_event.set()


def owners_store(asks: StoreAddress) -> CallCache:
    """Return a stand-in for the cache of the process that searches. Raises RunStopped if that
    process can't be reached.
    """
    owner = _Owner(*asks)
    try:
        owner.connect()
    except OSError as error:
        raise RunStopped(
            f"worker: expected to reach the process that searches, but that fails: {error}"
        ) from None
    return owner.store()  # type: ignore[attr-defined]


def order_of(
    profile: Profile, task: str, shots: Sequence[Question], asks: StoreAddress | None = None
) -> WorkContext:
    """Return the data that workers need for this task."""
    examples = json.dumps([asdict(shot) for shot in shots])
    return WorkContext(profile.model_dump_json(exclude_none=True), task, examples, asks)


def environment_for(
    profile: Profile, task: str, client: Client, shots: Sequence[Question]
) -> Environment:
    """Return a task's environment; verdicts on programs are stored, so that no program runs twice.
    Raises IsolationError if programs of the task can't be isolated.
    """
    settings = profile.task(task)
    weaker, verdicts = profile.sandbox.accept_weaker, STATE / "verdicts.db"
    grader = get_grader(settings.kind, weaker, settings.grading, verdicts)
    prompt, sampling = settings.prompt.prompt(grader, shots), settings.sampling.sampling()
    return Environment(grader, prompt, sampling, profile.model_pool(task), client)


class SpreadEnvironment(Environment):
    """Environment whose questions are answered by workers; `carry` sends each piece to a worker.

    The workers' spending is counted on the meter. Each piece may spend the amount that was left
    when it started, so pieces in flight can together exceed a limit.
    """

    def __init__(
        self,
        local: Environment,
        order: WorkContext,
        carry: Carry,
        workers: int,
        calls: dict[str, Call],
        meter: Meter,
    ) -> None:
        vars(self).update(vars(local))
        self._order = order
        self._carry = carry
        self._workers = workers
        self._calls = calls
        self._meter = meter

    async def evaluate_all(self, jobs: Sequence[Job], publish: Publish = ignore) -> list[Feedback]:
        """Evaluate all jobs, like `Environment.evaluate_all`. Also raises a worker's failure, and
        LimitReached if a spending limit is reached.
        """
        started = time.perf_counter()
        meter = self._meter
        found: dict[tuple[int, str], QuestionResult] = {}

        async def one(piece: Sequence[Job]) -> None:
            if meter.over:
                raise meter.stop()
            work = WorkPiece(self._order, piece, meter.limits, meter.spent, self.grade_nodes)
            done = await self._carry(work)
            meter.add(done.spent._replace(wall_s=0.0))
            self._calls.update(done.calls)
            if done.failure is not None:
                raise meter.stop() if meter.over else done.failure
            for k, results in enumerate(done.results):
                for result in results:
                    found[k, result.question_id] = result
                    publish(QuestionDone(result.usage))

        await asyncio.gather(*map(one, shared_out(jobs, PIECES_PER_WORKER * self._workers)))
        wall_s = time.perf_counter() - started
        return [
            feedback_of([found[k, q.id] for q in questions], wall_s)
            for k, (_, questions) in enumerate(jobs)
        ]


def shared_out(jobs: Sequence[Job], most: int) -> list[list[Job]]:
    """Divide the jobs into at most `most` pieces of similar size; each has all graphs, with the
    same part of their questions.
    """
    names = list(dict.fromkeys(q.id for _, questions in jobs for q in questions))
    parts = [set(names[first::most]) for first in range(max(1, min(most, len(names))))]
    return [
        [(graph, [q for q in questions if q.id in part]) for graph, questions in jobs]
        for part in parts
    ]


_opening = threading.Lock()
"""Lock that ensures that a worker's shared state is created only once."""


class Worker:
    """Worker process's part of a search: an event loop in a separate thread, a client that stays
    open until the process ends, and an environment. Raises RunStopped if the code differs.
    """

    def __init__(self, order: WorkContext) -> None:
        if order.code != code_digest():
            raise RunStopped(
                "worker: expected the code of the process that searches, found a different version;"
                " install the same version on all machines"
            )
        profile = Profile.model_validate_json(order.profile)
        store = None if order.asks is None else owners_store(order.asks)
        shots = [Question(**shot) for shot in json.loads(order.shots)]
        self.loop = asyncio.new_event_loop()
        self._opened = open_client(profile, Path(order.state), store)
        self._client = self.loop.run_until_complete(self._opened.__aenter__())
        self._environment = environment_for(profile, order.task, self._client, shots)
        threading.Thread(target=self.loop.run_forever, name="ttsgraph worker", daemon=True).start()

    async def answered(self, work: WorkPiece) -> PieceResult:
        """Answer and grade the questions of a piece."""
        meter = Meter(work.limits, work.spent)
        calls: dict[str, Call] = {}
        metered = MeteredClient(self._client.inner, meter, self._environment.paid)
        client = CachedClient(metered, self._client.store, calls)
        environment = self._environment.altered(client=client, grade_nodes=work.grade_nodes)
        try:
            results = await together(environment.results(*job) for job in work.jobs)
        except (InputError, RunStopped) as error:
            return PieceResult((), meter.spent - work.spent, calls, error)
        return PieceResult(results, meter.spent - work.spent, calls)


_worker = lru_cache(maxsize=4)(Worker)


def work_on(work: WorkPiece) -> PieceResult:
    """Do a piece of work in this process, and return its result. Failures are part of the result,
    because the spending until then counts.
    """
    try:
        with _opening:
            worker = _worker(work.order)
    except (InputError, RunStopped) as error:
        return PieceResult(failure=error)
    return asyncio.run_coroutine_threadsafe(worker.answered(work), worker.loop).result()
