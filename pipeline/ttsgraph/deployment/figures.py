"""What a version did on its test questions (bundle.Figures), and service held against it."""

from __future__ import annotations

from dataclasses import dataclass

from ttsgraph.deployment.bundle import Figures, agreement_of
from ttsgraph.evaluation.environment import Feedback
from ttsgraph.graphs.graph import CollaborationGraph


@dataclass(frozen=True, slots=True)
class Drift:
    """A figure of a version in service that is not what it was in its test."""

    task: str
    version: str
    figure: str
    served: float
    tested: float
    answers: int

    def __str__(self) -> str:
        return (
            f"{self.task}/{self.version}: {self.figure} of the last {self.answers} answers is"
            f" {self.served:.4g}, in the test it was {self.tested:.4g}"
        )


def figures_of(feedback: Feedback, graph: CollaborationGraph) -> Figures:
    """Accuracy, dollars of a question, and how often two of the nodes that the last one reads
    agree.
    """
    reads = graph.reads[graph.sink]
    forms = [[r.nodes[i].form for i in reads if i in r.nodes] for r in feedback.results]
    return Figures(
        feedback.accuracy if feedback.n_scored else None,
        feedback.usage.dollars / len(feedback.results) if feedback.results else None,
        agreement_of(forms),
    )
