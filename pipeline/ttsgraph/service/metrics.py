"""Prometheus metrics of the server; no label value is text from a client."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from ttsgraph.models.client import Usage

if TYPE_CHECKING:
    from ttsgraph.service.answering import Answering

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320)
_OUTCOMES = (
    "Calls of pool models by outcome: answered, failed, fallback (failed, and replaced by another"
    " call's answer), refused (by the provider), empty (too long for the model), cancelled"
    " (begun, then not needed), left_out (never begun)."
)


class Metrics:
    """Metrics of one server, in their own registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        count = partial(Counter, namespace="ttsgraph", registry=self.registry)
        gauge = partial(Gauge, namespace="ttsgraph", registry=self.registry)
        seconds = partial(Histogram, namespace="ttsgraph", registry=self.registry, buckets=_SECONDS)
        of_model, of_calls = ["model"], ["model", "upstream"]

        self.requests = count("requests", "Requests by status; 499: left.", ["model", "status"])
        self.seconds = seconds("request_seconds", "Time to the end of an answer.", of_model)
        self.under_way = gauge("requests_under_way", "Chat requests being answered.")
        self.tokens = count("tokens", "Tokens of all calls.", [*of_calls, "kind"])
        self.dollars = count("dollars", "Price of all calls.", of_calls)
        self.calls = count("pool_calls", _OUTCOMES, [*of_calls, "outcome"])
        self.call_seconds = seconds("pool_call_seconds", "Time of answered calls.", of_calls)
        self.degraded = count("degraded", "Answers that a missing call may have changed.", of_model)
        self.feedback = count("feedback", "Answers with feedback.", of_model)
        of_figure, of_version = ["model", "figure"], ["model", "version", "graph_hash"]
        self.figure = gauge("figure", "Accuracy, cost, agreement of the last answers.", of_figure)
        self.drifted = gauge("drifted", "1 if a figure differs from the test.", of_figure)
        self.deployed = gauge("deployed", "1 for the current version of a name.", of_version)

    def ended(self, answering: Answering, answered: bool) -> None:
        """Count the calls of an ended request, and its answer, if it has one."""
        name = answering.live.name
        for i in answering.calling:
            labels = name, answering.run.model_of(i)
            if (completion := answering.run.completions.get(i)) is not None:
                self.call_seconds.labels(*labels).observe(completion.latency_s)
            self.calls.labels(*labels, answering.outcome(i)).inc()
            if (used := answering.used_by(i)) != Usage():
                self.tokens.labels(*labels, "prompt").inc(used.prompt_tokens)
                self.tokens.labels(*labels, "completion").inc(used.completion_tokens)
                self.dollars.labels(*labels).inc(used.dollars)
        if answered:
            self.degraded.labels(name).inc(answering.degraded)
