"""Comparison of a search with an existing team of models, and of search methods over several seeds.

A team is a graph file, or a list of proposers and an aggregator, as in a mixture of agents:

    proposers: [small, small, large]    # or reference_models
    aggregator: large
    layers: 2                           # a layer of proposers, then the aggregator

Proposers in the first layer answer independently. In further layers, the same proposers read all
answers of the previous layer. The aggregator reads the answers of the last layer of proposers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import AliasChoices, Field

from ttsgraph.api.whole import search_whole
from ttsgraph.base.errors import InputError, SettingsError
from ttsgraph.base.parsing import ClosedModel, load, parse
from ttsgraph.evaluation.over_seeds import TEST_OVER_SEEDS, mean_of, paired_p, smallest_p
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import FUSER, check_roles, get_role
from ttsgraph.graphs.topologies import layered
from ttsgraph.searching.methods import searcher_class
from ttsgraph.settings.profile import Profile
from ttsgraph.stages.trials import Case
from ttsgraph.tasks.base import Question
from ttsgraph.tasks.sources import load_questions, split_questions

Models = Annotated[tuple[str, ...], Field(min_length=1)]


class Team(ClosedModel):
    """Preset of a team, with the models' names in the profile's pool or at their endpoints."""

    proposers: Models = Field(validation_alias=AliasChoices("proposers", "reference_models"))
    """models called in parallel; a model listed twice is called twice"""
    aggregator: str | None = None
    """model that combines the proposers' answers; optional if the role calls no model (voter)"""
    layers: int = Field(default=2, ge=2)
    """number of layers, including the aggregator"""
    role: str = FUSER
    """role of the aggregator: fuser, judge, voter, ..."""


TEAM = "team"
"""Label of a team that isn't read from a file."""


def preset_case(given: Any, profile: Profile) -> Case:
    """Return the test case of a team, given as a graph, as a Team's keys, or as a file with either.

    Raises InputError if the file can't be read, or the team is invalid.
    """
    label = where = TEAM
    if isinstance(given, str | Path):
        path, label, where = Path(given), Path(given).stem, str(given)
        given = CollaborationGraph.read(path) if path.suffix == ".json" else load(Team, path)
    elif isinstance(given, Mapping):
        given = parse(Team, given, TEAM)
    graph = graph_of(given, profile, where) if isinstance(given, Team) else given
    for node in graph.nodes:
        _ = profile.model_pool()[node.model]
    check_roles(graph)
    return Case(graph, {"arm": TEAM, "label": label})


def graph_of(team: Team, profile: Profile, where: str) -> CollaborationGraph:
    """Return a team as a graph.

    Raises GraphError if the role is unknown, and SettingsError, with a message that begins with
    `where`, if a model is unknown or the role needs an aggregator and the team has none.
    """
    if team.aggregator is None and get_role(team.role).calls_model:
        raise SettingsError(f"{where}: expected an aggregator, or `role: voter`, found neither")
    proposers = [_member(name, profile, where) for name in team.proposers]
    last = proposers[0] if team.aggregator is None else _member(team.aggregator, profile, where)
    return layered([proposers] * (team.layers - 1), last, team.role)


def _member(name: str, profile: Profile, where: str) -> str:
    """Return the pool's name for the model that has this name in the pool or at its endpoint.

    Raises SettingsError if there is no such model, or if several have this name at their endpoints.
    """
    members = list(profile.model_pool())
    if name in members:
        return name
    called = [own for own, model in profile.pool.items() if model.served_as == name]
    if len(called) != 1:
        raise SettingsError(
            f"{where}: expected a model in the profile's pool ({', '.join(members)}), found"
            f" {name!r}; add models with `ttsgraph add --url`"
        )
    return called[0]


async def compare_methods(
    profile: Profile,
    task: str,
    methods: Sequence[str],
    seeds: Sequence[int],
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Search with each method and seed, and test the found graphs; return plain data.

    `rows` has, for each method and seed, the `accuracy` and the cost (`units`) on the test, and the
    number of distinct `calls`. `tests` has, for each method after the first, the p-value of a
    paired two-sided Wilcoxon test over seeds against the first. Raises InputError for an unknown or
    repeated method or for fewer than 2 seeds, and the same errors as `search_whole`.
    """
    if len(set(methods)) < len(methods) or len(seeds) < 2:
        raise InputError(
            f"expected different methods and at least 2 seeds, found methods {', '.join(methods)};"
            f" number of seeds: {len(seeds)}"
        )
    for method in methods:
        searcher_class(method)
    rows: dict[str, list[dict[str, Any]]] = {method: [] for method in methods}
    for seed in seeds:
        splits = splits_of(profile, task, seed)
        for method in methods:
            searched = await search_whole(profile, task, splits, seed, method)
            found = searched.tested.table.iloc[0]
            scores = {"accuracy": float(found["accuracy"]), "units": float(found["budget_units"])}
            row = {"method": method, "seed": seed, **scores, "calls": searched.calls}
            rows[method].append(row)
            say(f"seed {seed} {method}: {scores['accuracy']:.3f}")
    accuracies = {method: [row["accuracy"] for row in rows[method]] for method in methods}
    first, *others = methods
    tests = [{"method": one, "p": paired_p(accuracies[first], accuracies[one])} for one in others]
    return {
        "budget": profile.budget.model_dump(mode="json"),
        "rows": [row for method in methods for row in rows[method]],
        "against": first,
        "test": TEST_OVER_SEEDS,
        "tests": tests,
        "smallest_p": smallest_p(len(seeds), 1),
    }


def in_lines(told: Mapping[str, Any]) -> Iterator[str]:
    """Yield a comparison of methods as lines of text."""
    tests = {each["method"]: each["p"] for each in told["tests"]}
    for method in (told["against"], *tests):
        rows = [row for row in told["rows"] if row["method"] == method]
        mean = mean_of([row["accuracy"] for row in rows])
        units, calls = (sum(row[name] for row in rows) / len(rows) for name in ("units", "calls"))
        compared = f"  p = {tests[method]:.3g}" if method in tests else ""
        yield (
            f"{method:20} {mean.value:.3f} ({mean.low:.3f} to {mean.high:.3f})  {units:.4g}"
            f" per question  {calls:.0f} calls{compared}"
        )
    yield f"paired Wilcoxon tests over seeds; the smallest possible p is {told['smallest_p']:.3g}"


def splits_of(profile: Profile, task: str, seed: int) -> dict[str, list[Question]]:
    """Return the questions by split. The test split is the same for all seeds; `seed` determines
    the others.
    """
    settings = profile.task(task)
    questions = load_questions(settings.task, settings.source, 0)
    sizes = settings.splits.sizes()
    test = split_questions(questions, sizes, 0)["test"]
    taken = {question.id for question in test}
    rest = [question for question in questions if question.id not in taken]
    del sizes["test"]
    return split_questions(rest, sizes, seed) | {"test": test}
