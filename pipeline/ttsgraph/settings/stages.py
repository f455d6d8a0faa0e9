"""Settings around a search: budget, sweeps and trials before it, spending limits, place of
evaluation, promotion.
"""

from __future__ import annotations

import re
from operator import not_
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveFloat, PositiveInt

from ttsgraph.base.parsing import ClosedModel
from ttsgraph.graphs.budget import BudgetOf, Metric


class BudgetSettings(ClosedModel):
    """Limits on a graph: its budget units (flops), dollars or seconds per question, and its number
    of nodes.
    """

    metric: Metric = "flops"
    """unit of the limit: flops (budget units by FLOPs, of which a call of the cheapest model takes
    one), dollars, or runtime (seconds)
    """
    limit: PositiveFloat
    """limit for one question, in the unit of the metric: budget units, dollars or seconds"""
    max_nodes: PositiveInt = 24
    """maximum number of nodes of a graph, regardless of cost"""
    of: BudgetOf | None = Field(default=None, exclude_if=lambda of: of is None)
    """limited quantity: worst, a question's cost in the worst case, or mean, the mean cost over
    questions; by default mean for dollars and seconds, and worst for budget units
    """
    worst: PositiveFloat | None = Field(default=None, exclude_if=lambda worst: worst is None)
    """maximum cost of any one question, in addition to a limit on the mean"""

    @property
    def limits(self) -> BudgetOf:
        """Quantity that the limit applies to."""
        return self.of or ("worst" if self.metric == "flops" else "mean")


class PilotSettings(ClosedModel):
    """Sizes of the pilot sweeps, and the number of questions for each graph. The paper uses ten
    random graphs.
    """

    questions: PositiveInt = 24
    """training questions for each graph"""
    widths: tuple[PositiveInt, ...] = (1, 2, 4, 8)
    """numbers of parallel answers to try"""
    depths: tuple[PositiveInt, ...] = (1, 2, 4)
    """numbers of sequential calls to try"""
    max_nodes: PositiveInt = 24
    """maximum number of nodes of a graph in the sweeps"""
    random_graphs: PositiveInt = 2
    """random graphs for each pair of families, and for each model of the topology sweep"""


ContestPart = Literal["mixes", "routes", "response_model"]


class ContestSettings(ClosedModel):
    """The contest of structured graphs (searching/methods/forms.py): number of calls and their
    allocation. Without it, the init stages follow the paper: multisets are judged by random
    topologies, and no contender competes with a method's result.
    """

    enabled: bool = True
    """run the contest"""
    calls: PositiveInt = 1900
    """maximum number of model calls, not counting cached ones"""
    without: tuple[ContestPart, ...] = Field(default=(), exclude_if=not_)
    """parts to switch off, for ablations. mixes: contenders of several models; routes: learning to
    which model or graph each question goes (docs/how-it-works.md); response_model: predicting
    contenders' scores from every node's answers; without it, each contender is assumed to be as
    good as one call of the best single model
    """
    block: ClassVar = 40
    """training questions of the probes, and of each round; like the next three constants, the
    value of all published searches
    """
    rounds: ClassVar = 3
    """rounds that choose graphs based on the results so far, before the finals"""
    picks: ClassVar = 4
    """graphs run in each round"""
    final_block: ClassVar = 16
    """questions per step of the finals"""
    search_share: ClassVar = 0.75
    """share of the calls that may be made before the finals"""
    kept: ClassVar = 3
    """contenders that are part of every search, in addition to its own results"""
    samples: ClassVar = 4
    """number of samples that represent the response model's uncertainty"""

    @classmethod
    def constants(cls) -> dict[str, Any]:
        """Return the constants, and the parts, which were keys."""
        return super().constants() | dict.fromkeys(get_args(ContestPart), True)

    def uses(self, part: ContestPart) -> bool:
        """Return True if a part isn't switched off."""
        return part not in self.without


class InitSettings(ClosedModel):
    """Settings of the init stages: training questions per trial, multisets in the second stage, and
    random topologies averaged per multiset.
    """

    questions: PositiveInt = 16
    """training questions for each trial"""
    candidates: PositiveInt = 6
    """sets of models to try"""
    topologies: PositiveInt = 3
    """random graphs for each set of models"""
    contest: ContestSettings = ContestSettings()
    """the contest of structured graphs"""


class EvaluateSettings(ClosedModel):
    """Parts of the evaluate stage besides the test."""

    ablation: Annotated[int, Field(ge=0)] = 100
    """test questions for trying the found graph without each of its nodes in turn; 0: none"""


class LimitSettings(ClosedModel):
    """Spending limits of one stage, such as a search, over all its starts; unlimited by default.
    Cached calls are free.
    """

    dollars: PositiveFloat | None = None
    """maximum real cost of the stage's calls"""
    tokens: PositiveInt | None = None
    """maximum tokens of prompts and answers together"""
    wall_s: PositiveFloat | None = None
    """maximum duration in seconds"""


def _place(workers: object) -> object:
    if isinstance(workers, dict):  # the form of earlier versions
        kind, address = workers.get("kind"), workers.get("address")
        if kind == "dask":
            workers = address or workers.get("count", 2)
        elif kind == "local" and address is None:
            workers = 0
    number = type(workers) is int and workers >= 0
    if not (number or re.fullmatch(r"(tcp|tls|ucx|wss?)://\S+:\d+", str(workers))):
        raise ValueError(
            "expected a number of workers, 0 for none, or a scheduler's address, such as"
            f" tcp://host:8786; found {workers!r}"
        )
    return workers


Workers = Annotated[NonNegativeInt | str, BeforeValidator(_place)]
"""Place of evaluation: the searching process (0), or Dask workers, which share the questions: a
number of workers to start here, or the address of a cluster's scheduler.
"""


class DeploySettings(ClosedModel):
    """Promotion of a found graph to champion: once it is better in a paired test
    (ttsgraph/deployment/promotion.py), or by hand.
    """

    promote: Literal["better", "by_hand"] = "better"
    """better: if the paired test shows that the graph is better; by_hand: only by a user"""
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.95
    """confidence that the paired test needs in order to replace a champion"""
    margin: ClassVar = 0.01
    """lead that a graph needs over a free graph, as a share of the questions; over other graphs, in
    proportion to the relative extra cost. A point is less than a test of some hundred questions can
    tell, so it decides among equals only
    """


class ResearchSettings(ClosedModel):
    """Schedule of re-searches, and length of a warm search after the trials of the new models."""

    cron: str = "0 3 * * *"
    """schedule of the regular check for changes, in cron format"""
    watch_s: ClassVar = 60.0
    """seconds between two checks of the profile's pool and the endpoints: a search takes longer"""
    max_iterations: ClassVar = 8
    """maximum rounds of a warm search"""
    patience: ClassVar = 3
    """rounds without a better validation score after which a warm search ends"""
