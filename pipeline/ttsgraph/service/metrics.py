"""Prometheus metrics of the server; no label value is text from a client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from ttsgraph.models.client import Usage

if TYPE_CHECKING:
    from ttsgraph.evaluation.executor import NodeAnswer
    from ttsgraph.service.answering import RunningAnswer
    from ttsgraph.service.deployments import LiveVersion

Metric = TypeVar("Metric", Counter, Gauge, Histogram)

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320)
_OUTCOMES = (
    "answered, failed, fallback (failed, and replaced by another call's answer), refused (by the"
    " provider), empty (too long for the model), cancelled (begun, then not needed), left_out"
    " (never begun)"
)


class Metrics:
    """Metrics of one server, in their own registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def made(kind: type[Metric], name: str, said: str, labels: str = "", **more: Any) -> Metric:
            """Return a new metric; `labels` are separated by spaces."""
            return kind(
                name, said, labels.split(), namespace="ttsgraph", registry=self.registry, **more
            )

        def time(name: str, said: str, labels: str = "model") -> Histogram:
            return made(Histogram, name, said, labels, buckets=_SECONDS)

        def count(name: str, said: str, labels: str = "model") -> Counter:
            return made(Counter, name, said, labels)

        requests = "Chat requests by status; 499: the client disconnected."
        self.requests = count("requests", requests, "model status")
        self.seconds = time("request_seconds", "Time to the end of an answer.")
        self.first_text = time("first_text_seconds", "Time to a stream's first text.")
        self.under_way = made(Gauge, "requests_under_way", "Chat requests being answered.")
        self.tokens = count("tokens", "Tokens of all calls.", "model upstream kind")
        self.dollars = count("dollars", "Price of all calls.", "model upstream")
        saved = (
            "Estimate: cost of the plain alternative in the test minus cost of the answers here."
        )
        self.saved = made(Gauge, "saved_dollars_estimate", saved, "model plain")
        calls = f"Calls of pool models by outcome: {_OUTCOMES}."
        self.calls = count("pool_calls", calls, "model upstream outcome")
        self.call_seconds = time("pool_call_seconds", "Time of answered calls.", "model upstream")
        self.routed = count("routed", "Questions by the router's branch.", "model branch")
        degraded = "Answers that may differ from the graph's own because a call is missing."
        self.degraded = count("degraded", degraded)
        self.feedback = count("feedback", "Answers with feedback.")
        figure = "Accuracy, cost and agreement of the last answers."
        self.figure = made(Gauge, "figure", figure, "model figure")
        drifted = "1 if a figure has drifted from its value in the test."
        self.drifted = made(Gauge, "drifted", drifted, "model figure")
        self.shed = count("shed", "Requests rejected because all places were taken.")
        deployed = "1 for the current version of a name."
        self.deployed = made(Gauge, "deployed", deployed, "model version graph_hash")
        self.refresh_failed = count("refresh_failed", "Failed updates of a name.")

    def ended(self, answering: RunningAnswer, started: float, answer: NodeAnswer | None) -> None:
        """Count the calls of an ended request, which began at the event-loop time `started`, and
        its answer, if it has one.
        """
        run, live = answering.run, answering.live
        if answering.asked.stream and answering.first_at is not None:
            self.first_text.labels(live.name).observe(answering.first_at - started)
        for i in answering.calling:
            labels = live.name, run.model_of(i)
            if (completion := run.completions.get(i)) is not None:
                self.call_seconds.labels(*labels).observe(completion.latency_s)
            self.calls.labels(*labels, answering.fate(i)).inc()
            if (used := answering.used_by(i)) != Usage():
                self.tokens.labels(*labels, "prompt").inc(used.prompt_tokens)
                self.tokens.labels(*labels, "completion").inc(used.completion_tokens)
                self.dollars.labels(*labels).inc(used.dollars)
        if answer is None:
            return
        tested = live.deployed.tested
        if tested.plain_cost is not None:
            saved = tested.plain_cost - answer.usage.dollars
            self.saved.labels(live.name, tested.plain).inc(saved)
        self.degraded.labels(live.name).inc(answering.degraded)
        if (route := live.deployed.graph.route) is not None:
            self.routed.labels(live.name, str(route.taken(answer.stages))).inc()

    def represents(self, model: str, before: LiveVersion | None, now: LiveVersion | None) -> None:
        """Replace a name's version `before` with the version `now`; None means no version."""
        if before is not None:
            self.deployed.remove(model, *before.labels)
        if now is not None:
            self.deployed.labels(model, *now.labels).set(1)
