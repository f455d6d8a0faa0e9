"""Methods compared over seeds: the same test questions, training and validation questions drawn
anew with each seed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ttsgraph.api.result import Result, result_of
from ttsgraph.api.whole import METHOD, search_whole
from ttsgraph.base.errors import InputError
from ttsgraph.evaluation.progress import Publish, ignore
from ttsgraph.evaluation.stats import TEST_OVER_SEEDS as TEST
from ttsgraph.evaluation.stats import mean_of, paired_p, smallest_p
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.methods import searcher_class
from ttsgraph.settings.profile import Profile
from ttsgraph.stages.trials import Case
from ttsgraph.tasks.base import Question
from ttsgraph.tasks.sources import load_questions, split_questions


@dataclass(frozen=True, slots=True)
class MethodScores:
    """One method over seeds: a row each (`seed`, `accuracy` and `units` of the found graph on the
    test, `calls` that are different), and p against the first method.

    p is of a paired two-sided Wilcoxon test over seeds; None for the first method itself.
    """

    method: str
    rows: tuple[dict[str, Any], ...]
    p: float | None

    def column(self, name: str) -> list[float]:
        """One figure, by seed."""
        return [row[name] for row in self.rows]

    def line(self) -> str:
        """For people."""
        mean = mean_of(self.column("accuracy"))
        units, calls = (sum(self.column(name)) / len(self.rows) for name in ("units", "calls"))
        compared = "" if self.p is None else f"  p = {self.p:.3g}"
        return (
            f"{self.method:20} {mean.value:.3f} ({mean.low:.3f} to {mean.high:.3f})  {units:.4g}"
            f" per question  {calls:.0f} calls{compared}"
        )


async def compare_methods(
    profile: Profile,
    task: str,
    methods: Sequence[str],
    seeds: Sequence[int],
    publish: Publish = ignore,
    say: Callable[[str], None] = lambda line: None,
) -> list[MethodScores]:
    """Search with each method and seed, and test what it found; what is known is in the call cache.

    Raises InputError for a method that is unknown or named twice, and as `search_whole`.
    """
    if len(set(methods)) < len(methods) or len(seeds) < 2:
        raise InputError(
            f"expected different methods and at least 2 seeds, found {', '.join(methods)} and"
            f" {len(seeds)}"
        )
    for method in methods:
        searcher_class(method)
    rows: dict[str, list[dict[str, Any]]] = {method: [] for method in methods}
    for seed in seeds:
        splits = splits_of(profile, task, seed)
        for method in methods:
            searched = await search_whole(profile, task, splits, seed, method, publish=publish)
            found = searched.table.iloc[0]
            scored = {"accuracy": float(found["accuracy"]), "units": float(found["budget_units"])}
            rows[method].append({"seed": seed, **scored, "calls": searched.calls})
            say(f"seed {seed} {method}: {scored['accuracy']:.3f}")
    first = [row["accuracy"] for row in rows[methods[0]]]
    return [
        MethodScores(
            method,
            tuple(rows[method]),
            None
            if method == methods[0]
            else paired_p(first, [row["accuracy"] for row in rows[method]]),
        )
        for method in methods
    ]


def told_of(profile: Profile, found: Sequence[MethodScores]) -> dict[str, Any]:
    """A comparison of methods as plain data: each row with its seed."""
    return {
        "budget": profile.budget.model_dump(mode="json"),
        "rows": [{"method": scores.method, **row} for scores in found for row in scores.rows],
        "against": found[0].method,
        "test": TEST,
        "tests": [{"method": each.method, "p": each.p} for each in found if each.p is not None],
        "smallest_p": smallest_p(len(found[0].rows), 1),
    }


async def compare_team(
    profile: Profile,
    task: str,
    team: CollaborationGraph,
    label: str,
    seed: int,
    method: str = METHOD,
    publish: Publish = ignore,
    say: Callable[[str], None] = lambda line: None,
) -> Result:
    """Search within what a team costs, and test both on the same questions. Raises as
    `search_whole`.
    """
    splits = splits_of(profile, task, seed)
    case = Case(team, {"arm": "team", "label": label})
    searched = await search_whole(
        profile, task, splits, seed, method, publish=publish, say=say, team=case
    )
    return result_of(searched)


def splits_of(profile: Profile, task: str, seed: int) -> dict[str, list[Question]]:
    """The questions by split: the test's are the same for every seed, the others are drawn from the
    rest.
    """
    settings = profile.task(task)
    questions = load_questions(settings.task, settings.source, 0)
    sizes = settings.splits.sizes()
    test = split_questions(questions, sizes, 0)["test"]
    taken = {question.id for question in test}
    rest = [question for question in questions if question.id not in taken]
    drawn = split_questions(
        rest, {split: size for split, size in sizes.items() if split != "test"}, seed
    )
    return drawn | {"test": test}
