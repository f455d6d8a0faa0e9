"""Tools, JSON and streams of a real model whose words are few: the same through a graph."""

import json
from typing import Literal

import openai
import pytest
from pydantic import BaseModel

from tests.support.acting import WEATHER
from tests.support.project import HANGS_S, MODEL
from tests.support.real import SMOLLM
from tests.support.service import LAPTOP, NAME, Shelf, graph_of, serving
from ttsgraph.base.parsing import parse
from ttsgraph.deployment.bundle import DeployedVersion
from ttsgraph.settings.profile import Profile

pytestmark = pytest.mark.models

ASKED = [{"role": "user", "content": "How warm is it in Paris?"}]


class Weather(BaseModel):
    city: Literal["Paris", "Rome"]
    degrees: Literal[0, 10, 20]


CITY = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"]}
FORECAST = {"type": "function", "function": WEATHER["function"] | {"parameters": CITY}}


@pytest.fixture
def clients(real_pool):
    """A client of a server for the model alone, and one of the model."""
    (model_url,) = real_pool.urls[SMOLLM]
    data = LAPTOP.model_dump(mode="json", exclude_none=True)
    data["engine"] = {"kind": "external", "max_retries": 0, "timeout_s": HANGS_S}
    data["pool"] = {"large": MODEL | {"base_url": model_url, "served_as": SMOLLM}}
    data["tasks"] = {"math": data["tasks"]["math"]}
    greedy = {"temperature": 0, "max_tokens": 64, "stop": []}
    data["tasks"]["math"] |= {"prompt": {"style": "chat", "instruction": ""}, "sampling": greedy}
    version = DeployedVersion("math", graph_of("assistant"), parse(Profile, data, "test"), (), "1")
    more = {"api_key": "none", "max_retries": 0, "timeout": HANGS_S}
    with serving(Shelf(math_champion=version), timeout_s=HANGS_S) as service:
        yield [openai.OpenAI(base_url=url, **more) for url in (f"{service.url}/v1", model_url)]


def completed(client, model, stream, **wanted):
    wanted |= {"model": model, "max_tokens": 64, "temperature": 0}
    if stream:
        with client.chat.completions.stream(**wanted) as events:
            return events.get_final_completion()
    if "response_format" in wanted:
        return client.chat.completions.parse(**wanted)
    return client.chat.completions.create(**wanted)


CALLS = {"__all__": {"type": True, "function": {"name", "arguments"}}}
KEPT = {"index": True, "finish_reason": True}
KEPT |= {"message": {"role": True, "content": True, "refusal": True, "tool_calls": CALLS}}


def plain(answer):
    """The choices, without what is drawn anew for each answer, the ids of calls, and of vLLM's."""
    return [each.model_dump(include=KEPT, exclude_none=True) for each in answer.choices]


@pytest.mark.parametrize("stream", [False, True])
def test_a_schema_gives_the_same_object(clients, stream):
    wanted = {"messages": ASKED, "response_format": Weather}
    through, direct = (
        completed(client, model, stream, **wanted)
        for client, model in zip(clients, (NAME, SMOLLM), strict=True)
    )
    assert isinstance(through.choices[0].message.parsed, Weather)
    assert plain(through) == plain(direct)


@pytest.mark.parametrize("stream", [False, True])
def test_the_tool_loop_gives_the_same_calls_and_answer(clients, stream):
    def loop(client, model):
        wanted = {"tools": [FORECAST], "stream": stream}
        call = completed(client, model, messages=ASKED, tool_choice="required", **wanted)
        (made,) = call.choices[0].message.tool_calls[:1]
        json.loads(made.function.arguments)
        function = {"name": made.function.name, "arguments": made.function.arguments}
        calls = [{"id": "call_1", "type": "function", "function": function}]
        told = [
            *ASKED,
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "tool_call_id": "call_1", "content": "21 degrees"},
        ]
        answer = completed(client, model, messages=told, tool_choice="none", **wanted)
        return made.function.name, plain(call), plain(answer)

    through, direct = (loop(*both) for both in zip(clients, (NAME, SMOLLM), strict=True))
    assert through[0] == "get_weather"
    assert through == direct
