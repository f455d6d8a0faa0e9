"""What the text and the subject of MMLU questions tell about which of two models is right.

    python -m lab.subjects --profile laptop

Each model of the profile's pool answers each question once, at temperature 0 where it has such a
variant; the rest is arithmetic, a route's score that on questions which it was not learnt on.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence

import numpy as np

from ttsgraph.base.arrays import FloatArray
from ttsgraph.graphs import topologies
from ttsgraph.runtime.clients import open_client
from ttsgraph.runtime.workers import environment_for
from ttsgraph.searching.response.routing import Learner
from ttsgraph.settings.profile import Profile, load_profile
from ttsgraph.tasks.base import Question
from ttsgraph.tasks.sources import load_questions

TASK = "mmlu"
FOLDS = 5


async def scores(profile: Profile, questions: Sequence[Question]) -> FloatArray:
    """(n, models) what each model scores on each question but the first, which shows it how."""
    async with open_client(profile) as client:
        environment = environment_for(profile, TASK, client, questions[:1])
        known = set(profile.model_pool())
        found = []
        for name in profile.pool:
            model = f"{name}:t0" if f"{name}:t0" in known else name
            found.append(await environment.evaluate(topologies.single(model), questions[1:]))
    return np.array([[float(r.correct or 0) for r in each.results] for each in found]).T


def by_subject(questions: Sequence[Question], right: FloatArray) -> float:
    """Share right where each subject goes to the model that has more of it right on the other
    folds, or where they are level there, to the one that has more of all.
    """
    subjects = np.array([question.meta["subject"] for question in questions])
    fold = np.random.default_rng(0).permutation(len(questions)) % FOLDS
    sent = np.zeros(len(questions), dtype=int)
    for k in range(FOLDS):
        rest = fold != k
        overall = right[rest].mean(axis=0)
        for subject in np.unique(subjects):
            here = right[rest & (subjects == subject)]
            sent[~rest & (subjects == subject)] = int((here.sum(axis=0) + 0.1 * overall).argmax())
    return float(right[np.arange(len(sent)), sent].mean())


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--profile", default="laptop")
    profile = load_profile(parser.parse_args().profile)
    settings = profile.task(TASK)
    questions = load_questions(settings.task, settings.source, 0)
    right = asyncio.run(scores(profile, questions))
    rest = questions[1:]
    print(f"{len(rest)} questions of {len({q.meta['subject'] for q in rest})} subjects")
    for name, share in zip(profile.pool, right.mean(axis=0), strict=True):
        print(f"{name}: {share:.1%}")
    print(f"either: {right.max(axis=1).mean():.1%}; by subject: {by_subject(rest, right):.1%}")
    route = Learner(rest).route(right, np.ones(right.shape))
    print("by text: no route" if route is None else f"by text: {route.value:.1%}")


if __name__ == "__main__":
    main()
