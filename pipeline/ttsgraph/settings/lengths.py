"""How much a task's calls read and write, as settings: what costs follow from."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, PositiveFloat, model_validator

from ttsgraph.base.errors import SettingsError
from ttsgraph.base.parsing import Closed
from ttsgraph.graphs.budget import Lengths
from ttsgraph.pool.spec import ModelPool


class MeasuredLengths(Closed):
    """What one member of the pool reads and writes on average, as the profile stage measured it
    (`Lengths`).
    """

    prompt_tokens: Annotated[float, Field(ge=0)]
    """of a question's prompt, on average"""
    generated_tokens: Annotated[float, Field(ge=0)]
    """of an answer, on average"""
    read_tokens: Annotated[float, Field(ge=0)]
    """that each answer read adds to a prompt"""
    more_tokens: Annotated[float, Field(ge=0)]
    """that each answer read adds to the answer"""
    by_role: dict[str, tuple[float, float]] = Field(
        default_factory=dict, exclude_if=lambda by_role: not by_role
    )
    """the last two, in each role in which they were measured"""


class LengthSettings(Closed):
    """A task's average prompt and generation lengths in tokens, from which costs follow until they
    are measured.
    """

    prompt_tokens: PositiveFloat | None = None
    """of a question's prompt, on average"""
    generated_tokens: PositiveFloat | None = None
    """of an answer, on average"""
    measured: dict[str, MeasuredLengths] = Field(
        default_factory=dict, exclude_if=lambda measured: not measured
    )
    """by member of the pool; the stages put it here"""

    @model_validator(mode="after")
    def _both(self) -> LengthSettings:
        if (self.prompt_tokens is None) != (self.generated_tokens is None):
            raise ValueError(
                "expected prompt_tokens and generated_tokens, or neither, so that they are"
                " measured; found one"
            )
        return self

    @property
    def given(self) -> Lengths | None:
        """What the profile says, if it does."""
        if self.prompt_tokens is None or self.generated_tokens is None:
            return None
        return Lengths(self.prompt_tokens, self.generated_tokens)

    def value(self) -> Lengths:
        """What the profile says. Raises SettingsError where it says nothing."""
        if self.given is None:
            raise SettingsError(
                "expected lengths (prompt_tokens and generated_tokens) of a task, found none"
            )
        return self.given

    def of(self, pool: ModelPool, task: str) -> dict[str, Lengths]:
        """By member of the pool: what was measured, else what the profile says. Raises
        SettingsError where neither is there.
        """
        found = {name: Lengths(**measured.model_dump()) for name, measured in self.measured.items()}
        for name in pool:
            if name not in found and self.given is None:
                raise SettingsError(
                    f"task {task!r}: what {name!r} reads and writes is not measured yet, and costs"
                    f" follow from it; run `python -m ttsgraph_flows.profile --task {task}`,"
                    " or give lengths in the profile"
                )
        return {name: found.get(name) or self.value() for name in pool}
