"""Servers on GPUs by load: near the least time, within memory, none idle for nothing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import linprog

from tests.support.project import ROOT
from ttsgraph.pool.engine import ServeSettings
from ttsgraph.serving.memory import USABLE, Need, needs_of
from ttsgraph.serving.placement import SPREAD, Hosted, Placed, place
from ttsgraph.serving.servers import server_specs
from ttsgraph.settings.profile import load_profile

MACHINES = (
    [80.0],
    [40.0] * 2,
    [24.0] * 4,
    [24.0, 24.0, 80.0],
    [24.0] * 4 + [80.0] * 2,
    [48.0] * 5,
    [24.0] * 8,
    [80.0] * 8,
    [24.0, 24.0, 48.0, 48.0, 80.0, 80.0],
    [80.0] * 16,
)


def hosted(load: float, needs: Mapping[int, Need], **serve: float) -> Hosted:
    return Hosted("", ServeSettings(**serve), needs=needs, load=load)


@cache
def papers() -> Mapping[str, Hosted]:
    profile = load_profile("paper", ROOT / "profiles")
    return {
        name: hosted(model.non_embedding, needs_of(name, model, profile.engine))
        for name, model in profile.hosted.items()
    }


def work(placed: list[Placed], gpus: int) -> list[float]:
    return [sum(one.load for one in placed if gpu in one.gpus) for gpu in range(gpus)]


def memory(models: Mapping[str, Hosted], placed: list[Placed], gpus: int) -> list[float]:
    return [
        sum(models[one.model].needs[len(one.gpus)].total for one in placed if gpu in one.gpus)
        for gpu in range(gpus)
    ]


@pytest.mark.parametrize("sizes", MACHINES, ids=lambda sizes: "+".join(f"{s:.0f}" for s in sizes))
def test_the_papers_pool_fits_and_no_gpu_idles_while_another_has_twice_as_much(sizes):
    models = papers()
    placed = place(models, dict(enumerate(sizes)))
    assert {one.model for one in placed} == set(models)
    taken = memory(models, placed, len(sizes))
    assert all(used <= USABLE * size + 1e-3 for used, size in zip(taken, sizes, strict=True))
    loads = work(placed, len(sizes))
    assert min(loads) >= max(loads) / 2
    total = sum(one.load * len(one.gpus) / (SPREAD if len(one.gpus) > 1 else 1) for one in placed)
    assert total == pytest.approx(sum(wanted.load for wanted in models.values()), rel=1e-3)


def test_what_does_not_fit_is_not_placed():
    assert place(papers(), {0: 24.0}) is None
    assert place({"m": hosted(1.0, {2: Need(1.0, 1.0, 1.0)})}, {0: 24.0}) is None


def placements(models: Mapping[str, Hosted], sizes: list[float]) -> Iterator[list[tuple]]:
    """Every way in which at most one server of each model stands on a group of GPUs."""
    options = []
    for name, wanted in models.items():
        groups = [
            tuple(range(k, k + span))
            for span in wanted.needs
            for k in range(0, len(sizes) - span + 1, span)
        ]
        some = (itertools.combinations(groups, n) for n in range(1, len(groups) + 1))
        options.append([[(name, group) for group in of] for each in some for of in each])
    for chosen in itertools.product(*options):
        servers = [server for of in chosen for server in of]
        used = np.zeros(len(sizes))
        for name, group in servers:
            used[list(group)] += models[name].needs[len(group)].total
        if (used <= USABLE * np.array(sizes)).all():
            yield servers


def least_time(models: Mapping[str, Hosted], servers: list[tuple], gpus: int) -> float:
    """The busiest GPU's work, loads split as well as can be."""
    each = [SPREAD / len(group) if len(group) > 1 else 1.0 for _, group in servers]
    on = np.array(
        [
            [e * (gpu in g) for e, (_, g) in zip(each, servers, strict=True)] + [-1.0]
            for gpu in range(gpus)
        ]
    )
    of = np.array([[float(name == m) for m, _ in servers] + [0.0] for name in models])
    load = [wanted.load for wanted in models.values()]
    cost = [0.0] * len(servers) + [1.0]
    return float(linprog(cost, on, np.zeros(gpus), of, load).fun)


@pytest.mark.parametrize("seed", range(6))
def test_the_busiest_gpu_has_at_most_a_twentieth_more_than_by_exhaustive_search(seed):
    rng = np.random.default_rng(seed)
    sizes = [float(rng.choice([24.0, 48.0, 80.0])) for _ in range(2 + seed % 2)]
    models = {}
    for k in range(3):
        weights = float(rng.uniform(2, 20))
        needs = {span: Need(weights / span, 2.0, 1.0) for span in ((1, 2) if k == 2 else (1,))}
        models[f"m{k}"] = hosted(float(rng.uniform(1, 10)), needs)
    least = min(
        (least_time(models, servers, len(sizes)) for servers in placements(models, sizes)),
        default=None,
    )
    placed = place(models, dict(enumerate(sizes)))
    if least is None:
        assert placed is None
    else:
        assert max(work(placed, len(sizes))) <= 1.05 * least


def test_what_the_profile_gives_is_kept():
    need = {1: Need(4.0, 1.0, 1.0), 2: Need(2.0, 1.0, 1.0)}
    models = {
        "a": hosted(9.0, {2: need[2]}, replicas=1),
        "b": hosted(1.0, need, replicas=1, gpu_memory=0.4),
    }
    placed = place(models, dict.fromkeys(range(4), 24.0))
    assert sorted((one.model, len(one.gpus)) for one in placed)[0] == ("a", 2)
    assert len(placed) == 2


def test_servers_start_where_they_are_placed(tmp_path: Path):
    models = {
        "s": Hosted("s", needs={1: Need(2.0, 1.0, 0.5)}, load=1.0),
        "l": Hosted("l", needs={1: Need(15.0, 2.0, 2.0)}, load=8.0),
    }
    specs = server_specs("vllm", models, log_dir=tmp_path, gpus=dict.fromkeys(range(3), 24.0))
    assert [spec.name for spec in specs] == ["s", "l-1", "l-2"]  # no GPU holds both
    assert {spec.gpus for spec in specs} == {(0,), (1,), (2,)}
