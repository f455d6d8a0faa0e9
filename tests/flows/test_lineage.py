"""Lineage of a registered version holds, and tampering is found and named."""

import json
import shutil
import sqlite3
from pathlib import Path

import mlflow
import pytest

from ttsgraph.base.errors import DataError, DeploymentError, InputError
from ttsgraph.base.files import md5
from ttsgraph_flows.dvc_stages import flow_of
from ttsgraph_flows.lineage import lineage
from ttsgraph_flows.promotions import note, promotions
from ttsgraph_flows.registry import Registry

pytestmark = pytest.mark.slow


RESULTS = "results/simulated-small/math"
QUESTIONS = "data/simulated-small/math/questions.parquet"


@pytest.fixture
def project(searched, tmp_path, monkeypatch):
    """A copy to tamper with, as the working directory."""
    copy = searched.copy(tmp_path / "copy")
    monkeypatch.chdir(copy.folder)
    return copy


def broken(project, version="math@champion"):
    return {(link.name, link.subject): link.detail for link in lineage(version, project.uri).broken}


def test_every_link_of_a_version_holds(project):
    walked = lineage("math@champion", project.uri)
    assert walked.broken == ()
    names = {link.name for link in walked.links}
    assert {"version", "model and tags", "file", "run"} <= names
    assert {"search run", "dataset", "decision", "promotion"} <= names
    assert walked.record.dataset.splits == {"shots": 0, "train": 40, "val": 30, "test": 200}
    assert set(walked.record.models) == {"llama-3.2-1b", "llama-3.2-3b", "gemma-3-1b"}
    mlflow.set_tracking_uri(project.uri)  # whose users find the version, and have it answer
    for model, found in (("gemma-3-1b", 1), ("gemma-3-2b", 0)):
        query = f"tags.dataset = '{walked.record.dataset.md5}' and tags.models LIKE '%\"{model}\"%'"
        assert len(mlflow.MlflowClient().search_model_versions(query)) == found
    version = mlflow.pyfunc.load_model("models:/ttsgraph-math@champion")
    assert isinstance(version.predict([project.questions("test")[0].text])[0], str)


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


def test_a_promotion_leaves_what_dvc_keeps_of_the_earlier_ones(project):
    """Also where DVC links files to its cache."""
    file = Path("promotions/math.jsonl")
    digest, kept = md5(file), cached(file)
    file.unlink()
    file.hardlink_to(kept)
    note("math", "2", "0" * 64, "better")
    assert md5(kept) == digest
    assert [each.version for each in promotions("math")] == ["1", "2"]


def test_the_command_prints_text_and_json_and_ends_with_5_when_a_link_is_broken(project):
    done = project.ttsgraph("lineage", "math@champion")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("math/1 @champion\n")
    (project.results / "random" / "archive.parquet").write_bytes(b"forged")
    done = project.ttsgraph("lineage", "math@champion", "--json")
    assert done.returncode == 5
    assert "broken: file results/simulated-small/math/random/archive.parquet" in done.stderr
    assert json.loads(done.stdout)["intact"] is False


def longer(*paths):
    def change(project):
        for path in paths:
            with Path(path).open("ab") as file:
                file.write(b" ")

    return change


def test_what_a_later_search_replaced_leaves_the_version_as_it_was(project):
    graph, *others = (
        f"{RESULTS}/random/{name}" for name in ("graph.json", "history.jsonl", "archive.parquet")
    )
    longer(graph)(project)
    project.commit()
    assert any("graph.json" in subject for _, subject in broken(project))
    longer(*others)(project)
    project.commit()
    assert broken(project) == {}


def test_tables_that_were_changed_are_named_also_where_dvc_was_told(project):
    names = ("profile", "evidence", "random/archive", "random/answers", "random/test")
    paths = [f"{RESULTS}/{name}.parquet" for name in names]
    longer(*paths)(project)
    wanted = {("file", path) for path in paths}
    assert wanted <= broken(project).keys()
    project.commit()
    assert wanted <= broken(project).keys()
    done = project.ttsgraph("promote", "math/1")
    assert done.returncode == 2
    assert "expected an intact lineage" in done.stderr


def cached(path):
    """DVC's copy of a file."""
    digest = md5(Path(path))
    return Path(".dvc/cache/files/md5", digest[:2], digest[2:])


def lose_calls(project):
    file = Path("calls/simulated-small/math/evaluate-random.parquet")
    cached(file).unlink()
    file.unlink()


def rewrite(name, old, new):
    def change(project):
        found = [*Path().glob(name)]
        assert found, name
        for file in found:
            text = file.read_text()
            assert old in text
            file.chmod(0o644)
            file.write_text(text.replace(old, new))

    return change


def remove(name):
    return lambda project: Path(name).unlink()


def set_tag(project):
    run_id = lineage("math@champion", project.uri).record.run_id
    mlflow.MlflowClient(project.uri).set_tag(run_id, "mlflow.source.git.commit", "0" * 40)


def add_file(project):
    (found,) = Path("mlruns").rglob("bundle.json")
    found.with_name("sitecustomize.py").write_text("print('here')")


def in_database(statement):
    def change(project):
        with sqlite3.connect("mlflow.db") as store:
            assert store.execute(statement).rowcount > 0

    return change


def delete_run(stage):
    return in_database(f"update runs set lifecycle_stage = 'deleted' where name = '{stage}'")


def set_metric(stage, metric, step=0):
    def change(project):
        with sqlite3.connect("mlflow.db") as store:
            (run,) = store.execute("select run_uuid from runs where name = ?", [stage]).fetchone()
        mlflow.MlflowClient(project.uri).log_metric(run, metric, 0.99, step=step)

    return change


def change_tag(tag, value):
    """Of the version, in MLflow."""
    return in_database(f"update model_version_tags set value = '{value}' where key = '{tag}'")


def delete_tag(tag):
    return in_database(f"delete from model_version_tags where key = '{tag}'")


def move_alias(project):
    """Point the champion's alias to a second version, which nobody promoted."""
    mlflow.set_tracking_uri(project.uri)  # by which MLflow finds the version's model
    client = mlflow.MlflowClient(project.uri)
    first = client.get_model_version("ttsgraph-math", "1")
    other = client.create_model_version(
        first.name, first.source, first.run_id, first.tags, model_id=first.model_id
    )
    client.set_registered_model_alias(first.name, "champion", other.version)


delete_alias = in_database("delete from registered_model_aliases")


def change_promotion(project):
    """And tell DVC."""
    file = Path("promotions/math.jsonl")
    (line,) = file.read_text().splitlines()
    file.write_text(json.dumps(json.loads(line) | {"by": "somebody"}) + "\n")
    project.dvc("add", "-q", str(file))


def change_digest_in_lock(project):
    digest = md5(Path(f"{RESULTS}/random/archive.parquet"))
    rewrite("dvc.lock", digest, "0" * 32)(project)


def cut_in_cache(project):
    file = cached("calls/simulated-small/math/search-random.parquet")
    file.chmod(0o644)
    file.write_bytes(file.read_bytes()[:-100])


RESULT = f"file {RESULTS}"
CALLS = "file calls/simulated-small/math"
PROMOTION = "promotion math/1"
AT_ONCE = {
    "files and a promotion": [
        (lose_calls, f"{CALLS}/evaluate-random.parquet"),
        (cut_in_cache, f"{CALLS}/search-random.parquet"),
        (longer(QUESTIONS), "dataset data/"),
        (change_promotion, PROMOTION),
    ],
    "the model": [
        (rewrite("mlruns/**/MLmodel", "loader_module: ", "loader_module: other."), "model/MLmodel"),
        (rewrite("mlruns/**/ttsgraph/runtime/clients.py", "import", " import"), "model/code/"),
    ],
    "runs, and more in the model": [
        (add_file, "sitecustomize.py: added after"),
        (set_tag, "tags"),
        (set_metric("pilot", "train/accuracy"), "train/accuracy"),
        (set_metric("evaluate-random", "test/accuracy"), "test/accuracy"),
        (set_metric("random", "train_best", step=1), "train_best"),
        (in_database("update metrics set value = 0.5 where key = 'val/accuracy'"), "val/accuracy"),
    ],
    "metrics, no alias, and a digest in the lock": [
        (in_database("update latest_metrics set value = 0.9 where key = 'val/calls'"), "val/calls"),
        (set_metric("random", "test_found_accuracy_low", step=1), "test_found_accuracy_low"),
        (delete_alias, PROMOTION),
        (change_digest_in_lock, f"{RESULT}/random/archive.parquet"),
    ],
    "params, an artefact, tags and an alias": [
        (move_alias, PROMOTION),
        (in_database("update params set value = '7' where key = 'budget.limit'"), "params"),
        (rewrite("mlruns/**/artifacts/graph.json", "llama-3.2-3b", "llama-3.2-1b"), "graph.json"),
        (change_tag("models", '{"other": "r1"}'), "tags/models"),
        (change_tag("search", "agent_reinforce"), "tags/search"),
        (change_tag("test_accuracy", "0.99"), "tags/test_accuracy"),
    ],
    "what runs are of, and tags that were taken away": [
        (delete_run("pilot"), "state"),
        (in_database("update datasets set digest = 'other'"), "datasets"),
        (delete_tag("uses"), "tags/uses"),
        (delete_tag("decision"), "decision math/1"),
        (delete_tag("promoted"), PROMOTION),
    ],
    "a run and all promotions": [
        (delete_run("random"), "search run"),
        (remove("promotions/math.jsonl"), PROMOTION),
    ],
    "what DVC knows": [
        (remove("promotions/math.jsonl.dvc"), PROMOTION),
        (remove("dvc.lock"), f"{RESULT}/random/graph.json"),
    ],
    "a lock that a merge left": [
        (rewrite("dvc.lock", "schema:", "<<<<<<<\nschema:"), "can't read")
    ],
    "another run": [(in_database("update model_versions set run_id = 'other'"), "version math/1")],
    "half a manifest": [(change_tag("manifest", '{"version"'), "version math/1")],
    "a manifest of other kinds": [(change_tag("manifest", '{"run": 5}'), "version math/1")],
    "no manifest": [(delete_tag("manifest"), "version math/1")],
}


@pytest.mark.parametrize(("name", "content"), [("math.jsonl", b"\xff"), ("math.jsonl.dvc", b": [")])
def test_unreadable_promotions_are_named_also_without_an_alias(project, name, content):
    delete_alias(project)
    file = Path("promotions", name)
    file.write_bytes(content)
    said = broken(project, "math/1")["promotion", "math/1"]
    assert str(file) in said
    assert "checkout" in said
    done = project.ttsgraph("promote", "math/1")
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)


@pytest.mark.parametrize("what", AT_ONCE)
def test_whatever_else_was_tampered_with_is_named(project, what):
    """By its link, or in what is said of it; several at once where each is named."""
    for tamper, _ in AT_ONCE[what]:
        tamper(project)
    links = broken(project, "math/1").items()
    found = "\n".join(f"{name} {subject}: {said}" for (name, subject), said in links)
    assert [named for _, named in AT_ONCE[what] if named not in found] == [], found


def test_a_champion_without_the_hash_of_its_record_is_not_searched_from(project):
    delete_tag("lineage_sha256")(project)
    with pytest.raises(DataError, match="'lineage_sha256'"):
        flow_of("evaluate")("math", "random")


def test_what_may_be_changed_later_is_said(project):
    change_tag("decision", "it is the best of all")(project)
    set_metric("random", "test_best_accuracy")(project)
    said = project.ttsgraph("lineage", "--check", "math@champion").stdout
    for link in ("decision", "run"):
        assert f"unknown  {link}" in said


def test_data_that_is_no_longer_kept_or_damaged_in_the_cache_is_named(project):
    questions = Path(QUESTIONS)
    kept = cached(questions)
    kept.chmod(0o644)
    kept.write_bytes(b"damaged")
    assert "the copy in DVC's cache is damaged" in " ".join(broken(project).values())
    kept.unlink()
    assert "only in the working tree" in " ".join(broken(project).values())
    questions.unlink()
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
    assert name in " ".join(broken(project).values())
    registry = Registry(project.uri)
    read = registry.deployed if name == "bundle.json" else registry.provenance
    with pytest.raises(InputError, match=f"{name} differs from what was registered"):
        read(registry.find("math@champion"))


def test_an_unknown_version_is_one_line_with_exit_code_2(project):
    with pytest.raises(DeploymentError, match=r"'math/7'.*math/1 \(@champion\)"):
        lineage("math/7", project.uri)
    done = project.ttsgraph("lineage", "chess@champion")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "no version of chess" in done.stderr
