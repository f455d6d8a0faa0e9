"""Which GPUs the servers of a pool take: so many servers of each model, and on such GPUs, that the
busiest GPU has the least to do; and how those on one share its memory.

A model's load may be split over its servers as one likes, as each call goes to the least busy one.
So the least time T is a mixed-integer program over the groups of GPUs that a server may take, with
the number of servers y of a model on a group, and the part x of its load there:

    minimise T + SERVER * (GPUs taken)
    of each model    sum of x = load,  x <= load * y,  sum of y = replicas if given, else >= 1
    of each GPU      sum of x * SPREAD / span <= T,  sum of need * y <= USABLE * memory

HiGHS solves it (scipy). GPUs are taken to be equally fast.
"""

from __future__ import annotations

import itertools
import math
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np

from ttsgraph.base.errors import EndpointError
from ttsgraph.pool.engine import ServeSettings
from ttsgraph.serving.memory import USABLE, Need

SPREAD = 1.2
"""What a call takes of several GPUs in all, against one: they wait. An assumption."""

SERVER = 0.001
"""What one more GPU has to save of the least time: weights take memory from caches."""

GAP = 0.002
"""How far above the least the solver may end, as a share."""

NODES = 300
"""Of the solver's tree at most: seconds for six models on sixteen GPUs."""


@dataclass(frozen=True)
class Hosted:
    """One model to serve: where its weights are (a folder, or `from_hub` a hub id) and how; its
    servers stand at `ports` if given. On GPUs they are placed by `needs` (GPUs spanned -> what it
    takes of each, if known) and `load`: what all its calls take of one GPU, in one unit for all
    models.
    """

    source: str
    serve: ServeSettings = field(default_factory=ServeSettings)
    revision: str | None = None
    ports: tuple[int, ...] = ()
    needs: Mapping[int, Need] = field(default_factory=dict)
    load: float = 1.0
    from_hub: bool = False

    @property
    def replicas(self) -> int | None:
        """How many servers it has; None: as many as its load asks for."""
        fixed = len(self.ports) or self.serve.replicas
        return 1 if fixed is None and self.serve.port is not None else fixed

    @property
    def source_at_revision(self) -> str:
        """What a server of transformers is started with, and goes by."""
        return self.source + (f"@{self.revision}" if self.revision is not None else "")

    def port(self, replica: int) -> int | None:
        """That of one of its servers; None: a free one."""
        if self.ports:
            return self.ports[replica]
        return None if self.serve.port is None else self.serve.port + replica


@dataclass(frozen=True, slots=True)
class Placed:
    """One server of a model: its GPUs, what it has to do on each (0 where that isn't known), its
    share of their memory, which of the model's servers it is, and what it is called.
    """

    model: str
    gpus: tuple[int, ...] = ()
    load: float = 0.0
    share: float = 0.0
    replica: int = 0
    title: str = ""


def servers_of(
    models: Mapping[str, Hosted], gpus: Mapping[int, float] | None = None
) -> list[Placed]:
    """The servers of each model (served name -> what to serve), on GPUs with GiB of memory, or the
    CPU (None): placed by load and memory where these are known and fit, else in turn. Raises
    EndpointError when a model needs more GPUs than there are.
    """
    placed = None
    if gpus is not None and models and all(hosted.needs for hosted in models.values()):
        placed = place(models, gpus)
    if placed is None:
        placed = _in_turn(models, gpus)
    given = [0.0] * len(placed) if gpus is None else shares(models, placed, gpus)
    many = Counter(one.model for one in placed)
    number: Counter[str] = Counter()
    found = []
    for one, share in zip(placed, given, strict=True):
        replica = number[one.model]
        number[one.model] += 1
        title = one.model if many[one.model] == 1 else f"{one.model}-{replica + 1}"
        found.append(replace(one, share=share, replica=replica, title=title))
    return found


def _in_turn(models: Mapping[str, Hosted], gpus: Mapping[int, float] | None) -> list[Placed]:
    """A server a replica, on the next GPUs if there are to be any."""
    turn = itertools.cycle(gpus or ())
    found = []
    for name, hosted in models.items():
        span = 0 if gpus is None else hosted.serve.tensor_parallel or 1
        if gpus is not None and span > len(gpus):
            raise EndpointError(
                f"expected at least {span} GPUs for a model with tensor_parallel {span}, found"
                f" {len(gpus)}"
            )
        for _ in range(hosted.replicas or 1):
            found.append(Placed(name, tuple(itertools.islice(turn, span))))
    return found


def place(models: Mapping[str, Hosted], gpu_gib: Mapping[int, float]) -> list[Placed] | None:
    """The models' servers, in order, on GPUs of so many GiB; None where they don't fit."""
    from scipy.optimize import Bounds, LinearConstraint, milp  # slow to import

    options = [(name, group) for name, each in models.items() for group in _groups(each, gpu_gib)]
    if {name for name, _ in options} != set(models):
        return None
    count = len(options)
    sizes = np.array(list(gpu_gib.values()))
    ideal = sum(wanted.load for wanted in models.values()) / len(gpu_gib) or 1.0
    loads = np.array([wanted.load / ideal for wanted in models.values()])
    given = [wanted.replicas for wanted in models.values()]
    # What a load of 1 takes of each GPU of an option's group.
    each = np.array([1.0 if len(group) == 1 else SPREAD / len(group) for _, group in options])
    of = np.array([[float(name == one) for one, _ in options] for name in models])
    on = np.array([[float(gpu in group) for _, group in options] for gpu in gpu_gib])
    needs = np.array(
        [[_gib(models[name], len(group), size) for name, group in options] for size in sizes]
    )

    def rows(x: np.ndarray, y: np.ndarray, time: float = 0.0) -> np.ndarray:
        return np.hstack([x, y, np.full((len(x), 1), time)])

    # Columns: x of each option, then y of each, then T; loads in units of `ideal`.
    constraints = [
        LinearConstraint(rows(of, 0 * of), loads, loads),
        LinearConstraint(rows(0 * of, of), [n or 1 for n in given], [n or math.inf for n in given]),
        LinearConstraint(rows(np.eye(count), -np.diag(loads @ of)), ub=0.0),
        LinearConstraint(rows(on * each, 0 * on, -1.0), ub=0.0),
        LinearConstraint(rows(0 * on, on * needs), ub=USABLE * sizes + 1e-6),
    ]
    most = [models[name].replicas or 1 for name, _ in options]
    with _without_output():
        found = milp(
            np.array([0.0] * count + [SERVER * len(group) for _, group in options] + [1.0]),
            integrality=np.array([0] * count + [1] * count + [0]),
            bounds=Bounds(0, [math.inf] * count + most + [math.inf]),
            constraints=constraints,
            options={"mip_rel_gap": GAP, "node_limit": NODES},
        )
    if found.x is None:
        return None
    return [
        Placed(name, group, float(found.x[k] * ideal * each[k] / servers))
        for k, (name, group) in enumerate(options)
        if (servers := round(found.x[count + k]))
        for _ in range(servers)
    ]


@contextmanager
def _without_output() -> Iterator[None]:
    """Silence standard output below Python: HiGHS 1.12 prints there, whatever it is asked."""
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        with open(os.devnull, "w", encoding="utf-8") as nowhere:
            os.dup2(nowhere.fileno(), 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _groups(wanted: Hosted, gpu_gib: Mapping[int, float]) -> list[tuple[int, ...]]:
    """Groups of GPUs next to each other that hold a server."""
    gpus = list(gpu_gib)
    return [
        group
        for span in wanted.needs
        for group in (tuple(gpus[k : k + span]) for k in range(0, len(gpus) - span + 1, span))
        if all(_gib(wanted, span, gpu_gib[gpu]) <= USABLE * gpu_gib[gpu] for gpu in group)
    ]


def _gib(wanted: Hosted, span: int, size: float) -> float:
    """What a server that spans so many GPUs takes of one of this size."""
    share = wanted.serve.gpu_memory
    return wanted.needs[span].total if share is None else share * size


def shares(
    models: Mapping[str, Hosted], placed: Sequence[Placed], gpu_gib: Mapping[int, float]
) -> list[float]:
    """Each server's share of its GPUs' memory (`gpu_memory_utilization`): what it needs, and of the
    rest enough that all caches hold equally many requests; even shares where needs aren't known, in
    proportion where they are too much.
    """
    given = [models[one.model].serve.gpu_memory for one in placed]
    found: list[float] = [share or math.inf for share in given]
    for gpu, size in gpu_gib.items():
        here = [k for k, one in enumerate(placed) if gpu in one.gpus]
        free = USABLE - sum(given[k] or 0.0 for k in here)
        here = [k for k in here if given[k] is None]
        needs = [models[placed[k].model].needs.get(len(placed[k].gpus)) for k in here]
        for k, share in zip(here, _divided(free, needs, size), strict=True):
            found[k] = min(found[k], share)
    # A hair more than nothing, so that flooring does not take a thousandth of an even share.
    return [
        share if fixed else math.floor(1000 * share + 1e-6) / 1000
        for share, fixed in zip(found, given, strict=True)
    ]


def _divided(free: float, needs: Sequence[Need | None], size: float) -> list[float]:
    """A free share of one GPU, divided among servers with these needs."""
    known = [need for need in needs if need is not None]
    if len(known) < len(needs):
        return [free / len(needs)] * len(needs)
    least = [need.total / size for need in known]
    spare = free - sum(least)
    if spare < 0:
        return [free * each / sum(least) for each in least]
    caches = sum(need.cache for need in known)
    return [each + spare * need.cache / caches for each, need in zip(least, known, strict=True)]
