"""Variants of a model: the same weights behind the same endpoint, asked in another way than the
task asks.

A variant is a member of the pool beside its model, named after it (`smollm2-135m:t0`). It has its
model's facts, price and revision, and its calls are the model's: two members that ask the same
share the call.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from typing import Annotated, Any

from pydantic import AfterValidator, Field, PositiveInt, model_validator

from ttsgraph.base.parsing import Closed
from ttsgraph.models.client import Sampling
from ttsgraph.models.dialect import Parameter
from ttsgraph.tasks.prompts import Prompt, Style

SEPARATOR = ":"
"""Between a model's name and a variant's. Not `@`, which stands before revisions and aliases."""

Temperature = Annotated[float, Field(ge=0, le=2)]
TopP = Annotated[float, Field(gt=0, le=1)]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_SAMPLING = ("temperature", "top_p", "max_tokens", "stop", "reasoning_effort", "left_out")
_PROMPT = ("style", "instruction")


class VariantSettings(Closed):
    """What a variant asks in another way than the task does; what is left out is the task's."""

    temperature: Temperature | None = None
    """of sampling; 0 is greedy"""
    top_p: TopP | None = None
    """share of probability that tokens are drawn from"""
    max_tokens: PositiveInt | None = None
    """of one answer"""
    stop: tuple[str, ...] | None = None
    """texts that end an answer"""
    reasoning_effort: Annotated[str, Field(pattern=r"^[a-z]+$")] | None = None
    """a request parameter of reasoning models, such as low; sent only where it is set"""
    left_out: tuple[Parameter, ...] | None = None
    """parameters that are not sent"""
    extra_body: dict[str, Any] | None = None
    """added to the request's body, such as a way to think less"""
    style: Style | None = None
    """how prompts are written"""
    instruction: str | None = None
    """in place of the task's own"""

    @model_validator(mode="after")
    def _changes_something(self) -> VariantSettings:
        if not self.changes:
            raise ValueError(
                f"expected one of {', '.join(type(self).model_fields)} in a variant, found none"
            )
        return self

    @property
    def changes(self) -> dict[str, Any]:
        """What is set, as plain data."""
        return self.model_dump(mode="json", exclude_none=True)

    @property
    def digest(self) -> str:
        """What tells this variant from others of its model, in 8 hex digits."""
        return hashlib.sha256(json.dumps(self.changes, sort_keys=True).encode()).hexdigest()[:8]

    def sampling(self, task: Sampling) -> Sampling:
        """How its completions are drawn, on a task whose own are drawn so."""
        changed = self._set(_SAMPLING)
        if self.extra_body is not None:
            changed["extra_body"] = json.dumps(self.extra_body, sort_keys=True)
        return replace(task, **changed)

    def prompt(self, task: Prompt) -> Prompt:
        """How it is spoken to, on a task that speaks to models so."""
        return replace(task, **self._set(_PROMPT))

    def _set(self, names: tuple[str, ...]) -> dict[str, Any]:
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    @property
    def words(self) -> str:
        """ "at temperature 0", "at reasoning effort low with at most 64 tokens"."""
        at = [
            f"{name.replace('_', ' ')} {value:g}"
            for name in ("temperature", "top_p")
            if (value := getattr(self, name)) is not None
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
    """How a variant is called in the pool, in graphs and in tables."""
    return f"{model}{SEPARATOR}{variant}"


def _named(variants: Mapping[str, VariantSettings]) -> Mapping[str, VariantSettings]:
    for name in variants:
        if not _NAME.fullmatch(name):
            raise ValueError(
                "expected a variant named with letters, digits, '.', '_' and '-' only, found"
                f" {name!r}"
            )
    for one, other in combinations(variants, 2):
        if variants[one] == variants[other]:
            raise ValueError(
                f"expected variants that differ, found {one!r} and {other!r} with the same settings"
            )
    return variants


Variants = Annotated[dict[str, VariantSettings], AfterValidator(_named)]
