"""The GPUs that the servers of a pool take, and their shares of the memory.

Placed greedily: one server of each model (or the replicas that the profile gives), the largest
first, on the GPUs with the least to do that have room; then one more server at a time while it
spreads the load better. A call goes to the least busy server of its model, so a model's load may be
split over its servers in any way. GPUs are taken to be equally fast.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ttsgraph.base.errors import EndpointError
from ttsgraph.pool.engine import ServeSettings
from ttsgraph.serving.memory import USABLE, Need

SPREAD = 1.2
"""Work of a call on several GPUs, against one: they wait for each other. An assumption."""

LEAST_GAIN = 0.01
"""Share of the squared work that another server has to save, as it takes memory from caches."""

PORTIONS = 40
"""Parts in which a model's load is split over its servers."""

OnGpus = tuple[str, tuple[int, ...]]
"""A model, and the GPUs of one of its servers."""


@dataclass(frozen=True)
class Hosted:
    """One model to serve: where its weights are (a folder, or `from_hub` a hub id) and how. On GPUs
    its servers are placed by `needs` (GPUs spanned -> memory of each, if known) and `load`: the
    work of all its calls on one GPU, in one unit for all models.
    """

    source: str
    serve: ServeSettings = field(default_factory=ServeSettings)
    revision: str | None = None
    needs: Mapping[int, Need] = field(default_factory=dict)
    load: float = 1.0
    from_hub: bool = False

    @property
    def replicas(self) -> int | None:
        """Number of its servers; None: as many as its load asks for."""
        fixed = self.serve.replicas
        return 1 if fixed is None and self.serve.port is not None else fixed

    @property
    def source_at_revision(self) -> str:
        """The name by which a server of transformers is started and asked."""
        return self.source + (f"@{self.revision}" if self.revision is not None else "")

    def taken(self, span: int, size: float) -> float:
        """GiB that a server takes of each of `span` GPUs of this size."""
        share = self.serve.gpu_memory
        return self.needs[span].total if share is None else share * size


@dataclass(frozen=True, slots=True)
class Placed:
    """One server of a model: its GPUs, its work on each (0 if unknown), its share of their memory,
    its number among the model's servers, and its name.
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
    CPU (None): placed by load and memory if these are known and fit, else in turn. Raises
    EndpointError when a model needs more GPUs than there are.
    """
    placed = None
    if gpus and all(hosted.needs for hosted in models.values()):
        placed = place(models, gpus)
    if gpus and placed is not None:
        loads, _ = split(models, placed, gpus)
    else:
        placed = _in_turn(models, gpus)
        loads = [0.0] * len(placed)
    shared = [0.0] * len(placed) if gpus is None else shares(models, placed, gpus)
    many = Counter(model for model, _ in placed)
    number: Counter[str] = Counter()
    found = []
    for (model, group), load, share in zip(placed, loads, shared, strict=True):
        number[model] += 1
        title = model if many[model] == 1 else f"{model}-{number[model]}"
        found.append(Placed(model, group, load, share, number[model] - 1, title))
    return found


def _in_turn(models: Mapping[str, Hosted], gpus: Mapping[int, float] | None) -> list[OnGpus]:
    """A server a replica, on the next GPUs if there are any."""
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
            found.append((name, tuple(itertools.islice(turn, span))))
    return found


def place(models: Mapping[str, Hosted], sizes: Mapping[int, float]) -> list[OnGpus] | None:
    """Servers on GPUs of these GiB, in the models' order; None if they don't fit."""
    placed: list[OnGpus] = []
    for name in sorted(models, key=lambda name: -min(n.total for n in models[name].needs.values())):
        for _ in range(models[name].replicas or 1):
            group = _idlest(name, models, placed, sizes)
            if not group:
                return None
            placed.append((name, group))
    more = [name for name, hosted in models.items() if hosted.replicas is None]
    while True:
        groups = {name: _idlest(name, models, placed, sizes) for name in more}
        trials = [[*placed, (name, group)] for name, group in groups.items() if group]
        squares, best = min(
            ((_squares(models, one, sizes), one) for one in trials), default=(1, [])
        )
        if not best or squares >= (1 - LEAST_GAIN) * _squares(models, placed, sizes):
            return sorted(placed, key=lambda server: list(models).index(server[0]))
        placed = best


def _idlest(
    name: str, models: Mapping[str, Hosted], placed: Sequence[OnGpus], sizes: Mapping[int, float]
) -> tuple[int, ...]:
    """GPUs next to each other, with room for one more server of a model and the least to do: the
    fewest that hold it; empty if there is no room.
    """
    room = {gpu: USABLE * size + 1e-6 for gpu, size in sizes.items()}
    for other, group in placed:
        for gpu in group:
            room[gpu] -= math.inf if other == name else models[other].taken(len(group), sizes[gpu])
    _, work = split(models, placed, sizes)
    gpus = list(sizes)
    for span in sorted(models[name].needs):
        groups = [tuple(gpus[k : k + span]) for k in range(0, len(gpus) - span + 1, span)]
        taken = models[name].taken
        if fit := [on for on in groups if all(taken(span, sizes[gpu]) <= room[gpu] for gpu in on)]:
            return min(fit, key=lambda on: max(work[gpu] for gpu in on))
    return ()


def split(
    models: Mapping[str, Hosted], placed: Sequence[OnGpus], gpus: Iterable[int]
) -> tuple[list[float], dict[int, float]]:
    """Work of each server on each of its GPUs, and of each GPU: a model's load goes in portions to
    the server whose GPUs have the least to do, the largest load first.
    """
    work = dict.fromkeys(gpus, 0.0)
    loads = [0.0] * len(placed)
    for name in sorted(models, key=lambda name: -models[name].load):
        own = [k for k, (model, _) in enumerate(placed) if model == name]
        for _ in range(PORTIONS if own else 0):
            server = min(own, key=lambda k: max(work[gpu] for gpu in placed[k][1]))
            span = len(placed[server][1])
            portion = models[name].load / PORTIONS * (SPREAD / span if span > 1 else 1.0)
            loads[server] += portion
            for gpu in placed[server][1]:
                work[gpu] += portion
    return loads, work


def _squares(models: Mapping[str, Hosted], placed: Sequence[OnGpus], gpus: Iterable[int]) -> float:
    """Sum of squares of the GPUs' work: the less, the more evenly it is spread."""
    return sum(work**2 for work in split(models, placed, gpus)[1].values())


def shares(
    models: Mapping[str, Hosted], placed: Sequence[OnGpus], sizes: Mapping[int, float]
) -> list[float]:
    """Each server's share of its GPUs' memory (`gpu_memory_utilization`): its need, and of the rest
    enough that all caches hold equally many requests; even shares if needs aren't known, in
    proportion if they are too much.
    """
    given = [models[name].serve.gpu_memory for name, _ in placed]
    found: list[float] = [share or math.inf for share in given]
    for gpu, size in sizes.items():
        here = [k for k, (_, group) in enumerate(placed) if gpu in group]
        free = USABLE - sum(given[k] or 0.0 for k in here)
        here = [k for k in here if given[k] is None]
        needs = [models[placed[k][0]].needs.get(len(placed[k][1])) for k in here]
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
