"""Facts about the models of a pool: size, architecture, price, and how to name them to an endpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pipeline.errors import SettingsError


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars per million tokens, prompt and completion apart."""

    prompt: float
    completion: float

    def dollars(self, prompt_tokens: float, completion_tokens: float) -> float:
        """Price of one call with these token counts."""
        return (prompt_tokens * self.prompt + completion_tokens * self.completion) / 1e6


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One model of the pool.

    `total` and `non_embedding` are parameter counts, `layers` and `hidden` the architecture that Theorem 1 needs; `speed` is
    optional and needed only for a runtime budget: seconds per prompt token and per generated token.
    """

    name: str
    family: str
    total: float
    non_embedding: float
    layers: int
    hidden: int
    price: Price
    revision: str = "unpinned"
    speed: tuple[float, float] | None = None

    def dollars(self, prompt_tokens: float, completion_tokens: float) -> float:
        """Price of one call with these token counts."""
        return self.price.dollars(prompt_tokens, completion_tokens)


class ModelPool(Mapping[str, ModelSpec]):
    """The models a search may use, by name, in the profile's order. Raises SettingsError for a name it does not have."""

    def __init__(self, specs: tuple[ModelSpec, ...]) -> None:
        self._specs = {spec.name: spec for spec in specs}

    def __getitem__(self, name: str) -> ModelSpec:
        try:
            return self._specs[name]
        except KeyError:
            raise SettingsError(f"unknown model {name!r}; the pool has {', '.join(self._specs)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._specs)

    def __len__(self) -> int:
        return len(self._specs)

    def __contains__(self, name: object) -> bool:
        return name in self._specs

    @property
    def families(self) -> dict[str, tuple[ModelSpec, ...]]:
        """Family -> its models, smallest first."""
        found: dict[str, list[ModelSpec]] = {}
        for spec in sorted(self._specs.values(), key=lambda s: s.total):
            found.setdefault(spec.family, []).append(spec)
        return {family: tuple(specs) for family, specs in found.items()}
