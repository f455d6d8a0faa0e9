"""Draws of the laptop profile's models that were recorded: its published calls, read as answers to
test questions alone. No model is needed.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ttsgraph.base.arrays import IntArray
from ttsgraph.evaluation.executor import manner_of
from ttsgraph.graphs.roles import get_role
from ttsgraph.models.client import Completion, Request
from ttsgraph.models.recording import read_calls
from ttsgraph.settings.profile import load_profile
from ttsgraph.tasks import get_grader
from ttsgraph.tasks.sources import load_questions, split_questions

PROFILE = "laptop"
TASK = "math"
MEMBER = "smollm2-135m:t0.5"
DRAWS = 7
"""What the published test has of one member for every question: its majority vote of seven."""

SUM = " ="
"""What a sum ends with; the profile's other questions are sequences."""


def recorded(root: Path = Path()) -> dict[str, IntArray]:
    """Kind of question -> (DRAWS, n) classes of the member's answers: 0 is right, each wrong form
    has a number, -1 is none.
    """
    profile = load_profile(PROFILE, root / "profiles")
    settings = profile.task(TASK)
    splits = split_questions(
        load_questions(settings.task, settings.source, 0), settings.splits.sizes(), 0
    )
    calls = read_calls(root / "published" / PROFILE / f"{TASK}.parquet")
    task = get_grader(settings.kind, True, settings.grading)
    prompt = settings.prompt.prompt(task, splits["shots"])
    manner = manner_of(profile.model_pool()[MEMBER], settings.sampling.sampling(), prompt)
    speak = get_role("assistant").speak
    assert speak is not None
    found: dict[str, list[list[int]]] = {"sums": [], "sequences": []}
    for question in splits["test"]:
        messages = speak(task, manner.prompt, question, [])
        forms: dict[str, int] = {}
        classes = []
        for draw in range(DRAWS):
            request = Request(manner.model, manner.revision, messages, manner.sampling, draw)
            outcome = calls[request.key()].outcome
            assert isinstance(outcome, Completion)
            form = task.extract(outcome.text)
            right = form is not None and bool(task.grade(question, outcome.text))
            known = -1 if form is None else forms.setdefault(form, len(forms) + 1)
            classes.append(0 if right else known)
        found["sums" if question.text.endswith(SUM) else "sequences"].append(classes)
    return {kind: np.array(classes, dtype=np.intp).T for kind, classes in found.items()}
