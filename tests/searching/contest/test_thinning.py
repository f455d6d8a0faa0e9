"""Votes run with fewer of the answers that they hear alike."""

from __future__ import annotations

import pytest

from tests.graphs.test_stopping import with_sink
from ttsgraph.graphs import topologies
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.stopping import Stop
from ttsgraph.searching.contest.thinning import DRAFTS, thinned
from ttsgraph.searching.response.evidence import call_signatures


@pytest.mark.parametrize(
    ("graph", "left"),
    [
        (
            topologies.parallel(["a"] * 9, "a", "voter"),
            topologies.parallel(["a"] * 3, "a", "voter"),
        ),
        (
            topologies.panel(["a"] * 5, ["b"] * 7, "b", "voter"),
            topologies.panel(["a"] * 5, ["b"], "b", "voter"),
        ),
        (
            topologies.branches([["a", "b"]] * 6, "b", "voter"),
            topologies.branches([["a", "b"]], "b", "voter"),
        ),
    ],
    ids=["draws", "reviewers", "chains"],
)
def test_of_answers_that_are_heard_alike_few_are_run(
    graph: CollaborationGraph, left: CollaborationGraph
) -> None:
    small = thinned(graph)
    assert small.content_hash == left.content_hash
    # Calls of the whole graph: it finds them in the cache when it is run later.
    made = {i: s for i, s in call_signatures(small).items() if i != small.sink}
    assert set(made.values()) <= set(call_signatures(graph).values())


def test_each_kind_of_answer_is_still_heard() -> None:
    graph = topologies.parallel(["a"] * 6 + ["b"] * 2, "sink", "voter")
    assert thinned(graph).model_counts() == {"a": DRAFTS, "b": 2, "sink": 1}


@pytest.mark.parametrize(
    "graph",
    [
        topologies.single("a"),
        topologies.chain(["a"] * 4),
        topologies.parallel(["a"] * 9, "a"),
        topologies.panel(["a"] * 3, ["b"] * 3, "b", "fuser"),
    ],
)
def test_what_a_call_reads_is_never_thinned(graph: CollaborationGraph) -> None:
    assert thinned(graph) is graph


def test_a_vote_in_waves_is_thinned_where_it_loses_nothing_by_stopping() -> None:
    graph = topologies.parallel(["a"] * 9, "a", "voter")
    assert thinned(with_sink(graph, waves=(5, 1))) == thinned(graph)
    waves = with_sink(graph, waves=(5, 1), stop=Stop("beta", 0.8))
    assert thinned(waves) is waves
