"""What a trial in service came to, in the registry and in the lineage."""

import json
from contextlib import chdir

import pytest
from mlflow.tracking import MlflowClient

from tests.support.project import database_in
from tests.support.service import graph_of, profile_of
from ttsgraph.base.errors import DataError
from ttsgraph.deployment.bundle import DeployedVersion, Figures, figures_of
from ttsgraph.deployment.promotion import Decision
from ttsgraph.deployment.provenance import Code, Dataset, Provenance, TestResult
from ttsgraph.evaluation.environment import Feedback, NodeResult, QuestionResult
from ttsgraph.models.client import Usage
from ttsgraph.service.book import AnswerLog
from ttsgraph_flows import served
from ttsgraph_flows.lineage import lineage, seal
from ttsgraph_flows.registry import Registry
from ttsgraph_flows.served import write_served

UNTESTED = Figures()
BETTER = Decision(True, "better: 80.0 % of 50 answers in service")
WORSE = Decision(False, "worse: 20.0 % of 50 answers")


@pytest.fixture(scope="module")
def uri(tmp_path_factory):
    folder = tmp_path_factory.mktemp("registry")
    with chdir(folder):  # where MLflow keeps its files
        yield database_in(folder)


def registered(registry, number, promote="better", tested=UNTESTED):
    """A version with hardly any past: enough to be served and judged."""
    client = MlflowClient(registry.uri)
    run = client.create_run(client.create_experiment(f"trial-{promote}-{number}"))
    task = f"math{promote}"
    profile = profile_of("http://127.0.0.1:9/v1")
    deploy = profile.deploy.model_copy(update={"promote": promote})
    changes = {"deploy": deploy, "tasks": {task: profile.tasks["math"]}}
    graph = graph_of("fuser", *["small"] * number)
    deployed = DeployedVersion(task, graph, profile.model_copy(update=changes), tested=tested)
    texts = ("bundle_sha256", "settings_sha256", "prompt_sha256", "agent_prompts_sha256")
    record = Provenance(
        **dict.fromkeys((*texts, "profile", "method"), "none"),
        **dict.fromkeys(("seed", "candidates", "agent_exchanges"), 0),
        **{"task": task, "models": {}, "budget": {}, "files": {"results/search.json": "0"}},
        run_id=run.info.run_id,
        graph_hash=graph.content_hash,
        dataset=Dataset(path="q", md5="0", source={}, splits={}),
        code=Code(commit=None, changed=False),
        test=TestResult(accuracy=0.5, low=0.4, high=0.6, questions="q", outcomes={}),
    )
    version = registry.register(deployed, record)
    seal(registry, version, {"search": record.inputs}, [run.info.run_id])
    return version


def test_a_trial_moves_the_alias_and_its_reason_stands_in_the_lineage(uri):
    registry = Registry(uri)
    first = registered(registry, 1)
    registry.promote(first)
    second = registered(registry, 2, tested=Figures(0.5, 0.001, 0.75))
    loader = Registry(uri)
    assert loader.resolve("mathbetter@challenger").tested == Figures(0.5, 0.001, 0.75)
    loader.settled("mathbetter", second.number, BETTER)
    champion = registry.champion("mathbetter")
    assert champion.number == second.number
    assert (champion.tags["decision"], champion.tags["replaced"]) == (BETTER.reason, first.number)
    links = {link.name: link.detail for link in lineage("mathbetter@champion", uri).links}
    assert BETTER.reason in links["promotion"]


def test_what_lost_or_is_left_to_people_is_told_and_not_promoted(uri):
    registry = Registry(uri)
    first = registered(registry, 1, "by_hand")
    registry.promote(first)
    second = registered(registry, 2, "by_hand")
    for decision, said in ((BETTER, "deploy.promote"), (WORSE, "worse:")):
        registry.settled("mathby_hand", second.number, decision)
        assert registry.find("mathby_hand@champion").number == first.number
        assert registry.find("mathby_hand@challenger").tags["decision"].startswith(said)


def test_figures_of_a_test_are_what_service_is_held_against():
    graph = graph_of("voter", "small", "small", "small")
    forms = [("7", "7", "8"), ("7", "7", "7")]
    results = tuple(
        QuestionResult(str(k), True, nodes={i: NodeResult(1.0, f) for i, f in enumerate(one)})
        for k, one in enumerate(forms)
    )
    feedback = Feedback(results, Usage(dollars=0.5), 1.0)
    assert figures_of(feedback, graph) == Figures(1.0, 0.25, pytest.approx((1 / 3 + 1) / 2))


def test_served_questions_are_written_for_their_owner_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(served, "TABLE", tmp_path / "nowhere.db")
    with pytest.raises(DataError, match="expected the table of served questions"):
        write_served("math", tmp_path / "math-served.jsonl")
    monkeypatch.setattr(served, "TABLE", tmp_path / "served.db")
    book = AnswerLog(served.TABLE)
    path = tmp_path / "inputs" / "math-served.jsonl"
    with pytest.raises(DataError, match="found none"):
        write_served("math", path)
    for k in range(3):
        row = {"trace": f"{k:032x}", "model": "m", "task": "math", "version": "1", "cost": 0.1}
        book.add(**row, question=f"{k} + 1", answer="1")
        book.judge(f"{k:032x}", float(k == 0), str(k + 1) if k else None, 1)
    assert write_served("math", path) == 3
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    known = {"0 + 1": "1", "1 + 1": "2", "2 + 1": "3"}
    assert {row["question"]: row["answer"] for row in rows} == known
    assert path.stat().st_mode & 0o777 == 0o600
