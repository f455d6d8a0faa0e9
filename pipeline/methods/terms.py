"""The terms of a search: what has to be the same for methods to be compared, and what every
proposal has to keep.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from ttsgraph.agent.base import Brief
from ttsgraph.base.errors import DataError, TTSGraphError
from ttsgraph.contest.contenders import Contender
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.settings.profile import SearchSettings
from ttsgraph.tasks.base import Question


@dataclass(frozen=True, slots=True)
class Terms:
    """Pool, budget, objective, questions, candidates, stop rule and racing (None: no races) of one
    search, as plain data.

    `contenders` is a digest of those that stand beside what the method finds, with their values;
    `train` and `val` are digests of the question ids of the batch and of the validation split. The
    selection rule is the driver's own and follows from `objective`.
    """

    pool: Sequence[str]
    metric: str
    budget: float
    max_nodes: int
    objective: Mapping[str, object]
    train: str
    val: str
    candidates: int
    max_iterations: int
    patience: int
    racing: Mapping[str, object] | None
    contenders: str | None

    def check(self, method: str, graphs: Sequence[CollaborationGraph], brief: Brief) -> None:
        """Raises TTSGraphError when proposals are not `candidates` graphs of the pool within budget
        and max_nodes.
        """
        if len(graphs) != self.candidates:
            raise TTSGraphError(
                f"{method}: expected {self.candidates} candidates, found {len(graphs)}"
            )
        for graph in graphs:
            strangers = {node.model for node in graph.nodes} - set(brief.cost.pool)
            units = 0.0 if strangers else brief.cost.graph_cost(graph)
            if strangers or units > self.budget or len(graph.nodes) > self.max_nodes:
                raise TTSGraphError(
                    f"{method}: expected graphs of the pool with at most {self.max_nodes} nodes"
                    f" within the budget {self.budget:g}, found {len(graph.nodes)} nodes at"
                    f" {units:.4g} and models {sorted(strangers) or 'of the pool'}"
                )


def terms_of(
    brief: Brief,
    settings: SearchSettings,
    batch: Sequence[Question],
    val: Sequence[Question],
    contenders: Sequence[Contender] = (),
) -> Terms:
    """The terms that the driver runs a search on."""
    return Terms(
        [f"{spec.name} {spec.identity}" for spec in brief.cost.pool.values()],
        brief.cost.metric,
        brief.budget.limit,
        brief.budget.max_nodes,
        brief.objective.model_dump(),
        _digest(batch),
        _digest(val),
        settings.candidates,
        settings.max_iterations,
        settings.patience,
        settings.racing.model_dump() if settings.racing.enabled else None,
        (
            _hash(f"{contender.graph.to_json()} {contender.value!r}" for contender in contenders)
            if contenders
            else None
        ),
    )


def require_equal_terms(terms: Mapping[str, Mapping[str, object]]) -> None:
    """Raises DataError, naming what differs, when methods (name -> terms as plain data) were not
    searched on the same terms.
    """
    named = list(terms.items())
    for name, other in named[1:]:
        first, wanted = named[0]
        for key in wanted.keys() | other.keys():
            if wanted.get(key) != other.get(key):
                raise DataError(
                    f"{first} and {name} were not searched on the same terms: {key} is"
                    f" {wanted.get(key)} and {other.get(key)}; run both searches again"
                )


def plain_terms(terms: Terms) -> dict[str, object]:
    """Terms as they are read back from JSON."""
    plain: dict[str, object] = json.loads(json.dumps(asdict(terms)))
    return plain


def _digest(questions: Sequence[Question]) -> str:
    return _hash(question.id for question in questions)


def _hash(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]
