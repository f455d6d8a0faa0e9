"""Kinds, roles and methods that live elsewhere: in a module that a profile names, or in an
installed package.
"""

from __future__ import annotations

import asyncio
import re
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from tests.tasks.test_kinds import profile_with
from ttsgraph.base.errors import SettingsError
from ttsgraph.base.parsing import load
from ttsgraph.cli import app
from ttsgraph.graphs.roles import _ROLES
from ttsgraph.graphs.topologies import single
from ttsgraph.pool.engine import ENGINES
from ttsgraph.runtime.clients import ask_graph
from ttsgraph.searching.methods.base import SEARCHERS, searcher_class
from ttsgraph.settings import plugins
from ttsgraph.settings.profile import Profile
from ttsgraph.tasks.base import TASKS

TASK = """
from ttsgraph.tasks import register_task
from ttsgraph.tasks.words import ExactTask

class Haiku(ExactTask):
    name = "haiku"

register_task(Haiku())
EXAMPLES = {"haiku": {"question": "frog?", "answer": "an old pond"}}
"""
ROLE = """
from ttsgraph.graphs.roles import Role, register_role

def decide(task, answers):
    return min(answers, key=len)

register_role(Role("shortest", decide=decide, min_in_degree=1, does="takes the shortest"))
"""
METHOD = """
from ttsgraph.searching.methods.base import Searcher, register
from ttsgraph.graphs.topologies import single

@register("cheapest")
class Cheapest(Searcher):
    def propose(self, count):
        cost = self.problem.brief.cost
        return [single(min(cost.pool, key=cost.single))] * count

    def learn(self, results):
        pass

    def result(self):
        return self.propose(1)[0]
"""

ENGINE = """
import json, sys
from contextlib import contextmanager, ExitStack
from ttsgraph.pool.engine import register_engine
from tests.support.stub_server import StubServer, serve

class Stubs:
    name = "stubs"

    @contextmanager
    def servers(self, models, settings, state):
        with ExitStack() as held:
            yield {name: (held.enter_context(serve(StubServer((name,)))),) for name in models}

register_engine(Stubs())
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A folder of the user's; what its modules register is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    known = set(sys.modules)
    registries = (TASKS, _ROLES, SEARCHERS, ENGINES)
    before = [dict(registry) for registry in registries]
    yield tmp_path
    for registry, old in zip(registries, before, strict=True):
        registry.clear()
        registry.update(old)
    for name in set(sys.modules) - known:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def profile(folder: Path, **more: object) -> Profile:
    path = profile_with(folder, kind="haiku")
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | more))
    return load(Profile, path)


def test_a_profile_names_a_module_of_its_folder(folder: Path) -> None:
    (folder / "my_haiku.py").write_text(TASK + ROLE)
    found = profile(folder, plugins=["my_haiku"], roles=["assistant", "shortest"])
    assert found.task("support").task.name == "haiku"
    assert found.roles_on("support") == ("assistant", "shortest")
    assert plugins.digests(found.plugins).keys() == {"my_haiku"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, "expected a module, but there is none; put mine.py into the project's folder, or"),
        ("import nowhere_at_all", "No module named 'nowhere_at_all'"),
        (
            "1 / 0",
            "expected a module that can be imported, but ZeroDivisionError: division by zero",
        ),
    ],
)
def test_a_module_that_cannot_be_had_is_named(
    folder: Path, text: str | None, expected: str
) -> None:
    if text is not None:
        (folder / "mine.py").write_text(text)
    with pytest.raises(SettingsError, match=f"plugin 'mine': {expected}"):
        profile(folder, plugins=["mine"])


def test_an_installed_package_offers_by_entry_points(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "package_of_mine.py").write_text(TASK.replace("register_task(Haiku())", "") + METHOD)
    offered = {
        "ttsgraph.tasks": [EntryPoint("haiku", "package_of_mine:Haiku", "ttsgraph.tasks")],
        "ttsgraph.methods": [
            EntryPoint("cheapest", "package_of_mine:Cheapest", "ttsgraph.methods")
        ],
    }
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(plugins, "entry_points", lambda group: offered.get(group, []))
    plugins.load_entry_points.cache_clear()
    assert profile(folder).task("support").task.name == "haiku"
    assert searcher_class("cheapest").name == "cheapest"
    plugins.load_entry_points.cache_clear()


def test_check_says_what_a_module_keeps(folder: Path) -> None:
    (folder / "all_of_mine.py").write_text(TASK + ROLE + METHOD)
    done = CliRunner().invoke(app, ["check", "all_of_mine"])
    assert done.exit_code == 0, done.output
    assert "ok      kind haiku: answers are graded from 0 to 1" in done.output
    assert "ok      role shortest: chooses an answer" in done.output
    assert "ok      method cheapest: the same seed proposes the same" in done.output


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            TASK.replace("EXAMPLES", "NONE"),
            "broken  kind haiku: expected EXAMPLES = {'haiku': [row]} in its module, found none",
        ),
        (
            TASK.replace(
                '    name = "haiku"\n',
                '    name = "haiku"\n    def grade(self, question, text): return 7\n',
            ),
            "from 0 to 1, found 7",
        ),
        (
            ROLE.replace("min(answers, key=len)", "'mine'"),
            "broken  role shortest: expected one of the answers as it came, found 'mine'",
        ),
        (
            METHOD.replace("* count", "* 2"),
            "broken  method cheapest: TTSGraphError: cheapest: expected 4 candidates, found 2",
        ),
    ],
)
def test_check_finds_what_is_broken(
    folder: Path, text: str, expected: str, request: pytest.FixtureRequest
) -> None:
    name = f"broken_{abs(hash(request.node.name))}"
    (folder / f"{name}.py").write_text(text)
    done = CliRunner().invoke(app, ["check", name])
    assert done.exit_code == 2
    assert expected in done.output


def test_a_module_that_registers_nothing_says_so(folder: Path) -> None:
    (folder / "empty_of_mine.py").write_text("")
    error = CliRunner().invoke(app, ["check", "empty_of_mine"]).exception
    assert isinstance(error, SettingsError)
    assert "it registers nothing" in str(error)


def test_an_engine_of_a_module_starts_the_servers_of_a_pool(folder: Path) -> None:
    (folder / "my_engine.py").write_text(ENGINE)
    path = profile_with(folder, kind="exact")
    data = yaml.safe_load(path.read_text()) | {"plugins": ["my_engine"]}
    data |= {"engine": {"kind": "stubs"}, "pool": {"tiny": {"price": 0}}}
    data["budget"] = {"metric": "dollars", "limit": 1}
    path.write_text(yaml.safe_dump(data))
    found = load(Profile, path)
    answer = asyncio.run(ask_graph(single("tiny"), "2 + 2", found, "support"))
    assert answer.text in ("4", "5")
    again = asyncio.run(ask_graph(single("tiny"), "2 + 2", found, "support"))
    assert again.usage.cached_calls == 1


def test_an_unknown_engine_is_named_with_those_there_are(folder: Path) -> None:
    path = profile_with(folder, kind="exact")
    data = yaml.safe_load(path.read_text()) | {"engine": {"kind": "steam"}}
    path.write_text(yaml.safe_dump(data))
    expected = "expected one of 'vllm', 'transformers', 'external', 'simulated'.*, found 'steam'"
    with pytest.raises(SettingsError, match=expected):
        load(Profile, path)


def test_an_installed_engine_is_found_and_checked(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "engine_package.py").write_text(
        ENGINE.replace("register_engine(Stubs())", "LIST = 3")
    )
    monkeypatch.syspath_prepend(str(folder))
    for value, expected in (
        ("Stubs", None),
        ("LIST", "expected an engine with a name and servers()"),
    ):
        offered = [EntryPoint("stubs", f"engine_package:{value}", "ttsgraph.engines")]
        groups = {"ttsgraph.engines": offered}
        monkeypatch.setattr(plugins, "entry_points", lambda group, of=groups: of.get(group, []))
        plugins.load_entry_points.cache_clear()
        if expected is None:
            plugins.load_entry_points()
            assert "stubs" in ENGINES
        else:
            with pytest.raises(SettingsError, match=re.escape(expected)):
                plugins.load_entry_points()
    plugins.load_entry_points.cache_clear()
