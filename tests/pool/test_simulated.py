"""The simulated pool: answers by content alone, graded by the real graders."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from lab import python_path
from ttsgraph.base.errors import DataError, SettingsError
from ttsgraph.evaluation.environment import Environment, Feedback
from ttsgraph.graphs import topologies
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import get_role
from ttsgraph.models.client import Client, Completion, Request
from ttsgraph.pool.simulated import SimulatedClient, Simulation
from ttsgraph.settings.profile import Profile
from ttsgraph.tasks import get_task
from ttsgraph.tasks.base import Question
from ttsgraph.tasks.prompts import Prompt
from ttsgraph.tasks.sources import load_questions
from ttsgraph.tasks.synthetic import problem

ROOT = Path(__file__).parents[2]
KINDS = ("math", "mmlu", "humaneval")
SMALL = "llama-3.2-1b"


def questions_of(profile: Profile, task: str, count: int) -> list[Question]:
    return load_questions(get_task(task), profile.task(task).source, seed=0)[:count]


def prompt_of(profile: Profile, task: str) -> Prompt:
    return profile.task(task).prompt.prompt(get_task(task), ())


def client_of(profile: Profile) -> SimulatedClient:
    lengths = {task.kind: task.lengths.value() for task in profile.tasks.values()}
    return SimulatedClient(profile.simulation, profile.model_pool(), lengths)


def evaluate(
    profile: Profile,
    task: str,
    graph: CollaborationGraph,
    questions: Sequence[Question],
    client: Client,
) -> Feedback:
    sampling = profile.task(task).sampling.sampling()
    pool = profile.model_pool()
    environment = Environment(get_task(task), prompt_of(profile, task), sampling, pool, client)
    return asyncio.run(environment.evaluate(graph, questions))


def request_for(
    profile: Profile,
    question: Question,
    task: str,
    answers: Sequence[str] = (),
    role: str = "assistant",
) -> Request:
    speak = get_role(role).speak
    assert speak is not None
    messages = speak(get_task(task), prompt_of(profile, task), question, answers)
    return Request(SMALL, "unpinned", messages, profile.task(task).sampling.sampling())


class Shuffling(Client):
    """Passes calls on after a wait that is shorter for later ones."""

    def __init__(self, inner: Client) -> None:
        self.inner = inner
        self.waits = 40

    async def complete(self, request: Request) -> Completion:
        self.waits -= 1
        for _ in range(max(0, self.waits)):
            await asyncio.sleep(0)
        return await self.inner.complete(request)

    async def aclose(self) -> None:
        await self.inner.aclose()


@pytest.mark.parametrize("task", KINDS)
def test_questions_are_the_same_for_every_seed_and_different_from_each_other(
    profile: Profile, task: str
) -> None:
    source = profile.task(task).source
    assert source.kind == "synthetic"
    questions = load_questions(get_task(task), source, seed=0)
    assert questions == load_questions(get_task(task), source, seed=1)
    assert len(questions) == source.size  # equal ones would have been dropped


@pytest.mark.parametrize(("task", "count"), [("math", 300), ("mmlu", 300), ("humaneval", 3)])
def test_the_real_grader_accepts_the_right_reply_and_no_other(
    profile: Profile, task: str, count: int
) -> None:
    grader = get_task(task)
    for number, question in enumerate(questions_of(profile, task, count)):
        replies = problem(task, number).replies  # type: ignore[arg-type]
        assert len(set(replies)) == 4
        grades = [grader.grade(question, reply) for reply in replies]
        assert grades == [True, False, False, False], question.text


HERE = """
import sys
from pathlib import Path
from tests.pool.test_simulated import told
from ttsgraph.settings.profile import load_profile
print(told(load_profile("simulated", Path(sys.argv[1]))))
"""


def told(profile: Profile) -> str:
    questions = questions_of(profile, "math", 40)
    grid = topologies.grid(3, 3, SMALL)
    feedback = evaluate(profile, "math", grid, questions, client_of(profile))
    return str([(r.question_id, r.answer, r.latency_s) for r in feedback.results])


def test_answers_depend_on_content_alone_in_every_process(profile: Profile) -> None:
    env = os.environ | {"PYTHONHASHSEED": "1", "PYTHONPATH": python_path(ROOT)}
    command = [sys.executable, "-c", HERE, str(ROOT / "profiles")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env, cwd=ROOT)
    assert done.stdout == f"{told(profile)}\n"


def test_answers_do_not_depend_on_the_order_of_calls_or_on_earlier_ones(profile: Profile) -> None:
    questions = questions_of(profile, "mmlu", 40)
    graph = topologies.grid(4, 2, SMALL)
    plain = evaluate(profile, "mmlu", graph, questions, client_of(profile))
    client = client_of(profile)
    evaluate(profile, "mmlu", topologies.chain([SMALL] * 3), questions[::-1], client)
    shuffled = evaluate(profile, "mmlu", graph, questions, Shuffling(client))
    assert plain.results == shuffled.results
    assert plain.usage == shuffled.usage


def test_replicas_are_different_draws(profile: Profile) -> None:
    client = client_of(profile)
    said = []
    for replica in (0, 1):
        for question in questions_of(profile, "math", 50):
            request = replace(request_for(profile, question, "math"), replica=replica)
            said.append(asyncio.run(client.complete(request)).text)
    assert said[:50] != said[50:]


@pytest.mark.parametrize("role", ["assistant", "fuser"])
def test_right_predecessors_help(profile: Profile, role: str) -> None:
    client = client_of(profile)
    right = {True: 0, False: 0}
    for number, question in enumerate(questions_of(profile, "math", 200)):
        replies = problem("math", number).replies
        for given, answers in ((True, [replies[0]] * 3), (False, [replies[1]] * 3)):
            request = request_for(profile, question, "math", answers, role)
            said = asyncio.run(client.complete(request)).text
            right[given] += get_task("math").grade(question, said)
    assert right[True] > 2 * right[False]


def test_latency_follows_tokens_and_size(profile: Profile) -> None:
    questions = questions_of(profile, "math", 50)
    client = client_of(profile)
    times = {
        name: evaluate(profile, "math", topologies.single(name), questions, client).latency_s
        for name in ("llama-3.2-1b", "llama-3.2-3b", "llama-3.1-8b")
    }
    assert sorted(times.values()) == list(times.values())
    chain = evaluate(profile, "math", topologies.chain([SMALL] * 4), questions, client)
    assert chain.latency_s > 3 * times[SMALL]


def test_a_question_of_ones_own_gets_one_clear_line(profile: Profile) -> None:
    request = request_for(profile, Question("mine", "What is love?", ""), "math")
    said = "answers synthetic questions of its profile only, found 'What is love"
    with pytest.raises(DataError, match=said):
        asyncio.run(client_of(profile).complete(request))


def test_a_model_without_traits_is_named(profile: Profile) -> None:
    lengths = {"math": profile.task("math").lengths.value()}
    traits = profile.simulation.tasks["math"].model_copy(update={"capacity": {}})
    simulation = Simulation(tasks={"math": traits})
    with pytest.raises(SettingsError, match=r"traits of model 'llama-3\.2-1b' on 'math'"):
        SimulatedClient(simulation, profile.model_pool(), lengths)
