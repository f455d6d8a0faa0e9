"""Section `service` of params.yaml: the server's address, access and limits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from ttsgraph.base.parsing import ClosedModel


class DriftSettings(ClosedModel):
    """Thresholds for alerts: the tolerated differences, beyond chance, between a version's last
    answers in service and its test.
    """

    accuracy: Annotated[float, Field(gt=0, le=1)] = 0.05
    """decrease in accuracy, as a share"""
    agreement: Annotated[float, Field(gt=0, le=1)] = 0.1
    """change, up or down, in how often two nodes agree, as a share"""
    cost: PositiveFloat = 0.25
    """relative increase in dollars per answer"""
    window: PositiveInt = 500
    """number of most recent answers that are considered"""
    least: PositiveInt = 100
    """minimum number of answers before an alert"""


class TrialSettings(ClosedModel):
    """Trial of `<task>@challenger` next to the champion: the challenger answers a share of the
    requests until an anytime-valid test decides (ttsgraph/deployment/promotion.py).
    """

    share: Annotated[float, Field(ge=0, le=0.5)] = 0.0
    """share of requests that the challenger answers; 0: none"""
    confidence: ClassVar = 0.95
    """1 - probability that an equal challenger is promoted"""
    most: ClassVar = 2000
    """number of scored answers after which a challenger loses if the test is still undecided"""


class FeedbackSettings(ClosedModel):
    """Storage of answers, and use of users' feedback."""

    keep: Literal["nothing", "figures", "texts"] = "nothing"
    """figures: costs, agreement and scores; texts: also questions and answers, for a
    later search
    """
    clients: PositiveInt = 3
    """minimum number of clients whose scores decide a trial or drift: each client (a key or, if
    no keys are used, an address) has at most 1/clients of the weight
    """
    drift: ClassVar = DriftSettings()
    """thresholds of alerts"""
    trial: TrialSettings = TrialSettings()
    """trial of a challenger against the champion"""

    @model_validator(mode="after")
    def _can_judge(self) -> FeedbackSettings:
        if self.trial.share and self.keep == "nothing":
            raise ValueError(
                "expected 'keep' to be 'figures' or 'texts' for a challenger's trial, found"
                " 'nothing': without scores, nothing can be decided"
            )
        return self


class ServiceSettings(ClosedModel):
    """Settings of `ttsgraph serve`."""

    host: str = "127.0.0.1"
    """address to listen on"""
    port: Annotated[int, Field(ge=0, le=65535)] = 8080
    """port to listen on; 0: any free port"""
    keys_file: Path | None = None
    """file with keys besides the one in TTSGRAPH_API_KEY: each line has a key's SHA-256 in hex and
    the key's name; the file is reloaded when it changes
    """
    max_input_tokens: PositiveInt = 8192
    """maximum estimated tokens of all messages of a request together"""
    concurrency: PositiveInt = 256
    """maximum number of requests answered in parallel; further clients are asked to retry"""
    timeout_s: PositiveFloat = 300
    """seconds for one answer"""
    max_retries: int = Field(default=6, ge=0)
    """maximum number of retries of a call that fails temporarily, each after about twice the
    previous wait, as long as the call has time; all together are at most 30 % of a version's calls,
    but a few are always allowed
    """
    retry_share: ClassVar = 0.3
    """maximum number of retries as a share of a version's calls; a few are always allowed"""
    quorum: Annotated[float, Field(gt=0, le=1)] = 0.5
    """share of a vote's voters that have to answer; the others may fail"""
    fallback: bool = False
    """let a node whose model fails pass on its input, instead of failing the request"""
    feedback: FeedbackSettings = FeedbackSettings()
    """storage of answers, and use of feedback"""
