"""Kinds, roles, methods and engines of a module of one's own."""

import asyncio
import sys
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import pytest
import yaml

from tests.support.docs_blocks import blocks_of
from tests.tasks.test_kinds import profile_with
from ttsgraph.base.errors import SettingsError
from ttsgraph.base.parsing import load
from ttsgraph.deployment.bundle import DeployedVersion
from ttsgraph.graphs.roles import _ROLES
from ttsgraph.graphs.topologies import single
from ttsgraph.pool.engine import ENGINES
from ttsgraph.searching.methods.base import SEARCHERS, searcher_class
from ttsgraph.settings import plugins
from ttsgraph.settings.profile import Profile
from ttsgraph.tasks.base import TASKS

TASK = next(b.text for b in blocks_of("docs/extend.md") if b.title == "plugins/my_module.py")
ROLE = """
from ttsgraph.graphs.roles import Role, register_role

def decide(task, answers):
    return min(answers, key=len)

register_role(Role("shortest", decide=decide, min_in_degree=1, does="takes the shortest"))
"""
METHOD = next(b.text for b in blocks_of("CONTRIBUTING.md") if "growing.py" in (b.title or ""))
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
    with ExitStack() as kept:
        for registry in (TASKS, _ROLES, SEARCHERS, ENGINES):
            kept.enter_context(patch.dict(registry))
        yield tmp_path
    for name in ("my_haiku", "mine", "my_engine"):
        sys.modules.pop(name, None)


def profile(folder: Path, kind: str = "haiku", **more: object) -> Profile:
    path = profile_with(folder, kind=kind)
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | more))
    return load(Profile, path)


@pytest.mark.parametrize("place", ["plugins", "."])
def test_a_profile_names_a_module_of_its_folder(folder: Path, place: str) -> None:
    (folder / place).mkdir(exist_ok=True)
    (folder / place / "my_haiku.py").write_text(METHOD + TASK + ROLE)
    found = profile(folder, plugins=["my_haiku"], roles=["assistant", "shortest"])
    assert found.task("support").task.name == "haiku"
    assert found.roles_on("support") == ("assistant", "shortest")
    assert searcher_class("growing").name == "growing"
    assert plugins.digests(found.plugins).keys() == {"my_haiku"}


UNUSABLE = {
    None: "found none; put mine.py into the project's folder plugins, or",
    "import nowhere_at_all": "No module named 'nowhere_at_all'",
    "1 / 0": "but its import failed: ZeroDivisionError: division by zero",
}


@pytest.mark.parametrize(("text", "expected"), UNUSABLE.items())
def test_a_module_that_cannot_be_had_is_named(folder, text, expected):
    if text is not None:
        (folder / "mine.py").write_text(text)
    with pytest.raises(SettingsError, match=f"plugin 'mine': .*{expected}"):
        profile(folder, plugins=["mine"])


def test_an_engine_of_a_module_starts_the_servers_of_a_pool(folder: Path) -> None:
    (folder / "my_engine.py").write_text(ENGINE)
    more = {"engine": {"kind": "stubs"}, "pool": {"tiny": {"price": 0}}}
    more |= {"plugins": ["my_engine"], "budget": {"metric": "dollars", "limit": 1}}
    made = DeployedVersion("support", single("tiny"), profile(folder, "exact", **more))
    answer = asyncio.run(made.answer("2 + 2"))
    assert answer.text in ("4", "5")
    again = asyncio.run(made.answer("2 + 2"))
    assert again.usage.cached_calls == 1
