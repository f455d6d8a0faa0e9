"""The simulated pool: answers by content alone, graded by the real graders."""

import asyncio
import os
import sys

import pytest

from lab import python_path
from tests.support.processes import said_by
from tests.support.project import ROOT
from tests.support.running import simulated
from ttsgraph.base.errors import DataError
from ttsgraph.graphs import topologies
from ttsgraph.settings.profile import Profile
from ttsgraph.tasks import get_task
from ttsgraph.tasks.base import Question
from ttsgraph.tasks.sources import load_questions
from ttsgraph.tasks.synthetic import problem

SMALL = "llama-3.2-1b"


def questions_of(profile: Profile, task: str, count: int) -> list[Question]:
    return load_questions(get_task(task), profile.task(task).source, seed=0)[:count]


@pytest.mark.parametrize(("task", "count"), [("math", 300), ("mmlu", 300), ("humaneval", 3)])
def test_the_real_grader_accepts_the_right_reply_and_no_other(profile, task, count):
    grader = get_task(task)
    for number, question in enumerate(questions_of(profile, task, count)):
        replies = problem(task, number).replies  # type: ignore[arg-type]
        assert len(set(replies)) == 4
        grades = [grader.grade(question, reply) for reply in replies]
        assert grades == [True, False, False, False], question.text


HERE = """
from tests.pool.test_simulated import told
from ttsgraph.settings.profile import load_profile
print(told(load_profile("simulated")))
"""


def told(profile: Profile) -> str:
    jobs = topologies.grid(3, 3, SMALL), questions_of(profile, "math", 40)
    feedback = asyncio.run(simulated(profile, "math").evaluate(*jobs))
    return str([(r.question_id, r.answer, r.latency_s) for r in feedback.results])


def test_answers_depend_on_content_alone_in_every_process(profile: Profile) -> None:
    env = os.environ | {"PYTHONHASHSEED": "1", "PYTHONPATH": python_path(ROOT)}
    assert said_by([sys.executable, "-c", HERE], ROOT, env) == f"{told(profile)}\n"


def test_a_question_of_ones_own_gets_one_clear_line(profile: Profile) -> None:
    own = [Question("mine", "What is love?", "")]
    with pytest.raises(DataError, match="synthetic question of its profile"):
        asyncio.run(simulated(profile, "math").evaluate(topologies.single(SMALL), own))
