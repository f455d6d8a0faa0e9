"""Scores of the recorded draws before any search: single calls, oracles, and free selection rules.

python -m lab.coder.scores humaneval
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import mean

from lab.coder.draws import draws_of, questions_of, read_plan
from ttsgraph.base.state import STATE
from ttsgraph.graphs.roles import majority
from ttsgraph.models.client import Completion
from ttsgraph.tasks import get_grader
from ttsgraph.tasks.base import RememberingTask, Task, lacks_check, passes
from ttsgraph.tasks.programs import Verdicts
from ttsgraph_flows.verify import published_calls


@dataclass(frozen=True)
class GradedDraw:
    """A graded draw of one question, with the result of the question's own examples."""

    text: str
    right: float
    passes: bool


def drawn(task_name: str) -> tuple[Task, dict[str, list[list[GradedDraw]]]]:
    """The task, and member -> question -> its published draws."""
    plan, profile = read_plan()
    settings = profile.task(task_name)
    task = get_grader(settings.kind, profile.sandbox.accept_weaker, settings.grading)
    if isinstance(task, RememberingTask):
        task = task.remembering(Verdicts(STATE / "verdicts.db"))
    questions = questions_of(profile, task_name, plan.seed)
    found: dict[str, dict[str, list[GradedDraw]]] = defaultdict(lambda: defaultdict(list))
    calls = published_calls(plan.profile, task_name) or {}
    for line in plan.draws:
        if line.task != task_name:
            continue
        for draw in draws_of(profile, line, questions):
            call = calls.get(draw.request.key())
            if call is None:
                continue
            assert isinstance(call.outcome, Completion), "draws that failed are not recorded"
            text = call.outcome.text
            passing = bool(lacks_check(task)) or passes(task, draw.question, text)
            right = task.grade(draw.question, text)
            found[draw.member][draw.question.id].append(GradedDraw(text, right, passing))
    return task, {member: list(by.values()) for member, by in found.items()}


def lines(task: Task, draws: dict[str, list[list[GradedDraw]]]) -> Iterator[str]:
    """A line for each member, over the questions that have all of its draws."""
    yield "member: draws, questions: one draw, any right, first that passes its examples, majority"
    for member, questions in draws.items():
        most = max(len(of) for of in questions)
        whole = [of for of in questions if len(of) == most]
        yield (
            f"{member}: {most}, {len(whole)}: {_share(d.right for of in whole for d in of)},"
            f" {_share(max(d.right for d in of) for of in whole)},"
            f" {_share(_first(of).right for of in whole)},"
            f" {_share(_majority(task, of) for of in whole)}"
        )


def _share(values: Iterator[float]) -> str:
    return f"{mean(values):.3f}"


def _first(of: Sequence[GradedDraw]) -> GradedDraw:
    return next((draw for draw in of if draw.passes), of[0])


def _majority(task: Task, of: Sequence[GradedDraw]) -> float:
    text = majority(task, [draw.text for draw in of])
    return next((draw.right for draw in of if draw.text == text), 0.0)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("task")
    print("\n".join(lines(*drawn(parser.parse_args().task))))


if __name__ == "__main__":
    main()
