"""Races: the error rate that is promised, what is journalled, and that neither a cache nor a kill
changes what is found.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import beta

import lab.rivals  # noqa: F401 (registers them)
from tests.base.test_journal import outcome
from tests.support.arithmetic import adders, searched, searcher_of
from tests.support.fakes import ArithmeticClient, Known, numbered
from ttsgraph.base.errors import DataError
from ttsgraph.base.journal import Journal, read_journal
from ttsgraph.contest.racing import Race, batches, beaten, level
from ttsgraph.evaluation.archive import Archive
from ttsgraph.evaluation.environment import Feedback, QuestionResult
from ttsgraph.evaluation.objective import Objective
from ttsgraph.graphs.topologies import parallel
from ttsgraph.methods.base import plain_terms, require_equal_terms
from ttsgraph.methods.summary import Found, probability_best
from ttsgraph.models.cache import CachedClient, CallCache
from ttsgraph.models.client import Client, Completion, Request, Usage
from ttsgraph.settings.profile import SearchSettings
from ttsgraph.settings.stages import RacingSettings
from ttsgraph.stages.schemas import Candidates, check

ON = RacingSettings(enabled=True, confidence=0.8, first=4)


GRAPHS = [parallel(["small"] * k, "small", "voter") for k in range(1, 5)]


def raced(
    answers: Sequence[np.ndarray], settings: RacingSettings, settle: bool = True
) -> tuple[list[Feedback], Known]:
    graphs = GRAPHS[: len(answers)]
    environment = Known(
        {graph.to_json(): rights for graph, rights in zip(graphs, answers, strict=True)}
    )
    race = Race(numbered(len(answers[0])), settings, Objective(), settle)
    return asyncio.run(race.run(graphs, [], environment)), environment


@pytest.mark.parametrize("total", [16, 100])
@pytest.mark.parametrize("differing", [0.1, 0.6])
@pytest.mark.parametrize("confidence", [0.95, 0.5, 0.1])
def test_a_graph_that_is_not_worse_on_the_whole_batch_is_stopped_no_oftener_than_promised(
    total: int, differing: float, confidence: float
) -> None:
    """The null's edge: as many questions go one way as the other; only their order is drawn."""
    draws = 3000
    rng = np.random.default_rng(7)
    each = round(differing * total / 2)
    leads = np.repeat([1.0, -1.0, 0.0], [each, each, total - 2 * each])
    sizes = batches(total, RacingSettings())[:-1]
    stopped = 0
    for _ in range(draws):
        order = rng.permutation(leads)
        stopped += any(
            beaten(order[:n], np.zeros(n), total, level(confidence, len(sizes))) for n in sizes
        )
    alpha = 1 - confidence
    assert stopped / draws <= alpha + 3 * np.sqrt(alpha * (1 - alpha) / draws)


@pytest.mark.parametrize("confidence", [0.8, 0.5])
def test_a_race_of_equals_stops_each_of_them_no_oftener_than_promised(confidence: float) -> None:
    rng = np.random.default_rng(3)
    draws = 200
    settings = RacingSettings(enabled=True, confidence=confidence)
    stopped = np.zeros(4)
    for _ in range(draws):
        answers = [rng.permutation(np.arange(32) < 18) for _ in range(4)]
        stopped += [feedback.stopped for feedback in raced(answers, settings)[0]]
    luck = 3 * np.sqrt(confidence * (1 - confidence) / draws)
    assert (stopped / draws <= 1 - confidence + luck).all()


def test_a_hopeless_graph_is_stopped_at_the_first_looks_and_the_others_go_on() -> None:
    good = np.arange(64) % 16 != 15
    bad = np.arange(64) % 16 == 15
    (first, second), environment = raced([good, bad], RacingSettings(enabled=True))
    assert (first.stopped, len(first.results)) == (False, 64)
    assert (second.stopped, len(second.results)) == (True, 8)
    ids = tuple(str(k) for k in range(64))
    asked = [environment.asked[0], environment.asked[1]]
    assert [what for _, what in asked] == [ids[:8]] * 2


def test_all_contenders_of_a_round_answer_the_same_questions() -> None:
    rng = np.random.default_rng(0)
    _, environment = raced(
        [rng.random(32) < p for p in (0.9, 0.6, 0.5, 0.2)], RacingSettings(enabled=True)
    )
    rounds = dict.fromkeys(what for _, what in environment.asked)
    assert [len(what) for what in rounds] == [8, 8, 16][: len(rounds)]


def test_where_one_is_left_alone_it_goes_no_further_unless_it_has_to_settle() -> None:
    answers = [np.ones(64, dtype=bool), np.zeros(64, dtype=bool)]
    for settle, asked in ((False, [8, 8]), (True, [64, 8])):
        feedbacks, _ = raced(answers, RacingSettings(enabled=True), settle)
        assert [len(feedback.results) for feedback in feedbacks] == asked


def test_what_is_known_of_a_graph_is_not_asked_again_and_the_best_is_a_rival_later() -> None:
    answers = {
        graph.to_json(): np.arange(64) % 10 < right
        for graph, right in zip(GRAPHS, (9, 1, 2, 9), strict=True)
    }
    environment = Known(answers)
    race = Race(numbered(64), RacingSettings(enabled=True), Objective(), settle=True)
    asyncio.run(race.run(GRAPHS[:2], [], environment))
    environment.asked.clear()
    again, worse = asyncio.run(race.run([GRAPHS[0], GRAPHS[2]], [], environment))
    assert {text for text, _ in environment.asked} == {GRAPHS[2].to_json()}
    assert (again.usage.calls, again.usage.cached_calls) == (64, 64)
    (alone,) = asyncio.run(race.run([GRAPHS[1]], [], environment))
    assert worse.stopped
    assert alone.stopped
    assert len(alone.results) == 8


def test_unscored_questions_beat_nobody() -> None:
    leader = np.ones(16)
    graph = np.full(16, np.nan)
    assert not beaten(leader, graph, 32, 0.05)
    graph[:2] = 0.0
    assert not beaten(leader, graph, 32, 0.05)
    graph[:] = 0.0
    assert beaten(leader, graph, 32, 0.05)


@pytest.mark.parametrize(
    "objective", [Objective(), Objective(kind="joint", weight=0.4, half_s=2.0)]
)
def test_the_value_is_the_mean_of_the_questions_shares(objective: Objective) -> None:
    rng = np.random.default_rng(1)
    outcomes = [None if k % 7 == 0 else bool(rng.random() < 0.6) for k in range(40)]
    results = [
        QuestionResult(str(k), right, "", float(rng.exponential(3.0)))
        for k, right in enumerate(outcomes)
    ]
    feedback = Feedback(tuple(results), Usage(), 0.0)
    shares = objective.shares(feedback)
    assert np.isnan(shares).sum() == feedback.n_unscored
    assert np.nanmean(shares) == pytest.approx(objective.value(feedback))


def test_p_best_of_two_is_the_beta_tail_of_the_questions_that_tell_them_apart() -> None:
    chosen = np.repeat([1.0, 0.0, 1.0], [9, 4, 20])
    other = np.repeat([0.0, 1.0, 1.0], [9, 4, 20])
    found = probability_best("chosen", {"chosen": chosen, "other": other})
    assert found == pytest.approx(beta.sf(0.5, 9, 4), abs=0.02)
    assert probability_best("chosen", {"chosen": chosen, "same": chosen}) == 0.5
    assert probability_best("chosen", {"chosen": chosen}) == 1.0
    short = {"chosen": chosen, "stopped": np.zeros(6)}
    assert probability_best("chosen", short) == 1.0
    assert np.isnan(probability_best("chosen", {"chosen": np.full(3, np.nan), "other": other}))


def search(
    path: Path,
    client: Client | None = None,
    racing: RacingSettings = ON,
    method: str = "random",
    seed: int = 0,
    batch: int = 24,
) -> tuple[Found, Archive]:
    """The driver over a journal at `path`; only the language model is a fake, by injection."""
    wanted = SearchSettings(max_iterations=5, patience=4, batch=batch, racing=racing)
    with closing(Journal(path, {"type": "search"})) as journal:
        archive = Archive(journal)
        searcher = searcher_of(method, wanted, seed=seed)
        return searched(searcher, archive, client or adders(large=0.6), batch, 48), archive


@pytest.mark.parametrize("method", ["agent_reinforce", "random", "gptswarm"])
def test_stopped_candidates_are_journalled_with_the_questions_they_had_and_never_selected(
    tmp_path: Path, method: str
) -> None:
    found, archive = search(tmp_path / "journal.jsonl", method=method)
    table = check(archive.table(), Candidates, "archive")
    stopped = table[table["status"] == "stopped"]
    journal = read_journal(tmp_path / "journal.jsonl")
    entries = [e for e in journal if e.get("status") == "stopped"]
    assert [len(entry["results"]) for entry in entries] == stopped["n_scored"].tolist()
    if method == "random":
        assert len(stopped) > 0
    assert (stopped[stopped["split"] == "train"]["n_scored"] < 24).any() or stopped.empty
    assert (table[(table["split"] == "train") & (table["status"] == "ok")]["n_scored"] == 24).all()
    last = table[(table["split"] == "val") & (table["graph"] == found.graph.to_json())].iloc[-1]
    assert last["status"] == "ok"
    assert 0 < found.p_best <= 1


def test_a_search_with_races_is_not_compared_with_one_without(tmp_path: Path) -> None:
    on = search(tmp_path / "on.jsonl")[0].terms
    off = search(tmp_path / "off.jsonl", racing=RacingSettings())[0].terms
    with pytest.raises(
        DataError, match="random and maao were not searched on the same terms: racing is"
    ):
        require_equal_terms({"random": plain_terms(on), "maao": plain_terms(off)})


class Killed(BaseException):
    """Ends a search as a signal does: nothing catches it."""


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize("method", ["random", "agent_reinforce"])
def test_a_search_killed_in_the_middle_of_a_race_goes_on_as_if_it_had_not_been(
    tmp_path: Path, method: str
) -> None:
    expected = outcome(*search(tmp_path / "undisturbed.jsonl", method=method))
    path = tmp_path / "journal.jsonl"
    calls = 0
    for calls in range(60, 2000, 400):
        client = adders(large=0.6)

        def dies(request: Request, client: ArithmeticClient = client, calls: int = calls) -> bool:
            if len(client.requests) > calls:
                raise Killed
            return False

        client.fails = dies
        path.unlink(missing_ok=True)
        try:
            search(path, client, method=method)
        except Killed:
            pass
        else:
            break
        assert outcome(*search(path, method=method)) == expected
    assert calls > 60
    whole = (tmp_path / "undisturbed.jsonl").read_bytes()
    for cut in range(len(whole) // 6, len(whole), len(whole) // 6):
        path.write_bytes(whole[:cut])
        assert outcome(*search(path, method=method)) == expected


class Drawing(ArithmeticClient):
    """Draws anew at each call, as a server does: what is asked twice is answered alike only by a
    cache.
    """

    async def complete(self, request: Request) -> Completion:
        self.skill = {name: 0.3 + 0.05 * (len(self.requests) % 7) for name in self.skill}
        return await super().complete(request)


@pytest.mark.parametrize("method", ["agent_reinforce", "random"])
def test_the_found_graph_is_the_same_with_the_cache_cold_warm_and_without_races(
    tmp_path: Path, method: str
) -> None:
    cache = CallCache(tmp_path / "cache")
    strict = RacingSettings(enabled=True, confidence=0.999)
    cold = Drawing({"small": 0.5, "large": 0.5})
    try:
        client = CachedClient(cold, cache)
        expected, _ = search(tmp_path / "cold.jsonl", client, RacingSettings(), method)
        made = len(cold.requests)
        warm, _ = search(tmp_path / "warm.jsonl", client, RacingSettings(), method)
        assert len(cold.requests) == made
        raced, _ = search(tmp_path / "raced.jsonl", client, strict, method)
    finally:
        cache.close()
    assert warm.graph == expected.graph
    assert raced.graph == expected.graph
