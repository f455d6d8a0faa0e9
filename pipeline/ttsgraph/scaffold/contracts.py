"""What every kind, role and method promises, tried on those of a module (`ttsgraph check`)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ttsgraph.base.errors import DataError, SettingsError
from ttsgraph.evaluation.environment import Feedback, QuestionResult
from ttsgraph.graphs.budget import Budget, CostModel, Lengths
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import (
    ASSISTANT,
    FUSER,
    VOTER,
    Ballot,
    Role,
    check_roles,
    get_role,
    role_names,
)
from ttsgraph.models.client import Message, Usage
from ttsgraph.pool.spec import ModelPool, ModelSpec, Price
from ttsgraph.searching.agent.base import Brief
from ttsgraph.searching.methods import SEARCHERS, Problem, make_searcher
from ttsgraph.searching.methods.base import Searcher, terms_of
from ttsgraph.settings.plugins import load_modules
from ttsgraph.settings.profile import AgentSettings, SearchSettings
from ttsgraph.tasks import TASKS, AskingTask, can_vote, get_task
from ttsgraph.tasks.base import Question, Task
from ttsgraph.tasks.prompts import Prompt

EXAMPLES = "EXAMPLES"
"""What a module calls its example rows: kind -> a row, or several, with right answers."""

SUM = Question("sum", "2 + 2", "4")
ANSWERS = ("It is 4.", "The answer is 5.", "4")


@dataclass(frozen=True, slots=True)
class Check:
    """One promise of one thing that was tried: which, and what is wrong; nothing if it is kept."""

    what: str
    promise: str
    problem: str = ""


class _Broken(Exception): ...


def _require(kept: bool, problem: str) -> None:
    if not kept:
        raise _Broken(problem)


def _tried(what: str, promises: Mapping[str, Callable[[], None]]) -> list[Check]:
    checks = []
    for promise, attempt in promises.items():
        problem = ""
        try:
            attempt()
        except Exception as error:  # whatever somebody else's code raises is the finding
            problem = "" if isinstance(error, _Broken) else f"{type(error).__name__}: "
            problem += str(error)
        checks.append(Check(what, promise, problem))
    return checks


def check_module(name: str) -> list[Check]:
    """Try all that a module registers. Raises SettingsError when it can't or is nothing."""
    before = _registered()
    (module,) = load_modules([name])
    tasks, roles, methods = (
        [each for key, each in found.items() if known.get(key) is not each or _of(each, name)]
        for known, found in zip(before, _registered(), strict=True)
    )
    if not (tasks or roles or methods):
        raise SettingsError(
            f"{name}: expected it to register a kind of task, a role or a method, but it registers"
            " nothing (register_task, register_role, @register)"
        )
    examples = getattr(module, EXAMPLES, {})
    checks = []
    for task in tasks:
        rows = examples.get(task.name, ())
        checks += check_task(task, [rows] if isinstance(rows, Mapping) else rows)
    for role in roles:
        checks += check_role(role)
    for method in methods:
        checks += check_method(method.name)
    return checks


def _registered() -> tuple[dict[str, Any], ...]:
    """All kinds, roles and methods that there are, by name."""
    roles = {role: get_role(role) for role in role_names()}
    return dict(TASKS), roles, dict(SEARCHERS)


def _of(thing: Any, module: str) -> bool:
    """Whether something is of a module, or of one below it."""
    if isinstance(thing, Role):
        thing = thing.speak or thing.decide or thing.pick
    made_by = thing if hasattr(thing, "__qualname__") else type(thing)
    made_in = getattr(made_by, "__module__", None) or ""
    return made_in == module or made_in.startswith(f"{module}.")


def check_task(task: Task, rows: Sequence[Mapping[str, Any]]) -> list[Check]:
    """A kind on example rows, each with an answer that is right."""
    what = f"kind {task.name}"
    if not rows:
        missing = f"expected {EXAMPLES} = {{{task.name!r}: [row]}} in its module, found none"
        return [Check(what, "has example rows", missing)]
    questions = [task.parse(row, f"{EXAMPLES}:{number}") for number, row in enumerate(rows, 1)]

    def survives() -> None:
        for question, row in zip(questions, rows, strict=True):
            told = question.id and question.text and question.answer
            _require(bool(told), "expected an id, a text and an answer")
            meta = dict(question.meta)
            _require(json.loads(json.dumps(meta)) == meta, "expected meta that JSON can hold")
            again = task.parse(row, "elsewhere").id
            _require(again == question.id, "expected the same id wherever the row stands")

    def missing_field() -> None:
        try:
            task.parse({"colour": "blue"}, "file:7")
        except DataError as error:
            problem = f"expected a DataError that begins with its place, found {error}"
            _require(str(error).startswith("file:7"), problem)
        else:
            raise _Broken("expected a DataError for a row without fields")

    def graded() -> None:
        for question in questions if not isinstance(task, AskingTask) else []:
            right = task.grade(question, question.answer)
            nothing = task.grade(question, "")
            found = f"found {right!r} and {nothing!r}"
            whole = 0 <= right <= 1 and 0 <= nothing <= 1
            _require(whole, f"expected grades from 0 to 1, {found}")
            _require(right > nothing, f"expected the answer to be graded above nothing, {found}")
            again = task.grade(question, question.answer)
            _require(right == again, "expected the same grade each time")

    def extracted() -> None:
        for question in questions:
            form = task.extract(question.answer)
            own = form is not None and task.extract(form) == form
            problem = f"expected a form that is its own form, found {form!r}"
            _require(own or not can_vote(task), problem)
            _require(task.extract("") is None, "expected no answer in an empty text")

    def shown() -> None:
        for question in questions:
            first = question.text.strip().splitlines()[0]
            problem = "expected the question's text in what is shown"
            _require(first in task.render(question), problem)

    promises = {
        "a row becomes a question that survives a file": survives,
        "a missing field is named with its place": missing_field,
        "answers are graded from 0 to 1": graded,
        "answers have a form that votes can count, or none": extracted,
        "the question is shown": shown,
    }
    return _tried(what, promises)


def check_role(role: Role) -> list[Check]:
    """A role on a sum and three answers."""
    task = get_task("math")
    prompt = Prompt("Add.")

    def speaks() -> None:
        assert role.speak is not None
        for answers in (ANSWERS, ANSWERS[:1], ())[: 3 if role.min_in_degree == 0 else 2]:
            said = role.speak(task, prompt, SUM, answers)
            messages = bool(said) and all(isinstance(each, Message) for each in said)
            _require(messages, "expected messages")
            asked = any(SUM.text in each.content for each in said)
            _require(asked, "expected the question in the messages")
            again = role.speak(task, prompt, SUM, answers)
            _require(said == again, "expected the same messages each time")

    def decides() -> None:
        ballot = Ballot(task, SUM, ANSWERS, (0.4, None, 0.9))
        chosen = role.choose(ballot)
        _require(chosen in ANSWERS, f"expected one of the answers as it came, found {chosen!r}")
        _require(chosen == role.choose(ballot), "expected the same choice each time")

    promise = {"asks its model": speaks} if role.calls_model else {"chooses an answer": decides}
    return _tried(f"role {role.name}", promise)


_SMALL = ModelSpec("small", "f", 1e8, 1e8, 2, 8, Price(0.1, 0.1))
_POOL = ModelPool((_SMALL, replace(_SMALL, name="large", total=4e8, non_embedding=4e8)))
_BUDGET = Budget(CostModel(_POOL, Lengths(100, 50)), 20.0, 12)
_BRIEF = Brief("math", _BUDGET, {"small": 0.3, "large": 0.5}, (ASSISTANT, FUSER, VOTER))


def check_method(method: str) -> list[Check]:
    """A method on a made-up problem of two models."""
    settings = SearchSettings()
    terms = terms_of(_BRIEF, settings, (SUM,), (SUM,))

    def searcher_of(seed: int) -> Searcher:
        start = {"small": 3, "large": 1}
        return make_searcher(method, Problem(_BRIEF, settings, AgentSettings(), start, seed))

    def loop(seed: int) -> list[str]:
        searcher = searcher_of(seed)
        seen = []
        for _ in range(4):
            graphs = searcher.propose(terms.candidates)
            terms.check(method, graphs, _BRIEF)
            for graph in graphs:
                check_roles(graph)
            seen += [graph.to_json() for graph in graphs]
            searcher.learn([(each, _feedback(min(0.9, 0.1 * len(each.nodes)))) for each in graphs])
            json.dumps(searcher.snapshot())
        result = searcher.result()
        _require(_BRIEF.budget.fits(result), "expected a result within the budget")
        return [*seen, result.to_json()]

    def lost() -> None:
        searcher = searcher_of(0)
        for _ in range(2):
            first = searcher.propose(4)[0]
            searcher.learn([(first, _feedback(0.5))])
        _require(isinstance(searcher.result(), CollaborationGraph), "expected a result")

    def repeats() -> None:
        _require(loop(1) == loop(1), "expected the same graphs from the same seed")

    promises = {
        "proposes graphs within the budget": lambda: _require(bool(loop(0)), ""),
        "the same seed proposes the same": repeats,
        "lost candidates don't stop it": lost,
    }
    return _tried(f"method {method}", promises)


def _feedback(accuracy: float, count: int = 20) -> Feedback:
    right = round(accuracy * count)
    results = (QuestionResult(str(k), k < right, "7", 1.0) for k in range(count))
    return Feedback(tuple(results), Usage(), 1.0)
