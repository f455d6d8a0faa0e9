"""Placement of a pool's servers on GPUs, and their shares of the GPUs' memory.

The placement is greedy. First, each model gets one server (or the number of replicas that the
profile sets), the largest model first, on the least loaded GPUs with enough room. Then one server
at a time is added, as long as this balances the load better. Each call goes to the least busy
server of its model, so a model's load can be split among its servers in any proportion. All GPUs
are assumed to be equally fast.
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
"""Assumed factor by which a call's work grows on several GPUs, because they wait for each other."""

LEAST_GAIN = 0.01
"""Minimum share by which another server must reduce the sum of squared loads.

Without a minimum, servers would be added for tiny gains, and each one leaves less room for caches.
"""

PORTIONS = 40
"""Number of equal portions of a model's load that are assigned to its servers one by one."""

OnGpus = tuple[str, tuple[int, ...]]
"""Name of a model, and the GPUs of one of its servers."""


@dataclass(frozen=True)
class HostedModel:
    """Model to serve: its weights (a folder, or a hub id if `from_hub`) and its settings.

    The placement of its servers on GPUs depends on `needs` and `load`. `needs` maps the number of
    GPUs per server to the memory on each, and is empty if unknown. `load` is the work of all the
    model's calls if all run on one GPU, in the same unit for all models.
    """

    source: str
    serve: ServeSettings = field(default_factory=ServeSettings)
    revision: str | None = None
    needs: Mapping[int, MemoryNeed] = field(default_factory=dict)
    load: float = 1.0
    from_hub: bool = False

    @property
    def replicas(self) -> int | None:
        """Number of servers, or None if the load determines it."""
        fixed = self.serve.replicas
        return 1 if fixed is None and self.serve.port is not None else fixed

    @property
    def source_at_revision(self) -> str:
        """Source with its revision: the name by which a transformers server knows the model."""
        return self.source + (f"@{self.revision}" if self.revision is not None else "")

    def taken(self, span: int, size: float) -> float:
        """Return the memory, in GiB, that a server takes on each of `span` GPUs with `size` GiB."""
        share = self.serve.gpu_memory
        return self.needs[span].total if share is None else share * size


@dataclass(frozen=True, slots=True)
class PlacedServer:
    """One server of a model, placed on GPUs (or, if there are none, on the CPU).

    `load` is the server's work on each of its GPUs (0 if unknown), `share` its share of their
    memory, `replica` its index among the model's servers, and `title` its name.
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
    """Return the servers of all models, on GPUs or on the CPU.

    `models` maps served names to models. `gpus` maps each GPU to its memory in GiB, and is None for
    the CPU. Servers are placed by load and memory if all needs are known and all servers fit,
    otherwise in rotation. Raises EndpointError if a model needs more GPUs than there are.
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
    """Return one server per replica, on the GPUs in rotation if there are any.

    Raises EndpointError if a model needs more GPUs than there are.
    """
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
    """Return the placed servers in the order of the models, or None if they don't fit.

    `sizes` maps each GPU to its memory in GiB.
    """
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
    """Return the least loaded group of adjacent GPUs with room for one more server of a model.

    The group is as small as possible. Return an empty tuple if there is no room.
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
    """Return the work of each server on each of its GPUs, and the total work of each GPU.

    The models' loads are assigned one after the other, the largest first. Each portion of a load
    goes to the model's server with the least loaded GPUs.
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
    """Return the sum of the squares of the GPUs' work, which is lower if the work is more even."""
    return sum(work**2 for work in split(models, placed, gpus)[1].values())


def shares(
    models: Mapping[str, HostedModel], placed: Sequence[OnGpus], sizes: Mapping[int, float]
) -> list[float]:
    """Return each server's share of its GPUs' memory (`gpu_memory_utilization`).

    A share that the profile doesn't set covers the server's need and a part of the spare memory,
    chosen so that all caches on a GPU hold the same number of requests. These shares are equal if
    some needs on a GPU are unknown, and proportional to the needs if the needs exceed the memory.
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
    # Without the small margin, a rounding error could lower an exact share by a thousandth.
    return [
        share if fixed else math.floor(1000 * share + 1e-6) / 1000
        for share, fixed in zip(found, given, strict=True)
    ]


def _divided(free: float, needs: Sequence[MemoryNeed | None], size: float) -> list[float]:
    """Return how servers with these needs divide the free share of a GPU with `size` GiB."""
    known = [need for need in needs if need is not None]
    if len(known) < len(needs):
        return [free / len(needs)] * len(needs)
    least = [need.total / size for need in known]
    spare = free - sum(least)
    if spare < 0:
        return [free * each / sum(least) for each in least]
    caches = sum(need.cache for need in known)
    return [each + spare * need.cache / caches for each, need in zip(least, known, strict=True)]
