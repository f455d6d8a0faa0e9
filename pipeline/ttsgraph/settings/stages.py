"""Settings around a search: its budget, the sweeps and trials before it, what it may spend, where
candidates are evaluated, when its graph is promoted.
"""

from __future__ import annotations

from operator import not_
from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from ttsgraph.base.parsing import Closed
from ttsgraph.graphs.budget import BudgetOf, Metric


class BudgetSettings(Closed):
    """The limit a graph must keep: budget units (flops), dollars or seconds per question; and
    nodes, whatever they cost.
    """

    metric: Metric = "flops"
    """what is bounded: calls of the cheapest model by their FLOPs, dollars, or seconds"""
    limit: PositiveFloat
    """for one question: budget units, dollars or seconds, as the metric says"""
    max_nodes: PositiveInt = 24
    """of a graph, whatever they cost"""
    of: BudgetOf | None = Field(default=None, exclude_if=lambda of: of is None)
    """what is limited: a question's cost in the worst case, or on average over questions;
    without it the mean of dollars and seconds, and the worst of budget units"""
    worst: PositiveFloat | None = Field(default=None, exclude_if=lambda worst: worst is None)
    """what any one question may cost, in addition to a limit on the mean"""
    wave: tuple[PositiveInt, ...] = Field(default=(), exclude_if=not_)
    """how many voices of a vote begin together, the last size as often as needed, where a vote
    says nothing itself; none: all at once"""

    @property
    def limits(self) -> BudgetOf:
        """What the limit is of."""
        return self.of or ("worst" if self.metric == "flops" else "mean")


class PilotSettings(Closed):
    """Sizes of the pilot sweeps, and the questions each graph of a sweep is run on. The paper has
    ten random graphs.
    """

    questions: PositiveInt = 24
    """training questions that each graph is run on"""
    widths: tuple[PositiveInt, ...] = (1, 2, 4, 8)
    """how many answers side by side are tried"""
    depths: tuple[PositiveInt, ...] = (1, 2, 4)
    """how many calls in a row are tried"""
    max_nodes: PositiveInt = 24
    """of a graph of the sweeps"""
    random_graphs: PositiveInt = 2
    """random graphs for each pair of families, and of each size alone"""


class ContestSettings(Closed):
    """The contest of structured graphs (searching/methods/forms.py): how many calls it makes, and
    how it shares them out. Without it the init stages go the paper's way: multisets are judged by
    random topologies, and no contender stands next to what a method finds.
    """

    enabled: bool = True
    """whether there is one"""
    calls: PositiveInt = 1900
    """model calls that are not in the cache, at most"""
    block: PositiveInt = 40
    """training questions of the probes, and of each round"""
    rounds: PositiveInt = 3
    """of choosing graphs to run by what is known"""
    picks: PositiveInt = 4
    """graphs run in a round"""
    final_block: PositiveInt = 16
    """questions that the leader is run on at a time, in the finals"""
    search_share: Annotated[float, Field(gt=0, le=1)] = 0.75
    """of the calls, before the finals"""
    kept: PositiveInt = 3
    """contenders that stand in every search next to its own results"""
    samples: Annotated[int, Field(ge=2)] = 4
    """draws of what the response model leaves open"""
    mixes: bool = True
    """contenders of several models; without them each graph has one model alone"""
    routes: bool = True
    """learn which question goes to which model or graph (docs/how-it-works.md)"""
    response_model: bool = True
    """predict contenders from every node's answers; without it each is taken to be one call's
    worth"""


class InitSettings(Closed):
    """The init stages: training questions per trial, multisets in the second stage, random
    topologies averaged per multiset.
    """

    questions: PositiveInt = 16
    """training questions of a trial"""
    candidates: PositiveInt = 6
    """sets of models that are tried"""
    topologies: PositiveInt = 3
    """random graphs that each set of models is tried in"""
    contest: ContestSettings = ContestSettings()
    """the contest of structured graphs"""


class EvaluateSettings(Closed):
    """What the evaluate stage does besides the test."""

    ablation: Annotated[int, Field(ge=0)] = 100
    """test questions that the found graph is tried on without each of its nodes; 0: not tried"""


class LimitSettings(Closed):
    """What one stage may really spend, such as a search, over all its starts, before it stops; no
    limit by default. Cached calls cost nothing.
    """

    dollars: PositiveFloat | None = None
    """that its calls may really cost"""
    tokens: PositiveInt | None = None
    """of prompts and answers together"""
    wall_s: PositiveFloat | None = None
    """that it may take"""


class WorkerSettings(Closed):
    """In the process that searches (local), or by workers of a Dask cluster that share out the
    questions.
    """

    kind: Literal["local", "dask"] = "local"
    """in this process, or on a Dask cluster"""
    count: PositiveInt = 2
    """workers that there are, or that are started where there is no address"""
    address: str | None = None
    """of the cluster's scheduler; without one, workers are started here"""

    @model_validator(mode="after")
    def _complete(self) -> WorkerSettings:
        if self.kind == "local" and self.address is not None:
            raise ValueError("address is for kind dask, found kind local")
        return self


class DeploySettings(Closed):
    """When a found graph becomes champion: once it is better in a paired test
    (ttsgraph/deployment/promotion.py), or by hand.
    """

    promote: Literal["better", "by_hand"] = "better"
    """once the paired test shows it better, or by hand alone"""
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.95
    """of the paired test by which a champion is replaced"""
    margin: Annotated[float, Field(ge=0, lt=1)] = 0.01
    """share of the questions by which a dearer graph has to be expected ahead, of what costs
    nothing
    """


class ResearchSettings(Closed):
    """When a task is searched again, and how long a warm search goes on after the trials of the
    newcomers.
    """

    cron: str = "0 3 * * *"
    """when to look for changes, whatever was noticed in between"""
    watch_s: PositiveInt = 60
    """seconds between two looks at the profile's pool and the endpoints"""
    max_iterations: PositiveInt = 8
    """rounds of a warm search, at most"""
    patience: PositiveInt = 3
    """rounds without a better validation score after which a warm search ends"""
