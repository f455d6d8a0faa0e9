"""Small searches whose settings are drawn at random."""

import asyncio
import random
import re
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import ttsgraph
from lab.fuzz.again import searched_again
from lab.fuzz.stand_ins import KINDS, Habits, StandIns, rows_of
from ttsgraph.base.errors import InputError, LimitReached, RunStopped
from ttsgraph.graphs.roles import role_names
from ttsgraph.settings.stages import ContestPart

METHODS = ("agent_reinforce", "random", "textgrad")
SETTINGS = r"budget|limit|max_nodes|question|split|team|role|model|method|kind|calls|lengths"
"""Pattern that every InputError's message must match: a word for a setting."""

SAVED = 0.05
AGAIN = 0.3
"""Share of the searches whose results are saved and loaded (SAVED), and share that are continued
with a new model (AGAIN).
"""


@dataclass(frozen=True)
class Case:
    """One search: the arguments of `ttsgraph.search`; the stand-ins; whether the result is saved;
    whether the search is continued with a new model; and whether failed calls or a limit may end
    it.
    """

    given: dict[str, Any]
    client: StandIns
    saved: bool
    again: bool
    stops: bool

    def run(self, folder: Path) -> str:
        """Run the search, and return its outcome as a word. Raises any error that should not end a
        search.
        """
        try:
            found = ttsgraph.search(
                **self.given, client=self.client, progress=False, state=folder / "state"
            )
            if self.saved:
                found.save(folder / "kept")
                ttsgraph.load(folder / "kept")
            if self.again and found.searched is not None:
                asyncio.run(searched_again(found.searched, self.client, self.given["models"][-1]))
        except InputError as error:
            if not re.search(SETTINGS, str(error)):
                raise
            return type(error).__name__
        except RunStopped as error:
            if not self.stops or (isinstance(error, LimitReached) and "limits" not in self.given):
                raise
            return type(error).__name__
        return "found"


@dataclass(frozen=True)
class Draw:
    """Generator of one search's settings, drawn at random."""

    rng: random.Random

    def case(self) -> Case:
        """Draw the search with all its settings."""
        rng = self.rng
        kind = rng.choice(KINDS)
        metric = rng.choice(("flops", "flops", "dollars", "dollars", "runtime"))
        names = [f"m{k}" for k in range(rng.choice((1, 1, 2, 2, 3, 4, 6, 12)))]
        habits = self.habits(names)
        arguments: dict[str, Any] = {
            "models": [self.model(name, metric) for name in names],
            "questions": rows_of(kind, rng.choice((10, 11, 14, 20, 30))),
            "grade": kind,
            "seed": rng.randrange(1000),
            "method": rng.choice(METHODS),
            "roles": ["assistant", *(role for role in role_names()[1:] if self.one_in(2))],
            "budget": self.budget(metric),
            **self.sections(),
        }
        if self.one_in(4):
            sizes = {split: rng.choice((1, 1, 2, 3)) for split in ("train", "val", "test")}
            arguments["task"] = {"splits": {"shots": rng.choice((0, 0, 2)), **sizes}}
        if self.one_in(8):
            proposers = [rng.choice(names) for _ in range(rng.randint(1, 4))]
            arguments["team"] = {"proposers": proposers, "aggregator": rng.choice(names)}
        if self.one_in(12):
            arguments["limits"] = {"tokens": rng.choice((10, 1000, 100_000))}
        stops = "limits" in arguments or any(one.fails or one.refuses for one in habits.values())
        shares = rng.random() < SAVED, rng.random() < AGAIN
        return Case(arguments, StandIns(kind, habits), *shares, stops)

    def one_in(self, times: int) -> bool:
        """Return True with probability 1 / `times`."""
        return self.rng.random() * times < 1

    def habits(self, names: list[str]) -> dict[str, Habits]:
        """Draw each model's habits; in some searches all models have the same accuracy."""
        rng = self.rng
        alike = rng.choice((None, None, None, 0.0, 1.0))
        agrees, blank = self.one_in(4), rng.choice((0, 0, 0, 0.2, 1.0))
        fails = rng.choice((0, 0, 0, 0.01, 0.1, 1.0))
        refuses, overflows = (rng.choice((0, 0, 0, 0, 0.1, 1.0)) for _ in range(2))
        return {
            name: Habits(
                rng.choice((0.0, 0.3, 0.6, 0.9, 1.0)) if alike is None else alike,
                blank if self.one_in(2) else 0.0,
                fails if self.one_in(4) else 0.0,
                refuses if self.one_in(3) else 0.0,
                overflows if self.one_in(3) else 0.0,
                agrees,
            )
            for name in names
        }

    def model(self, name: str, metric: str) -> dict[str, Any]:
        """Draw a model's entry with the facts that the metric needs."""
        rng = self.rng
        size = 10 ** rng.uniform(7, 11)
        price = rng.choice((0.0, 1.0, {"prompt": rng.uniform(0, 3), "completion": rng.random()}))
        entry: dict[str, Any] = {
            "name": name,
            "base_url": "http://nowhere.invalid/v1",
            "price": price,
        }
        entry["family"] = rng.choice(("first", "second", name))
        if metric == "flops":
            entry |= {"total": size, "non_embedding": size, "layers": 12, "hidden": 512}
        if metric == "runtime":
            entry["speed"] = [1e-4 * rng.random() + 1e-6, 1e-2 * rng.random() + 1e-6]
        if self.one_in(6):
            entry["variants"] = {"greedy": {"temperature": 0}}
        return entry

    def budget(self, metric: str) -> dict[str, Any]:
        """Draw a budget per question, from less than the cost of one call to the cost of many."""
        rng = self.rng
        typical = {"flops": 1.0, "dollars": 3e-5, "runtime": 0.2}[metric]
        limit = typical * 10 ** rng.uniform(-0.3, 1.8)
        entry: dict[str, Any] = {"metric": metric, "limit": limit}
        entry["max_nodes"] = rng.choice((1, 2, 3, 4, 6, 12, 24))
        if self.one_in(2):
            entry["of"] = rng.choice(("mean", "worst"))
        if self.one_in(3):
            entry["worst"] = limit * rng.choice((0.5, 1.0, 3.0))
        return entry

    def sections(self) -> dict[str, Any]:
        """Draw the profile's sections about searching."""
        rng = self.rng
        contest = {
            "calls": rng.choice((1, 20, 60, 90)),
            "without": [part for part in get_args(ContestPart) if self.one_in(4)],
        }
        init = {"questions": rng.randint(1, 3), "candidates": rng.randint(1, 3), "topologies": 1}
        search = {
            "max_iterations": rng.randint(1, 3),
            "patience": rng.randint(1, 3),
            "candidates": rng.randint(1, 3),
            "batch": rng.choice((1, 3, 6)),
        }
        way = rng.choice(("contest", "contest", "paper", "trials"))
        ways = {"contest": contest, "trials": {"enabled": False}}
        pilot = {"questions": rng.randint(1, 2), "widths": [1, 3], "depths": [2], "max_nodes": 3}
        joint = {"kind": "joint", "weight": rng.choice((0.0, 0.3, 1.0)), "half_s": 0.5}
        return {
            "init": init | ({"contest": ways[way]} if way in ways else {}),
            "search": search | ({"way": "paper"} if way == "paper" else {}),
            "pilot": pilot | {"random_graphs": rng.choice((1, 2, 6))},
            "objective": joint if self.one_in(3) else {},
            "agent": {"without": ["roles"] if self.one_in(5) else []},
            "engine": {"kind": "external"},
        }


def failures(seed: int, numbers: range, ended: Counter[str]) -> Iterator[tuple[int, str]]:
    """Run the searches of a seed with these numbers and count all outcomes in `ended`; yield the
    number and traceback of each search that fails.
    """
    for number in numbers:
        with TemporaryDirectory() as folder:
            try:
                ended[Draw(random.Random(f"{seed} {number}")).case().run(Path(folder))] += 1
            except Exception:
                ended["failed"] += 1
                yield number, traceback.format_exc()
