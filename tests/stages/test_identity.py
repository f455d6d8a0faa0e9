"""What results depend on: import closures and settings."""

import asyncio
import json
import subprocess
import sys
from contextlib import chdir
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml

from lab import python_path
from lab.project.dvc_yaml import dvc_yaml
from tests.support.project import ROOT, copy_folder
from tests.support.simulated_project import SimulatedProject
from ttsgraph.base import code as code_module
from ttsgraph.base.code import Code, Parsed, own_code, parsed
from ttsgraph.base.files import keep, kept
from ttsgraph.base.parsing import parse
from ttsgraph.models import client
from ttsgraph.models.recording import REPLAY, write_calls
from ttsgraph.runtime.clients import open_agent
from ttsgraph.settings.profile import Profile, load_params, load_profile
from ttsgraph.stages import identity as identity_module
from ttsgraph.stages.identity import (
    SERVING,
    other_kinds,
    settings_digest,
    settings_identity,
    stage_identity,
)
from ttsgraph.stages.plan import STAGES
from ttsgraph.tasks.base import Question
from ttsgraph_flows import report
from ttsgraph_flows import stage as stage_module
from ttsgraph_flows.verify import flow_of

ROOTS = ("pipeline", "flows", "checker", "reader")
LAPTOP = yaml.safe_load((ROOT / "profiles" / "laptop.yaml").read_text())


def laptop(**changes: Any) -> Profile:
    """The laptop's profile with some dotted keys changed."""
    data = json.loads(json.dumps(LAPTOP))
    for key, value in changes.items():
        *where, last = key.split("__")
        inner = data
        for part in where:
            inner = inner.setdefault(part.replace("_x_", "-"), {})
        inner[last] = value
    return parse(Profile, data, "laptop")


def test_dvc_yaml_is_what_the_plans_say() -> None:
    assert (ROOT / "dvc.yaml").read_text() == dvc_yaml(), "`make dvc.yaml` makes it"


def test_a_closure_has_lazy_imports_scripts_templates_and_packages_but_nothing_for_types() -> None:
    closure = own_code().closure("ttsgraph_flows.search")
    assert {
        "ttsgraph.endpoints.openai_client",  # imported in functions alone
        "ttsgraph.serving.transformers_server",  # run by its path
        "codecheck.sandbox_values",  # imported plainly by a script that is run by its path
        "ttsgraph.searching.agent",
    } <= set(closure)
    assert any(name.endswith("update.md.j2") for name in closure)
    assert not any(name.startswith("ttsgraph.reporting") for name in closure)
    assert "ttsgraph.graphs.graph" not in own_code().closure("ttsgraph.base.errors")
    source = b"from . import a\nfrom ..b import c\n"
    source += b"if TYPE_CHECKING:\n    import d\nelse:\n    import e\n"
    assert parsed(source, "p.q").imports == ("p.q", "p.q.a", "p.b", "p.b.c", "e")


@pytest.mark.parametrize(
    ("text", "same"),
    [
        (
            '"""Of it."""\nimport os\n\ndef f(x):\n    """And here."""\n    return x + 1  # why\n',
            True,
        ),
        ('import os\ndef f(x): return (x +\n   1)\nX: int\n"""Of X."""\n', False),
        ("import os\ndef f(x):\n    return x + 1.0\n", False),
    ],
)
def test_docstrings_comments_and_layout_do_not_count_but_everything_else(
    text: str, same: bool
) -> None:
    before = parsed(b"import os\ndef f(x):\n    return x + 1\n", "p").digest
    assert (parsed(text.encode(), "p").digest == before) is same


def test_how_models_are_served_is_not_in_the_identity_of_results() -> None:
    model = next(iter(LAPTOP["pool"]))
    pool = f"pool__{model.replace('-', '_x_')}"
    serving = {
        f"{pool}__serve": {"replicas": 3, "port": 9000, "tensor_parallel": 2, "gpu_memory": 0.4},
        f"{pool}__base_url": ["http://127.0.0.1:9/v1", "http://127.0.0.1:10/v1"],
        f"{pool}__api_key_env": "ANOTHER_KEY",
        f"{pool}__api_key_header": "api-key",
        f"{pool}__query": {"api-version": "2024-10-21"},
        f"{pool}__listed": False,
        "engine__concurrency": 7,
        "engine__timeout_s": 9,
        "engine__max_retries": 9,
        "engine__draws": 4,
        "engine__device": "gpu",
        "engine__python": "elsewhere/bin/python",
        "limits": {"dollars": 1},
        "description": "other words",
    }
    plain = settings_digest(laptop(), "math")
    for key, value in serving.items():
        assert settings_digest(laptop(**{key: value}), "math") == plain, key
    deciding = {
        f"{pool}__price": 12.5,
        f"{pool}__revision": "another",
        "engine__max_model_len": 512,
        "roles": ["assistant"],
        "tasks__math__sampling__temperature": 0.123,
        "search__patience": 1,
    }
    for key, value in deciding.items():
        assert settings_digest(laptop(**{key: value}), "math") != plain, key


def test_where_models_without_a_revision_are_served_is_not_in_it_either() -> None:
    def profile(url: str) -> Profile:
        there = {"base_url": url, "price": 1.0}
        judge = {"kind": "judge", "grading": {"rubric": "Is it right?", "models": {"j": there}}}
        return laptop(
            engine={"kind": "external"},
            pool={"closed": there},
            tasks={"math": LAPTOP["tasks"]["math"] | judge},
            budget={"metric": "dollars", "limit": 1, "max_nodes": 3},
            agent={"kind": "llm", "model": "agent", **there},
        )

    one = profile("http://127.0.0.1:9/v1")
    another = profile("https://models.example/v1")
    assert settings_identity(one) == settings_identity(another)
    # Else what was registered before would be of other settings.
    assert settings_identity(laptop())["agent"]["base_url"] is None
    question = Question("q", "2 + 3", "5")
    asked = [found.tasks["math"].task.request("j", question, "5") for found in (one, another)]
    assert asked[0].key() == asked[1].key()


def test_an_agent_that_moved_gets_its_kept_answers(tmp_path: Path) -> None:
    class Kept(client.Client):
        """Answers every call, and keeps its key."""

        keys: ClassVar[list[str]] = []

        async def complete(self, request: client.Request) -> client.Completion:
            self.keys.append(request.key())
            return client.Completion("{}", 1, 1, 0.1)

        async def aclose(self) -> None:
            """Nothing is open."""

    (tmp_path / REPLAY).parent.mkdir(parents=True, exist_ok=True)
    write_calls({}, tmp_path / REPLAY)

    async def ask(**agent: str) -> None:
        guide = {"kind": "llm", "model": "guide", "price": 1, **agent}
        async with open_agent(laptop(agent=guide), tmp_path, lambda _: Kept()) as speak:
            assert speak is not None
            await asyncio.to_thread(speak, [client.Message("user", "Which?")], "update", "{}")

    asyncio.run(ask(base_url="http://127.0.0.1:9/v1"))
    asyncio.run(ask(base_url="https://models.example/v1"))
    asyncio.run(ask(base_url="https://models.example/v1", revision="2"))
    one, moved, another = Kept.keys
    assert one == moved != another


def remembering(memory: Path, root: Path) -> str:
    """The digest of ttsgraph.a, by what is remembered where there is something."""
    code = Code(root, memory=memory)
    found = code.digest("ttsgraph.a")
    code.remember()
    return found


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package whose module a imports b."""
    package = tmp_path / "ttsgraph"
    package.mkdir()
    for name, text in (("__init__", ""), ("a", "from . import b\n"), ("b", "X = 1\n")):
        (package / f"{name}.py").write_text(text)
    return package


def test_what_is_remembered_is_not_parsed_again_until_it_changes(
    tmp_path: Path, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsings = []

    def counting(source: bytes, package: str) -> Parsed:
        parsings.append(package)
        return parsed(source, package)

    monkeypatch.setattr(code_module, "parsed", counting)
    memory = tmp_path / "state" / "code.json"
    before = remembering(memory, tmp_path)
    assert before == remembering(memory, tmp_path) == Code(tmp_path).digest("ttsgraph.a")
    assert len(parsings) == 3 + 0 + 3
    (package / "b.py").write_text("X = 2\n")
    after = remembering(memory, tmp_path)
    assert len(parsings) == 7
    assert after == Code(tmp_path).digest("ttsgraph.a") != before
    # The same text as a package's imports something else: ttsgraph.a.b, which isn't there.
    (package / "a").mkdir()
    (package / "a.py").rename(package / "a" / "__init__.py")
    assert Code(tmp_path, memory=memory).closure("ttsgraph.a") == ("ttsgraph", "ttsgraph.a")


def test_a_memory_that_is_damaged_or_of_another_version_is_not_used(
    tmp_path: Path, package: Path
) -> None:
    memory = tmp_path / "code.json"
    right = remembering(memory, tmp_path)
    whole = memory.read_bytes()
    for damaged in (b"", b"[1]", b'{"x": 3}', b"\xff", whole[:-9], whole.replace(b"t", b"T", 1)):
        memory.write_bytes(damaged)
        assert remembering(memory, tmp_path) == right
        assert memory.read_bytes() == whole
    data = kept(memory)
    for known in data["modules"].values():
        known["digest"] = "0" * 16
    keep(memory, data | {"made_by": "another version"})
    assert remembering(memory, tmp_path) == right
    keep(memory, data)  # only to see that this test would tell
    assert remembering(memory, tmp_path) != right
    memory.unlink()
    memory.mkdir()  # which can't be written
    assert remembering(memory, tmp_path) == right


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ...]:
    """Copies of the source roots, to be edited."""
    folder = tmp_path_factory.mktemp("sources")
    for root in ROOTS:
        copy_folder(root, folder)
    return tuple(folder / root for root in ROOTS)


def identities_of(sources: tuple[Path, ...]) -> dict[str, dict[str, Any]]:
    """The identity of each stage of math and mmlu, by its name and task."""
    params = load_params(ROOT / "params.yaml")
    code = Code(*sources, memory=sources[0].with_name("code.json"))
    found = {
        f"{plan.name} {task}" if "task" in plan.per else plan.name: stage_identity(
            plan, params, laptop(), task if "task" in plan.per else None, code
        )
        for plan in STAGES
        for task in ("math", "mmlu")
    }
    code.remember()
    return found


def differing(one: dict[str, Any], other: dict[str, Any]) -> set[str]:
    return {name for name in one if one[name] != other[name]}


ASKING = ("profile", "pilot", "init_family", "init_instances", "search", "evaluate")


def of(*stages: str, tasks: tuple[str, ...] = ("math", "mmlu")) -> set[str]:
    return {f"{stage} {task}" for stage in stages for task in tasks}


ALL = of("sample", "pilot_plots", *ASKING) | {"report"}


STALE = {
    "ttsgraph.graphs.graph": ALL,
    "ttsgraph.tasks.choice": of("sample", "pilot_plots", *ASKING, tasks=("mmlu",)) | {"report"},
    "ttsgraph.base.style": of("pilot_plots") | {"report"},
    "ttsgraph.searching.contest.contest": of("init_family", "init_instances"),
    "ttsgraph.deployment.promotion": of("evaluate") | {"report"},
    "ttsgraph.reporting.page": {"report"},
    "ttsgraph.reporting.pictures": of("pilot_plots") | {"report"},
    "ttsgraph.service.app": set(),
    "ttsgraph_flows.sample": of("sample"),
    "ttsgraph_flows.pilot": of("pilot"),
}


@pytest.fixture(scope="module")
def before(sources: tuple[Path, ...]) -> dict[str, dict[str, Any]]:
    """The identities without any edit."""
    return identities_of(sources)


@pytest.mark.parametrize("module", STALE)
def test_a_line_in_a_module_makes_exactly_these_stages_stale(
    sources: tuple[Path, ...], before: dict[str, dict[str, Any]], module: str
) -> None:
    file = Code(*sources).modules[module]
    text = file.read_text()
    file.write_text(f"{text}\nEDITED = True\n")
    try:
        assert differing(before, identities_of(sources)) == STALE[module]
    finally:
        file.write_text(text)


def test_another_version_of_a_library_makes_stale_what_it_may_decide(
    sources: tuple[Path, ...],
    before: dict[str, dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(identity_module, "version", lambda name: "another")
    assert of(*ASKING) <= differing(before, identities_of(sources))
    assert "math-verify" in before["profile math"]["libraries"]


def run_modules(project: SimulatedProject, name: str) -> set[str]:
    """The modules of the project that a process has imported once a stage has run in it."""
    program = (
        "import importlib, json, sys\n"
        f"members = vars(importlib.import_module('ttsgraph_flows.{name}')).values()\n"
        f"flow = next(f for f in members if getattr(f, 'name', '') == {name!r})\n"
        "flow.fn(**json.loads(sys.argv[1]))\n"
        "own = ('ttsgraph', 'codecheck', 'finalanswer')\n"
        "ours = [m for m in sys.modules if m.split('.')[0] in own]\n"
        "print(json.dumps(ours))"
    )
    (plan,) = (plan for plan in STAGES if plan.name == name)
    arguments = {key: {"task": "math", "method": "random"}[key] for key in plan.per}
    done = project.run(sys.executable, "-c", program, json.dumps(arguments))
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.strip().splitlines()[-1]))


@pytest.mark.slow
def test_a_stage_imports_nothing_that_its_identity_leaves_out(copied: SimulatedProject) -> None:
    """Against what processes really imported, so that no stale result is missed."""
    code = Code(*(copied.folder / name for name in ROOTS))
    with chdir(copied.folder):
        others = other_kinds(load_profile("simulated-small"), "math")
    for plan in STAGES:
        without = others if "task" in plan.per else set()
        ran = run_modules(copied, plan.name) - without
        left_out = ran - set(code.closure(plan.module, without=without))
        assert not left_out, plan.name


@pytest.mark.slow
def test_a_stage_looks_at_no_section_of_the_profile_that_is_not_in_its_plan(
    copied: SimulatedProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: set[str] = set()

    class Watched(Profile):
        def __getattribute__(self, name: str) -> Any:
            if name in Profile.model_fields:
                seen.add(name)
            return super().__getattribute__(name)

    def watched(name: str) -> Profile:
        profile = Watched.model_validate(load_profile(name).model_dump(exclude_unset=True))
        seen.clear()  # what is only checked does not count
        return profile

    for module in (stage_module, report):
        monkeypatch.setattr(module, "load_profile", watched)
    arguments = {"task": "math", "method": "random"}
    with chdir(copied.folder):
        for plan in STAGES:
            flow_of(plan.name)(**{key: arguments[key] for key in plan.per})
            declared = {section.partition(".")[0] for section in plan.settings}
            # That there is such a task is looked up for each stage of a task.
            declared |= {"tasks"} if "task" in plan.per else set()
            # What an identity itself looks at: files of plug-ins are part of each.
            declared |= {"plugins", "newcomers"}
            assert seen <= declared | set(SERVING), plan.name


def test_identities_do_not_depend_on_the_process() -> None:
    module = "ttsgraph_flows.search"
    program = f"from ttsgraph.base.code import own_code; print(own_code().digest({module!r}))"
    for seed in ("1", "2"):
        env = {"PYTHONHASHSEED": seed, "PYTHONPATH": python_path(ROOT)}
        found = subprocess.check_output([sys.executable, "-c", program], cwd=ROOT, env=env)
        assert found.decode().strip() == own_code().digest(module)
