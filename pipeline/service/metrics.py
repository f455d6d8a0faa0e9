"""What Prometheus is told. Label values are served names only, never what a client sent."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, values
from prometheus_client.multiprocess import MultiProcessCollector

if TYPE_CHECKING:
    from ttsgraph.deployment.bundle import Deployed
    from ttsgraph.graphs.graph import CollaborationGraph
    from ttsgraph.models.client import Usage
    from ttsgraph.service.run import Served

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320)


class Metrics:
    """One server's figures, in a registry of its own; where several processes serve, those of all
    together.
    """

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self.requests = Counter(
            "ttsgraph_requests",
            "Chat requests by status; 499: the client left.",
            ["model", "status"],
            registry=registry,
        )
        self.seconds = Histogram(
            "ttsgraph_request_seconds",
            "Time to the end of an answer.",
            ["model"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.first_text = Histogram(
            "ttsgraph_first_text_seconds",
            "Time to a stream's first text.",
            ["model"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.under_way = Gauge(
            "ttsgraph_requests_under_way",
            "Chat requests being answered.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.tokens = Counter(
            "ttsgraph_tokens", "Tokens of all calls.", ["model", "kind"], registry=registry
        )
        self.calls = Counter(
            "ttsgraph_pool_calls", "Calls of pool models.", ["model"], registry=registry
        )
        self.saved = Counter(
            "ttsgraph_calls_saved",
            "Calls that answers did not need: never begun (left_out), or cancelled on the way.",
            ["model", "how"],
            registry=registry,
        )
        self.gates = Counter(
            "ttsgraph_gates",
            "Gates that questions came to, closed or open.",
            ["model", "gate"],
            registry=registry,
        )
        self.degraded = Counter(
            "ttsgraph_degraded",
            "Answers that for want of a call may differ from the graph's own.",
            ["model"],
            registry=registry,
        )
        self.hedged = Counter(
            "ttsgraph_hedged", "Calls made a second time, being slow.", ["model"], registry=registry
        )
        self.stood_in = Counter(
            "ttsgraph_stood_in",
            "Calls that another model answered, as the node's own failed.",
            ["model"],
            registry=registry,
        )
        self.feedback = Counter(
            "ttsgraph_feedback", "Answers that were judged.", ["model"], registry=registry
        )
        self.figure = Gauge(
            "ttsgraph_figure",
            "Accuracy, cost and agreement of the last answers.",
            ["model", "figure"],
            registry=registry,
            multiprocess_mode="livemax",
        )
        self.drifted = Gauge(
            "ttsgraph_drifted",
            "1 where a figure is no longer what it was in the test.",
            ["model", "figure"],
            registry=registry,
            multiprocess_mode="livemax",
        )
        self.shed = Counter(
            "ttsgraph_shed",
            "Requests turned away for want of a place, by service tier.",
            ["model", "tier"],
            registry=registry,
        )
        self.dollars = Counter(
            "ttsgraph_dollars", "Price of all calls.", ["model"], registry=registry
        )
        self.deployed = Gauge(
            "ttsgraph_deployed",
            "1 for what a name stands for now.",
            ["model", "version", "graph_hash"],
            registry=registry,
            multiprocess_mode="livemax",
        )
        self.refresh_failed = Counter(
            "ttsgraph_refresh_failed", "Looks at a name that failed.", ["model"], registry=registry
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
