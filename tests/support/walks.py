"""What runs in one iteration of a search, traced: each call of the library's code with who called
it and what it was given.

The search is Agent-REINFORCE on the simulated pool, with nodes graded, as the stage runs it.
"""

from __future__ import annotations

import asyncio
import dis
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from inspect import (
    CO_ASYNC_GENERATOR,
    CO_COROUTINE,
    CO_GENERATOR,
    CO_NEWLOCALS,
    CO_OPTIMIZED,
)
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from tests.support.project import ROOT
from ttsgraph.agent.base import Brief
from ttsgraph.evaluation.archive import Archive
from ttsgraph.evaluation.environment import Environment
from ttsgraph.graphs.budget import Budget
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.methods import Problem, searcher_class
from ttsgraph.methods.driver import Driver
from ttsgraph.settings.profile import load_profile
from ttsgraph.simulated.client import SimulatedClient
from ttsgraph.tasks import get_task
from ttsgraph.tasks.base import Question
from ttsgraph.tasks.sources import load_questions

LIBRARY = ROOT / "pipeline" / "ttsgraph"
ITERATIONS = 2
QUESTIONS = 6
FOLLOWED = (Question, Budget, CollaborationGraph)
FUNCTION = CO_OPTIMIZED | CO_NEWLOCALS
"""Flags of a function's code, which code of modules and classes lacks."""
SUSPENDING = CO_COROUTINE | CO_GENERATOR | CO_ASYNC_GENERATOR


@dataclass(frozen=True)
class Call:
    """A call of a function in the library: its file and name, the file that it was called from (""
    for none of the library), and which of the values that are followed it was given, by id.
    """

    file: str
    function: str
    caller: str
    given: frozenset[int]


@dataclass(frozen=True)
class Walks:
    """The calls of each whole iteration, in order, and the values followed through them, by id."""

    iterations: list[list[Call]]
    values: dict[int, Any]

    @property
    def files(self) -> set[str]:
        """The library's files that ran."""
        return {call.file for calls in self.iterations for call in calls}

    def of(self, kind: type) -> list[int]:
        """Ids of the values of a kind."""
        return [number for number, value in self.values.items() if isinstance(value, kind)]


class Tracer:
    """Notes calls from one `ask` of a searcher to the next; one that is like an earlier one, and is
    given the same of what is followed, is left out.
    """

    def __init__(self, ask: Any) -> None:
        self.ask = ask.__code__
        self.iterations: list[list[Call]] = []
        self.values: dict[int, Any] = {}
        self.known: set[tuple[Any, ...]] = set()

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        code = frame.f_code
        if event != "call" or code.co_flags & FUNCTION != FUNCTION:
            return
        file = library_file(frame)
        if not file:
            return
        if code is self.ask:
            self.iterations.append([])
        if not self.iterations:
            return
        values = () if resumed(frame) else arguments(frame)
        given = {id(value): value for value in values if isinstance(value, FOLLOWED)}
        call = (len(self.iterations), file, code.co_qualname, frozenset(given))
        if call not in self.known:
            self.known.add(call)
            self.values |= given  # an id is of one value as long as that lives
            caller = next(filter(None, map(library_file, outer(frame))), "")
            self.iterations[-1].append(Call(file, code.co_qualname, caller, frozenset(given)))


def library_file(frame: FrameType) -> str:
    """The library's file that a frame runs, "" for another's. Methods that a dataclass has made are
    of the module that it stands in.
    """
    name = frame.f_code.co_filename
    return within(frame.f_globals.get("__file__", "") if name.startswith("<") else name)


def resumed(frame: FrameType) -> bool:
    """Whether a coroutine or generator goes on, which is given nothing by that."""
    return bool(frame.f_code.co_flags & SUSPENDING) and frame.f_lasti > begin_of(frame.f_code)


@cache
def begin_of(code: CodeType) -> int:
    """Where the code of a coroutine or generator begins once it has been made."""
    return next(step.offset for step in dis.get_instructions(code) if step.opname == "RESUME")


@cache
def within(name: str) -> str:
    """A file's path in the library, "" for others."""
    return Path(name).relative_to(LIBRARY).as_posix() if Path(name).is_relative_to(LIBRARY) else ""


def outer(frame: FrameType) -> Iterator[FrameType]:
    """The frames around one, the innermost first."""
    while frame.f_back is not None:
        frame = frame.f_back
        yield frame


def arguments(frame: FrameType) -> Iterator[Any]:
    """What a function was given, and what lists and tuples among it hold, two levels deep; not what
    a method is of.
    """
    code = frame.f_code
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    for name in names[1:] if names[:1] == ("self",) else names:
        value = frame.f_locals.get(name)
        yield value
        for inner in value if isinstance(value, list | tuple) else ():
            yield inner
            yield from inner if isinstance(inner, list | tuple) else ()


def traced_search() -> Walks:
    """A short search, traced."""
    profile = load_profile("simulated")
    section = profile.task("math")
    kind = get_task(section.kind)
    pool = profile.model_pool()
    questions = load_questions(kind, section.source, seed=0)[: 2 * QUESTIONS]
    client = SimulatedClient(profile.simulation, pool, {kind.name: section.lengths.value()})
    prompt = section.prompt.prompt(kind, ())
    environment = Environment(kind, prompt, section.sampling.sampling(), pool, client)
    budget = profile.budget_on("math")
    brief = Brief("math", budget, dict.fromkeys(pool, 0.3), profile.roles)
    changes = {"max_iterations": ITERATIONS + 1, "patience": ITERATIONS + 1, "batch": QUESTIONS}
    settings = profile.search.model_copy(update=changes)
    method = searcher_class("agent_reinforce")
    start = {"llama-3.2-1b": 3, "llama-3.2-3b": 2}
    searcher = method(Problem(brief, settings, profile.agent, start, 0))
    archive = Archive(None)
    driver = Driver(brief.cost, settings, archive)
    tracer = Tracer(method.ask)
    before = sys.getprofile()
    threading.setprofile(tracer)
    sys.setprofile(tracer)
    try:
        asyncio.run(
            driver.run(
                searcher,
                environment.with_free_node_grades(),
                questions[:QUESTIONS],
                questions[QUESTIONS:],
            )
        )
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
    return Walks(tracer.iterations[:ITERATIONS], tracer.values)
