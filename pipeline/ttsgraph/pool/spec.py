"""Facts about the members of a pool: size, architecture, price, how their calls name them, and what
a variant asks otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ttsgraph.base.errors import SettingsError
from ttsgraph.models.client import Completion, Sampling
from ttsgraph.pool.variants import VariantSettings
from ttsgraph.tasks.prompts import Prompt

SAMPLING = ("temperature", "top_p")

FACTS = ("total", "non_embedding", "layers", "hidden")
"""What Theorem 1 takes from a model, and a size to order models by."""


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars per million tokens, prompt and completion apart.

    `cached` is for prompt tokens that the endpoint had in its own cache, `reasoning` for those of a
    completion that are reasoning; where they are not given, such tokens cost what the others do.
    """

    prompt: float
    completion: float
    cached: float | None = None
    reasoning: float | None = None

    def dollars(self, prompt_tokens: float, completion_tokens: float) -> float:
        """Price of one call with these token counts."""
        return (prompt_tokens * self.prompt + completion_tokens * self.completion) / 1e6

    def of(self, completion: Completion) -> float:
        """What one call was charged."""
        dollars = self.dollars(completion.prompt_tokens, completion.completion_tokens)
        if self.cached is not None:
            dollars += completion.known_tokens * (self.cached - self.prompt) / 1e6
        if self.reasoning is not None:
            dollars += completion.reasoning_tokens * (self.reasoning - self.completion) / 1e6
        return dollars


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One member of the pool: a model as the task asks it, or a variant of one, which has its
    facts.

    `total` and `non_embedding` are parameter counts, `layers` and `hidden` the architecture;
    Theorem 1 needs them, and nothing else does: they are None where they are not known, as of a
    closed model. `speed` is needed only for a runtime budget: seconds per prompt token and per
    generated token. Of a variant, `variant_of` is its model, and `variant` what it asks in another
    way.
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
    """Alone on a task's training questions, where that was measured and weighs votes."""

    @property
    def model(self) -> str:
        """The model that its calls go to, for endpoints, prices and call keys: of a variant, the
        one that it is a variant of.
        """
        return self.variant_of or self.name

    @property
    def identity(self) -> str:
        """What tells it from every other member under its name: the model's revision, and what a
        variant asks in another way.
        """
        return f"{self.revision}-{self.variant.digest}" if self.variant else self.revision

    @property
    def asked_as(self) -> tuple[str, str]:
        """What members that differ in sampling alone have in common: their model, and what else of
        a call a variant changes.
        """
        changes = self.variant.changes if self.variant else {}
        kept = {name: value for name, value in changes.items() if name not in SAMPLING}
        return self.model, json.dumps(kept, sort_keys=True)

    @property
    def greedy(self) -> bool:
        """Whether it is a variant that gives the same answer to the same question, so that asking
        it again adds nothing.
        """
        return self.variant is not None and self.variant.temperature == 0

    @property
    def unknown(self) -> tuple[str, ...]:
        """Which facts of Theorem 1 are not known."""
        return tuple(name for name in FACTS if getattr(self, name) is None)

    def sampling(self, task: Sampling) -> Sampling:
        """How its completions are drawn, on a task whose own are drawn so."""
        return self.variant.sampling(task) if self.variant else task

    def prompt(self, task: Prompt) -> Prompt:
        """How it is spoken to, on a task that speaks to models so."""
        return self.variant.prompt(task) if self.variant else task

    @property
    def words(self) -> str:
        """ "smollm2-135m", "smollm2-135m at temperature 0"."""
        return f"{self.model} {self.variant.words}" if self.variant else self.name

    def dollars(self, prompt_tokens: float, completion_tokens: float) -> float:
        """Price of one call with these token counts."""
        return self.price.dollars(prompt_tokens, completion_tokens)


class ModelPool(Mapping[str, ModelSpec]):
    """The models and variants that a search may use, by name, in the profile's order.

    Raises SettingsError for a name it does not have, and without any.
    """

    def __init__(self, specs: tuple[ModelSpec, ...]) -> None:
        if not specs:
            raise SettingsError(
                "expected a model in the profile's pool, found none; `ttsgraph new-model` adds one"
            )
        self._specs = {spec.name: spec for spec in specs}

    def __getitem__(self, name: str) -> ModelSpec:
        try:
            return self._specs[name]
        except KeyError:
            raise SettingsError(
                f"unknown model {name!r}; the pool has {', '.join(self._specs)}"
            ) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._specs)

    def __len__(self) -> int:
        return len(self._specs)

    def __contains__(self, name: object) -> bool:
        return name in self._specs

    @property
    def families(self) -> dict[str, tuple[ModelSpec, ...]]:
        """Family -> its models, smallest first, each before its variants."""
        found: dict[str, list[ModelSpec]] = {}
        for spec in self.by_size:
            found.setdefault(spec.family, []).append(spec)
        return {family: tuple(specs) for family, specs in found.items()}

    @property
    def by_size(self) -> tuple[ModelSpec, ...]:
        """All members, smallest first: by their parameters, or where not all of these are known by
        their prices.
        """
        specs = self._specs.values()
        if any(spec.total is None for spec in specs):
            return tuple(sorted(specs, key=lambda spec: spec.price.prompt + spec.price.completion))
        return tuple(sorted(specs, key=lambda spec: spec.total or 0.0))

    @property
    def unknown(self) -> dict[str, tuple[str, ...]]:
        """Members of which not all that Theorem 1 needs is known, and what is missing."""
        return {name: spec.unknown for name, spec in self._specs.items() if spec.unknown}
