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

    `share` is its share of the GPUs' memory, `replica` its index among the model's servers, and
    `title` its name.
    """

    model: str
    gpus: tuple[int, ...]
    share: float
    replica: int
    title: str


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
    if placed is None:
        placed = _in_turn(models, gpus)
    many = Counter(model for model, _ in placed)
    number: Counter[str] = Counter()
    found = []
    for (model, group), share in zip(placed, shares(models, placed), strict=True):
        number[model] += 1
        title = model if many[model] == 1 else f"{model}-{number[model]}"
        found.append(PlacedServer(model, group, share, number[model] - 1, title))
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

    def unevenness(servers: Sequence[OnGpus]) -> float:
        return sum(work**2 for work in work_on(sizes, models, servers).values())

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
        best = min(trials, key=unevenness, default=placed)
        if unevenness(best) >= (1 - LEAST_GAIN) * unevenness(placed):
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
    work = work_on(sizes, models, placed)
    gpus = list(sizes)
    for span in sorted(models[name].needs):
        groups = [tuple(gpus[k : k + span]) for k in range(0, len(gpus) - span + 1, span)]
        taken = models[name].taken
        if fit := [on for on in groups if all(taken(span, sizes[gpu]) <= room[gpu] for gpu in on)]:
            return min(fit, key=lambda on: max(work[gpu] for gpu in on))
    return ()


def work_on(
    gpus: Iterable[int], models: Mapping[str, HostedModel], placed: Sequence[OnGpus]
) -> dict[int, float]:
    """Return the work of each GPU.

    The models' loads are assigned one after the other, the largest first. Each portion of a load
    goes to the model's server with the least loaded GPUs.
    """
    work = dict.fromkeys(gpus, 0.0)
    for name in sorted(models, key=lambda name: -models[name].load):
        groups = [group for model, group in placed if model == name]
        for _ in range(PORTIONS if groups else 0):
            idlest = min(groups, key=lambda group: max(work[gpu] for gpu in group))
            for gpu in idlest:
                spread = SPREAD / len(idlest) if len(idlest) > 1 else 1.0
                work[gpu] += models[name].load / PORTIONS * spread
    return work


def shares(models: Mapping[str, HostedModel], placed: Sequence[OnGpus]) -> list[float]:
    """Return each server's share of its GPUs' memory (`gpu_memory_utilization`), 0 on the CPU.

    Servers for which the profile sets no share divide what the others leave of a GPU in proportion
    to their needs, or evenly if some needs are unknown. The fullest of its GPUs counts.
    """

    def part(name: str, span: int, gpu: int) -> float:
        here = [(models[other], len(group)) for other, group in placed if gpu in group]
        free = USABLE - sum(hosted.serve.gpu_memory or 0.0 for hosted, _ in here)
        needs = [hosted.needs.get(gpus) for hosted, gpus in here if not hosted.serve.gpu_memory]
        known = [need.total for need in needs if need is not None]
        if len(known) < len(needs):
            return free / len(needs)
        return free * models[name].needs[span].total / sum(known)

    found = []
    for name, group in placed:
        share = models[name].serve.gpu_memory
        if share is None:
            least = min((part(name, len(group), gpu) for gpu in group), default=0.0)
            # Without the small margin, a rounding error could lower an exact share by a thousandth.
            share = math.floor(1000 * least + 1e-6) / 1000
        found.append(share)
    return found
