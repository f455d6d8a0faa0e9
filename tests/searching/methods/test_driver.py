"""The loop with a fake model by injection: everything but the language model is real."""

import re

import numpy as np
import pytest
from scipy.stats import beta

from tests.support.arithmetic import (
    BRIEF,
    COST,
    adders,
    searched,
    searcher_of,
)
from ttsgraph.base.bookkeeping import BOOKKEEPING
from ttsgraph.base.errors import DataError, TTSGraphError
from ttsgraph.base.journal import Journal, read_journal
from ttsgraph.evaluation.archive import COLUMNS, Archive
from ttsgraph.graphs.topologies import parallel, single
from ttsgraph.searching.methods import SEARCHERS, Problem, Searcher
from ttsgraph.searching.methods.base import plain_terms
from ttsgraph.searching.methods.summary import probability_best, validated_front
from ttsgraph.settings.profile import AgentSettings, SearchSettings
from ttsgraph.stages.records import require_equal_terms
from ttsgraph.stages.schemas import Candidates, Trajectory, check


class TestDriver:
    """The loop with a fake model by injection: everything but the language model is real."""

    def search(self, folder, client=None, method="agent_reinforce", searcher=None, **settings):
        client = client or adders()
        wanted = SearchSettings(**({"max_iterations": 8, "patience": 4, "batch": 12} | settings))
        archive = Archive(Journal(folder / "journal.jsonl", {"type": "search"}))
        heard = []
        searcher = searcher or searcher_of(method, wanted)
        found = searched(searcher, archive, client, 24, 30, heard.append)
        assert heard == archive.records
        return found, archive

    @pytest.mark.parametrize("method", sorted(SEARCHERS))
    def test_it_finds_a_legal_graph_and_records_every_candidate(self, tmp_path, method):
        found, archive = self.search(tmp_path, method=method)
        assert COST.graph_cost(found.graph) <= 8.0
        kept = archive.table().drop(columns=[name for name in BOOKKEEPING if name in COLUMNS])
        table = check(kept, Candidates, "archive")
        check(found.trajectory, Trajectory, "trajectory")
        assert set(COLUMNS) == set(archive.table().columns)
        assert set(COLUMNS) - set(BOOKKEEPING) == set(table.columns)
        assert (table["split"] == "train").sum() == 4 * found.trajectory["iteration"].max()
        journal = [
            entry for entry in read_journal(tmp_path / "journal.jsonl") if entry["type"] == "record"
        ]
        assert len(journal) == len(table)

    def test_every_method_is_searched_on_the_same_terms(self, tmp_path):
        terms = {
            m: plain_terms(self.search(tmp_path, method=m, max_iterations=1)[0].terms)
            for m in sorted(SEARCHERS)
        }
        require_equal_terms(terms)
        assert [
            entry for entry in read_journal(tmp_path / "journal.jsonl") if entry["type"] == "terms"
        ]
        terms["random"]["budget"] = 9.0
        with pytest.raises(
            DataError,
            match=(
                r"agent_reinforce and random were not searched on the same terms: budget is 8\.0"
                r" and 9\.0"
            ),
        ):
            require_equal_terms(terms)

    @pytest.mark.parametrize(
        ("graphs", "message"),
        [
            ([single("small")] * 3, "greedy: expected 4 candidates, found 3"),
            (
                [parallel(["large"] * 9, "large", "voter")] * 4,
                r"within the budget 8, found 10 nodes at",
            ),
            (
                [parallel(["small"] * 12, "small", "voter")] * 4,
                r"at most 12 nodes .* found 13 nodes",
            ),
            ([single("gpt-9")] * 4, r"models \['gpt-9'\]"),
        ],
    )
    def test_proposals_that_break_the_terms_are_refused(self, tmp_path, graphs, message):
        class Greedy(Searcher):
            name = "greedy"
            propose = learn = result = lambda self, *_: graphs

        searcher = Greedy(Problem(BRIEF, SearchSettings(), AgentSettings(), {}, 0))
        with pytest.raises(TTSGraphError, match=message):
            searched(searcher, Archive(), adders(), 8, 8)

    def test_a_candidate_with_too_many_unscored_questions_is_failed_not_scored(self, tmp_path):
        client = adders(small=0.5, large=0.5)
        # Every other training question (0 to 23) loses the second of identical calls: wide
        # candidates fail, narrow ones don't.
        client.fails = lambda r: (
            r.replica >= 1
            and int(re.findall(r"Q: (\d+)", r.messages[0].content)[-1]) in range(0, 24, 2)
        )
        _, archive = self.search(tmp_path, client, method="random")
        table = archive.table()
        failed = table[table["status"] == "failed"]
        assert len(failed) > 0
        assert (failed["n_unscored"] > 0).all()
        assert (table[table["status"] == "ok"]["n_unscored"] <= 3).all()


def test_the_front_of_a_search_has_its_fastest_and_its_best_validated_graph(tmp_path):
    _, archive = TestDriver().search(tmp_path, method="random")
    rows = archive.table().query("split == 'val' and status == 'ok'")
    front = validated_front(archive.table())
    assert front[0]["latency_s"] == rows["latency_s"].min()
    assert front[-1]["accuracy"] == rows["accuracy"].max()
    assert [point["accuracy"] for point in front] == sorted({point["accuracy"] for point in front})


def test_p_best_of_two_is_the_beta_tail_of_the_questions_that_tell_them_apart():
    chosen = np.repeat([1.0, 0.0, 1.0], [9, 4, 20])
    other = np.repeat([0.0, 1.0, 1.0], [9, 4, 20])
    found = probability_best("chosen", {"chosen": chosen, "other": other})
    assert found == pytest.approx(beta.sf(0.5, 9, 4), abs=0.02)
    assert probability_best("chosen", {"chosen": chosen, "same": chosen}) == 0.5
    assert probability_best("chosen", {"chosen": chosen}) == 1.0
    ungraded = np.full(len(other), np.nan)
    assert np.isnan(probability_best("chosen", {"chosen": ungraded, "other": other}))
