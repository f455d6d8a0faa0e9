"""A model of the pool as settings: its facts, its price, where it is reached or found, and its
variants.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PositiveFloat, PositiveInt, model_validator

from ttsgraph.base.parsing import Closed
from ttsgraph.models.dialect import Dialect, Parameter, TokensKey
from ttsgraph.pool.engine import EngineSettings, ServeSettings
from ttsgraph.pool.judge import JUDGE  # and registers the kind
from ttsgraph.pool.spec import ModelSpec, Price, Variants, variant_name
from ttsgraph.tasks.base import AskingTask, Task

Dollars = Annotated[float, Field(ge=0)]


Priced = Literal["prompt", "completion", "cached", "reasoning"]


def _both_prices(price: float | dict[Priced, float]) -> float | dict[Priced, float]:
    if isinstance(price, dict) and not {"prompt", "completion"} <= set(price):
        raise ValueError("expected price as one number, or as prompt and completion")
    return price


PriceSetting = Annotated[Dollars | dict[Priced, Dollars], AfterValidator(_both_prices)]
"""$ per million tokens: one number, or prompt and completion by name; where they differ also
`cached` (prompt tokens in the endpoint's cache) and `reasoning` (of a completion).
"""


def price_of(setting: float | dict[Priced, float]) -> Price:
    """The value that costs are worked out from."""
    return Price(**setting) if isinstance(setting, dict) else Price(setting, setting)


def _none(value: Any) -> bool:
    return not value


class GgufSettings(Closed):
    """A GGUF as somebody released it: its bytes are checked, then converted once."""

    file: Annotated[str, Field(pattern=r"^[\w.-]+\.gguf$")]
    """its name, in the folder of TTSGRAPH_WEIGHTS or at the hub"""
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    """of its bytes"""
    hub: str | None = None
    """the hub's repository that has it"""


class WeightsSettings(Closed):
    """The source of a model's weights: a package's GGUF, a hub id, a folder, a GGUF by SHA-256."""

    package: str | None = None
    """a Python package that ships a GGUF file"""
    hub: str | None = None
    """an id of the Hugging Face hub"""
    path: Path | None = None
    """a folder"""
    # Left out where it isn't given, so that models of other kinds stay what their calls know.
    gguf: GgufSettings | None = Field(default=None, exclude_if=_none)
    """a GGUF as somebody released it, which is converted once"""

    @model_validator(mode="after")
    def _one_of(self) -> WeightsSettings:
        given = (self.package, self.hub, self.path, self.gguf)
        if sum(value is not None for value in given) != 1:
            raise ValueError("expected exactly one of package, hub, path and gguf")
        return self

    @property
    def converted(self) -> bool:
        """True if `ttsgraph prepare` makes a folder of it."""
        return self.package is not None or self.gguf is not None


def judge_specs(task: Task) -> tuple[ModelSpec, ...]:
    """The judges of a kind of task, as calls name them; none of a kind that asks no models."""
    models = task.options.models if isinstance(task, AskingTask) else {}
    return tuple(
        ModelSpec(
            f"{JUDGE}{name}", name, None, None, None, None, price_of(model.price), model.revision
        )
        for name, model in models.items()
    )


class ModelSettings(Closed):
    """One model of the pool, and its variants: members that ask it in another way."""

    price: PriceSetting
    """$ per million tokens: one number, or prompt and completion (and cached, reasoning) by name"""
    family: str | None = None
    """models of one family are compared by size; its own name if not given"""
    total: PositiveFloat | None = None
    """parameters; this and the next three are for a FLOPs budget"""
    non_embedding: PositiveFloat | None = None
    """parameters without embeddings"""
    layers: PositiveInt | None = None
    """transformer layers"""
    hidden: PositiveInt | None = None
    """hidden size"""
    revision: str = "unpinned"
    """which weights these are; calls in the cache are told apart by it. Another model behind an
    old name needs another revision"""
    speed: tuple[PositiveFloat, PositiveFloat] | None = None
    """seconds per prompt token and per generated token, for a budget of time"""
    weights: WeightsSettings | None = None
    """where a server that is started here finds them"""
    serve: ServeSettings = ServeSettings()
    """how it is served here"""
    served_as: str | None = None
    """the model's name at the endpoint, if it differs"""
    base_url: str | Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """its endpoint; several share the load. A model without one is started here. It may move:
    calls are known by name, served_as and revision"""
    api_key_env: str | None = None
    """environment variable that holds the endpoint's key"""
    api_key_header: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9-]*$")] | None = None
    """the header that carries the key, where it is not Authorization: Bearer"""
    query: dict[str, str] = Field(default_factory=dict)
    """added to every URL, such as an api-version"""
    tokens_key: TokensKey = "max_tokens"
    """how requests bound an answer's tokens"""
    listed: bool = True
    """false: its endpoint serves it under a name that it does not list"""
    # What follows is left out of a profile's hash where it is not given: a profile without it has
    # the hash that it always had.
    left_out: tuple[Parameter, ...] = Field(default=(), exclude_if=_none)
    """parameters that are never sent; refused ones are found out without this"""
    system_role: bool = Field(default=True, exclude_if=bool)
    """false: system messages are put into the user's turn; found out without this"""
    extra_body: dict[str, Any] = Field(default_factory=dict, exclude_if=_none)
    """added to every request's body"""
    variants: Variants = Field(default_factory=dict, exclude_if=_none)
    """members of the pool that ask the same model in another way, by name"""

    @property
    def base_urls(self) -> tuple[str, ...]:
        """Its endpoints, none where a server is started here."""
        return (self.base_url,) if isinstance(self.base_url, str) else self.base_url or ()

    @property
    def dialect(self) -> Dialect:
        """The form of requests to its endpoint, as far as the profile says."""
        return Dialect(self.tokens_key, frozenset(self.left_out), self.system_role)

    def identity(self, engine: EngineSettings) -> str:
        """The key of this model's answers in the cache; where it is served isn't part of it."""
        parts: list[Any] = [
            self.revision,
            self.served_as,
            None,  # where endpoints once stood; calls that were kept are found by it
            self.weights and self.weights.model_dump(mode="json"),
            [],  # where arguments of all servers once were, likewise
        ]
        if self.left_out or self.extra_body:
            parts.append({"left_out": sorted(self.left_out), "extra_body": self.extra_body})
        return f"{self.revision}-{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:8]}"

    def specs(self, name: str, engine: EngineSettings) -> tuple[ModelSpec, ...]:
        """The facts that budget and search need, of the model and then of each variant."""
        facts = (self.total, self.non_embedding, self.layers, self.hidden)
        asked = (price_of(self.price), self.identity(engine), self.speed)
        plain = ModelSpec(name, self.family or name, *facts, *asked)
        return plain, *(
            replace(plain, name=variant_name(name, v), variant_of=name, variant=variant)
            for v, variant in self.variants.items()
        )
