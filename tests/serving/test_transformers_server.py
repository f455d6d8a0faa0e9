"""How a server of transformers samples; the server itself is one of the engines' tests."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ttsgraph.serving.transformers_server import (
    request_sampling,
    sampling_config,
    too_long,
)


def config(**own: Any) -> SimpleNamespace:
    usual = dict.fromkeys(("do_sample", "temperature", "top_p", "top_k"))
    return SimpleNamespace(**(usual | {"max_new_tokens": 8} | own))


GREEDY = {"temperature": 0.0, "top_p": 0.5}
OWN = {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "do_sample": False}


@pytest.mark.parametrize(
    ("own", "body", "expected"),
    [
        ({"temperature": 0.9}, {"temperature": 0.9}, (True, 0.9, 1.0, 0)),
        (GREEDY, GREEDY, (False, None, 0.5, 0)),
        ({}, {}, (True, 1.0, 1.0, 0)),
        (OWN, {}, (True, 0.6, 0.95, 20)),
    ],
    ids=["sampled", "greedy", "nothing said", "the model's own"],
)
def test_a_request_is_sampled_as_it_asks(
    own: dict[str, Any], body: dict[str, Any], expected: tuple[Any, ...]
) -> None:
    found = sampling_config(config(**own), body)
    assert (found.do_sample, found.temperature, found.top_p, found.top_k) == expected


def test_at_temperature_0_one_token_is_left_where_two_are_as_likely() -> None:
    greedy = sampling_config(config(temperature=0.0), {"temperature": 0.0})
    # What is sampled from are the likeliest tokens that make up this share: half of it is too much.
    assert 0 < request_sampling(greedy)["top_p"] < 0.001
    assert 0 < request_sampling(greedy)["temperature"] < 0.001
    drawn = sampling_config(config(temperature=0.9, top_p=0.8), {"temperature": 0.9, "top_p": 0.8})
    assert request_sampling(drawn) == {"temperature": 0.9, "top_p": 0.8}


def test_a_prompt_is_refused_if_its_answer_would_not_fit() -> None:
    assert too_long([1] * 92, config(), 100) is None
    said = "context length is 100 tokens, but the prompt has 93 and 8 are to be generated"
    assert too_long(SimpleNamespace(shape=(1, 93)), config(), 100) == f"maximum {said}"
