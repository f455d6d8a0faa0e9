"""What each node of an evaluated graph answered, as a table, and the rates that follow."""

import asyncio

import pandas as pd
import pytest

from tests.support.fakes import ScriptedClient, unit_draw
from tests.support.running import environment
from ttsgraph.evaluation.archive import Archive, record_of
from ttsgraph.evaluation.environment import Feedback, NodeResult, QuestionResult
from ttsgraph.evaluation.node_answers import NodeAnswers, worth
from ttsgraph.graphs import topologies
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.topologies import with_sink
from ttsgraph.models.client import Usage
from ttsgraph.tasks.base import Question

RIGHT = "7"
FAN = topologies.parallel(["a", "a", "b"], "b")
VOTE = topologies.parallel(["a", "a", "b"], "b", "voter")


def result(question: str, *forms: str) -> QuestionResult:
    """What the nodes of a graph answered, by their ids, the sink last."""
    nodes = {
        i: NodeResult(form == RIGHT, form, 10, 2, 0.5 + i) for i, form in enumerate(forms) if form
    }
    return QuestionResult(question, forms[-1] == RIGHT, nodes=nodes)


def table_of(graph: CollaborationGraph, *results: QuestionResult) -> pd.DataFrame:
    answers = NodeAnswers()
    answers.add(0, graph, results)
    return answers.table()


def test_rows_of_a_real_environment_count_tokens_and_leave_out_what_was_not_asked():
    questions = [Question(f"q{k}", f"{k} + 1", str(k + 1)) for k in range(12)]
    graph = with_sink(topologies.parallel(["m"] * 5, "m", "voter"), waves=(3, 1))
    client = ScriptedClient(lambda r: str(int(unit_draw(r) * 2)))
    feedback = asyncio.run(environment(client, grade_nodes=True).evaluate(graph, questions))
    rows = table_of(graph, *feedback.results)
    called = rows[rows["model"] != ""]
    assert len(called) == feedback.usage.calls < 60
    assert called["prompt_tokens"].sum() == feedback.usage.prompt_tokens
    assert called["completion_tokens"].sum() == feedback.usage.completion_tokens
    votes = rows[rows["is_sink"]]
    heard = called.groupby("question_id").size()[votes["question_id"]]
    assert votes["in_degree"].tolist() == heard.tolist()
    assert votes["correct"].mean() == feedback.accuracy


def test_an_archive_keeps_node_answers_apart_from_its_history():
    long = "x" * 500
    results = (result("q1", "7", "5", long, "7"), QuestionResult("q2", None, error="down"))
    feedback = Feedback(results, Usage(), 0.0)
    archive = Archive()
    record = record_of(0, "random", 1, "train", VOTE, 1.0, feedback, False, "loop, iteration 1")
    archive.append(record, feedback)
    assert len(archive.answers.table()) == 4
    (entry,) = archive.history
    assert [row[1] for row in entry["results"]] == [True, None]
    assert long not in str(entry)


def test_the_worth_of_a_node_is_what_it_repairs_and_spoils():
    rows = table_of(
        FAN,
        result("all wrong, repaired", "1", "2", "3", "7"),
        result("all wrong", "1", "2", "3", "4"),
        result("all right, spoilt", "7", "7", "7", "1"),
        result("mixed", "7", "1", "1", "7"),
    )
    found = worth(rows).loc[3]
    assert found["n_answers"] == 4
    assert found["read_accuracy"] == pytest.approx((0 + 0 + 1 + 1 / 3) / 4)
    assert found["own_accuracy"] == 0.5
    assert found[["repairable", "repaired", "spoilable", "spoilt"]].tolist() == [2, 1, 1, 1]
