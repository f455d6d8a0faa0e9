"""Lineage of a registered version holds, and tampering is found and named."""

import json
import shutil
import sqlite3
from pathlib import Path

import mlflow
import pytest
import yaml

from ttsgraph.base.errors import DataError, DeploymentError, InputError
from ttsgraph_flows.lineage import lineage
from ttsgraph_flows.promotions import note, promotions
from ttsgraph_flows.registry import Registry, dependents

pytestmark = pytest.mark.slow


@pytest.fixture
def project(searched, tmp_path, monkeypatch):
    """A copy to tamper with, as the working directory."""
    copy = searched.copy(tmp_path / "copy")
    monkeypatch.chdir(copy.folder)
    return copy


def broken(project, version="math@champion"):
    return {(link.name, link.subject): link.detail for link in lineage(version, project.uri).broken}


def links(project):
    found = broken(project, "math/1").items()
    return "\n".join(f"{name} {subject}: {said}" for (name, subject), said in found)


def change_database(statements):
    with sqlite3.connect("mlflow.db") as store:
        assert all(store.execute(each).rowcount > 0 for each in statements)


def test_every_link_of_a_version_holds(project):
    walked = lineage("math@champion", project.uri)
    assert walked.broken == ()
    names = {link.name for link in walked.links}
    assert {"version", "graph", "search run", "dataset", "run", "file"} <= names
    assert {"code", "settings", "models", "decision", "promotion"} <= names
    assert len(walked.candidates) == walked.record.candidates > 0
    assert {"candidate_id", "graph_hash", "accuracy"} <= walked.candidates[0].keys()
    assert walked.record.dataset.splits == {"shots": 0, "train": 40, "val": 30, "test": 200}
    assert set(walked.record.models) == {"llama-3.2-1b", "llama-3.2-3b", "gemma-3-1b"}


def test_each_promotion_is_noted_with_its_reason_and_dvc_tracks_it(project):
    (first,) = promotions("math")
    assert first.version == "1"
    assert first.reason == Registry(project.uri).find("math/1").tags["decision"]
    assert "promotions/math.jsonl" not in project.dvc("status")
    move_alias(project)
    assert ("promotion", "math/2") in broken(project)
    assert project.ttsgraph("promote", "math/2").returncode == 0
    assert broken(project) == {}
    assert [each.reason for each in promotions("math")] == [first.reason, "promoted by hand"]
    assert "promotions/math.jsonl" not in project.dvc("status")


def test_a_promotion_that_was_killed_is_finished_and_a_changed_one_is_refused(project):
    file = Path("promotions/math.jsonl")
    tracked = Path(f"{file}.dvc")
    before = tracked.read_text()
    second = ("math", "2", "0" * 64, "better")
    digest = note(*second)
    tracked.write_text(before)  # as a kill before `dvc add` leaves it
    assert note(*second) == digest
    assert [each.version for each in promotions("math")] == ["1", "2"]
    file.write_text(file.read_text().replace("better", "worse"))
    with pytest.raises(DataError, match="DVC tracks"):
        note(*second)


def test_the_command_prints_text_and_json_and_ends_with_5_when_a_link_is_broken(project):
    done = project.ttsgraph("lineage", "math@champion")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("math/1 @champion\n")
    (project.results / "random" / "archive.parquet").write_bytes(b"forged")
    done = project.ttsgraph("lineage", "math@champion", "--json")
    assert done.returncode == 5
    assert "broken: file results/simulated-small/math/random/archive.parquet" in done.stderr
    assert json.loads(done.stdout)["intact"] is False


def test_what_a_later_search_replaced_leaves_the_version_as_it_was(project):
    file = project.results / "random" / "graph.json"
    file.write_text(file.read_text() + " ")
    project.commit()
    assert any("graph.json" in subject for _, subject in broken(project))
    for name in ("history.jsonl", "archive.parquet"):
        with (project.results / "random" / name).open("ab") as file:
            file.write(b" ")
    project.commit()
    assert broken(project) == {}


RESULT = "file results/simulated-small/math"


def changed(paths):
    """Files with one more byte each."""
    for path in paths:
        path.chmod(0o644)
        path.write_bytes(path.read_bytes() + b" ")


def test_every_file_of_a_version_that_was_changed_is_named(project):
    files = lineage("math@champion", project.uri).record.files
    changed(map(Path, files))
    wanted = {("file", path) for path in files}
    assert wanted <= broken(project).keys()
    done = project.ttsgraph("promote", "math/1")
    assert done.returncode == 2
    assert "expected an intact lineage" in done.stderr


def move_alias(project):
    """Point the champion's alias to a second version, which nobody promoted."""
    mlflow.set_tracking_uri(project.uri)  # by which MLflow finds the version's model
    client = mlflow.MlflowClient(project.uri)
    first = client.get_model_version("ttsgraph-math", "1")
    other = client.create_model_version(
        first.name, first.source, first.run_id, first.tags, model_id=first.model_id
    )
    client.set_registered_model_alias(first.name, "champion", other.version)


def change_promotion(project):
    """And tell DVC."""
    file = Path("promotions/math.jsonl")
    (line,) = file.read_text().splitlines()
    file.write_text(json.dumps(json.loads(line) | {"by": "somebody"}) + "\n")
    project.dvc("add", "-q", str(file))


def change_result(project):
    """And tell DVC."""
    changed([Path("results/simulated-small/math/random/archive.parquet")])
    project.commit()


def change_digest_in_lock(project):
    file = Path("dvc.lock")
    lock = yaml.safe_load(file.read_text())
    outs = lock["stages"]["search@math-random"]["outs"]
    next(out for out in outs if out["path"].endswith("archive.parquet"))["md5"] = "0" * 32
    file.write_text(yaml.safe_dump(lock))


def change_graph_of_run(project):
    models = ("llama-3.2-1b", "llama-3.2-3b")
    for name, (old, new) in (("graph.json", models[::-1]), ("table.json", models)):
        for file in Path("mlruns").rglob(f"artifacts/{name}"):
            file.write_text(file.read_text().replace(old, new, 1))


def change_model(project):
    (model,) = Path("mlruns").rglob("MLmodel")
    (code,) = model.parent.rglob("ttsgraph/runtime/clients.py")
    changed([model, code])


def add_to_model(project):
    (bundle,) = Path("mlruns").rglob("bundle.json")
    bundle.with_name("sitecustomize.py").write_text("print('here')")


OTHERS = {
    change_model: ["model/MLmodel", "model/code/"],
    add_to_model: ["sitecustomize.py: added after"],
    move_alias: ["promotion math/1"],
    change_promotion: ["promotion math/1"],
    change_result: [f"{RESULT}/random/archive.parquet"],
    change_digest_in_lock: [f"{RESULT}/random/archive.parquet"],
    change_graph_of_run: ["graph.json", "table.json"],
}


@pytest.mark.parametrize("tamper", OTHERS, ids=lambda each: each.__name__)
def test_whatever_else_was_tampered_with_is_named(project, tamper):
    tamper(project)
    found = links(project)
    assert [named for named in OTHERS[tamper] if named not in found] == [], found


@pytest.mark.parametrize(
    ("file", "named"),
    [
        ("promotions/math.jsonl", "promotion math/1"),
        ("promotions/math.jsonl.dvc", "promotion math/1"),
        ("dvc.lock", f"{RESULT}/random/graph.json"),
    ],
)
def test_a_file_that_is_gone_is_named_by_its_link(project, file, named):
    Path(file).unlink()
    assert named in links(project)


DATABASE = yaml.safe_load(Path(__file__).with_name("database_changes.yaml").read_text())


@pytest.mark.parametrize("what", DATABASE)
def test_what_was_changed_in_the_database_is_named(project, what):
    change_database(DATABASE[what])
    found = links(project)
    assert [named for named in DATABASE[what].values() if named not in found] == [], found


def test_what_may_be_changed_later_is_said(project):
    project.settings["pool"]["llama-3.2-1b"]["revision"] = "another"
    project.save()
    tag = "update model_version_tags set value = 'it is the best of all' where key = 'decision'"
    change_database([tag])
    run = lineage("math@champion", project.uri).record.run_id
    mlflow.MlflowClient(project.uri).log_metric(run, "test_best_accuracy", 0.99)
    said = project.ttsgraph("lineage", "--check", "math@champion").stdout
    for link in ("settings", "decision", "run"):
        assert f"unknown  {link}" in said


def test_data_that_is_no_longer_kept_or_damaged_in_the_cache_is_named(project):
    digest = lineage("math@champion", project.uri).record.dataset.md5
    kept = Path(".dvc/cache/files/md5", digest[:2], digest[2:])
    kept.chmod(0o644)
    kept.write_bytes(b"damaged")
    assert "the copy in DVC's cache is damaged" in " ".join(broken(project).values())
    kept.unlink()
    assert "only in the working tree" in " ".join(broken(project).values())
    Path("data/simulated-small/math/questions.parquet").unlink()
    assert "neither in the working tree nor in DVC's cache" in " ".join(broken(project).values())


def test_data_that_only_a_remote_has_is_found_there(project, tmp_path):
    project.dvc("remote", "add", "-d", "store", str(tmp_path / "remote"))
    project.dvc("push", "-q")
    shutil.rmtree(".dvc/cache/files")
    walked = lineage("math@champion", project.uri)
    assert walked.broken == ()
    assert "in the DVC remote" in " ".join(link.detail for link in walked.links)


@pytest.mark.parametrize("name", ["bundle.json", "lineage.json"])
def test_a_file_changed_in_the_registry_is_named_and_not_served(project, name):
    (file,) = Path("mlruns").rglob(name)
    file.write_text(file.read_text().replace('"llama-3.2-1b"', '"llama-3.2-3b"', 1))
    found = broken(project)
    assert f"{name} differs from the registered file" in " ".join(found.values())
    registry = Registry(project.uri)
    read = registry.deployed if name == "bundle.json" else registry.provenance
    with pytest.raises(InputError, match=f"{name} differs from the registered file"):
        read(registry.find("math@champion"))


def test_what_depends_on_a_dataset_or_a_model_revision(project):
    record = lineage("math@champion", project.uri).record
    assert [v.label for v in dependents(project.uri, dataset=record.dataset.md5)] == ["math/1"]
    assert [v.label for v in dependents(project.uri, model="gemma-3-1b")] == ["math/1"]
    assert [v.label for v in dependents(project.uri, model="gemma-3-1b@unpinned")] == ["math/1"]
    assert dependents(project.uri, model="gemma-3-1b@other") == []
    assert dependents(project.uri, dataset="0" * 32) == []
    done = project.ttsgraph("lineage", "--dataset", record.dataset.path)
    assert [row["version"] for row in json.loads(done.stdout)] == ["math/1"]


def test_an_unknown_version_is_one_line_with_exit_code_2(project):
    with pytest.raises(DeploymentError, match=r"'math/7'.*math/1 \(@champion\)"):
        lineage("math/7", project.uri)
    done = project.ttsgraph("lineage", "chess@champion")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "no version of chess" in done.stderr


def test_a_version_answers_as_a_pyfunc(project):
    mlflow.set_tracking_uri(project.uri)
    model = mlflow.pyfunc.load_model("models:/ttsgraph-math@champion")
    question = project.questions("test")[0]
    assert isinstance(model.predict([question.text])[0], str)
