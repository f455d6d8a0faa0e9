"""Tools, JSON modes and choices through a graph: the same objects as from its last model."""

import json
from contextlib import contextmanager

import openai
import pytest
from starlette.responses import JSONResponse

from tests.support import service
from tests.support.acting import STOCK, WEATHER, Weather, acts, calling, saying
from tests.support.service import ALONE, FUSED, NAME, client_of, graph_of

VOTED = graph_of("voter", "small", "small", "large", "small", "small")
ASKED = [{"role": "user", "content": "How warm is it in Paris?"}]
BOTH = [{"role": "user", "content": "How warm is it in Paris, and in Oslo?"}]


USUAL = acts
"""What the pool says, unless a test has it say something else."""


@contextmanager
def deployed(pool, graph=FUSED, style="chat", **settings):
    """A client of a server for one graph over the pool, and one of the pool itself."""
    with service.deployed(pool, graph, style, **settings) as url:
        yield client_of(url), client_of(pool.url.removesuffix("/v1"))


def plain(choices):
    return [choice.model_dump(exclude_none=True, warnings=False) for choice in choices]


def create(client, model, **parameters):
    return client.chat.completions.create(model=model, **{"messages": ASKED} | parameters)


CALLS = {"__all__": {"id": True, "type": True, "function": {"name", "arguments"}}}
MESSAGE = {"role": True, "content": True, "tool_calls": CALLS}


def loop(client, model, stream=False):
    """The tool loop as the openai package's guide writes it: every message on the way."""
    messages = list(BOTH)
    wanted = {"model": model, "messages": messages, "tools": [WEATHER]}
    while True:
        if stream:
            with client.chat.completions.stream(**wanted) as events:
                answer = events.get_final_completion()
        else:
            answer = client.chat.completions.create(**wanted)
        message = answer.choices[0].message
        messages.append(message.model_dump(include=MESSAGE, exclude_none=True))
        if not message.tool_calls:
            return messages
        for call in message.tool_calls:
            city = json.loads(call.function.arguments)["city"]
            told = {"role": "tool", "tool_call_id": call.id, "content": f"21 in {city}"}
            messages.append(told)


@pytest.mark.parametrize(("graph", "stream"), [(FUSED, True), (VOTED, False), (VOTED, True)])
def test_the_tool_loop_goes_as_with_the_last_nodes_model_alone(pool, graph, stream):
    with deployed(pool, graph) as (through, direct):
        found = loop(through, NAME, stream=stream)
        expected = loop(direct, "large")
    assert found == expected
    roles = [message["role"] for message in found]
    assert roles == ["user", "assistant", "tool", "tool", "assistant"]
    assert found[-1]["content"] == "It is 21 in Paris and 21 in Oslo."


def test_the_last_node_acts_with_the_requests_tools_and_the_others_advise_in_text(pool):
    with deployed(pool) as (through, _):
        wanted = {"tools": [WEATHER, STOCK], "tool_choice": "required"}
        wanted["parallel_tool_calls"] = False
        create(through, NAME, **wanted)
    *advising, acting = pool.bodies
    assert {name: acting[name] for name in wanted} == wanted
    assert "Solution 1" in acting["messages"][-1]["content"]
    assert len(advising) == 2
    for body in advising:
        assert not set(wanted) & set(body)
        assert "get_weather" in body["messages"][-1]["content"]
        assert "get_stock" in body["messages"][-1]["content"]


def test_calls_and_results_are_handed_on_as_they_are_and_advice_follows_them(pool):
    told = [
        {"role": "system", "content": "Be brief."},
        *BOTH,
        calling(("get_weather", {"city": "Paris"})) | {"refusal": None},
        {"role": "tool", "tool_call_id": "call_1", "content": "21", "name": "get_weather"},
    ]
    with deployed(pool) as (through, _):
        create(through, NAME, messages=told, tools=[WEATHER])
    for body in pool.bodies:
        system, user, call, result, *more = body["messages"]
        assert "Be brief." in system["content"]
        assert user["content"].startswith(BOTH[0]["content"])
        assert (call, result) == (told[2], told[3])
        assert [message["role"] for message in more] == ["user"]
    assert "Solution 1" in pool.bodies[-1]["messages"][-1]["content"]


def weather(arguments):
    return calling(("get_weather", arguments))


PARIS = weather({"city": "Paris"})
DROPS = calling(("drop_tables", {}))
TOOLS = {"tools": [WEATHER, STOCK]}
OSLO = weather({"city": "Oslo", "days": 1})
STOCKS = [calling(("get_stock", {"of": "A"}))] * 2
OTHER_ORDERS = [weather('{"days": 1.0, "city": "Paris"}'), weather('{"city":"Paris","days":1 }')]
OBJECT = '{"a": 1, "b": [2]}'
VOTES = {
    # what five or so say, what is asked for; the text, or the call, that wins
    "a name first, then arguments, whatever their order": (
        [*STOCKS, OSLO, *OTHER_ORDERS],
        TOOLS,
        {"city": "Paris", "days": 1},
    ),
    "texts and calls": (["7", weather({"city": "Lima"}), "It is 7"], TOOLS, "7"),
    "calls written as text, and one made": (
        [PARIS, *['{"tool_calls":[{"arguments":{"city":"Paris"},"name":"get_weather"}]}'] * 2],
        TOOLS,
        {"city": "Paris"},
    ),
    "JSON and none": (
        ["no JSON", "no JSON", OBJECT, '{"b":[2.0],"a":1}'],
        {"response_format": {"type": "json_object"}},
        OBJECT,
    ),
    "not JSON, no such tool, and a call": (
        [weather('{"city": "Oslo"'), weather('{"city": "Oslo"'), *[DROPS] * 2, PARIS],
        TOOLS,
        {"city": "Paris"},
    ),
}


@pytest.mark.parametrize("case", VOTES)
def test_a_vote_takes_what_most_do_of_what_can_be_used(pool, case):
    said, wanted, expected = VOTES[case]
    replies = iter(said)
    with deployed(pool, graph_of("voter", *["large"] * len(said))) as (through, _):
        pool.reply = lambda body: next(replies)
        (choice,) = create(through, NAME, **wanted).choices
    if isinstance(expected, str):
        assert (choice.message.content, choice.message.tool_calls) == (expected, None)
    else:
        (call,) = choice.message.tool_calls
        assert call.function.name == "get_weather"
        assert json.loads(call.function.arguments) == expected
        assert choice.finish_reason == "tool_calls"


@pytest.mark.parametrize("graph", [FUSED, VOTED], ids=["fused", "voted"])
def test_a_schema_is_parsed_as_from_the_model_alone(pool, graph):
    with deployed(pool, graph) as (through, direct):
        found, expected = (
            client.chat.completions.parse(model=model, messages=ASKED, response_format=Weather)
            for client, model in ((through, NAME), (direct, "large"))
        )
        assert found.choices[0].message.parsed == Weather(city="Paris", degrees=21)
        assert plain(found.choices) == plain(expected.choices)
        wanted = {"messages": ASKED, "response_format": Weather}
        with through.chat.completions.stream(model=NAME, **wanted) as events:
            assert events.get_final_completion().choices[0].message.parsed.degrees == 21


def test_texts_are_cut_at_both_stop_sequences_and_json_at_the_clients_alone(pool):
    with deployed(pool, ALONE) as (through, _):
        create(through, NAME, response_format={"type": "json_object"}, stop=["END"])
        pool.reply = lambda body: saying("seven of nine")
        answer = create(through, NAME, stop=" of")
        chunks = list(create(through, NAME, stop=" of", stream=True))
    pieces = [chunk.choices[0].delta.content or "" for chunk in chunks]
    assert answer.choices[0].message.content == "".join(pieces) == "seven"
    assert [body["stop"] for body in pool.bodies[:2]] == [["END"], ["\n", " of"]]


def test_few_shot_tasks_refuse_conversations_tools_and_json_in_words(pool):
    with deployed(pool, ALONE, style="few_shot") as (through, _):
        for said, wanted in (
            ("tools", {"tools": [WEATHER]}),
            ("response_format", {"response_format": {"type": "json_object"}}),
            ("single question", {"messages": [saying("Hello."), *ASKED]}),
        ):
            with pytest.raises(openai.BadRequestError, match=said):
                create(through, NAME, **wanted)
        assert not pool.bodies


def test_a_form_that_an_endpoint_refuses_is_answered_by_others_or_told_in_its_own_words(pool):
    said = {"error": {"message": '"auto" tool choice requires a parser', "code": 400}}
    with deployed(pool, VOTED) as (through, _):
        pool.reply = lambda body: (
            JSONResponse(said, 400) if body["model"] == "large" else acts(body)
        )
        assert loop(through, NAME)[-1]["content"] == "It is 21 in Paris and 21 in Oslo."
        pool.reply = lambda body: JSONResponse(said, 400)
        with pytest.raises(openai.BadRequestError, match="tool choice requires a parser") as found:
            create(through, NAME, tools=[WEATHER])
    assert found.value.code == "unsupported_by_model"
    assert pool.url not in str(found.value)
