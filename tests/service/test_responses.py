"""/v1/responses beside chat completions, asked by the openai package over real sockets."""

import json
from contextlib import contextmanager

import httpx
import openai
import pytest
from starlette.responses import JSONResponse

from tests.support import service
from tests.support.acting import WEATHER, acts, saying
from tests.support.service import ALONE, FUSED, NAME, VOTED, client_of

TOOL = {"type": "function", **WEATHER["function"]}
PICTURE = {"role": "user", "content": [{"type": "input_image"}]}
BOTH = "How warm is it in Paris, and in Oslo?"


USUAL = acts
"""What the pool says, unless a test has it say something else."""


@contextmanager
def deployed(pool, graph=FUSED, **settings):
    with service.deployed(pool, graph, **settings) as url:
        yield client_of(url)


def test_a_text_comes_with_its_origin_and_the_usage_of_all_calls(pool):
    with deployed(pool) as client:
        pool.reply = lambda body: saying("It is 7.")
        answer = client.responses.create(
            model=NAME, instructions="Be brief.", input="3 + 4", temperature=0.1
        )
        metrics = httpx.get(str(client.base_url).replace("/v1/", "/metrics")).text
    assert answer.output_text == "It is 7."
    assert (answer.status, answer.instructions) == ("completed", "Be brief.")
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (30, 9)
    assert answer.model_extra["ttsgraph"]["ignored"] == ["temperature"]
    assert answer.model_extra["ttsgraph"]["calls"] == 3
    assert all("Be brief." in body["messages"][0]["content"] for body in pool.bodies)
    assert f'ttsgraph_requests_total{{model="{NAME}",status="200"}} 1.0' in metrics


@pytest.mark.parametrize(("graph", "stream"), [(FUSED, True), (VOTED, False)])
def test_the_tool_loop_ends_with_the_answer_to_the_results(pool, graph, stream):
    question = {"role": "user", "content": BOTH}

    def asked(client, *items):
        wanted = {"model": NAME, "tools": [TOOL], "input": [question, *items]}
        if not stream:
            return client.responses.create(**wanted)
        with client.responses.stream(**wanted) as events:
            return events.get_final_response()

    with deployed(pool, graph) as client:
        calls = asked(client).output
        cities = [json.loads(call.arguments)["city"] for call in calls]
        results = [
            {"type": "function_call_output", "call_id": call.call_id, "output": f"21 in {city}"}
            for call, city in zip(calls, cities, strict=True)
        ]
        said = asked(client, *calls, *results).output_text
    assert [call.type for call in calls] == ["function_call"] * 2
    assert cities == ["Paris", "Oslo"]
    assert said == "It is 21 in Paris and 21 in Oslo."
    _, _, call, *told = pool.bodies[-2 if graph is FUSED else -1]["messages"]
    assert [made["function"]["name"] for made in call["tool_calls"]] == ["get_weather"] * 2
    assert [message["role"] for message in told[:2]] == ["tool", "tool"]


def test_events_are_numbered_and_a_cut_answer_is_incomplete(pool):
    with deployed(pool, ALONE) as client:
        pool.reply = lambda body: saying("one two")
        events = list(client.responses.create(model=NAME, input="count", stream=True))
        cut = client.responses.create(model=NAME, input="count", max_output_tokens=2)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    written = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert written == ["one ", "two"]
    assert (cut.status, cut.incomplete_details.reason) == ("incomplete", "max_output_tokens")


UNSUPPORTED = {
    "tools.0.type": {"tools": [{"type": "web_search"}]},
    "item_reference": {"input": [{"type": "item_reference", "id": "1"}]},
    "input.0.content.0.type": {"input": [PICTURE]},
    "input: Field required": {"input": openai.omit},
}


@pytest.mark.parametrize(("said", "parameters"), UNSUPPORTED.items())
def test_what_is_not_supported_is_refused_by_name(pool, parameters, said):
    with deployed(pool) as client:
        with pytest.raises(openai.BadRequestError, match=said):
            client.responses.create(**{"model": NAME, "input": "3 + 4"} | parameters)
        assert not pool.bodies


def test_parameters_without_effect_have_the_names_that_the_client_knows(pool):
    with deployed(pool, VOTED) as client:
        wanted = {"max_output_tokens": 9, "reasoning": {"effort": "high"}}
        answer = client.responses.create(model=NAME, input="3 + 4", **wanted)
    assert sorted(answer.model_extra["ttsgraph"]["ignored"]) == sorted(wanted)


def test_a_conversation_goes_on_after_a_refusal(pool):
    message = {"role": "assistant", "content": None, "refusal": "Not that."}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    usage = {"prompt_tokens": 9, "completion_tokens": 2}
    items = [{"role": "user", "content": "3 + 4"}]
    with deployed(pool, ALONE) as client:
        pool.reply = lambda body: JSONResponse({"choices": [choice], "usage": usage})
        answer = client.responses.create(model=NAME, input=items, tools=[TOOL])
        assert answer.output[0].content[0].type == "refusal"
        pool.reply = lambda body: "7"
        items += [*answer.output, *items]
        assert client.responses.create(model=NAME, input=items, tools=[TOOL]).output_text == "7"
    assert {"role": "assistant", "content": "Not that."} in pool.bodies[-1]["messages"]
