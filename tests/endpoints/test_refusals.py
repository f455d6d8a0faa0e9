"""A provider's filter refuses a prompt: an outcome of its own, also if it is asked again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.answers import PROVIDERS, error
from tests.support.asking import ask
from tests.support.refusing import REFUSALS
from tests.support.stub_server import StubServer, serve
from ttsgraph.base.errors import PromptRefused
from ttsgraph.endpoints.endpoints import OPENS_AFTER, FailurePolicy
from ttsgraph.endpoints.openai_client import Retries
from ttsgraph.models.cache import CachedClient, CallCache
from ttsgraph.models.client import Completion, Message, Request, Sampling

AGAIN = Retries(3, 0.001, 10)


def requests(count: int, form: str | None = None) -> list[Request]:
    return [
        Request("small", "r", (Message("user", f"{k} + 1"),), Sampling(max_tokens=8), form=form)
        for k in range(count)
    ]


@pytest.mark.parametrize(
    ("provider", "streamed"),
    [(name, False) for name in REFUSALS]
    + [(name, True) for name, answer in REFUSALS.items() if answer[0] != 200],
)
def test_a_refusal_is_known_in_every_provider_s_form_and_asked_once(provider, streamed):
    pieces = [] if streamed else None
    stub = StubServer(("served",))
    stub.misbehave = lambda count, body: REFUSALS[provider]
    with serve(stub) as url:
        (found,) = ask(url, *requests(1), retries=AGAIN, pieces=pieces)
    assert isinstance(found, PromptRefused), found
    assert PROVIDERS["refusals"][provider]["says"] in found.said
    assert len(stub.requests) == 1


def test_refusals_are_no_trouble_of_their_server():
    stub = StubServer(("served",), skill=1.0)
    stub.misbehave = lambda count, body: REFUSALS["Azure"] if count > 1 else None
    with serve(stub) as url:
        patience = FailurePolicy(concurrency=4, down_s=0.1, max_failed=0.1, least_calls=2)
        found = ask(url, *requests(3 * OPENS_AFTER), policy=patience)
    assert sum(isinstance(one, Completion) for one in found) == 1
    assert sum(isinstance(one, PromptRefused) for one in found) == 3 * OPENS_AFTER - 1


def test_a_first_prompt_that_is_refused_teaches_nothing_of_how_to_ask():
    stub = StubServer(("served",), skill=1.0)

    def misbehave(count, body):
        if count == 1:
            return REFUSALS["Azure"]
        return error(400, message="no") if "temperature" in body else None

    stub.misbehave = misbehave
    with serve(stub) as url:
        refused, answered = ask(url, *requests(2))
    assert isinstance(refused, PromptRefused)
    assert isinstance(answered, Completion)


def test_it_is_stored_so_that_no_later_start_asks_again(tmp_path: Path):
    stub = StubServer(("served",))
    stub.misbehave = lambda count, body: REFUSALS["Azure"]
    said = set()
    with serve(stub) as url:
        for _ in range(2):
            cache = CallCache(tmp_path)
            found = ask(url, *requests(2) * 2, around=lambda c, kept=cache: CachedClient(c, kept))
            said |= {str(one) for one in found}
            assert all(isinstance(one, PromptRefused) for one in found)
            cache.close()
    assert len(stub.requests) == 2
    assert len(said) == 1
