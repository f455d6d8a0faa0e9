"""Whole searches over tables in which the text tells who is right, or tells nothing; simulated.

    python -m lab.pools.routed --budget '$0.00016' --count 400 --seeds 3

What each search puts up is measured on 4,000 questions that it did not see, next to the best model
alone and the best route of single calls that there is. Where the text tells nothing, the same
search runs without routes, too.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import re
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ttsgraph.api import whole
from ttsgraph.api.result import search
from ttsgraph.base.arrays import FloatArray
from ttsgraph.models.client import Client, Completion, Request
from ttsgraph.runtime.workers import environment_for
from ttsgraph.settings.profile import Profile
from ttsgraph.tasks.base import Question

TOPICS = ("law", "chess", "bread", "stars", "rivers", "metal", "verbs", "birds")
FILLER = ("the", "a", "of", "in", "what", "is", "how", "many", "which", "would", "one", "find")
FRESH = 4000
FIRST = 100_000
"""The answer to question 0; the next one's is one more."""


@dataclass(frozen=True, slots=True)
class Table:
    """Models with their prices, and how often each is right of a question with a topic, 0 to 7,
    that is long or not; `long` is the share of long ones.
    """

    prices: Mapping[str, float]
    chances: Callable[[int, bool], Sequence[float]]
    long: float = 0.0


TABLES = {
    "topic": Table(
        dict.fromkeys("abcd", 1.0),
        lambda topic, is_long: [0.75 if topic // 2 == k else 0.35 for k in range(4)],
    ),
    "length": Table(
        dict.fromkeys("ab", 1.0), lambda topic, is_long: [0.3, 0.7] if is_long else [0.7, 0.4], 0.5
    ),
    "dear": Table(
        {"cheap": 1.0, "dear": 8.0}, lambda topic, is_long: [0.2 if topic < 3 else 0.7, 0.7]
    ),
    "nothing": Table(dict.fromkeys("abcd", 1.0), lambda topic, is_long: [0.6, 0.58, 0.55, 0.5]),
}


class TableClient(Client):
    """Models that are right of question <k> as often as `chances[k]` has it."""

    def __init__(self, models: Sequence[str], chances: FloatArray) -> None:
        self.models = list(models)
        self.chances = chances

    async def complete(self, request: Request) -> Completion:
        """One answer; at temperature 0 a question's is always the same."""
        text = request.messages[-1].content
        asked = int(re.findall(r"<(\d+)>", text)[-1])
        call = f"{asked} {request.model}" if request.sampling.greedy else request.key()
        draw = int(hashlib.sha256(call.encode()).hexdigest()[:12], 16) / 16**12
        wrong = draw - float(self.chances[asked, self.models.index(request.model)])
        said = FIRST + asked + (0 if wrong < 0 else 1 + int(wrong * 10))
        return Completion(f"The answer is {said}.", len(text) // 4, 50, 0.2)


def drawn(table: Table, rng: np.random.Generator, count: int) -> tuple[list[str], FloatArray]:
    """Questions, and what share of its answers each model has right in the mean (count, models)."""
    texts = []
    means = []
    for k in range(count):
        topic = int(rng.integers(len(TOPICS)))
        is_long = bool(rng.random() < table.long)
        named = f"{TOPICS[topic]}x{'abcd'[int(rng.integers(4))]}"
        words = [*rng.choice(FILLER, 80 if is_long else 8), TOPICS[topic], named]
        texts.append(f"Case <{k}> " + " ".join(rng.permutation(words)))
        means.append(table.chances(topic, is_long))
    return texts, np.array(means, dtype=float)


def searched(table: Table, count: int, seed: int, budget: str, routes: bool) -> dict[str, float]:
    """What one search comes to, in percent, and the calls a question that it takes."""
    rng = np.random.default_rng([seed, count])
    texts, means = drawn(table, rng, count + FRESH)
    chances = np.random.default_rng([seed, 5]).beta(means, 1 - means)  # a question's own
    client = TableClient(list(table.prices), chances)
    rows = [{"question": text, "answer": str(FIRST + k)} for k, text in enumerate(texts)]
    models = [
        {"name": name, "base_url": "http://none", "price": {"prompt": price, "completion": price}}
        for name, price in table.prices.items()
    ]

    @asynccontextmanager
    async def opened(profile: Profile, *_: Any) -> AsyncIterator[Client]:
        yield client

    vars(whole)["open_client"] = opened
    more: dict[str, Any] = {} if routes else {"init": {"contest": {"routes": False}}}
    with tempfile.TemporaryDirectory() as state:
        result = search(
            models, rows[:count], "math", budget, seed=seed, progress=False, state=state, **more
        )
    deployed = result.deployed
    profile = deployed.profile_with()
    (task,) = profile.tasks
    fresh = [Question(f"fresh {k}", texts[k], str(FIRST + k)) for k in range(count, count + FRESH)]
    environment = environment_for(profile, task, client, deployed.shots)
    feedback = asyncio.run(environment.evaluate(result.graph, fresh))
    return {
        "put up": 100 * feedback.accuracy,
        "calls": feedback.usage.calls / FRESH,
        "best model": 100 * float(means[count:].mean(axis=0).max()),
        "best route": 100 * float(means[count:].max(axis=1).mean()),
    }


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--budget", default="$0.0012")
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=101)
    parser.add_argument("--only", nargs="*", default=list(TABLES), choices=list(TABLES))
    options = parser.parse_args()
    for name in options.only:
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            for routes in (True, False) if name == "nothing" else (True,):
                found = searched(TABLES[name], options.count, seed, options.budget, routes)
                shown = ", ".join(f"{key} {value:.1f}" for key, value in found.items())
                print(name, seed, "" if routes else "without routes", shown, flush=True)


if __name__ == "__main__":
    main()
