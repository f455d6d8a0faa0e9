"""Whole searches against endpoints that go wrong, on real sockets: what they find, or how they
stop.
"""

import pytest

from tests.support.arithmetic import LAPTOP_POOL, paid_search
from tests.support.faults import FAULTS, HANG_S, Faults
from tests.support.stub_server import StubServer, serve
from ttsgraph.base.errors import RunStopped
from ttsgraph.endpoints.endpoints import FailurePolicy
from ttsgraph.endpoints.openai_client import Endpoint, OpenAIClient
from ttsgraph.runtime.limits import Meter
from ttsgraph.settings.stages import LimitSettings

TIMES = ["latency_s", "wall_s"]


def search(folder, url, **patience):
    """A search whose models are behind `url`."""
    served = {name: Endpoint((url,), name, seeds=True) for name in LAPTOP_POOL}
    policy = FailurePolicy(first_wait_s=0.01, timeout_s=HANG_S / 3, **patience)
    return paid_search(folder, OpenAIClient(served, policy), Meter(LimitSettings()))


def stub() -> StubServer:
    return StubServer(("small", "large"), skill=0.6)


def test_thirty_percent_of_all_faults_change_no_result(tmp_path):
    clean = stub()
    faulty = stub()
    faulty.misbehave = faults = Faults(0.3, seed=2)
    with serve(clean) as clean_url, serve(faulty) as faulty_url:
        expected, expected_archive = search(tmp_path / "clean", clean_url)
        found, archive = search(tmp_path / "faulty", faulty_url)
    assert set(faults.made) == set(FAULTS)
    assert sum(faults.made.values()) > 0.2 * len(faulty.requests)
    assert (found.graph, found.stopped_by) == (expected.graph, expected.stopped_by)
    assert archive.table().drop(columns=TIMES).equals(expected_archive.table().drop(columns=TIMES))


def test_an_endpoint_that_always_fails_stops_the_search_and_is_named_and_it_goes_on_later(tmp_path):
    dead = stub()
    dead.misbehave = lambda count, body: FAULTS["500"]()
    with serve(dead) as url:
        with pytest.raises(RunStopped, match=rf"no answer for 0\.3 s from {url} \(HTTP 500: \d+"):
            search(tmp_path, url, down_s=0.3)
        dead.misbehave = lambda count, body: None
        found, archive = search(tmp_path, url)
    with serve(stub()) as url:
        expected, _ = search(tmp_path / "undisturbed", url)
    assert (found.graph, set(archive.table()["status"])) == (expected.graph, {"ok"})
