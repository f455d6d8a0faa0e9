"""Facts about a pool's members: size, architecture, price, names in calls, changes of variants.

A variant is a separate member (`smollm2-135m:t0`) with its model's facts, price and revision, and
with settings that differ from the task's. Members whose requests are equal share a call.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Annotated, Any

from pydantic import AfterValidator, Field, PositiveInt, model_validator

from ttsgraph.base.errors import SettingsError
from ttsgraph.base.parsing import ClosedModel
from ttsgraph.models.client import Completion, Sampling
from ttsgraph.models.dialect import Parameter
from ttsgraph.tasks.prompts import Prompt, Style

FACTS = ("total", "non_embedding", "layers", "hidden")
"""Facts about a model that Theorem 1 needs; models are also ordered by `total`."""

Tokens = Annotated[float, Field(ge=0)]
Temperature = Annotated[float, Field(ge=0, le=2)]
TopP = Annotated[float, Field(gt=0, le=1)]

_SAMPLING = ("temperature", "top_p", "max_tokens", "stop", "reasoning_effort", "left_out")
_PROMPT = ("style", "instruction")


@dataclass(frozen=True, slots=True)
class Lengths:
    """Average prompt and generation lengths of a task in tokens (A and B of the paper's A.7). Each
    answer that a call reads adds `read_tokens` to the prompt (B unless measured) and `more_tokens`
    to the completion; `by_role` has these two by role.
    """

    prompt_tokens: Tokens
    generated_tokens: Tokens
    read_tokens: Tokens | None = None
    more_tokens: Tokens = 0.0
    by_role: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def reading(self, role: str) -> Lengths:
        """Return the lengths of calls in this role."""
        read, more = self.by_role.get(role, (self.read_tokens, self.more_tokens))
        return replace(self, read_tokens=read, more_tokens=more, by_role={})

    @property
    def per_answer(self) -> float:
        """Number of prompt tokens that each answer adds to a call that reads it."""
        return self.generated_tokens if self.read_tokens is None else self.read_tokens


class VariantSettings(ClosedModel):
    """Settings of a variant; each setting that is given replaces the task's."""

    temperature: Temperature | None = None
    """sampling temperature; 0 is greedy"""
    top_p: TopP | None = None
    """share of the probability mass that tokens are drawn from"""
    max_tokens: PositiveInt | None = None
    """maximum tokens of one answer"""
    stop: tuple[str, ...] | None = None
    """strings that end an answer"""
    reasoning_effort: Annotated[str, Field(pattern=r"^[a-z]+$")] | None = None
    """request parameter of reasoning models, such as low; sent only if set"""
    left_out: tuple[Parameter, ...] | None = None
    """parameters that are not sent"""
    extra_body: dict[str, Any] | None = None
    """fields added to the request's body, such as a reasoning switch"""
    style: Style | None = None
    """style of prompts"""
    instruction: str | None = None
    """instruction in place of the task's"""

    @model_validator(mode="after")
    def _changes_something(self) -> VariantSettings:
        if not self.changes:
            raise ValueError(f"expected one of {', '.join(type(self).model_fields)}, found none")
        return self

    @property
    def changes(self) -> dict[str, Any]:
        """Given settings, as plain data."""
        return self.model_dump(mode="json", exclude_none=True)

    @property
    def digest(self) -> str:
        """Digest of this variant's settings, in 8 hex digits."""
        return hashlib.sha256(json.dumps(self.changes, sort_keys=True).encode()).hexdigest()[:8]

    def sampling(self, task: Sampling) -> Sampling:
        """Return the task's sampling with this variant's changes."""
        changed = self._set(_SAMPLING)
        if self.extra_body is not None:
            changed["extra_body"] = json.dumps(self.extra_body, sort_keys=True)
        return replace(task, **changed)

    def prompt(self, task: Prompt) -> Prompt:
        """Return the task's prompt settings with this variant's changes."""
        return replace(task, **self._set(_PROMPT))

    def _set(self, names: tuple[str, ...]) -> dict[str, Any]:
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    @property
    def words(self) -> str:
        """Description of the changes, such as "at temperature 0" or "at reasoning effort low with
        at most 64 tokens".
        """
        at = [
            f"{name.replace('_', ' ')} {value:g}"
            for name, value in self._set(("temperature", "top_p")).items()
        ]
        at += [f"reasoning effort {self.reasoning_effort}"] if self.reasoning_effort else []
        having = [f"at most {self.max_tokens} tokens"] if self.max_tokens else []
        having += ["stop sequences of its own"] if self.stop is not None else []
        having += [f"no {', '.join(self.left_out)}"] if self.left_out else []
        having += ["more of a request's body"] if self.extra_body else []
        having += [f"{self.style.replace('_', '-')} prompts"] if self.style else []
        having += ["an instruction of its own"] if self.instruction is not None else []
        return " ".join(
            [f"at {', '.join(at)}"] * bool(at) + [f"with {', '.join(having)}"] * bool(having)
        )


def variant_name(model: str, variant: str) -> str:
    """Return the name of a variant in the pool, in graphs and in tables. The separator isn't `@`,
    which precedes revisions and aliases.
    """
    return f"{model}:{variant}"


def _different(variants: Mapping[str, VariantSettings]) -> Mapping[str, VariantSettings]:
    for one, other in combinations(variants, 2):
        if variants[one] == variants[other]:
            raise ValueError(
                f"expected variants that differ, found {one!r} and {other!r} with the same settings"
            )
    return variants


VariantName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
Variants = Annotated[dict[VariantName, VariantSettings], AfterValidator(_different)]


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars per million tokens. `cached` is for prompt tokens in the endpoint's cache,
    `reasoning` for reasoning tokens of a completion; by default they cost the same as other tokens.
    """

    prompt: float
    completion: float
    cached: float | None = None
    reasoning: float | None = None

    def dollars(self, prompt_tokens: float, completion_tokens: float) -> float:
        """Return the price of one call with these token counts."""
        return (prompt_tokens * self.prompt + completion_tokens * self.completion) / 1e6

    def of(self, completion: Completion) -> float:
        """Return the price of a completion, its cached and reasoning tokens at their own prices."""
        dollars = self.dollars(completion.prompt_tokens, completion.completion_tokens)
        if self.cached is not None:
            dollars += completion.known_tokens * (self.cached - self.prompt) / 1e6
        if self.reasoning is not None:
            dollars += completion.reasoning_tokens * (self.reasoning - self.completion) / 1e6
        return dollars


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Member of the pool: a model with the task's settings, or a variant, which has its model's
    facts.

    `total` and `non_embedding` are numbers of parameters, `layers` and `hidden` describe the
    architecture; only Theorem 1 needs them, and unknown ones are None. `speed`, for a runtime
    budget, is seconds per prompt token and per generated token. `variant_of` is a variant's model,
    `variant` its changed settings.
    """

    name: str
    family: str
    total: float | None
    non_embedding: float | None
    layers: int | None
    hidden: int | None
    price: Price
    revision: str = "unpinned"
    speed: tuple[float, float] | None = None
    variant_of: str | None = None
    variant: VariantSettings | None = None
    accuracy: float | None = None
    """Accuracy of a single call on a task's training questions, if it was measured to weight
    votes.
    """

    @classmethod
    def outside(cls, name: str, family: str, price: Price, revision: str) -> ModelSpec:
        """Return a model that is called but is not in the pool, such as a judge."""
        return cls(name, family, None, None, None, None, price, revision)

    @property
    def model(self) -> str:
        """Name of the model that receives the member's calls and sets their price; for a variant,
        its base model.
        """
        return self.variant_of or self.name

    @property
    def identity(self) -> str:
        """Revision, with the digest of a variant's changes."""
        return f"{self.revision}-{self.variant.digest}" if self.variant else self.revision

    @property
    def asked_as(self) -> tuple[str, str]:
        """Name of the model and, for a variant, its changes as JSON, without temperature and
        top_p.
        """
        changes = self.variant.changes if self.variant else {}
        kept = {key: changes[key] for key in changes if key not in ("temperature", "top_p")}
        return self.model, json.dumps(kept, sort_keys=True)

    @property
    def greedy(self) -> bool:
        """True for a variant at temperature 0, for which repeating a call adds nothing."""
        return self.variant is not None and self.variant.temperature == 0

    @property
    def unknown(self) -> tuple[str, ...]:
        """Names of the missing facts among those that Theorem 1 needs."""
        return tuple(name for name in FACTS if getattr(self, name) is None)

    def sampling(self, task: Sampling) -> Sampling:
        """Return the task's sampling, with the changes of a variant."""
        return self.variant.sampling(task) if self.variant else task

    def prompt(self, task: Prompt) -> Prompt:
        """Return the task's prompt settings, with the changes of a variant."""
        return self.variant.prompt(task) if self.variant else task

    @property
    def words(self) -> str:
        """Description of the member, such as "smollm2-135m" or "smollm2-135m at temperature 0"."""
        return f"{self.model} {self.variant.words}" if self.variant else self.name


class ModelPool(dict[str, ModelSpec]):
    """Models and variants by name, in the profile's order. Raises SettingsError for an unknown name
    or an empty pool.
    """

    def __init__(self, specs: tuple[ModelSpec, ...]) -> None:
        if not specs:
            raise SettingsError(
                "expected a model in the profile's pool, found none; `ttsgraph add --url` adds one"
            )
        super().__init__({spec.name: spec for spec in specs})

    def __missing__(self, name: str) -> ModelSpec:
        raise SettingsError(f"unknown model {name!r}; the pool has {', '.join(self)}")

    @property
    def families(self) -> dict[str, tuple[ModelSpec, ...]]:
        """Models of each family, smallest first, each model before its variants: by parameters, or
        by price if some member's parameters are unknown.
        """
        sized = all(spec.total is not None for spec in self.values())

        def size(spec: ModelSpec) -> float:
            return (spec.total or 0.0) if sized else spec.price.prompt + spec.price.completion

        found: dict[str, tuple[ModelSpec, ...]] = {}
        for spec in sorted(self.values(), key=size):
            found[spec.family] = (*found.get(spec.family, ()), spec)
        return found

    @property
    def unknown(self) -> dict[str, tuple[str, ...]]:
        """Members that lack facts needed for Theorem 1, each with the missing facts."""
        return {name: spec.unknown for name, spec in self.items() if spec.unknown}
