"""Figures that pages state are the code's, and measured ones are the same on all pages."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence

import pytest

from codecheck.sandbox import LOOK_S, SandboxLimits
from lab.study import paper
from tests.repository.test_structure import MOST, MOST_OF_A_FUNCTION
from tests.support.project import ROOT
from ttsgraph.base import secrets
from ttsgraph.base.ending import EXIT_INPUT, EXIT_LIMIT, EXIT_STOPPED, EXIT_UNVERIFIED
from ttsgraph.commands.results import BROKEN
from ttsgraph.deployment import promotion
from ttsgraph.endpoints.endpoints import DOWN_S, FailurePolicy
from ttsgraph.endpoints.transport import MAX_BODY_BYTES
from ttsgraph.pool.judge import JudgeOptions
from ttsgraph.runtime.limits import ESTIMATED
from ttsgraph.scaffold import add, providers
from ttsgraph.searching.methods import joint
from ttsgraph.searching.methods.agent_reinforce import AgentReinforce
from ttsgraph.searching.response import calibration
from ttsgraph.service import outcomes
from ttsgraph.serving import memory, supervisor
from ttsgraph.settings.profile import LOOP_SHARE, load_profile
from ttsgraph.settings.service import ServiceSettings, TrialSettings
from ttsgraph_flows import compare_records

NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight")
NUMBERS = (*NUMBERS, "nine", "ten", "eleven", "twelve")
PAPERS = load_profile("paper", ROOT / "profiles").init
LIMITS = SandboxLimits()
PYTHON = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"][2:]
SHARE = f"{100 * LOOP_SHARE:.0f} % of the calls"


def worded(number: float) -> str:
    """A small whole number, or a half, as a word."""
    return "half" if number == 0.5 else NUMBERS[int(number) - 1]


def best(task: str, methods: Sequence[str]) -> int:
    """The best score of these methods in the paper's first table."""
    return int(max(paper.TABLE_1[task][method][0] for method in methods))


def three(scores: Iterable[float]) -> str:
    first, second, third = (f"{score:.0f}" for score in scores)
    return f"{first}, {second} and {third}"


STATED = {
    "README.md": [SHARE, f"Python {PYTHON} or later", "682 s"],
    "SECURITY.md": [
        f"file size ({LIMITS.file_size >> 20} MiB), open files ({LIMITS.open_files})",
        f"threads ({LIMITS.threads}), folder size ({LIMITS.folder_size >> 20} MiB) and files"
        f" ({LIMITS.folder_files}) are checked {1 / LOOK_S:.0f} times a second",
        f"{secrets.SHORTEST} or more characters",
        f"up to {MAX_BODY_BYTES >> 20} MiB",
        f"exit code {EXIT_LIMIT}",
    ],
    "CONTRIBUTING.md": [f"at most {MOST_OF_A_FUNCTION} lines, files {MOST}"],
    "docs/audit.md": [
        f"exit code is {BROKEN}",
        f"within {compare_records.RELATIVE:.0e}".replace("e-0", "e-"),
        f"| {EXIT_UNVERIFIED} | not verified",
        f"| {EXIT_INPUT} | something differs",
    ],
    "docs/deploy.md": [
        f"{worded(promotion.SURE)} the lead's standard error",
        f"{worded(outcomes.ERRORS)} standard errors",
        f"at most {100 - 100 * TrialSettings().confidence:.0f} % of trials",
    ],
    "docs/how-it-works.md": [SHARE, f"first {worded(joint.LEAST)} iterations"],
    "docs/method.md": [
        f"screens {joint.DRAWS + joint.EDITS} graphs per iteration",
        f"{PAPERS.questions} questions and {worded(PAPERS.topologies)} topologies",
        f"starts {AgentReinforce.fuser_lead} ahead",
        f"t_{calibration.TAILS}$",
        f"u = {calibration.MISFIT}".replace("0.", "."),
    ],
    "docs/own-models.md": [
        f"down for {worded(DOWN_S / 60)} minutes",
        f"{worded(FailurePolicy().max_failed)} of their calls",
        f"exit code {EXIT_LIMIT}",
    ],
    "docs/own-task.md": [
        f"{worded(add.LEAST)} questions or more",
        f"`agreement` ({JudgeOptions.model_fields['agreement'].default},",
    ],
    "docs/paper.md": [
        f"{three(best(task, [paper.OURS]) for task in paper.TABLE_1)} % on MATH, MMLU",
        f"best rivals {three(best(task, paper.RIVALS) for task in paper.TABLE_1)} %",
        "worth {} points".format(
            three(
                paper.TABLE_2["math"]["full"][0] - paper.TABLE_2["math"][f"insight_{k}"][0]
                for k in (1, 2, 3)
            )
        ),
        "{:.0f} % once, {:.0f} % twice".format(
            *(paper.PILOTS["figure 3", "math", f"{k} x llama-3.2-3b"] for k in (1, 2))
        ),
        f"one 8B {paper.PILOTS['figure 3', 'mmlu', '1 x llama-3.1-8b']:.0f} %",
        f"two 3B {paper.PILOTS['figure 3', 'mmlu', '2 x llama-3.2-3b']:.0f} %",
    ],
    "docs/stages.md": [
        f"0 done, {EXIT_INPUT} unusable input (also a full disk), {EXIT_STOPPED} stopped early,"
        f" {EXIT_LIMIT} a limit was reached"
    ],
    "docs/start.md": [
        f"up to {worded(providers.SHOWN)}",
        f"{worded(add.CALLS)} calls of the most expensive model",
        f"{add.MOST['train']} questions are for the search, {add.MOST['val']} for validation"
        f" and {add.MOST['test']} for the test",
        f"count {ESTIMATED} times",
        f"exit code {EXIT_LIMIT}",
        f"http://127.0.0.1:{ServiceSettings().port}/v1",
    ],
    "docs/tutorial.md": [f"Python {PYTHON} or later", "682 s"],
    "docs/vllm.md": [
        f"by default {memory.SPANS[0]} to {memory.SPANS[-1]}",
        f"of {memory.USABLE} of the memory",
        f"at most {worded(supervisor.MAX_RESTARTS)} times",
        f"({worded(DOWN_S / 60)} minutes at least)",
        f"exit code {EXIT_STOPPED}",
    ],
}
"""Figures on a page, as the code has them."""


@pytest.mark.parametrize("page", STATED)
def test_figures_of_a_page_are_the_code_s(page: str) -> None:
    text = " ".join((ROOT / page).read_text().split())
    assert [figure for figure in STATED[page] if figure not in text] == []
