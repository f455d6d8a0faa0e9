"""How much has to be read to understand one iteration of a search: the files that run in it."""

import asyncio
import re
import sys
import threading
from inspect import CO_NEWLOCALS, CO_OPTIMIZED
from pathlib import Path
from types import FrameType

import pytest

from tests.support.project import ROOT
from tests.support.running import simulated
from ttsgraph.searching.agent.base import Brief
from ttsgraph.searching.loop import Bench, find
from ttsgraph.searching.methods import Problem, searcher_class
from ttsgraph.settings.profile import Profile
from ttsgraph.tasks import get_task
from ttsgraph.tasks.sources import load_questions

LIBRARY = ROOT / "pipeline" / "ttsgraph"
MOST_FILES = 27
ITERATIONS = 2
QUESTIONS = 6
FUNCTION = CO_OPTIMIZED | CO_NEWLOCALS
"""Flags of a function's code, which code of modules and classes lacks."""


class Tracer:
    """Notes the library's files that run from one `propose` of a searcher to the next."""

    def __init__(self, propose) -> None:
        self.propose = propose.__code__
        self.iterations: list[set[str]] = []

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        code = frame.f_code
        if event != "call" or code.co_flags & FUNCTION != FUNCTION:
            return
        self.iterations += [set()] if code is self.propose else []
        # Methods that a dataclass has made are of the module that it stands in.
        made = code.co_filename.startswith("<")
        path = Path(frame.f_globals.get("__file__", "") if made else code.co_filename)
        if self.iterations and path.is_relative_to(LIBRARY):
            self.iterations[-1].add(path.relative_to(LIBRARY).as_posix())


@pytest.fixture(scope="module")
def files(profile: Profile) -> set[str]:
    """What runs in the first iterations of Agent-REINFORCE on the simulated pool."""
    questions = load_questions(get_task("math"), profile.task("math").source, seed=0)
    train, val = questions[:QUESTIONS], questions[QUESTIONS : 2 * QUESTIONS]
    accuracies = dict.fromkeys(profile.model_pool(), 0.3)
    brief = Brief("math", profile.budget_on("math"), accuracies, profile.roles)
    changes = {"max_iterations": ITERATIONS + 1, "patience": ITERATIONS + 1, "batch": QUESTIONS}
    settings = profile.search.model_copy(update=changes)
    method = searcher_class("agent_reinforce")
    start = {"llama-3.2-1b": 3, "llama-3.2-3b": 2}
    searcher = method(Problem(brief, settings, profile.agent, start, 0))
    graded = simulated(profile, "math").with_free_node_grades()
    tracer = Tracer(method.propose)
    before = sys.getprofile()
    threading.setprofile(tracer)
    sys.setprofile(tracer)
    try:
        asyncio.run(find(searcher, settings, Bench(graded), train, val))
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
    return set.union(*tracer.iterations[:ITERATIONS])


def test_contributing_says_which_files_an_iteration_runs_in_and_they_are_few(
    files: set[str],
) -> None:
    whole = (ROOT / "CONTRIBUTING.md").read_text()
    table = whole.partition("## One iteration of a search")[2].partition("\n## ")[0]
    named = re.findall(r"`((?!tests/)\w+(?:/\w+)+\.py)`", table)
    assert sorted(named) == sorted(files)
    assert len(files) <= MOST_FILES
