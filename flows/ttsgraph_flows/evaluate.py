"""The evaluate stage: test the found graph and its rivals within the same budget, and then register
the selected graph.
"""

from functools import partial
from typing import Any

from prefect import flow

from ttsgraph.base.ending import say
from ttsgraph.base.files import json_text, write_text
from ttsgraph.stages import final, records
from ttsgraph_flows.live import live
from ttsgraph_flows.stage import Stage, load_stage, main

OF_THE_REGISTRY = ("run_id", "stage_runs", "code", "parent", "bundle_sha256")
"""Keys of a record that depend on this registry and this commit, and are therefore not part of the
result.
"""


@flow(name="evaluate")
def evaluate(task: str, method: str, profile: str | None = None) -> None:
    """Score the found graph and its rivals on test questions; write the scores to
    results/<profile>/<task>/<method>/test.parquet.

    The answers of each graph are written to answers.parquet, and the contribution of each of the
    found graph's nodes to nodes.parquet. The found graph, or a rival that is as good or better,
    becomes a version in the registry, and the champion if the profile's rule says so. The decision,
    its reason and the provenance are in lineage.json; the part that doesn't depend on the registry
    is in verdict.json.
    """
    stage = load_stage(task, profile)
    records.read_found(stage.results / method)
    test = final.evaluate(stage, method)
    name = f"evaluate-{method}"
    label = f"evaluate {task} {method}"
    tested = stage.asked(name, test, partial(live, label))
    scores = dict(zip(tested.table["arm"], tested.table["accuracy"], strict=True))
    write_text(stage.results / method / "scores.json", json_text(scores))
    stage.write_calls(name)
    stage.record(name, tested.table, stage.results / method / "test.parquet")
    say(f"{label}: {_select(stage, method, tested)}")


def _select(stage: Stage, method: str, tested: final.TestOutcome) -> str:
    """Register the graph that the gate selects, add the test's scores to the search's run, write
    the decision with its reason, and return it as text.
    """
    # Imported late, because MLflow is slow to import and is needed only after the answers.
    from ttsgraph_flows.deployment import Challenger, sealed
    from ttsgraph_flows.registry import Registry
    from ttsgraph_flows.tracking import add_test_scores

    uri = stage.params.tracking_uri
    folder = stage.results / method
    selected = Challenger(stage, method, folder, tested)
    version, decision = selected.deploy()
    record = Registry(uri).provenance(version)
    add_test_scores(uri, record.run_id, tested.table)
    choice = selected.choice
    why: dict[str, Any] = {
        "gate": {**selected.case.columns, "verdict": choice.verdict, "reason": choice.reason},
        "record": record.model_dump(mode="json", exclude={"test": {"outcomes"}}),
    }
    records.write_record(records.GateVerdict, folder / "verdict.json", why, OF_THE_REGISTRY)
    why |= {"version": version.label, "promoted": decision.promote, "reason": decision.reason}
    records.write_record(records.GateRecord, folder / "lineage.json", why, apart=None)
    sealed(stage, version, method)
    outcome = "promoted" if decision.promote else "not promoted"
    what = "the found graph" if choice.place == 0 else "a baseline in place of the found graph"
    told = f"version {version.label} is {outcome}: {decision.reason}"
    return f"selected: {what}: {choice.reason}; {told}"


if __name__ == "__main__":
    main(evaluate, ("task", "method"))
