"""What Prometheus is told. Label values are served names only, never what a client sent."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, values
from prometheus_client.multiprocess import MultiProcessCollector

if TYPE_CHECKING:
    from ttsgraph.deployment.bundle import Deployed
    from ttsgraph.graphs.graph import CollaborationGraph
    from ttsgraph.models.client import Usage
    from ttsgraph.service.run import Served

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320)
_Together = Literal["livesum", "livemax"]


class Metrics:
    """One server's figures, in a registry of its own; where several processes serve, those of all
    together.
    """

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.requests = self._counter(
            "requests", "Chat requests by status; 499: the client left.", "model", "status"
        )
        self.seconds = self._seconds("request_seconds", "Time to the end of an answer.", "model")
        self.first_text = self._seconds(
            "first_text_seconds", "Time to a stream's first text.", "model"
        )
        self.under_way = self._gauge(
            "requests_under_way", "Chat requests being answered.", "livesum"
        )
        self.tokens = self._counter("tokens", "Tokens of all calls.", "model", "kind")
        self.calls = self._counter("pool_calls", "Calls of pool models.", "model")
        self.saved = self._counter(
            "calls_saved",
            "Calls that answers did not need: never begun (left_out), or cancelled on the way.",
            "model",
            "how",
        )
        self.gates = self._counter(
            "gates", "Gates that questions came to, closed or open.", "model", "gate"
        )
        self.degraded = self._counter(
            "degraded", "Answers that for want of a call may differ from the graph's own.", "model"
        )
        self.hedged = self._counter("hedged", "Calls made a second time, being slow.", "model")
        self.stood_in = self._counter(
            "stood_in", "Calls that another model answered, as the node's own failed.", "model"
        )
        self.feedback = self._counter("feedback", "Answers that were judged.", "model")
        self.figure = self._gauge(
            "figure",
            "Accuracy, cost and agreement of the last answers.",
            "livemax",
            "model",
            "figure",
        )
        self.drifted = self._gauge(
            "drifted",
            "1 where a figure is no longer what it was in the test.",
            "livemax",
            "model",
            "figure",
        )
        self.shed = self._counter(
            "shed", "Requests turned away for want of a place, by service tier.", "model", "tier"
        )
        self.dollars = self._counter("dollars", "Price of all calls.", "model")
        self.deployed = self._gauge(
            "deployed",
            "1 for what a name stands for now.",
            "livemax",
            "model",
            "version",
            "graph_hash",
        )
        self.refresh_failed = self._counter(
            "refresh_failed", "Looks at a name that failed.", "model"
        )

    def _counter(self, name: str, says: str, *labels: str) -> Counter:
        return Counter(f"ttsgraph_{name}", says, labels, registry=self._registry)

    def _seconds(self, name: str, says: str, *labels: str) -> Histogram:
        return Histogram(
            f"ttsgraph_{name}", says, labels, buckets=_SECONDS, registry=self._registry
        )

    def _gauge(self, name: str, says: str, together: _Together, *labels: str) -> Gauge:
        """`together` is how the figures of several processes become one."""
        return Gauge(
            f"ttsgraph_{name}", says, labels, registry=self._registry, multiprocess_mode=together
        )

    def used(self, model: str, usage: Usage) -> None:
        """Count what an answer used."""
        self.tokens.labels(model, "prompt").inc(usage.prompt_tokens)
        self.tokens.labels(model, "completion").inc(usage.completion_tokens)
        self.calls.labels(model).inc(usage.calls)
        self.dollars.labels(model).inc(usage.dollars)

    def served(self, model: str, graph: CollaborationGraph, answer: Served) -> None:
        """Count what an answer used, and what it did without."""
        self.used(model, answer.usage)
        self.saved.labels(model, "left_out").inc(len(answer.left_out))
        self.saved.labels(model, "cancelled").inc(len(answer.cancelled))
        self.degraded.labels(model).inc(answer.degraded)
        self.hedged.labels(model).inc(len(answer.hedged))
        self.stood_in.labels(model).inc(len(answer.stand_ins))
        for node in graph.nodes:
            if node.gate is not None and node.id in answer.stages:
                self.gates.labels(model, "closed" if node.id in answer.closed else "open").inc()

    def stands_for(self, model: str, before: Deployed | None, now: Deployed | None) -> None:
        """A name stands for another version now."""
        if before is not None:
            labels = model, before.version, before.graph.content_hash
            if _shared():
                self.deployed.labels(*labels).set(
                    0
                )  # what several processes share can't be removed
            else:
                self.deployed.remove(*labels)
        if now is not None:
            self.deployed.labels(model, now.version, now.graph.content_hash).set(1)

    def text(self) -> bytes:
        """All figures in Prometheus' text format."""
        if not _shared():
            return generate_latest(self._registry)
        together = CollectorRegistry()
        MultiProcessCollector(together)  # type: ignore[no-untyped-call]
        return generate_latest(together)


def _shared() -> bool:
    """Whether this process's figures are kept where several add up; decided when prometheus-client
    is imported.
    """
    return values.ValueClass is not values.MutexValue and "PROMETHEUS_MULTIPROC_DIR" in os.environ
