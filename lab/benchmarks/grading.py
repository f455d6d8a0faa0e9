"""How many programs are graded a second: HumanEval's own solutions, two at a time, as in a search
on two cores.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from lab.benchmarks.measured import Ratio
from ttsgraph.settings.profile import load_profile
from ttsgraph.tasks import get_grader
from ttsgraph.tasks.base import Question, Task
from ttsgraph.tasks.sources import load_questions

AT_ONCE = 2
LIMIT_PER_S = 10.0


def measure() -> list[Ratio]:
    """One ratio: solutions a second by the clock. Raises IsolationError where programs can't be
    isolated.
    """
    task = get_grader("humaneval", accept_weaker=False)
    questions = load_questions(task, load_profile("laptop").task("humaneval").source, seed=0)
    return [rate(task, questions)]


def rate(
    task: Task, questions: Sequence[Question], clock: Callable[[], float] = time.perf_counter
) -> Ratio:
    """How fast this grader is on these questions' own solutions."""
    before = os.times()
    started = clock()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        passed = sum(pool.map(lambda question: task.grade(question, question.answer), questions))
    seconds = clock() - started
    after = os.times()
    details = {
        "solutions": len(questions),
        "passed": passed,
        "processor ms each": round(1000 * (sum(after[:4]) - sum(before[:4])) / len(questions), 1),
    }
    return Ratio(
        "programs graded a second, two at a time",
        round(len(questions) / seconds, 1),
        "at least",
        LIMIT_PER_S,
        details,
    )
