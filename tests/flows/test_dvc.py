"""dvc.yaml says all that a stage reads, so that plain DVC runs what docs/stages.md lists."""

import ast
import json
import re
import sys
from contextlib import chdir
from functools import cache, reduce
from importlib.util import find_spec
from operator import getitem
from pathlib import Path
from typing import Any

import grimp
import pytest
import yaml
from dvc.repo import Repo

from tests.support.processes import said_by
from tests.support.project import ROOT, one_prefect_server
from tests.support.simulated_project import SimulatedProject
from ttsgraph_flows.lineage import lineage
from ttsgraph_flows.registry import Registry

PACKAGES = ("ttsgraph", "ttsgraph_flows", "codecheck", "finalanswer")
CODE = ("checker/", "flows/", "pipeline/", "reader/")
GLUE = ("flows/ttsgraph_flows", "pipeline/ttsgraph/base")
"""Folders with what decides no result: recording, showing, starting, files."""

DECIDES = {
    "flows/ttsgraph_flows/deployment.py",
    *(
        f"pipeline/ttsgraph/base/{name}.py"
        for name in ("rounding", "secrets", "special", "style", "wording")
    ),
}
"""What of these folders does, next to a stage's own file."""
STAGES = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
NAME = "simulated-small"
PROFILE = f"profiles/{NAME}.yaml"
PROFILES = "profiles/${profile}.yaml"


@pytest.fixture(scope="module")
def imports():
    return grimp.build_graph(*PACKAGES, exclude_type_checking_imports=True, cache_dir=None)


def read_by(module: str, imports: grimp.ImportGraph) -> set[str]:
    """The files of a module, of all that it imports, and of what these name by a string: a program
    that is run by its path, a template, a folder of templates.
    """
    found: dict[str, Path] = {}
    named: set[Path] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name in found or not name:
            continue
        found[name] = path = Path(find_spec(name).origin)
        waiting += [name.rpartition(".")[0], *imports.find_modules_directly_imported_by(name)]
        for place in (path.parent / text for text in strings(path)):
            if place.suffix == ".py" and place.is_file():
                waiting.append(f"{name.rpartition('.')[0]}.{place.stem}")
            elif place.is_file():
                named.add(place)
            elif place.is_dir() and not (place / "__init__.py").exists():
                named |= {below for below in place.rglob("*") if below.is_file()}
    files = {path.relative_to(ROOT) for path in {*found.values(), *named}}
    return {path.as_posix() for path in files if "__pycache__" not in path.parts}


def deciding(files: set[str], stage: str) -> set[str]:
    """Files without the glue."""
    own = DECIDES | {f"flows/ttsgraph_flows/{stage}.py"}
    return {file for file in files if file in own or not file.startswith(GLUE)}


@cache
def strings(path: Path) -> set[str]:
    """The strings in a module that may be names of files."""
    nodes = ast.walk(ast.parse(path.read_bytes()))
    texts = (str(node.value) for node in nodes if isinstance(node, ast.Constant))
    return {text for text in texts if re.fullmatch(r"\w[\w.-]*", text)}


def missing(deps: list[str], files: set[str]) -> list[str]:
    """Files that are not among what a stage depends on."""
    return sorted(f for f in files if not any(f == dep or f.startswith(f"{dep}/") for dep in deps))


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_depends_on_all_code_that_it_runs_and_on_no_other(stage, imports):
    deps = [dep for dep in STAGES[stage]["deps"] if dep.startswith(CODE)]
    files = deciding(read_by(f"ttsgraph_flows.{stage}", imports), stage)
    assert not missing(deps, files), f"{stage} in dvc.yaml lacks these files"
    unused = [dep for dep in deps if missing([d for d in deps if d != dep], files) == []]
    assert not unused, f"{stage} in dvc.yaml runs nothing of these"
    assert "requirements/constraints.txt" in STAGES[stage]["deps"]


class Made(SimulatedProject):
    """A project with something in place of all that its stages make, known to DVC and git."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.git("init -q", "config user.email me@example", "config user.name me")
        self.dvc("config", "core.no_scm", "false")
        ignored = ".dvc data results calls reports mlflow.db __pycache__"
        (folder / ".gitignore").write_text(ignored.replace(" ", "\n"))
        with Repo(str(folder)) as repo:
            paths = [Path(out.fs_path) for out in repo.index.outs]
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("made")
        self.dvc("commit", "-f", "-q")
        self.git("add -A", "commit -q -m made")

    def git(self, *commands: str) -> None:
        for command in commands:
            self.said_by("git", *command.split())

    def restore(self) -> None:
        self.git("checkout -q -- .", "clean -qfd plugins inputs")

    def stale(self) -> set[str]:
        """The stages that `dvc status` names, without the task and method."""
        with chdir(self.folder), Repo() as repo:
            return {name.partition("@")[0] for name in repo.status()}

    def alter(self, path: str, *change: Any) -> None:
        """Give a setting another value, or add a text to a file."""
        file = self.folder / path.replace("PROFILE", PROFILE)
        if len(change) < 2:
            with file.open("a") as opened:
                opened.write(*(change or ["\n# another line\n"]))
            return
        *keys, last = change[0].split(".")
        data = yaml.safe_load(file.read_text())
        reduce(getitem, keys, data)[last] = change[1]
        file.write_text(yaml.safe_dump(data))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return Made(tmp_path_factory.mktemp("made") / "p")


@pytest.fixture
def project(made):
    yield made
    made.restore()


CHANGES = yaml.safe_load((ROOT / "tests" / "flows" / "dvc_changes.yaml").read_text())


def table() -> dict[str, set[str]]:
    """What docs/stages.md says: a change -> the stages that it makes stale."""
    text = (ROOT / "docs" / "stages.md").read_text()
    section = text.partition("| a change of | makes stale |\n|---|---|\n")[2].partition("\n\n")[0]
    rows = [row.strip("| ").split(" | ") for row in section.splitlines()]
    return {change: set(re.findall(r"\w+", stages)) & STAGES.keys() for change, stages in rows}


@pytest.mark.parametrize("change", table())
def test_a_change_makes_the_stages_stale_that_the_page_lists(project, change):
    for alter in CHANGES[change]:
        project.alter(*alter)
        assert project.stale() == table()[change]
        project.restore()
    assert project.stale() == set()


STUB = """\
#!{python}
import pathlib, sys, yaml
sys.path[:0] = {path!r}
from ttsgraph_flows.dvc_stages import runs_of
from ttsgraph.settings.profile import load_params
given = dict(zip(sys.argv[3::2], sys.argv[4::2]))
stage = sys.argv[2].rpartition(".")[2], given.get("--task"), given.get("--method")
for run in runs_of(load_params(), "math", of_all=True):
    if (run.stage, run.task, run.method) == stage:
        for path in map(pathlib.Path, run.outputs):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("made")
"""


@pytest.fixture
def stubbed(project, tmp_path, monkeypatch):
    """That project, whose stages do no work: their files come out as they were."""
    stub = tmp_path / "bin" / "python"
    stub.parent.mkdir()
    stub.write_text(STUB.format(python=sys.executable, path=sys.path))
    stub.chmod(0o755)
    own = project.environment
    own["PATH"] = f"{stub.parent}:{own['PATH']}"
    monkeypatch.setattr(Made, "environment", own)
    return project


def ran(output: str) -> set[str]:
    return {name.partition("@")[0] for name in re.findall(r"Running stage '([^']+)'", output)}


def test_plain_dvc_runs_them_and_no_other(stubbed):
    stubbed.alter(PROFILE, "search.batch", 12)
    wanted = table()["`init` or `search`"]
    shown = json.loads(stubbed.dvc("params", "diff", "--json"))
    assert shown[PROFILE] == {"search.batch": {"old": 16, "new": 12, "diff": -4}}
    assert ran(stubbed.dvc("repro", "--dry")) == wanted
    assert ran(stubbed.dvc("repro")) == wanted
    assert ran(stubbed.dvc("repro")) == set()
    stubbed.alter("pipeline/ttsgraph/reporting/page.py")
    change = "the page and its pictures (`pipeline/ttsgraph/reporting/`)"
    assert ran(stubbed.dvc("repro")) == table()[change]


def test_an_experiment_runs_them_too(stubbed):
    said = stubbed.dvc("exp", "run", "-S", f"{PROFILE}:evaluate.ablation=7")
    assert ran(said) == {"evaluate"}
    assert '"ablation": 7' in stubbed.dvc("exp", "show", "--json")


RUN = """\
import importlib, json, sys
from ttsgraph.settings import profile as settings
load, seen = settings.load_profile, set()

class Watched(settings.Profile):
    def __getattribute__(self, name):
        if name in settings.Profile.model_fields:
            seen.add(name)
        return super().__getattribute__(name)

def watched(name):
    before = set(seen)
    profile = Watched.model_validate(load(name).model_dump(exclude_unset=True))
    seen.intersection_update(before)  # what is only checked does not count
    return profile

settings.load_profile = watched
members = vars(importlib.import_module("ttsgraph_flows." + sys.argv[1])).values()
flow = next(each for each in members if getattr(each, "name", "") == sys.argv[1])
flow.fn(*sys.argv[2:])
print(json.dumps(sorted(seen)))
"""


@pytest.mark.slow
def test_a_stage_looks_at_no_setting_that_it_does_not_declare(copied):
    arguments = {"task": "math", "method": "random"}
    never = {"limits", "workers", "newcomers"}
    for stage, plan in STAGES.items():
        given = [arguments[key] for key in plan.get("matrix", ())]
        said = copied.said_by(sys.executable, "-c", RUN, stage, *given)
        seen = json.loads(said.splitlines()[-1])
        keys = [each for each in plan.get("params", ()) if isinstance(each, dict)]
        sections = {key.partition(".")[0] for each in keys for key in each[PROFILES]}
        # That there is such a task is looked up for each stage of a task.
        assert set(seen) <= sections | {"tasks"} | never, stage


@pytest.mark.slow
def test_settings_that_come_back_leave_every_version_intact(copied):
    """DVC's run cache puts the first results back, while MLflow has the second's as well."""
    with one_prefect_server(copied.folder / ".ttsgraph"):
        assert ran(copied.dvc("repro")) == set()
        copied.settings["search"]["batch"] = 12
        copied.save()
        assert {"init_family", "init_instances", "search", "evaluate"} <= ran(copied.dvc("repro"))
        copied.settings["search"]["batch"] = 16
        copied.save()
        assert "search" not in ran(copied.dvc("repro"))
        with chdir(copied.folder):
            labels = [version.label for version in Registry(copied.uri).versions("math")]
            assert len(labels) == 2
            for label in labels:
                assert lineage(label, copied.uri).broken == (), label


def test_an_experiment_in_a_copy_has_the_projects_calls_and_database(tmp_path):
    copy = tmp_path / "project" / ".dvc" / "tmp" / "exps" / "tmp1"
    copy.mkdir(parents=True)
    program = (
        "from ttsgraph.base.state import STATE\n"
        "from ttsgraph_flows.tracking import client_of, experiment_of, explained\n"
        "uri = 'sqlite:///mlflow.db'\n"
        "with explained(uri):\n"
        "    print(STATE, experiment_of(client_of(uri), 'p/math').artifact_location)\n"
    )
    state, artifacts = said_by([sys.executable, "-c", program], copy).split()[-2:]
    assert Path(state) == tmp_path / "project" / ".ttsgraph"
    assert Path(artifacts).parent == tmp_path / "project" / "mlruns"
    assert (tmp_path / "project" / "mlflow.db").exists()
    assert list(copy.iterdir()) == []
