"""Several draws in one request are the same calls under the same keys."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from tests.serving.test_own_servers import profile
from tests.support import asking
from tests.support.habits import openai_refusal, refusing, vllm_refusal
from tests.support.stub_server import StubServer, serve
from ttsgraph.base.errors import CallFailed, ContextOverflow
from ttsgraph.endpoints.answers import read_answers
from ttsgraph.endpoints.endpoints import Fault
from ttsgraph.endpoints.openai_client import Endpoint, OpenAIClient, Retries
from ttsgraph.evaluation.environment import Environment
from ttsgraph.graphs.topologies import parallel
from ttsgraph.models.cache import CachedClient, CallCache
from ttsgraph.models.client import Completion, Message, Request, Sampling
from ttsgraph.models.dialect import Dialect, Habits
from ttsgraph.models.draws import DrawingClient
from ttsgraph.pool.spec import ModelPool, ModelSpec, Price
from ttsgraph.runtime.clients import open_client
from ttsgraph.tasks import get_task
from ttsgraph.tasks.base import Question
from ttsgraph.tasks.prompts import Prompt

NAMES = ("served",)
POOL = ModelPool((ModelSpec("m", "m", None, None, None, None, Price(1, 1), "r"),))
QUESTIONS = [Question(f"q{k}", f"{k} + 1", str(k + 1)) for k in range(6)]


class Several(StubServer):
    """Knows `n`: each draw has a text of its own, the tokens of all are told in one number."""

    def completion(self, body: dict[str, Any], count: int) -> dict[str, Any]:
        answer = super().completion(body, count)
        (first,) = answer["choices"]
        texts = [f"{'so ' * k}{first['message']['content']}" for k in range(body.get("n", 1))]
        answer["choices"] = [
            first | {"index": k, "message": first["message"] | {"content": text}}
            for k, text in enumerate(texts)
        ]
        answer["usage"]["completion_tokens"] = sum(len(text.split()) for text in texts)
        return answer


def request(replica: int = 0, text: str = "Q: 1 + 1", **sampling: Any) -> Request:
    wanted = Sampling(**{"temperature": 0.7, "max_tokens": 99} | sampling)
    return Request("m", "r", (Message("user", text),), wanted, replica)


def ask(url: str, *requests: Request, **more: Any) -> list[Any]:
    return asking.ask(url, *requests, around=lambda client: DrawingClient(client, 8), **more)


def evaluated(stub: StubServer, most: int, folder) -> tuple[set[str], int, int]:
    """Keys of the cache, requests, and the prompt tokens that the server read of draws."""
    graph = parallel(["m"] * 8, "m", "fuser")
    cache = CallCache(folder)

    async def run(url: str) -> None:
        inner = OpenAIClient({"m": Endpoint((url,), "served")}, Retries(0))
        client = CachedClient(DrawingClient(inner, most), cache)
        prompt = Prompt("Add them.", "chat")
        feedback = await Environment(get_task("math"), prompt, Sampling(), POOL, client).evaluate(
            graph, QUESTIONS
        )
        assert (feedback.n_scored, feedback.usage.calls) == (6, 54)
        await client.aclose()

    with serve(stub) as url:
        asyncio.run(run(url))
    keys = {row[0] for row in cache._run("select key from calls")}
    cache.close()
    sizes = [len(str(body["messages"][-1]["content"]).split()) for body in stub.requests]
    return keys, len(stub.requests), sum(size for size in sizes if size == min(sizes))


def test_the_same_calls_are_kept_and_fewer_requests_made(tmp_path):
    one = evaluated(Several(NAMES, skill=1.0), 1, tmp_path / "one")
    eight = evaluated(Several(NAMES, skill=1.0), 8, tmp_path / "eight")
    four = evaluated(Several(NAMES, skill=1.0), 4, tmp_path / "four")
    # Draws are the same calls under the same keys; the fusers read other answers, and so differ.
    assert len(one[0] & eight[0]) == len(one[0] & four[0]) == 48
    assert [one[1], four[1], eight[1]] == [54, 18, 12]
    assert one[2] == 4 * four[2] == 8 * eight[2]


def test_calls_that_differ_in_more_than_the_draw_are_asked_apart():
    stub = Several(NAMES, skill=1.0)
    with serve(stub) as url:
        other = [request(k, "Q: 2 + 2") for k in range(2)]
        hot = [request(k, max_tokens=98) for k in range(2)]
        greedy = [request(k, temperature=0) for k in range(2)]
        answers = ask(url, *(request(k) for k in range(3)), *other, *hot, *greedy)
    assert sorted(body.get("n", 1) for body in stub.requests) == [1, 1, 2, 2, 3]
    assert [answer.text for answer in answers[:3]] == ["2", "so 2", "so so 2"]
    assert [answer.text for answer in answers[3:5]] == ["4", "so 4"]


def test_seeds_are_of_single_calls():
    stub = Several(NAMES, skill=1.0)
    with serve(stub) as url:
        ask(url, *(request(k) for k in (0, 1, 2, 2)), seeds=True)
    assert len({body["seed"] for body in stub.requests}) == 3  # the same call has the same seed
    assert not any("n" in body for body in stub.requests)


REFUSALS = [
    openai_refusal("n"),
    vllm_refusal("'n' : number must be at most 1"),
    (400, {}, '{"error": {"message": "Only one completion choice is allowed"}}'),
    (422, {}, '{"detail": [{"type": "extra_forbidden", "loc": ["body", "n"], "msg": "Extra"}]}'),
]


@pytest.mark.parametrize("refusal", REFUSALS)
def test_where_it_is_refused_calls_are_made_one_by_one_from_then_on(refusal, tmp_path):
    stub = StubServer(NAMES, skill=1.0)
    path = tmp_path / "endpoints.json"
    stub.misbehave = lambda count, body: refusal if body.get("n", 1) > 1 else None
    with serve(stub) as url:
        answers = ask(url, *(request(k) for k in range(4)), habits=Habits(path))
        assert [answer.text for answer in answers] == ["2"] * 4
        assert [body.get("n", 1) for body in stub.requests] == [4, 1, 1, 1, 1]
        ask(url, *(request(k) for k in range(4)), habits=Habits(path))  # another process
    assert [body.get("n", 1) for body in stub.requests[5:]] == [1, 1, 1, 1]


def test_where_it_is_ignored_that_is_found_out_too(tmp_path):
    stub = StubServer(NAMES, skill=1.0)
    habits = Habits(tmp_path / "endpoints.json")
    with serve(stub) as url:
        answers = ask(url, *(request(k) for k in range(4)), habits=habits)
        assert [answer.text for answer in answers] == ["2"] * 4
        assert [body.get("n", 1) for body in stub.requests] == [4, 1, 1, 1]
        assert habits.get(f"{url} served") == Dialect(left_out=frozenset({"n"}))


def test_a_refusal_that_is_about_something_else_teaches_nothing_of_it(tmp_path):
    stub = Several(NAMES, skill=1.0)
    habits = Habits(tmp_path / "endpoints.json")
    with serve(stub) as url:
        stub.misbehave = refusing(("temperature",))
        ask(url, *(request(k) for k in range(3)), habits=habits)
        known = habits.get(f"{url} served")
        assert known == Dialect(left_out=frozenset({"temperature"}))
        stub.misbehave = lambda count, body: vllm_refusal("the prompt is filtered")
        failed = ask(url, *(request(k) for k in range(3)), habits=habits)
        assert habits.get(f"{url} served") == known
    assert all(isinstance(failure, CallFailed) for failure in failed)
    assert "the prompt is filtered" in str(failed[0])


def test_trouble_is_that_of_every_call_and_an_overflow_is_none():
    stub = Several(NAMES)
    stub.misbehave = lambda count, body: (500, {}, "no")
    with serve(stub) as url:
        failed = ask(url, *(request(k) for k in range(3)))
        assert [type(failure) for failure in failed] == [CallFailed] * 3
        assert len(stub.requests) == 1
        words = "This model's maximum context length is 10 tokens"
        stub.misbehave = lambda count, body: vllm_refusal(words)
        overflows = ask(url, *(request(k) for k in range(3)))
    assert [type(overflow) for overflow in overflows] == [ContextOverflow] * 3


def choices(*texts: str, written: int, reason: str = "stop", **usage: Any) -> bytes:
    """Several answers; one that is `bad` ends with another reason."""
    several = []
    for k, text in enumerate(texts):
        finish = {"finish_reason": reason if text == "bad" else "stop"}
        several.append({"index": k, "message": {"content": text}} | finish)
    counts = {"prompt_tokens": 10, "completion_tokens": written} | usage
    return json.dumps({"choices": several, "usage": counts}).encode()


def test_the_tokens_of_all_are_shared_out_and_the_prompt_is_of_each():
    found, count = read_answers(choices("a", "bbb", "c" * 9, written=17), 1.0, Sampling())
    assert count == 3
    assert [one.prompt_tokens for one in found] == [10, 10, 10]
    assert sum(one.completion_tokens for one in found) == 17
    assert found[0].completion_tokens < found[1].completion_tokens < found[2].completion_tokens
    thought = {"completion_tokens_details": {"reasoning_tokens": 8}}
    found, _ = read_answers(choices("a", "b", written=12, **thought), 1.0, Sampling())
    assert sum(one.reasoning_tokens for one in found) == 8
    assert all(one.reasoning_tokens <= one.completion_tokens for one in found)


def test_a_draw_that_is_withheld_is_asked_for_again_and_the_others_kept():
    stub = StubServer(NAMES, skill=1.0)
    whole = choices("2", "bad", "2", written=3, reason="content_filter").decode()
    stub.misbehave = lambda count, body: (200, {}, whole) if body.get("n") == 3 else None
    with serve(stub) as url:
        answers = ask(url, *(request(k) for k in range(3)))
    assert [answer.text for answer in answers] == ["2", "2", "2"]
    assert [body.get("n", 1) for body in stub.requests] == [3, 1]
    with pytest.raises(Fault, match="content_filter"):
        read_answers(choices("bad", "bad", written=1, reason="content_filter"), 1.0, Sampling())


def test_no_key_comes_out_with_one_of_several_answers(monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "sesame-sesame-sesame")
    stub = StubServer(NAMES)
    whole = choices("sesame-sesame-sesame", "x sesame-sesame-sesame", written=3).decode()
    stub.misbehave = lambda count, body: (200, {}, whole)
    with serve(stub) as url:
        answers = ask(url, request(0), request(1), api_key_env="SOME_API_KEY")
    assert [answer.text for answer in answers] == ["[key]", "x [key]"]


def test_a_profile_says_how_many(tmp_path):
    stub = Several(("llama3.2:1b",), skill=1.0)
    with serve(stub) as url:
        told = profile("on-ollama", url.removesuffix("/v1"))
        engine = told.engine.model_copy(update={"draws": 4})
        told = told.model_copy(update={"engine": engine})

        async def run() -> list[Completion]:
            async with open_client(told, tmp_path) as client:
                wanted = [replace(request(k), model="on-ollama") for k in range(4)]
                return await asyncio.gather(*map(client.complete, wanted))

        assert len(asyncio.run(run())) == 4
    assert [body.get("n", 1) for body in stub.requests] == [4]
