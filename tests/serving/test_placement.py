"""Servers on GPUs by load: within memory, none idle while another has far more to do."""

from collections.abc import Mapping
from functools import cache

import pytest

from tests.support.project import ROOT
from ttsgraph.base.errors import EndpointError
from ttsgraph.pool.engine import ServeSettings
from ttsgraph.serving.memory import USABLE, MemoryNeed, needs_of
from ttsgraph.serving.placement import HostedModel, place, servers_of, work_on
from ttsgraph.settings.profile import load_profile

MACHINES = ([80.0], [40.0] * 2, [24.0] * 4 + [80.0] * 2, [48.0] * 5, [24.0] * 8, [80.0] * 16)


def hosted(load: float, needs: Mapping[int, MemoryNeed], **serve: float) -> HostedModel:
    return HostedModel("", ServeSettings(**serve), needs=needs, load=load)


@cache
def papers() -> Mapping[str, HostedModel]:
    profile = load_profile("paper", ROOT / "profiles")
    return {
        name: hosted(model.non_embedding, needs_of(model, profile.engine))
        for name, model in profile.hosted.items()
    }


@pytest.mark.parametrize("sizes", MACHINES, ids=lambda sizes: "+".join(f"{s:.0f}" for s in sizes))
def test_the_papers_pool_fits_and_no_gpu_idles_while_another_has_three_times_as_much(sizes):
    models = papers()
    gpus = dict(enumerate(sizes))
    placed = place(models, gpus)
    assert {model for model, _ in placed} == set(models)
    taken = [
        sum(models[name].needs[len(group)].total for name, group in placed if gpu in group)
        for gpu in range(len(sizes))
    ]
    assert all(used <= USABLE * size + 1e-3 for used, size in zip(taken, sizes, strict=True))
    loads = work_on(gpus, models, placed).values()
    assert min(loads) >= max(loads) / 3
    # By their shares, all have what they need.
    for server in servers_of(models, gpus):
        share = server.share * min(gpus[gpu] for gpu in server.gpus)
        assert share >= models[server.model].needs[len(server.gpus)].total - 0.001 * max(sizes)


def test_a_model_spans_the_fewest_gpus_that_hold_it():
    needs = {span: MemoryNeed(40.0 / span, 2.0, 1.0) for span in (1, 2, 4)}
    assert place({"m": hosted(1.0, needs)}, dict.fromkeys(range(4), 48.0)) == [
        ("m", (gpu,)) for gpu in range(4)
    ]
    (spread, other) = place({"m": hosted(1.0, needs)}, dict.fromkeys(range(4), 30.0))
    assert {spread[1], other[1]} == {(0, 1), (2, 3)}


def test_where_not_all_fit_each_still_has_a_server_and_a_share():
    servers = servers_of(papers(), {0: 24.0})
    assert {server.model for server in servers} == set(papers())
    assert sum(server.share for server in servers) <= USABLE


def test_a_model_that_cannot_be_placed_is_named():
    with pytest.raises(EndpointError, match=r"'m': expected at least 2 GPUs, found 1"):
        place({"m": hosted(1.0, {2: MemoryNeed(1.0, 1.0, 1.0)})}, {0: 80.0})
    with pytest.raises(EndpointError, match=r"'m': expected total, .*found some missing"):
        place({"m": hosted(1.0, {})}, {0: 80.0})


def test_more_servers_go_to_the_model_with_more_to_do_and_replicas_are_as_given():
    small = MemoryNeed(2.0, 1.0, 0.5)
    models = {"s": hosted(1.0, {1: small}), "l": hosted(8.0, {1: MemoryNeed(15.0, 2.0, 2.0)})}
    servers = servers_of(models, dict.fromkeys(range(3), 24.0))
    assert [server.title for server in servers] == ["s", "l-1", "l-2"]  # no GPU holds both
    assert {server.gpus for server in servers} == {(0,), (1,), (2,)}
    assert min(server.share for server in servers) > 0.8
    given = {
        "a": hosted(9.0, {2: small}, replicas=1),
        "b": hosted(1.0, {1: small, 2: small}, replicas=1),
    }
    placed = place(given, dict.fromkeys(range(4), 24.0))
    assert [(name, len(group)) for name, group in placed] == [("a", 2), ("b", 1)]
