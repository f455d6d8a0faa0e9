"""What is expected of graphs without a response model: each as good as one call of the model that
is best alone.
"""

from __future__ import annotations

from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.response.draws import fit_draws
from ttsgraph.response.evidence import Evidence
from ttsgraph.response.model import Difference, Prediction

SPREAD = 0.08
"""Standard deviation, in accuracy, of what graphs within a budget are worth beside one call."""


class ConstantModel:
    """The same prediction for every graph, per question that of the best single model: a baseline
    for the response model.
    """

    def __init__(self, evidence: Evidence, models: tuple[str, ...]) -> None:
        draws = fit_draws(evidence, models)
        readable = draws.expected * (1 - draws.blank)
        shares = readable[int(readable.mean(axis=1).argmax())]
        self._prediction = Prediction(float(shares.mean()), 0.0, shares, SPREAD)

    def predict(self, graph: CollaborationGraph) -> Prediction:
        """As for every graph."""
        return self._prediction

    def difference(self, graph: CollaborationGraph, other: CollaborationGraph) -> Difference:
        """None, and nothing is known of it."""
        return Difference(0.0, 0.0)
