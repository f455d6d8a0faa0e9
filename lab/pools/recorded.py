"""Whole searches over the recorded calls of a real model, including its answers to answers.

    python -m lab.pools.recorded --file rows.csv --records "words, 0.5B" --budgets 16 --seeds 0 1

A search replays `published/coder/sweeps` (lab/coder/sweeps.yaml) with the product's own keys. A
call that isn't recorded is refused, as a provider refuses a prompt: its question stays unscored,
and the row counts the call. A row is a search on a split of the record's questions; `accuracy` and
`best_accuracy` are measured on all of them, and `p` compares the two.
"""

import asyncio
import tempfile
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from lab.coder import sweeps
from lab.coder.draws import Draws, draws_of
from ttsgraph.api.whole import search_whole
from ttsgraph.base.parsing import load, parse
from ttsgraph.evaluation.compare import outcomes_of, paired
from ttsgraph.evaluation.environment import Feedback
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import get_role
from ttsgraph.reporting.explain import in_brief
from ttsgraph.runtime.workers import environment_for
from ttsgraph.scaffold.add import TEMPLATES, split_sizes
from ttsgraph.searching.response.evidence import revisions
from ttsgraph.settings.profile import Profile, load_profile
from ttsgraph.tasks.sources import split_questions
from ttsgraph_flows.ending import command


class RecordedWorld:
    """World of one model: the record of this name in lab/coder/sweeps.yaml."""

    def __init__(self, name: str) -> None:
        plan = load(sweeps.Sweeps, sweeps.PLAN)
        given = load_profile(plan.profile)
        self.record = next(record for record in plan.records if record.name == name)
        self.calls = sweeps.checked_calls(self.record.calls)
        self.questions = sweeps.recorded_questions(self.record, given, plan.seed, self.calls)
        line = Draws(task=self.record.task, member=self.record.model, replicas=1)
        draws = draws_of(given, line, self.questions)
        self.alone = {draw.request.messages[-1].content for draw in draws}
        self._given = given.model_dump(mode="json", exclude_unset=True)

    def profile(self, budget: float) -> Profile:
        """Return a profile with default settings, except that no graph may need more draws than the
        record has.
        """
        record = self.record
        settings = yaml.safe_load((TEMPLATES / "profile.yaml").read_text(encoding="utf-8"))
        nodes = 1 + max(max(widths) for widths in record.sinks.values())
        settings |= {
            "pool": {record.model: self._given["pool"][record.model]},
            "tasks": {record.task: self._given["tasks"][record.task]},
            "roles": ["assistant", *record.sinks],
            "budget": {"metric": "flops", "limit": budget, "max_nodes": nodes},
        }
        return parse(Profile, settings, record.name)

    def on_all(self, graph: CollaborationGraph) -> Feedback:
        """Return the feedback on a graph that is run on every question in the record."""
        environment = environment_for(
            self.profile(1), self.record.task, sweeps.PartialReplay(self.calls), ()
        )
        return asyncio.run(environment.evaluate(graph, self.questions))

    @cached_property
    def best(self) -> tuple[str, Feedback]:
        """Label of the most accurate graph in the published table, whatever its cost, and the
        feedback on it.
        """
        table = pd.read_csv(sweeps.TABLE)
        table = table[table["record"] == self.record.name]
        row = table.iloc[int(table["accuracy"].to_numpy().argmax())]
        named = {(label, size): graph for _, label, size, graph in self.record.graphs()}
        label = f"{row['label']} {row['calls']}"
        return label, self.on_all(named[row["label"], row["calls"]])

    def row(self, budget: float, seed: int) -> dict[str, Any]:
        """Search once on a split of the questions, evaluate the found graph on all of them, and
        return the row.
        """
        profile = self.profile(budget)
        splits = split_questions(self.questions, split_sizes(len(self.questions)), seed)
        splits |= {"shots": []}
        client = sweeps.PartialReplay(self.calls)
        with tempfile.TemporaryDirectory() as state:
            work = search_whole(
                profile, self.record.task, splits, seed, state=Path(state), client=client
            )
            whole = asyncio.run(work)
        found = whole.tested.tried[0].case.graph
        seen = self.on_all(found)
        label, best = self.best
        pool = profile.model_pool()
        return {
            "record": self.record.name,
            "budget": budget,
            "seed": seed,
            "found": in_brief(found, pool),
            "sink": found.node(found.sink).role,
            "answers": sum(get_role(node.role).calls_model for node in found.nodes),
            "revisions": revisions(found)[found.sink],
            "accuracy": seen.accuracy,
            "n": seen.n_scored,
            "best": label,
            "best_accuracy": best.accuracy,
            "p": paired(outcomes_of(seen), outcomes_of(best)).p_value(),
            "used": in_brief(whole.graph, pool),
            "asked": len(client.asked),
            "reading": sum(prompt not in self.alone for prompt, _ in client.asked.values()),
            "unrecorded": sum(not known for _, known in client.asked.values()),
        }


def rows(file: Path, records: list[str], budgets: list[float], seeds: list[int]) -> None:
    """Search in each record, and write a CSV file with a row for each search."""
    made = []
    for name in records:
        world = RecordedWorld(name)
        for budget, seed in product(budgets, seeds):
            made.append(world.row(budget, seed))
            pd.DataFrame(made).to_csv(file, index=False)


if __name__ == "__main__":
    command(
        rows,
        file={"type": Path, "required": True},
        records={"nargs": "+", "default": ["humaneval, 0.5B", "words, 0.5B"]},
        budgets={"nargs": "+", "type": float, "default": [16.0]},
        seeds={"nargs": "+", "type": int, "default": [*range(10)]},
    )
