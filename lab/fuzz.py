"""Small whole searches of random settings, to see whether one ends in anything but a result, or an
error that names a setting.

    python -m lab.fuzz --searches 200
    python -m lab.fuzz --seed 7 --only 31

Models are stand-ins that go blank, fail, refuse and all agree. The seed is printed; with it and the
number of a search that one is made again.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import ttsgraph
from ttsgraph.base.errors import CallFailed, ContextOverflow, InputError, LimitReached, RunStopped
from ttsgraph.graphs.roles import role_names
from ttsgraph.models.client import Client, Completion, Request

METHODS = ("agent_reinforce", "random", "textgrad")
KINDS = ("exact", "math", "number", "choice", "contains", "similarity", "regex", "json")
SETTINGS = r"budget|limit|max_nodes|question|split|team|role|model|method|grad|kind|calls|lengths"
"""What the message of an InputError has to name one of."""

WORDS = ("ash", "birch", "cedar", "elm", "fir", "larch", "maple", "oak", "pine", "rowan")
SAVED = 0.06
"""Share of the searches whose tables and page are written."""


@dataclass(frozen=True)
class Habits:
    """How a stand-in answers: the share of questions that it has right, that it leaves blank, and
    of calls that fail and that it refuses; whether its wrong answers are all the same.
    """

    right: float
    blank: float = 0.0
    fails: float = 0.0
    refuses: float = 0.0
    agrees: bool = False


class StandIns(Client):
    """Answers as each model's habits are: the same to the same request."""

    def __init__(self, kind: str, habits: dict[str, Habits]) -> None:
        self.kind = kind
        self.habits = habits

    def begin(self, request: Request) -> Completion:
        """Raises CallFailed and ContextOverflow as models fail and refuse."""
        habits = self.habits[request.model.partition("+")[0]]
        draw = random.Random(request.key())
        if draw.random() < habits.fails:
            raise CallFailed(f"{request.model}: the server went away")
        if draw.random() < habits.refuses:
            raise ContextOverflow(f"{request.model}: the prompt is too long")
        text = request.messages[-1].content
        number = int((re.findall(r"#(\d+)", text) or ["0"])[-1])
        right = draw.random() < habits.right
        wrong = 0 if habits.agrees else draw.randrange(1, 5)
        said = answer_of(self.kind, number if right else number + 1 + wrong)
        if draw.random() < habits.blank:
            said = ""
        taken = len(text) // 4, draw.randrange(1, 40)
        return Completion(f"Answer: {said}" if said else "", *taken, draw.random())


def answer_of(kind: str, number: int) -> str:
    """What is right for a question of this number."""
    if kind == "choice":
        return "ABCD"[number % 4]
    if kind == "json":
        return json.dumps({"value": number % 7})
    if kind in ("math", "number"):
        return str(number % 7)
    first, second = WORDS[number % 10], WORDS[number * 7 % 10]
    return f"{first} {second}" if kind in ("contains", "similarity") else first


def rows_of(kind: str, count: int) -> list[dict[str, Any]]:
    """As many questions of a kind."""
    rows = []
    for number in range(count):
        row: dict[str, Any] = {"question": f"What is #{number}?", "answer": answer_of(kind, number)}
        if kind == "choice":
            row["choices"] = ["north", "east", "south", "west"]
        if kind == "contains":
            row["answer"] = row["answer"].split()
        if kind == "json":
            row["answer"] = json.loads(row["answer"])
        rows.append(row)
    return rows


@dataclass(frozen=True)
class Case:
    """One search: what `ttsgraph.search` is given, and who answers."""

    given: dict[str, Any]
    client: StandIns
    saved: bool
    stops: bool
    """Whether a failure of calls, or a limit, may end it."""

    def run(self, folder: Path) -> str:
        """How it ended, in a word. Raises what it should not end in."""
        try:
            found = ttsgraph.search(
                **self.given, client=self.client, progress=False, state=folder / "state"
            )
            if self.saved:
                found.save(folder / "kept")
                ttsgraph.load(folder / "kept")
        except InputError as error:
            if not re.search(SETTINGS, str(error)):
                raise
            return type(error).__name__
        except RunStopped as error:
            if not self.stops or (isinstance(error, LimitReached) and "limits" not in self.given):
                raise
            return type(error).__name__
        return "found"


@dataclass
class Draw:
    """Draws the settings of one search."""

    rng: random.Random
    flops: bool = field(init=False)

    def case(self) -> Case:
        """The search."""
        rng = self.rng
        kind = rng.choice(KINDS)
        metric = rng.choice(("flops", "flops", "dollars", "dollars", "runtime"))
        names = [f"m{k}" for k in range(rng.choice((1, 1, 2, 2, 3, 4, 6, 12)))]
        habits = self.habits(names)
        given: dict[str, Any] = {
            "models": [self.model(name, metric) for name in names],
            "questions": rows_of(kind, rng.choice((10, 11, 14, 20, 30))),
            "grade": kind,
            "seed": rng.randrange(1000),
            "method": rng.choice(METHODS),
            "roles": ["assistant", *(r for r in role_names() if r != "assistant" and self.half())],
            "budget": self.budget(metric, len(names)),
            **self.sections(),
        }
        if self.one_in(4):
            sizes = {split: rng.choice((1, 1, 2, 3)) for split in ("train", "val", "test")}
            given["task"] = {"splits": {"shots": rng.choice((0, 0, 2)), **sizes}}
        if self.one_in(8):
            proposers = [rng.choice(names) for _ in range(rng.randint(1, 4))]
            given["team"] = {"proposers": proposers, "aggregator": rng.choice(names)}
        if self.one_in(12):
            given["limits"] = {"tokens": rng.choice((10, 1000, 100_000))}
        stops = "limits" in given or any(each.fails for each in habits.values())
        return Case(given, StandIns(kind, habits), rng.random() < SAVED, stops)

    def half(self) -> bool:
        """Whether a coin falls on heads."""
        return self.rng.random() < 0.5

    def one_in(self, times: int) -> bool:
        """Whether something happens that does once in so many times."""
        return self.rng.random() * times < 1

    def habits(self, names: list[str]) -> dict[str, Habits]:
        """How each model answers; in some searches all alike."""
        rng = self.rng
        alike = rng.choice((None, None, None, 0.0, 1.0))
        agrees, blank = self.one_in(4), rng.choice((0, 0, 0, 0.2, 1.0))
        fails, refuses = rng.choice((0, 0, 0, 0.01, 0.1, 1.0)), rng.choice((0, 0, 0, 0.1, 1.0))
        return {
            name: Habits(
                rng.choice((0.0, 0.3, 0.6, 0.9, 1.0)) if alike is None else alike,
                blank if self.half() else 0.0,
                fails if self.one_in(4) else 0.0,
                refuses if self.one_in(3) else 0.0,
                agrees,
            )
            for name in names
        }

    def model(self, name: str, metric: str) -> dict[str, Any]:
        """A model's entry, as the metric needs it."""
        rng = self.rng
        size = 10 ** rng.uniform(7, 11)
        price = rng.choice((0.0, 1.0, {"prompt": rng.uniform(0, 3), "completion": rng.random()}))
        entry = {"name": name, "base_url": "http://nowhere.invalid/v1", "price": price}
        entry["family"] = rng.choice(("first", "second", name))
        if metric == "flops":
            entry |= {"total": size, "non_embedding": size, "layers": 12, "hidden": 512}
        if metric == "runtime":
            entry["speed"] = [1e-4 * rng.random() + 1e-6, 1e-2 * rng.random() + 1e-6]
        if self.one_in(6):
            entry["variants"] = {"greedy": {"temperature": 0}}
        return entry

    def budget(self, metric: str, models: int) -> Any:
        """What a question may cost: from less than one call to many."""
        rng = self.rng
        typical = {"flops": 1.0, "dollars": 3e-5, "runtime": 0.2}[metric]
        limit = typical * 10 ** rng.uniform(-0.3, 1.8)
        given: dict[str, Any] = {"metric": metric, "limit": limit}
        given["max_nodes"] = rng.choice((1, 2, 3, 4, 6, 12, 24))
        if self.half():
            given["of"] = rng.choice(("mean", "worst"))
        if self.one_in(3):
            given["worst"] = limit * rng.choice((0.5, 1.0, 3.0))
        if self.one_in(5):
            given["wave"] = rng.choice(([1], [2], [3, 1]))
        return given

    def sections(self) -> dict[str, Any]:
        """The sections of a profile that say how it is searched."""
        rng = self.rng
        flags = ("mixes", "routes", "response_model")
        contest = {
            "calls": rng.choice((1, 20, 60, 90)),
            "block": rng.choice((1, 3, 6)),
            "rounds": rng.choice((1, 2, 3)),
            "picks": rng.choice((1, 2, 4)),
            "final_block": rng.choice((1, 4)),
            "kept": rng.choice((1, 3, 20)),
            "samples": rng.choice((2, 4)),
            **{flag: not self.one_in(4) for flag in flags},
        }
        init = {"questions": rng.randint(1, 3), "candidates": rng.randint(1, 3), "topologies": 1}
        search: dict[str, Any] = {
            "max_iterations": rng.randint(1, 3),
            "patience": rng.randint(1, 3),
            "candidates": rng.randint(1, 3),
            "batch": rng.choice((1, 3, 6)),
            "loop_share": rng.choice((0, 0.15, 0.5, 0.9)),
            "edge_threshold": rng.choice((0.0, 0.5, 1.0)),
        }
        way = rng.choice(("contest", "contest", "paper", "trials"))
        if way == "paper":
            search["way"] = "paper"
        else:
            init["contest"] = contest if way == "contest" else {"enabled": False}
        objective = {"kind": "joint", "weight": rng.choice((0.0, 0.3, 1.0)), "half_s": 0.5}
        pilot = {"questions": rng.randint(1, 2), "widths": [1, 3], "depths": [2], "max_nodes": 3}
        return {
            "init": init,
            "search": search,
            "pilot": pilot | {"random_graphs": 1},
            "objective": objective if self.one_in(3) else {},
            "agent": {"roles": not self.one_in(5)},
            "engine": {"kind": "external", "max_unscored": rng.choice((0.0, 0.25, 1.0, 1.0))},
            "deploy": {"margin": rng.choice((0.0, 0.01, 0.3))},
        }


def case_of(seed: int, number: int) -> Case:
    """Search `number` of a seed."""
    return Draw(random.Random(f"{seed} {number}")).case()


def failures(seed: int, numbers: range, ended: Counter[str]) -> Iterator[tuple[int, str]]:
    """The searches that end as none should, each with its traceback; counts how the others did."""
    for number in numbers:
        with TemporaryDirectory() as folder:
            try:
                ended[case_of(seed, number).run(Path(folder))] += 1
            except Exception:
                ended["failed"] += 1
                yield number, traceback.format_exc()


def main() -> int:
    """The command line; the exit status is 1 where a search ended as none should."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--searches", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--only", type=int, help="this search of the seed alone")
    given = parser.parse_args()
    numbers = range(given.searches) if given.only is None else range(given.only, given.only + 1)
    print(f"seed {given.seed}", flush=True)
    ended = Counter[str]()
    for number, told in failures(given.seed, numbers, ended):
        again = f"python -m lab.fuzz --seed {given.seed} --only {number}"
        print(f"search {number}: {again}\n{told}", flush=True)
    counts = ", ".join(f"{count} {how}" for how, count in ended.most_common())
    print(f"{counts}; {time.process_time() / len(numbers):.2f} core seconds each")
    return int(bool(ended["failed"]))


if __name__ == "__main__":
    sys.exit(main())
