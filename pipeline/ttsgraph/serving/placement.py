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

import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from ttsgraph.pool.engine import ServeSettings
from ttsgraph.serving.memory import USABLE, Need

NO_SETTINGS = ServeSettings()

SPREAD = 1.2
"""What a call takes of several GPUs in all, against one: they wait. An assumption."""

SERVER = 0.001
"""What one more GPU for a server has to save, of the least time there could be: each server takes
memory for weights that is lost to the caches of others.
"""

GAP = 0.002
"""How far above the least the solver may end, as a share."""

NODES = 300
"""Of the solver's tree at most: seconds for six models on sixteen GPUs."""


@dataclass(frozen=True)
class Hosted:
    """One model to serve: where its weights are (a folder, or `from_hub` a hub id) and how it is
    served.

    Its servers stand at `ports`, one each, where they are given. On GPUs they are placed by `needs`
    (GPUs that a server may span -> what it takes of each, as far as that is known) and `load`: what
    all of the model's calls take of one GPU, in any unit, the same for all models.
    """

    source: str
    serve: ServeSettings = NO_SETTINGS
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
    """One server of a model: its GPUs, and what it has to do on each (0 where that isn't known)."""

    model: str
    gpus: tuple[int, ...]
    load: float = 0.0


def place(models: Mapping[str, Hosted], gpu_gib: Mapping[int, float]) -> list[Placed] | None:
    """The models' servers, in order, on GPUs of so many GiB; None where they don't fit."""
    from scipy.optimize import Bounds, LinearConstraint, milp  # slow to import

    options = [
        (name, group) for name, wanted in models.items() for group in _groups(wanted, gpu_gib)
    ]
    count = len(options)
    if {name for name, _ in options} != set(models):
        return None
    ideal = sum(wanted.load for wanted in models.values()) / len(gpu_gib) or 1.0
    # Columns: x of each option, then y of each, then T; loads in units of `ideal`.
    cost = np.array([0.0] * count + [SERVER * len(group) for _, group in options] + [1.0])
    rows: list[np.ndarray] = []
    bounds: list[tuple[float, float]] = []

    def row(low: float, high: float, parts: Mapping[int, float]) -> None:
        made = np.zeros(2 * count + 1)
        made[list(parts)] = list(parts.values())
        rows.append(made)
        bounds.append((low, high))

    most = []
    for name, wanted in models.items():
        mine = [k for k, (of, _) in enumerate(options) if of == name]
        load = wanted.load / ideal
        row(load, load, dict.fromkeys(mine, 1.0))
        servers = wanted.replicas
        row(servers or 1, servers or math.inf, {count + k: 1.0 for k in mine})
        for k in mine:
            row(-math.inf, 0.0, {k: 1.0, count + k: -load})
        most += [servers or 1] * len(mine)
    for gpu, size in gpu_gib.items():
        here = [k for k, (_, group) in enumerate(options) if gpu in group]
        row(-math.inf, 0.0, {k: _each(options[k][1]) for k in here} | {2 * count: -1.0})
        needs = {count + k: _gib(models[options[k][0]], options[k][1], size) for k in here}
        row(-math.inf, USABLE * size + 1e-6, needs)
    with _without_output():
        found = milp(
            cost,
            integrality=np.array([0] * count + [1] * count + [0]),
            bounds=Bounds(0, [math.inf] * count + most + [math.inf]),
            constraints=LinearConstraint(np.array(rows), *zip(*bounds, strict=True)),
            options={"mip_rel_gap": GAP, "node_limit": NODES},
        )
    if found.x is None:
        return None
    return [
        Placed(name, group, float(found.x[k]) * ideal * _each(group) / servers)
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
        if all(_gib(wanted, group, gpu_gib[gpu]) <= USABLE * gpu_gib[gpu] for gpu in group)
    ]


def _gib(wanted: Hosted, group: tuple[int, ...], size: float) -> float:
    """What a server on this group takes of a GPU of this size."""
    share = wanted.serve.gpu_memory
    return wanted.needs[len(group)].total if share is None else share * size


def _each(group: tuple[int, ...]) -> float:
    """What a load of 1 takes of each GPU of a group."""
    return 1.0 if len(group) == 1 else SPREAD / len(group)


def shares(
    models: Mapping[str, Hosted], placed: Sequence[Placed], gpu_gib: Mapping[int, float]
) -> list[float]:
    """Each server's share of its GPUs' memory, as `gpu_memory_utilization`.

    Each gets what it needs; what is left goes to the caches, so that all hold equally many
    requests. Where it is not known what all on a GPU need, they share evenly; where they need more
    than there is, in proportion.
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
