"""Every fault of an endpoint behind a served graph: all are answered, and told what lacks."""

from contextlib import contextmanager

import pytest

from tests.support.faults import FAULTS
from tests.support.service import VOTED, PoolStub, Shelf, ask, graph_of, pooled, profile_of, serving
from tests.support.stub_server import StubServer
from tests.support.stub_server import serve as serving_stub
from ttsgraph.base.parsing import parse
from ttsgraph.deployment.bundle import DeployedVersion
from ttsgraph.settings.profile import Profile

FUSED = graph_of("fuser", "small")


@pytest.fixture(scope="module")
def sound():
    with pooled(PoolStub()) as stub:
        yield stub.url


@contextmanager
def asking(graph, sound, kind, times=None, **settings):
    """A way to ask a graph whose model `large` goes wrong in this way (so many times, or ever)."""
    stub = StubServer(("large",), skill=1.0)
    stub.misbehave = lambda count, body: FAULTS[kind]() if times is None or count < times else None
    with serving_stub(stub) as faulty:
        data = profile_of(sound).model_dump(mode="json", exclude_none=True)
        data["pool"]["large"]["base_url"] = faulty
        version = DeployedVersion("math", graph, parse(Profile, data, "test"), (), "1")
        with serving(Shelf(math_champion=version), **settings) as server:

            def asked():
                answer = ask(server.url)
                return answer.choices[0].message.content, answer.model_extra["ttsgraph"]

            yield asked


@pytest.mark.parametrize("kind", FAULTS)
def test_a_vote_goes_on_an_attempt_mends_it_or_what_was_to_be_read_is_passed_on(kind, sound):
    with asking(VOTED, sound, kind) as asked:
        text, told = asked()
        assert text == "7"
        lost = told.get("failed", [])
        assert lost in ([], [2])  # none where the others were first
        # The other two agree; where one was not waited for, it might have been another answer.
        assert told["degraded"] == (bool(lost) and "cancelled" in told)
    for mended, more in ((True, {"times": 1, "max_retries": 2}), (False, {"fallback": True})):
        with asking(FUSED, sound, kind, **more) as asked:
            text, told = asked()
        assert text == ("7" if not mended else text)
        assert told["degraded"] is not mended
