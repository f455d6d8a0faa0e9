"""The client on a real socket, and what identifies a call."""

from contextlib import ExitStack

from tests.support.asking import ask
from tests.support.stub_server import StubServer, serve
from ttsgraph.endpoints.endpoints import FailurePolicy
from ttsgraph.models.client import Message, Request, Sampling


def request(text: str = "Q: 1 + 1", replica: int = 0, **sampling) -> Request:
    return Request("small", "r1", (Message("user", text),), Sampling(**sampling), replica)


def test_requests_under_way_stay_below_the_limit_and_replicas_share_them():
    stubs = [StubServer(("served",), skill=1.0, delay_s=0.02) for _ in range(3)]
    with ExitStack() as stack:
        urls = [stack.enter_context(serve(stub)) for stub in stubs]
        asked = [request(replica=k, temperature=0.3, stop=("\n",)) for k in range(25)]
        found = ask(urls, *asked, policy=FailurePolicy(concurrency=8))
    assert {(each.text, each.completion_tokens) for each in found} == {("2", 2)}
    # The first call finds out what is taken, before the others.
    assert [len(stub.requests) for stub in stubs] == [9, 8, 8]
    assert max(stub.most_at_once for stub in stubs) <= 8
    sent = {"model": "served", "temperature": 0.3, "stop": ["\n"]}
    assert sent.items() <= stubs[0].requests[0].items()
    assert "seed" not in stubs[0].requests[0]
    one = StubServer(("served",), delay_s=0.02)
    with serve(one) as url:
        ask(url, *asked, policy=FailurePolicy(concurrency=4))
    assert one.most_at_once == 4


def test_everything_that_shapes_an_answer_is_in_the_key():
    base = request()
    others = [
        request("Q: 1 + 2"),
        request(replica=1),
        request(temperature=0.1),
        request(top_p=0.5),
        request(max_tokens=3),
        request(stop=("\n",)),
        Request("large", "r1", base.messages, base.sampling),
        Request("small", "r2", base.messages, base.sampling),
        Request("small", "r1", (Message("system", "Q: 1 + 1"),), base.sampling),
        Request("small", "r1", base.messages, base.sampling, schema=("answer", "{}")),
        Request("small", "r1", base.messages, base.sampling, form='{"tools": []}'),
        Request("small", "r1", (Message("user", "Q: 1"), Message("user", " + 1")), base.sampling),
    ]
    assert len({r.key() for r in [base, *others]}) == len(others) + 1
    assert request().key() == base.key()
