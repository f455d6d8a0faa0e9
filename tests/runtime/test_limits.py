"""What a search may spend: calls that are made, over all starts; a limit loses nothing."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.agent_server import NOTHING, agent_server
from tests.support.agent_server import settings as agent_settings
from tests.support.arithmetic import LAPTOP_POOL, paid_search
from tests.support.fakes import ArithmeticClient, ScriptedClient
from tests.support.stub_server import serve
from ttsgraph.base.errors import DataError, LimitReached
from ttsgraph.evaluation.progress import Expense
from ttsgraph.models.client import Completion, Message, Request, Sampling
from ttsgraph.runtime.clients import open_agent
from ttsgraph.runtime.limits import Account, Meter, MeteredClient
from ttsgraph.settings.profile import Profile
from ttsgraph.settings.stages import LimitSettings

TOKENS_A_CALL = 12


class Slow(ArithmeticClient):
    """Takes a turn of the event loop for an answer, as a server would."""

    async def complete(self, request: Request) -> Completion:
        await asyncio.sleep(0.001)
        return await super().complete(request)


def search(folder, limits: LimitSettings, client=None):
    """A search with its call cache and account; only the language model is a fake."""
    client = client or Slow({"small": 0.35, "large": 0.45})
    account = Account(folder / "spent.json", "one")
    meter = Meter(limits, account.read(), account.write)
    return *paid_search(folder, client, meter), client


def test_a_search_stops_at_its_limit_and_goes_on_with_a_higher_one(tmp_path):
    free = tmp_path / "free"
    kept = tmp_path / "kept"
    clean, whole, client = search(free, LimitSettings())
    total = Account(free / "spent.json", "one").read()
    assert total.tokens == TOKENS_A_CALL * len(client.requests)
    assert total.dollars == pytest.approx(whole.table()["spent_dollars"].sum())
    limit = 0.6 * total.dollars
    first = Slow({"small": 0.35, "large": 0.45})
    with pytest.raises(LimitReached, match=r"limits\.dollars of .*raise the limit"):
        search(kept, LimitSettings(dollars=limit), first)
    assert len(first.requests) < len(client.requests)
    again = Slow({"small": 0.35, "large": 0.45})
    with pytest.raises(LimitReached, match=r"limits\.dollars"):
        search(kept, LimitSettings(dollars=limit), again)
    assert again.requests == []
    found, archive, last = search(kept, LimitSettings(dollars=10 * limit))
    assert len(first.requests) + len(last.requests) == len(client.requests)
    spent = Account(kept / "spent.json", "one").read()
    assert (spent.tokens, spent.dollars) == (total.tokens, pytest.approx(total.dollars))
    assert found.graph == clean.graph
    assert archive.table()["graph"].tolist() == whole.table()["graph"].tolist()


def test_time_counts_while_a_server_says_nothing(tmp_path):
    class Silent(ScriptedClient):
        async def complete(self, request):
            await asyncio.Event().wait()
            raise AssertionError

    for _ in range(2):
        with pytest.raises(LimitReached, match=r"limits\.wall_s"):
            search(tmp_path, LimitSettings(wall_s=0.05), Silent())


CALLS = st.lists(st.tuples(st.integers(1, 1000), st.integers(0, 1000), st.booleans()), max_size=30)


@settings(deadline=None)
@given(CALLS, st.integers(1, 20_000), st.integers(0, 5000))
def test_what_is_spent_is_what_was_made_and_nothing_is_made_beyond_the_limit(calls, limit, before):
    answers = iter(
        [Completion("x", prompt, written, 0.1, cached) for prompt, written, cached in calls]
    )
    noted: list[Expense] = []
    meter = Meter(LimitSettings(tokens=limit), Expense(0.0, before), noted.append)

    class Instant(ScriptedClient):
        def begin(self, request: Request) -> Completion:
            return next(answers)

    client = MeteredClient(Instant(), meter, LAPTOP_POOL)
    request = Request("small", "r1", (Message("user", "?"),), Sampling())
    spent = before
    for prompt, written, cached in calls:
        if spent >= limit and not cached:
            with pytest.raises(LimitReached):
                client.begin(request)
        else:
            client.begin(request)
            spent += 0 if cached else prompt + written
        assert meter.spent.tokens == spent
        known = noted[-1].tokens if noted else before
        assert spent - known <= max(0.01 * limit, 0)
    assert meter.over == (spent >= limit)


def test_a_model_that_writes_beyond_its_bound_passes_no_limit():
    class Wordy(ScriptedClient):
        async def complete(self, request: Request) -> Completion:
            await asyncio.sleep(0)
            return Completion("x", 10, 5000, 0.1)

    meter = Meter(LimitSettings(tokens=52_000))
    client = MeteredClient(Wordy(), meter, LAPTOP_POOL)
    request = Request("small", "r1", (Message("user", "?"),), Sampling(max_tokens=500))

    async def ask() -> list[Any]:
        await client.complete(request)
        calls = (client.complete(replace(request, replica=k)) for k in range(40))
        return await asyncio.gather(*calls, return_exceptions=True)

    found = asyncio.run(ask())
    assert meter.spent.tokens == 50_100
    assert sum(isinstance(each, LimitReached) for each in found) == 31


def test_a_failed_attempt_counts_until_no_other_fits():
    told = []
    meter = Meter(LimitSettings(dollars=1.0), Expense(0.25, 5, 7.0), tell=told.append)
    meter.lost(Expense(0.65, 1))
    assert [(each.dollars, each.tokens) for each in told] == [(pytest.approx(0.9), 6)]
    with pytest.raises(LimitReached):
        meter.lost(Expense(0.2, 1))
    assert meter.over


@pytest.mark.parametrize(
    "content",
    ["{", "3", '{"identity": "one", "dollars": -5, "tokens": 0, "wall_s": 0}', "[" * 100_000],
)
def test_an_account_that_is_damaged_lifts_no_limit_and_the_advice_works(tmp_path, content):
    account = Account(tmp_path / "spent.json", "one")
    account.path.write_text(content)
    with pytest.raises(DataError, match="delete the file"):
        account.read()
    account.path.unlink()
    assert account.read() == Expense()
    account.write(Expense(1.0, 10, 2.0))
    assert account.read() == Expense(1.0, 10, 2.0)
    assert Account(account.path, "of another search").read() == Expense()


def test_no_call_of_the_agent_is_begun_that_may_exceed_the_limit(tmp_path, profile):
    meter = Meter(LimitSettings(dollars=0.5))
    stub = agent_server(lambda body: NOTHING)  # $0.11 a call

    async def ask_until_the_limit(profile: Profile) -> None:
        async with open_agent(profile, tmp_path, meter, {}) as speak:
            assert speak is not None
            for count in range(10):
                asked = (Message("user", f"Improve it, try {count}."),)
                await asyncio.to_thread(speak, asked, "edit", "{}")

    with serve(stub) as url:
        agent = agent_settings(base_url=url, price=1000, context_tokens=40)
        with pytest.raises(LimitReached, match="next call may take"):
            asyncio.run(ask_until_the_limit(profile.model_copy(update={"agent": agent})))
    assert 0.11 <= meter.spent.dollars <= 0.5
    assert meter.spent.dollars == pytest.approx(0.11 * len(stub.requests))
