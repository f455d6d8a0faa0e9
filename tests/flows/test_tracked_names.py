"""What a search's run in MLflow can be sorted and filtered by."""

import pandas as pd
from mlflow.tracking import MlflowClient

from tests.support.project import ROOT
from ttsgraph.searching.methods import searcher_class
from ttsgraph.settings.profile import load_profile
from ttsgraph_flows.lineage import why_models
from ttsgraph_flows.tracking import add_answer, loop_params, search_params


def test_the_settings_that_searches_are_compared_by_are_params() -> None:
    told = search_params(load_profile("laptop", ROOT / "profiles"))
    assert told["budget.metric"] == "flops"
    assert told["budget.limit"] == 8
    assert not any(key.startswith(("search.", "agent.")) for key in told)
    ours = loop_params(load_profile("laptop", ROOT / "profiles"), searcher_class("agent_reinforce"))
    assert (ours["search.batch"], ours["agent.kind"]) == (16, "heuristic")
    assert "search.alpha" in ours
    rival = loop_params(load_profile("laptop", ROOT / "profiles"), searcher_class("random"))
    assert {"search.alpha", "search.edge_threshold", "agent.kind"}.isdisjoint(rival)
    assert not any(isinstance(value, dict) for value in told.values())


def test_the_description_of_a_run_is_the_sentence_and_the_graph(tmp_path) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    client = MlflowClient(uri)
    run = client.create_run(client.create_experiment("math")).info.run_id
    drawing = ["question ──▶ ▢ a ──▶ answer"]
    add_answer(uri, run, "Use this: one call.", drawing, {"accuracy": 0.5}, [])
    note = client.get_run(run).data.tags["mlflow.note.content"]
    assert note == "Use this: one call.\n\n```\nquestion ──▶ ▢ a ──▶ answer\n```\n"
    assert client.get_run(run).data.metrics == {"answer/accuracy": 0.5}


def test_why_these_models_names_the_reason_and_the_best_that_were_tried() -> None:
    trials = pd.DataFrame(
        {
            "counts": ['{"a": 1}', '{"a": 2}', '{"a": 2}', '{"b": 1}'],
            "accuracy": [0.2, 0.5, 0.7, float("nan")],
        }
    )
    told = why_models({"a": 2}, {"reason": "a leads"}, trials)
    assert (
        told
        == '{"a": 2}: a leads; of 2 multisets tried, the best on average: {"a": 2} 60.0 %; {"a": 1}'
        " 20.0 %"
    )
