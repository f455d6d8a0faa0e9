"""Settings around a search: budget, sweeps and trials before it, spending limits, place of
evaluation, promotion.
"""

from __future__ import annotations

from operator import not_
from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from ttsgraph.base.parsing import ClosedModel
from ttsgraph.graphs.budget import BudgetOf, Metric


class BudgetSettings(ClosedModel):
    """Limit of a graph: budget units (flops), dollars or seconds per question; and a number of
    nodes.
    """

    metric: Metric = "flops"
    """unit of the limit: calls of the cheapest model by their FLOPs, dollars, or seconds"""
    limit: PositiveFloat
    """limit for one question: budget units, dollars or seconds, by metric"""
    max_nodes: PositiveInt = 24
    """maximum number of nodes of a graph, regardless of cost"""
    of: BudgetOf | None = Field(default=None, exclude_if=lambda of: of is None)
    """limited quantity: a question's cost in the worst case, or its mean over questions; by default
    the mean for dollars and seconds, and the worst case for budget units
    """
    worst: PositiveFloat | None = Field(default=None, exclude_if=lambda worst: worst is None)
    """maximum cost of any one question, in addition to a limit on the mean"""
    wave: tuple[PositiveInt, ...] = Field(default=(), exclude_if=not_)
    """number of voters that start together, the last size repeated, for votes without their own
    setting; empty: all in parallel
    """

    @property
    def limits(self) -> BudgetOf:
        """Quantity that the limit applies to."""
        return self.of or ("worst" if self.metric == "flops" else "mean")


class PilotSettings(ClosedModel):
    """Sizes of the pilot sweeps, and the number of questions for each graph. The paper has ten
    random graphs.
    """

    questions: PositiveInt = 24
    """training questions for each graph"""
    widths: tuple[PositiveInt, ...] = (1, 2, 4, 8)
    """numbers of parallel answers to try"""
    depths: tuple[PositiveInt, ...] = (1, 2, 4)
    """numbers of sequential calls to try"""
    max_nodes: PositiveInt = 24
    """maximum nodes of a graph of the sweeps"""
    random_graphs: PositiveInt = 2
    """random graphs for each pair of families, and of each single size"""


class ContestSettings(ClosedModel):
    """The contest of structured graphs (searching/methods/forms.py): number of calls and their
    allocation. Without it the init stages follow the paper: multisets are judged by random
    topologies, and no contender competes with a method's result.
    """

    enabled: bool = True
    """run the contest"""
    calls: PositiveInt = 1900
    """maximum model calls that are not in the cache"""
    block: PositiveInt = 40
    """training questions of the probes, and of each round"""
    rounds: PositiveInt = 3
    """rounds that choose graphs by the results so far"""
    picks: PositiveInt = 4
    """graphs run in a round"""
    final_block: PositiveInt = 16
    """questions per step of the finals"""
    search_share: Annotated[float, Field(gt=0, le=1)] = 0.75
    """share of the calls before the finals"""
    kept: PositiveInt = 3
    """contenders that are part of every search, next to its own results"""
    samples: Annotated[int, Field(ge=2)] = 4
    """samples of the response model's uncertainty"""
    mixes: bool = True
    """try contenders of several models; without, each graph has only one model"""
    routes: bool = True
    """learn which question goes to which model or graph (docs/how-it-works.md)"""
    response_model: bool = True
    """predict contenders from every node's answers; without, each is assumed to be
    worth one call
    """


class InitSettings(ClosedModel):
    """Init stages: training questions per trial, multisets in the second stage, random topologies
    averaged per multiset.
    """

    questions: PositiveInt = 16
    """training questions of a trial"""
    candidates: PositiveInt = 6
    """sets of models to try"""
    topologies: PositiveInt = 3
    """random graphs for each set of models"""
    contest: ContestSettings = ContestSettings()
    """the contest of structured graphs"""


class EvaluateSettings(ClosedModel):
    """Parts of the evaluate stage besides the test."""

    ablation: Annotated[int, Field(ge=0)] = 100
    """test questions for trying the found graph without each of its nodes; 0: none"""


class LimitSettings(ClosedModel):
    """Spending limits of one stage, such as a search, over all its starts; unlimited by default.
    Cached calls are free.
    """

    dollars: PositiveFloat | None = None
    """maximum real cost of its calls"""
    tokens: PositiveInt | None = None
    """maximum tokens of prompts and answers together"""
    wall_s: PositiveFloat | None = None
    """maximum duration in seconds"""


class WorkerSettings(ClosedModel):
    """Place of evaluation: the searching process (local), or workers of a Dask cluster that share
    the questions.
    """

    kind: Literal["local", "dask"] = "local"
    """in this process, or on a Dask cluster"""
    count: PositiveInt = 2
    """number of workers, existing or, without an address, started here"""
    address: str | None = None
    """address of the cluster's scheduler; without one, workers are started here"""

    @model_validator(mode="after")
    def _complete(self) -> WorkerSettings:
        if self.kind == "local" and self.address is not None:
            raise ValueError("address is for kind dask, found kind local")
        return self


class DeploySettings(ClosedModel):
    """Promotion of a found graph to champion: once it is better in a paired test
    (ttsgraph/deployment/promotion.py), or by hand.
    """

    promote: Literal["better", "by_hand"] = "better"
    """better: once the paired test shows it; by_hand: only by hand"""
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.95
    """confidence of the paired test by which a champion is replaced"""
    margin: Annotated[float, Field(ge=0, lt=1)] = 0.01
    """lead that a graph needs over a free one, as a share of the questions; in proportion for
    smaller differences in cost
    """


class ResearchSettings(ClosedModel):
    """Schedule of re-searches, and length of a warm search after the trials of the new models."""

    cron: str = "0 3 * * *"
    """time of the regular check for changes"""
    watch_s: PositiveInt = 60
    """seconds between two checks of the profile's pool and the endpoints"""
    max_iterations: PositiveInt = 8
    """maximum rounds of a warm search"""
    patience: PositiveInt = 3
    """rounds without a better validation score until a warm search ends"""
