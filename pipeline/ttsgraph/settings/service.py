"""The `service` section of params.yaml: where the server listens, who may ask, and how much."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt, field_validator, model_validator

from ttsgraph.base.parsing import Closed


class TraceSettings(Closed):
    """Where the traces of served requests go, and what they show."""

    endpoint: str | None = None
    """collector of OpenTelemetry's protocol over HTTP, such as http://127.0.0.1:5000/v1/traces
    of an MLflow server; without one, and without OTEL_EXPORTER_OTLP_ENDPOINT, nothing is
    traced. Headers, sampling and batches are the usual OTEL_* variables"""
    texts: bool = False
    """whether traces hold the texts of questions and answers"""
    redact: tuple[str, ...] = ()
    """regular expressions of what is hidden in those texts"""

    @field_validator("endpoint")
    @classmethod
    def _is_url(cls, url: str | None) -> str | None:
        if url is not None and not url.startswith(("http://", "https://")):
            raise ValueError("expected a URL that begins with http:// or https://")
        return url

    @field_validator("redact")
    @classmethod
    def _are_patterns(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} is no regular expression: {error}") from None
        return patterns


class DriftSettings(Closed):
    """How far what is served may be from what was tested before it is an alert: over the last
    answers of a version, beyond what chance explains.
    """

    accuracy: Annotated[float, Field(gt=0, le=1)] = 0.05
    """points lower, as a share"""
    agreement: Annotated[float, Field(gt=0, le=1)] = 0.1
    """how often two nodes agree, higher or lower"""
    cost: PositiveFloat = 0.25
    """dollars of an answer, a share more"""
    window: PositiveInt = 500
    """last answers that are looked at"""
    least: PositiveInt = 100
    """answers before anything is said of them"""


class TrialSettings(Closed):
    """`<task>@challenger` beside the champion: it answers a share of the requests until a test that
    holds at any time decides (ttsgraph/deployment/promotion.py).
    """

    share: Annotated[float, Field(ge=0, le=0.5)] = 0.0
    """of requests that the challenger answers; 0: none"""
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.95
    """1 - how often an equal may be promoted"""
    most: PositiveInt = 2000
    """the challenger's scored answers after which it has lost"""


class FeedbackSettings(Closed):
    """What is kept of answers, and done with what users say of them."""

    keep: Literal["nothing", "figures", "texts"] = "nothing"
    """figures: costs, agreement and scores; texts: also questions and answers, which a next
    search can take"""
    path: Path = Path(".ttsgraph/served.db")
    """the table, for its owner alone"""
    rows: PositiveInt = 100_000
    """answers kept, the last ones"""
    clients: PositiveInt = 3
    """nobody's scores count for more than one in so many, in a trial and in drift, so that at
    least so many keys (addresses, where there are no keys) have to judge"""
    drift: DriftSettings = DriftSettings()
    """when it is an alert"""
    trial: TrialSettings = TrialSettings()
    """champion and challenger"""

    @model_validator(mode="after")
    def _can_judge(self) -> FeedbackSettings:
        if self.trial.share and self.keep == "nothing":
            raise ValueError(
                "expected keep as figures or texts where a challenger is tried: without scores"
                " nothing can be decided"
            )
        return self


class ServiceSettings(Closed):
    """Settings of `ttsgraph serve`."""

    traces: TraceSettings = TraceSettings()
    """traces of requests, by OpenTelemetry"""
    host: str = "127.0.0.1"
    """address to listen at"""
    port: Annotated[int, Field(ge=0, le=65535)] = 8080
    """0 for a free one"""
    api_key_env: str = "TTSGRAPH_API_KEY"
    """environment variable that holds a key that clients may send"""
    keys_file: Path | None = None
    """more keys: lines of a key's SHA-256 in hex and its name, as sha256sum writes them; read
    again when it changes"""
    metrics_port: Annotated[int, Field(ge=0, le=65535)] | None = None
    """/metrics without a key, on a port that only Prometheus reaches"""
    metrics_host: str = "127.0.0.1"
    """address of that port"""
    max_body_bytes: PositiveInt = 2**20
    """of a request"""
    max_input_tokens: PositiveInt = 8192
    """of a request's messages together, as estimated"""
    concurrency: PositiveInt = 256
    """requests answered at once; more are told to come back"""
    strict: bool = False
    """whether parameters of other APIs are refused, rather than ignored and named"""
    max_connections: PositiveInt = 1024
    """open at once; beyond, those end that have sent no whole request, or new ones are told to come
    back (503)"""
    max_connections_per_client: PositiveInt = 768
    """the same for one address; a gateway has one for all"""
    receive_s: PositiveFloat = 20
    """for the head of a request to arrive, from the connection or the head's first byte on, and
    for its body"""
    timeout_s: PositiveFloat = 300
    """for one answer"""
    max_retries: int = Field(default=6, ge=0)
    """attempts of a call after the first, for what may go better then, each after about twice the
    wait; as long as the call has time, and `retry_share` allows it"""
    retry_share: Annotated[float, Field(ge=0, le=1)] = 0.3
    """further attempts as a share of a version's calls; a few are always saved up"""
    drain_s: PositiveInt = 30
    """for requests under way when the server is told to stop"""
    refresh_s: PositiveFloat = 10
    """between two looks at what a name stands for"""
    cache: bool = False
    """whether answers may come from the call cache instead of being made anew"""
    quorum: Annotated[float, Field(gt=0, le=1)] = 0.5
    """share of a vote's voices that have to answer; others may fail"""
    fallback: bool = False
    """whether a node whose model fails passes on what it was to read, instead of failing the
    request"""
    feedback: FeedbackSettings = FeedbackSettings()
    """what is kept of answers, and learnt from them"""
