"""The client on a real socket, and what identifies a call."""

import asyncio
from contextlib import ExitStack, aclosing

import pytest

from tests.support.asking import ask
from tests.support.stub_server import StubServer, serve
from ttsgraph.base.errors import EndpointError
from ttsgraph.endpoints.endpoints import FailurePolicy
from ttsgraph.endpoints.openai_client import Endpoint, OpenAIClient, Retries
from ttsgraph.models.client import Message, Request, Sampling


def request(text: str = "Q: 1 + 1", replica: int = 0, **sampling) -> Request:
    return Request("small", "r1", (Message("user", text),), Sampling(**sampling), replica)


def check(base_url: str) -> None:
    async def run() -> None:
        async with aclosing(
            OpenAIClient({"small": Endpoint((base_url,), "served")}, Retries(0))
        ) as client:
            await client.check()

    asyncio.run(run())


class TestOpenAIClient:
    def test_a_completion_with_its_usage(self):
        stub = StubServer(("served",), skill=1.0)
        with serve(stub) as url:
            (answer,) = ask(url, request(temperature=0.3, max_tokens=12, stop=("\n",)))
        assert (answer.text, answer.completion_tokens) == ("2", 2)
        assert answer.latency_s > 0
        sent = {"model": "served", "temperature": 0.3, "max_tokens": 12, "stop": ["\n"]}
        assert sent.items() <= stub.requests[0].items()
        assert "seed" not in stub.requests[0]

    def test_requests_under_way_stay_below_the_limit(self):
        stub = StubServer(("served",), delay_s=0.02)
        with serve(stub) as url:
            ask(url, *(request(replica=k) for k in range(30)), policy=FailurePolicy(concurrency=4))
        assert stub.most_at_once == 4

    def test_replicas_share_the_load(self):
        stubs = [StubServer(("served",), delay_s=0.02) for _ in range(3)]
        with ExitStack() as stack:
            urls = [stack.enter_context(serve(stub)) for stub in stubs]
            ask(urls, *(request(replica=k) for k in range(25)), policy=FailurePolicy(concurrency=8))
        # The first call finds out what is taken, before the others.
        assert [len(stub.requests) for stub in stubs] == [9, 8, 8]

    def test_a_refused_connection_says_so(self):
        refused = "no server at http://127.0.0.1:9/v1: the connection is refused"
        with pytest.raises(EndpointError, match=refused):
            check("http://127.0.0.1:9/v1")

    def test_a_missing_model_lists_what_is_served(self):
        missing = r"expected model 'served' \(pool name 'small'\), .* has other"
        with serve(StubServer(("other",))) as url, pytest.raises(EndpointError, match=missing):
            check(url)

    def test_a_key_that_is_not_set_is_named(self):
        missing = "environment variable NO_SUCH_KEY, which is not set"
        with pytest.raises(EndpointError, match=missing):
            OpenAIClient({"small": Endpoint(("http://127.0.0.1:1/v1",), "m", "NO_SUCH_KEY")})


class TestContentKey:
    def test_everything_that_shapes_an_answer_is_in_the_key(self):
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
            Request(
                "small", "r1", (Message("user", "Q: 1"), Message("user", " + 1")), base.sampling
            ),
        ]
        assert len({r.key() for r in [base, *others]}) == len(others) + 1
        assert request().key() == base.key()
