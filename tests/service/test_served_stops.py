"""Over real sockets: what an answer did without stands in the response and in the metrics."""

from __future__ import annotations

import httpx

from tests.support.routers import by_field
from tests.support.service import ask, deployed
from ttsgraph.graphs.stopping import Gate
from ttsgraph.graphs.topologies import parallel, routed, single, with_sink

GATED = with_sink(parallel(["small"] * 2, "large", "fuser"), gate=Gate(0))


def origin(answer):
    return answer.model_extra["ttsgraph"]


def calls(figures, outcome):
    rows = [line for line in figures.splitlines() if f'outcome="{outcome}"' in line]
    return sum(float(row.split()[1]) for row in rows if row.startswith("ttsgraph_pool_calls_total"))


def test_a_closed_gate_saves_its_call_and_the_metrics_count_it(pool):
    with deployed(pool, GATED) as url:
        answer = ask(url)
        figures = httpx.get(f"{url}/metrics").text
    assert answer.choices[0].message.content == "7"
    assert (origin(answer)["calls"], origin(answer)["left_out"]) == (2, [2])
    assert calls(figures, "left_out") == 1


def test_a_routes_branch_is_named(pool):
    rule = by_field("topic", {"rows": 0}, [0.5, 0.5], default=1)
    with deployed(pool, routed(rule, [single("small"), single("large")])) as url:
        answer = ask(url)
    assert (answer.choices[0].message.content, origin(answer)["branch"]) == ("7", 1)
    assert [body["model"] for body in pool.bodies] == ["large"]
