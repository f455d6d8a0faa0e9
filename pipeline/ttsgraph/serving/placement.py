"""Placement of a pool's servers on GPUs, and their shares of the memory.

Greedy: one server of each model (or the profile's replicas), largest first, on the least loaded
GPUs with room; then one more server at a time while it balances the load better. A call goes to the
least busy server of its model, so a model's load can be split over its servers in any proportion.
GPUs are assumed to be equally fast.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ttsgraph.base.errors import EndpointError
from ttsgraph.pool.engine import ServeSettings
from ttsgraph.serving.memory import USABLE, MemoryNeed

SPREAD = 1.2
"""Factor on a call's work if it runs on several GPUs, which wait for each other. An assumption."""

LEAST_GAIN = 0.01
"""Minimum share of the squared load that another server must save, because it reduces caches."""

PORTIONS = 40
"""Portions in which a model's load is split over its servers."""

OnGpus = tuple[str, tuple[int, ...]]
"""A model and the GPUs of one of its servers."""


@dataclass(frozen=True)
class HostedModel:
    """One model to serve: its weights (a folder, or a hub id if `from_hub`) and its settings.

    On GPUs its servers are placed by `needs` (GPUs per server -> memory on each, if known) and
    `load`: the work of all its calls on one GPU, in the same unit for all models.
    """

    source: str
    serve: ServeSettings = field(default_factory=ServeSettings)
    revision: str | None = None
    needs: Mapping[int, MemoryNeed] = field(default_factory=dict)
    load: float = 1.0
    from_hub: bool = False

    @property
    def replicas(self) -> int | None:
        """Number of servers; None: determined by the load."""
        fixed = self.serve.replicas
        return 1 if fixed is None and self.serve.port is not None else fixed

    @property
    def source_at_revision(self) -> str:
        """Name under which a transformers server is started and called."""
        return self.source + (f"@{self.revision}" if self.revision is not None else "")

    def taken(self, span: int, size: float) -> float:
        """Return the GiB of a server on each of `span` GPUs of this size."""
        share = self.serve.gpu_memory
        return self.needs[span].total if share is None else share * size


@dataclass(frozen=True, slots=True)
class PlacedServer:
    """One server of a model: its GPUs, its work on each (0 if unknown), its share of their memory,
    its index among the model's servers, and its name.
    """

    model: str
    gpus: tuple[int, ...] = ()
    load: float = 0.0
    share: float = 0.0
    replica: int = 0
    title: str = ""


def servers_of(
    models: Mapping[str, HostedModel], gpus: Mapping[int, float] | None = None
) -> list[PlacedServer]:
    """Return the servers of each model, on `gpus` (GPU -> GiB) or on the CPU (None).

    `models` maps served names to what to serve. Placed by load and memory if both are known and
    fit, else in rotation. Raises EndpointError if a model needs more GPUs than there are.
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
        found.append(PlacedServer(model, group, load, share, number[model] - 1, title))
    return found


def _in_turn(models: Mapping[str, HostedModel], gpus: Mapping[int, float] | None) -> list[OnGpus]:
    """Return one server per replica, on the next GPUs if there are any."""
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


def place(models: Mapping[str, HostedModel], sizes: Mapping[int, float]) -> list[OnGpus] | None:
    """Return the servers on GPUs of these GiB, in the models' order, or None if they don't fit."""
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
    name: str,
    models: Mapping[str, HostedModel],
    placed: Sequence[OnGpus],
    sizes: Mapping[int, float],
) -> tuple[int, ...]:
    """Return the least loaded adjacent GPUs with room for one more server of a model.

    The fewest that hold it; empty if there is no room.
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
    models: Mapping[str, HostedModel], placed: Sequence[OnGpus], gpus: Iterable[int]
) -> tuple[list[float], dict[int, float]]:
    """Return the work of each server per GPU, and of each GPU.

    Each model's load, largest first, goes in portions to the server with the least loaded GPUs.
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


def _squares(
    models: Mapping[str, HostedModel], placed: Sequence[OnGpus], gpus: Iterable[int]
) -> float:
    """Return the sum of squares of the GPUs' work: the lower, the more even."""
    return sum(work**2 for work in split(models, placed, gpus)[1].values())


def shares(
    models: Mapping[str, HostedModel], placed: Sequence[OnGpus], sizes: Mapping[int, float]
) -> list[float]:
    """Return each server's share of its GPUs' memory (`gpu_memory_utilization`).

    Its need, and a part of the rest such that all caches hold equally many requests. Even shares if
    needs are unknown, proportional ones if they exceed the memory.
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
    # A small margin, so that flooring doesn't take a thousandth off an even share.
    return [
        share if fixed else math.floor(1000 * share + 1e-6) / 1000
        for share, fixed in zip(found, given, strict=True)
    ]


def _divided(free: float, needs: Sequence[MemoryNeed | None], size: float) -> list[float]:
    """Return the parts of a GPU's free share for servers with these needs."""
    known = [need for need in needs if need is not None]
    if len(known) < len(needs):
        return [free / len(needs)] * len(needs)
    least = [need.total / size for need in known]
    spare = free - sum(least)
    if spare < 0:
        return [free * each / sum(least) for each in least]
    caches = sum(need.cache for need in known)
    return [each + spare * need.cache / caches for each, need in zip(least, known, strict=True)]
