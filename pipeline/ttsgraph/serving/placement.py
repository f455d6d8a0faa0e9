"""Placement of a pool's servers on GPUs, and their shares of the GPUs' memory.

The placement is greedy. First, each model gets one server (or the number of replicas that the
profile sets), the largest model first, on the least loaded GPUs with enough room. Then one server
at a time is added, as long as this balances the load better. A model's calls are assumed to be
split evenly among its servers, and all GPUs to be equally fast.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ttsgraph.base.errors import EndpointError
from ttsgraph.pool.engine import ServeSettings
from ttsgraph.pool.spec import FACTS
from ttsgraph.serving.memory import USABLE, MemoryNeed

LEAST_GAIN = 0.01
"""Minimum share by which another server must reduce the sum of squared loads.

Without a minimum, servers would be added for tiny gains, and each one leaves less room for caches.
"""

OnGpus = tuple[str, tuple[int, ...]]
"""Name of a model, and the GPUs of one of its servers."""

Gpus = Mapping[int, float]
"""Map from each GPU to its memory in GiB."""


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
    def source_at_revision(self) -> str:
        """Source with its revision: the name by which a transformers server knows the model."""
        return self.source + (f"@{self.revision}" if self.revision is not None else "")


@dataclass(frozen=True, slots=True)
class PlacedServer:
    """One server of a model, placed on GPUs (or, if there are none, on the CPU).

    `share` is its share of the GPUs' memory, and `title` its name.
    """

    model: str
    gpus: tuple[int, ...]
    share: float
    title: str


Models = Mapping[str, HostedModel]
"""Map from served names to models."""


def servers_of(models: Models, gpus: Gpus | None = None) -> list[PlacedServer]:
    """Return the servers of all models, on GPUs or, without `gpus`, on the CPU.

    Raises EndpointError if a model needs more GPUs than there are, or if its needs are unknown.
    """
    placed: list[OnGpus]
    if gpus is None:
        placed = [(name, ()) for name in models for _ in range(models[name].serve.replicas or 1)]
    else:
        placed = place(models, gpus)
    found = []
    for name in models:
        groups = [group for model, group in placed if model == name]
        for number, group in enumerate(groups, 1):
            title = name if len(groups) == 1 else f"{name}-{number}"
            found.append(PlacedServer(name, group, _share(models, placed, name, group), title))
    return found


def place(models: Models, sizes: Gpus) -> list[OnGpus]:
    """Return the placed servers in the order of the models. Servers may lack memory if not all of
    them fit. Raises EndpointError as `servers_of`.
    """

    def unevenness(servers: Sequence[OnGpus]) -> float:
        return sum(work**2 for work in work_on(sizes, models, servers).values())

    for name, hosted in models.items():
        if not hosted.needs:
            raise EndpointError(
                f"model {name!r}: expected {', '.join(FACTS)} in the profile's pool, to compute its"
                " GPU memory, found some missing"
            )
        if min(hosted.needs) > len(sizes):
            raise EndpointError(
                f"model {name!r}: expected at least {min(hosted.needs)} GPUs, found {len(sizes)}"
            )
    placed: list[OnGpus] = []
    for name in sorted(models, key=lambda name: -min(n.total for n in models[name].needs.values())):
        for _ in range(models[name].serve.replicas or 1):
            group = _idlest(name, models, placed, sizes)
            placed.append((name, group or _idlest(name, models, placed, sizes, crowded=True)))
    more = [name for name, hosted in models.items() if hosted.serve.replicas is None]
    while True:
        groups = {name: _idlest(name, models, placed, sizes) for name in more}
        trials = [[*placed, (name, group)] for name, group in groups.items() if group]
        best = min(trials, key=unevenness, default=placed)
        if unevenness(best) >= (1 - LEAST_GAIN) * unevenness(placed):
            return sorted(placed, key=lambda server: list(models).index(server[0]))
        placed = best


def _idlest(
    name: str, models: Models, placed: Sequence[OnGpus], sizes: Gpus, crowded: bool = False
) -> tuple[int, ...]:
    """Return the least loaded group of adjacent GPUs with room for one more server of a model, or,
    if they may be `crowded`, also without room.

    The group is as small as possible. Return an empty tuple if there is no room.
    """
    room = {gpu: USABLE * size + 1e-6 for gpu, size in sizes.items()}
    for other, group in placed:
        for gpu in group:  # a GPU has at most one server of a model
            room[gpu] -= math.inf if other == name else models[other].needs[len(group)].total
    work = work_on(sizes, models, placed)
    gpus = list(sizes)
    for span, need in sorted(models[name].needs.items()):
        groups = [tuple(gpus[k : k + span]) for k in range(0, len(gpus) - span + 1, span)]
        fit = [group for group in groups if all(need.total <= room[gpu] for gpu in group)]
        if found := groups if crowded else fit:
            return min(found, key=lambda group: max(work[gpu] for gpu in group))
    return ()


def work_on(gpus: Iterable[int], models: Models, placed: Sequence[OnGpus]) -> dict[int, float]:
    """Return the work of each GPU."""
    work = dict.fromkeys(gpus, 0.0)
    servers = Counter(name for name, _ in placed)
    for name, group in placed:
        for gpu in group:
            work[gpu] += models[name].load / servers[name] / len(group)
    return work


def _share(models: Models, placed: Sequence[OnGpus], name: str, group: tuple[int, ...]) -> float:
    """Return a server's share of its GPUs' memory (`gpu_memory_utilization`), 0 on the CPU.

    Servers divide a GPU in proportion to their needs. The fullest of a server's GPUs counts.
    """
    needed = [
        sum(models[other].needs[len(gpus)].total for other, gpus in placed if gpu in gpus)
        for gpu in group
    ]
    share = USABLE * models[name].needs[len(group)].total / max(needed) if needed else 0.0
    # Without the small margin, a rounding error could lower an exact share by a thousandth.
    return math.floor(1000 * share + 1e-6) / 1000
