"""A model of the pool as settings: facts, price, address or weights, and variants."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from operator import not_
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlencode, urlsplit

from pydantic import AfterValidator, Field, PositiveFloat, PositiveInt, model_validator

from ttsgraph.base.parsing import ClosedModel
from ttsgraph.models.dialect import Dialect, Parameter
from ttsgraph.pool.engine import ServeSettings
from ttsgraph.pool.spec import ModelSpec, Price, Variants, variant_name

Dollars = Annotated[float, Field(ge=0)]


def _readable(urls: str | tuple[str, ...] | None) -> str | tuple[str, ...] | None:
    for url in (urls,) if isinstance(urls, str) else urls or ():
        _ = urlsplit(url).port  # raises ValueError for an invalid port or address
    return urls


Readable = AfterValidator(_readable)
"""Validator of endpoint URLs."""

Urls = Annotated[tuple[str, ...], Field(min_length=1)]

Priced = Literal["prompt", "completion", "cached", "reasoning"]


def _both_prices(price: float | dict[Priced, float]) -> float | dict[Priced, float]:
    if isinstance(price, dict) and not {"prompt", "completion"} <= set(price):
        raise ValueError("expected a price: one number, or both prompt and completion")
    return price


PriceSetting = Annotated[Dollars | dict[Priced, Dollars], AfterValidator(_both_prices)]
"""$ per million tokens: one number, or prompt and completion by name; optionally also `cached`
(prompt tokens in the endpoint's cache) and `reasoning` (reasoning tokens of a completion).
"""


def price_of(setting: float | dict[Priced, float]) -> Price:
    """Return the price that a setting defines."""
    return Price(**setting) if isinstance(setting, dict) else Price(setting, setting)


class GgufSettings(ClosedModel):
    """A published GGUF file, verified by SHA-256 and converted once."""

    file: Annotated[str, Field(pattern=r"^[\w.-]+\.gguf$")]
    """file name, in the folder of TTSGRAPH_WEIGHTS or on the hub"""
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    """SHA-256 of the file"""
    hub: str | None = None
    """repository on the hub that has the file"""


class WeightsSettings(ClosedModel):
    """Source of a model's weights: a package's GGUF, a hub id, a folder, or a published GGUF."""

    package: str | None = None
    """a Python package that ships a GGUF file"""
    hub: str | None = None
    """id on the Hugging Face hub"""
    path: Path | None = None
    """a folder"""
    # `gguf` is left out if not given, so that models without it keep the identity of their calls.
    gguf: GgufSettings | None = Field(default=None, exclude_if=not_)
    """published GGUF file, which is converted once"""

    @model_validator(mode="after")
    def _one_of(self) -> WeightsSettings:
        sources = (self.package, self.hub, self.path, self.gguf)
        if sum(value is not None for value in sources) != 1:
            raise ValueError("expected exactly one of package, hub, path and gguf")
        return self

    @property
    def converted(self) -> bool:
        """True if `ttsgraph prepare` converts the weights into a folder."""
        return self.package is not None or self.gguf is not None


class ModelSettings(ClosedModel):
    """A model of the pool, and its variants: members with other settings for the same model."""

    price: PriceSetting
    """$ per million tokens: one number, or prompt and completion (and cached, reasoning) by name"""
    family: str | None = None
    """family, within which models are compared by size; the model's name if not given"""
    total: PositiveFloat | None = None
    """number of parameters; this and the next three are for a FLOPs budget"""
    non_embedding: PositiveFloat | None = None
    """parameters without embeddings"""
    layers: PositiveInt | None = None
    """transformer layers"""
    hidden: PositiveInt | None = None
    """hidden size"""
    revision: str = "unpinned"
    """version of the weights, part of the identity of cached calls. A different model behind an
    existing name needs a new revision
    """
    speed: tuple[PositiveFloat, PositiveFloat] | None = None
    """seconds per prompt token and per generated token, for a runtime budget"""
    weights: WeightsSettings | None = None
    """source of the weights for a server started here"""
    serve: ServeSettings = ServeSettings()
    """settings of servers started here"""
    served_as: str | None = None
    """the model's name at the endpoint, if it differs"""
    base_url: Annotated[str | Urls | None, Readable] = None
    """URL of the model's endpoint, with a query if it needs one, such as `?api-version=2024-10-21`;
    or several URLs that share the load; without one, a server is started here. URLs may change:
    calls are identified by name, served_as and revision
    """
    api_key_env: str | None = None
    """environment variable that holds the endpoint's key"""
    api_key_header: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9-]*$")] | None = None
    """header that carries the key, if it is not Authorization: Bearer"""
    query: ClassVar[dict[str, str]] = {}  # a key of earlier versions, now a part of base_url
    listed: ClassVar = ...
    tokens_key: ClassVar = "max_tokens"
    """request parameter that limits an answer's tokens, until the endpoint refuses it"""
    # The fields below are left out of a profile's hash if not given, so that profiles without them
    # keep their hash.
    left_out: tuple[Parameter, ...] = Field(default=(), exclude_if=not_)
    """parameters that are never sent; parameters that an endpoint refuses are also detected.
    Without max_tokens, max_completion_tokens is sent
    """
    extra_body: dict[str, Any] = Field(default_factory=dict, exclude_if=not_)
    """fields added to every request's body"""
    variants: Variants = Field(default_factory=dict, exclude_if=not_)
    """pool members with other settings for the same model, by name"""

    @model_validator(mode="before")
    @classmethod
    def _with_query(cls, data: Any) -> Any:
        """Add the key `query` of earlier versions to the URLs."""
        if not isinstance(data, dict) or not isinstance(query := data.get("query"), dict):
            return data
        urls = data.get("base_url")
        urls = [urls] if isinstance(urls, str) else urls
        if not query or not isinstance(urls, list | tuple):
            return data
        return data | {"query": {}, "base_url": [f"{url}?{urlencode(query)}" for url in urls]}

    @property
    def base_urls(self) -> tuple[str, ...]:
        """URLs of the model's endpoints; empty if its server is started here."""
        return (self.base_url,) if isinstance(self.base_url, str) else self.base_url or ()

    @property
    def dialect(self) -> Dialect:
        """Format of requests to the model's endpoint, as given in the profile."""
        return Dialect(frozenset(self.left_out))

    @property
    def identity(self) -> str:
        """Revision under which this model's answers are cached, with a digest of the settings that
        determine them; the address isn't part of it.
        """
        weights = self.weights and self.weights.model_dump(mode="json")
        # None and [] are places of retired fields (endpoints, and arguments of all servers), kept
        # for the cached calls.
        parts: list[Any] = [self.revision, self.served_as, None, weights, []]
        if self.left_out or self.extra_body:
            parts.append({"left_out": sorted(self.left_out), "extra_body": self.extra_body})
        return f"{self.revision}-{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:8]}"

    def specs(self, name: str) -> tuple[ModelSpec, ...]:
        """Return the facts that budget and search need: the model's, then each variant's."""
        facts = (self.total, self.non_embedding, self.layers, self.hidden)
        asked = (price_of(self.price), self.identity, self.speed)
        plain = ModelSpec(name, self.family or name, *facts, *asked)
        return plain, *(
            replace(plain, name=variant_name(name, v), variant_of=name, variant=variant)
            for v, variant in self.variants.items()
        )
