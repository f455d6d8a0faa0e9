"""Habits of endpoints that public trackers tell of: each on a real socket, and what is right."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.support.asking import ask
from tests.support.refusing import error
from tests.support.stub_server import Answer, StubServer, serve
from ttsgraph.base.errors import CallFailed, ContextOverflow, EndpointError, RunStopped
from ttsgraph.endpoints.openai_client import Retries
from ttsgraph.models.client import Completion, Message, Request, Sampling, with_room
from ttsgraph.models.dialect import DialectStore
from ttsgraph.models.reasoning import END_MARKS

USAGE = {"prompt_tokens": 9, "completion_tokens": 5}
TOOLS = json.dumps({"tools": [{"type": "function", "function": {"name": "look"}}]})


def request(max_tokens: int = 64, form: str | None = None) -> Request:
    sampling = Sampling(0.7, 1.0, max_tokens)
    return Request("m", "r", (Message("user", "Q: 20 + 22"),), sampling, form=form)


def replied(finish: str | None = "stop", **message: Any) -> Answer:
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant"} | message}
    return 200, {}, json.dumps({"choices": [choice], "usage": USAGE})


def events(*deltas: dict[str, Any], finish: str = "stop", usage: bool = True) -> Answer:
    chunks: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": each}]} for each in deltas]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    chunks += [{"choices": [], "usage": USAGE}] if usage else []
    text = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
    return 200, {"Content-Type": "text/event-stream"}, text


def asked(answer: Answer, streamed: bool = False, **wanted: Any) -> tuple[Any, list[str], int]:
    """The outcome of a call that is always answered so, its pieces, and how often it was made."""
    stub = StubServer(("served",))
    stub.misbehave = lambda count, body: answer
    pieces: list[str] | None = [] if streamed else None
    with serve(stub) as url:
        (found,) = ask(url, request(**wanted), retries=Retries(8, 0.001, 5), pieces=pieces)
    return found, pieces or [], len(stub.requests)


PARTS = [{"type": "text", "text": "4"}, {"type": "reference", "reference_ids": [1]}]
MORE = [{"type": "text", "text": "2"}]
THOUGHT = {"type": "thinking", "thinking": [{"type": "text", "text": "20 + 22"}]}

TEXTS: dict[str, Answer] = {
    "content in parts (symfony/ai 2422)": replied(content=[*PARTS, *MORE]),
    "the answer beside no content (vllm 17349)": replied(content=None, reasoning_content="42"),
    "the same under another name (Qwen3 1297)": replied(content="", reasoning="42"),
    "a stream that nobody asked for (9router 3492)": events({"content": "4"}, {"content": "2"}),
    "an answer with the end of a stream (9router 3492)": (
        200, {}, replied(content="42")[2] + "\n\ndata: [DONE]\n\n"
    ),
    "one part in place of a list": replied(content=PARTS[0] | {"text": "42"}),
    "comments before it": (200, {}, ": PROCESSING\n\n" + replied(content="42")[2]),
    "numbers as text": (
        200, {}, replied(content="42")[2].replace(": 9", ': "9"').replace(": 0", ': "0"')
    ),
    "no counts at all": (200, {}, replied(content="42")[2].replace(": 9", ": 0")),
    "an error that is none": (200, {}, replied(content="42")[2][:-1] + ', "error": {"code": 0}}'),
    "the form of plain completions": (
        200, {}, json.dumps({"choices": [{"text": "42", "finish_reason": "stop"}]})
    ),
    "a broken call that nobody asked for": replied(content="42", tool_calls=[{"id": "a"}]),
} | {
    f"{mark} left at its end": replied(content=f"42{mark}") for mark in END_MARKS
} | {
    f"finish_reason {name} (camel 4266, laravel/ai 955)": replied(name, content="42")
    for name in ("model_length", "max_output_tokens", "COMPLETE", "tool_call", "MAX_TOKENS", "new")
} | {
    f"thoughts in {text[:12]} (macprovider 743, mlx-lm 1867)": replied(content=text)
    for text in (
        "[THINK]20 + 22[/THINK]42",
        "<thinking>20 + 22</thinking>\n42",
        "<seed:think>20 + 22</seed:think>42",
        "<|START_THINKING|>20 + 22<|END_THINKING|><|START_RESPONSE|>42<|END_RESPONSE|>",
        "analysis20 + 22assistantfinal42",
        "<|channel|>analysis<|message|>20 + 22<|end|><|start|>assistant"
        "<|channel|>final<|message|>42<|return|>",
        "20 + 22</think>\n\n42",
        "<reasoning>20 + 22</reasoning>42",
        "\u25c1think\u25b720 + 22\u25c1/think\u25b742",
        "<|begin_of_thought|>20 + 22<|end_of_thought|><|begin_of_solution|>42",
        "<|channel>thought\n20 + 22<channel|>42",  # hermes-agent 48412
        "<|start|>assistant<|channel|>analysis<|message|>20 + 22<|end|>"
        "<|start|>assistant<|channel|>final<|message|>42<|return|>",
    )
}  # fmt: skip


@pytest.mark.parametrize("habit", TEXTS)
def test_an_answer_in_any_habit_is_its_text(habit: str) -> None:
    found, _, count = asked(TEXTS[habit])
    assert isinstance(found, Completion), found
    assert (found.text, count) == ("42", 1)
    assert found.cut == any(name in habit for name in ("length", "max_output", "MAX_TOKENS"))
    assert ("thoughts in" not in habit) or found.reasoning == "20 + 22"


STREAMS: dict[str, Answer] = {
    "content in parts (litellm 16434)": events({"content": PARTS}, {"content": MORE}),
    "thoughts in parts": events({"content": [THOUGHT]}, {"content": MORE and [*PARTS, *MORE]}),
    "all of it as reasoning (vllm 53284)": events(
        {"reasoning_content": "4"}, {"reasoning_content": "2"}
    ),
    "marks in pieces": events({"content": "[THI"}, {"content": "NK]7[/THINK]4"}, {"content": "2"}),
    "a word that begins as a mark": events({"content": "an"}, {"content": "swer: 42"}),
    "a whole answer to a request for a stream": replied(content="42"),
    "a mark at its end": events({"content": "42"}, {"content": "<|im_"}, {"content": "end|>"}),
} | {
    habit: (200, {}, events({"content": "4"}, {"content": "2"})[2].replace(*change))
    for habit, change in {
        "no newline after the end (openai-node 2725)": ("[DONE]\n\n", "[DONE]"),
        "no end": ("data: [DONE]\n\n", ""),
        "other ends of lines": ("\n", "\r\n"),
        "other fields and comments": ("data: {", ": PROCESSING\nid: 1\nevent: x\ndata:{"),
        "events that are no JSON": ("data: {", "data: ping\n\ndata:\n\ndata: {"),
        "events of several lines": ('{"choices": ', '{"choices":\ndata: '),
        "chunks without choices": ("data: {", 'data: {"choices": [], "x": null}\n\ndata: {'),
        "counts that end as zero": (
            "data: [DONE]", 'data: {"usage": {"prompt_tokens": 0}}\n\ndata: [DONE]'
        ),
    }.items()
}  # fmt: skip


@pytest.mark.parametrize("habit", STREAMS)
def test_a_stream_in_any_habit_is_shown_as_the_text_that_it_is_read_as(habit: str) -> None:
    found, pieces, _ = asked(STREAMS[habit], streamed=True)
    assert isinstance(found, Completion), found
    assert found.text == "".join(pieces) == ("answer: 42" if "word" in habit else "42")


def call(index: int, name: str, arguments: Any, **more: Any) -> dict[str, Any]:
    return {"index": index, "function": {"name": name, "arguments": arguments}} | more


CALLS = {
    "arguments as an object (llama.cpp 20198)": (
        replied("tool_calls", content=None, tool_calls=[call(0, "look", {"at": 1}, id="a")]),
        False,
        ['{"at": 1}'],
    ),
    "calls of one number (hermes-agent 57939)": (
        events(
            *({"tool_calls": [call(0, "look", json.dumps({"at": k}), id=k)]} for k in "ab"),
            finish="tool_calls",
        ),
        True,
        ['{"at": "a"}', '{"at": "b"}'],
    ),
}


@pytest.mark.parametrize("habit", CALLS)
def test_calls_of_tools_in_any_habit_stay_apart_and_whole(habit: str) -> None:
    answer, streamed, arguments = CALLS[habit]
    stub = StubServer(("served",))
    stub.misbehave = lambda count, body: answer
    pieces: list[dict[str, Any]] = []
    with serve(stub) as url:
        (found,) = ask(url, request(form=TOOLS), on_piece=pieces.append if streamed else None)
    assert isinstance(found, Completion), found
    (choice,) = json.loads(found.choices)
    told = [each["function"]["arguments"] for each in choice["message"]["tool_calls"]]
    assert told == arguments
    shown = [each["index"] for piece in pieces for each in piece["delta"].get("tool_calls", ())]
    assert shown == list(range(len(arguments)))[: len(shown)]


def test_usage_within_a_choice_counts() -> None:  # earendil-works/pi 2017
    ended = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": USAGE}]}
    text = events({"content": "42"}, usage=False)[2].replace("data: [DONE]", "")
    text += f"data: {json.dumps(ended)}\n\ndata: [DONE]\n\n"
    found, _, _ = asked((200, {"Content-Type": "text/event-stream"}, text), streamed=True)
    assert (found.prompt_tokens, found.completion_tokens, found.estimated) == (9, 5, False)


def test_more_room_is_never_met_with_less() -> None:  # spiceai 7126, goclaw 245
    said = "Could not finish the message because max_tokens or model output limit was reached."
    stub = StubServer(("served",), skill=1.0)
    stub.misbehave = lambda count, body: (
        error(400, f"{said} Please try again with higher max_tokens.")
        if body["max_tokens"] < 4096
        else None
    )
    habits = DialectStore()
    with serve(stub) as url:
        found = ask(url, request(2048), habits=habits, begin=with_room)[0]
    assert (found.text, [body["max_tokens"] for body in stub.requests]) == ("42", [2048, 8192])
    assert "temperature" in stub.requests[-1]


GEMINI = "The input token count (461428) exceeds the maximum number of tokens allowed."
TOO_LONG = {
    "Gemini (gemini-cli 11507)": (400, {}, json.dumps([{"error": {"message": GEMINI}}])),
    "GLM (hermes 99701)": error(400, "Not so.", code="1261"),
    "an error in HTTP 200": (200, {}, error(200, "maximum context length is 2048 tokens")[2]),
} | {
    words: error(400, words)
    for words in (
        "Range of input length should be [1, 30720]",  # DashScope
        "The input token count is 36494 but model only supports up to 32768.",  # Vertex
        "Prompt exceeds max length",
        "Input tokens exceed the configured limit of 272000 tokens.",  # opencode 45834
        "Input length 203743 exceeds the maximum length 202752",  # dify 32221
        "prompt is too long: 208310 tokens > 200000 maximum",  # Anthropic
        "input length and `max_tokens` exceed context limit",  # continue 6080
        "This model's maximum prompt length is 131072 but the request is longer",  # xAI
        "the request exceeds the available context size, try increasing it",  # llama.cpp
        "Invalid request: Your request exceeded model token limit: 131072",  # Moonshot
        "Request body too large for x. Max size: 8000 tokens.",  # GitHub
        "Request too large on tokens per minute, please reduce your message size",  # Groq
        "max_tokens must be at least 1, got -1152.",  # vLLM
    )
}  # fmt: skip


@pytest.mark.parametrize("provider", TOO_LONG)
def test_a_prompt_too_long_in_any_words_is_the_graphs_doing(provider: str) -> None:
    found, _, count = asked(TOO_LONG[provider])
    assert isinstance(found, ContextOverflow), found
    assert count == 1


EMPTY = {
    "OpenAI (langchainjs 1929)": error(
        429, "You exceeded your current quota", code="insufficient_quota"
    ),
    "DeepSeek": error(402, "Insufficient Balance"),
    "Zhipu": error(429, "\u4f59\u989d\u4e0d\u8db3", code="1113"),
    "Perplexity": error(401, "You exceeded your current quota", type="insufficient_quota"),
    "MiniMax": (200, {}, json.dumps({"base_resp": {"status_msg": "insufficient balance"}})),
    "Anthropic": error(400, "Your credit balance is too low to access the API."),
}


@pytest.mark.parametrize("provider", EMPTY)
def test_an_empty_account_stops_at_once_with_the_providers_words(provider: str) -> None:
    found, _, count = asked(EMPTY[provider])
    assert isinstance(found, RunStopped), found
    told = json.loads(EMPTY[provider][2])
    assert (told.get("error", {}).get("message") or "insufficient balance") in str(found)
    assert count == 1


def test_a_limit_of_requests_is_no_empty_account() -> None:
    found, _, count = asked(error(429, "You exceeded your current quota", type="requests"))
    assert isinstance(found, CallFailed)
    assert count == 9


@pytest.mark.parametrize("code", [{}, {"code": "401"}])
def test_a_key_that_is_refused_ends_the_run_and_is_named(
    monkeypatch: pytest.MonkeyPatch, code: dict[str, str]
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sesame-sesame")
    stub = StubServer(("served",))
    stub.misbehave = lambda count, body: error(
        200 if code else 400, "API key not valid. sesame-sesame", **code
    )
    started = time.monotonic()
    with serve(stub) as url:
        (found,) = ask(url, request(), api_key_env="SOME_API_KEY")
    assert isinstance(found, EndpointError)
    assert "refuses the key in SOME_API_KEY" in str(found)
    assert "sesame" not in str(found)
    assert time.monotonic() - started < 5
