"""A task as settings: questions, prompts, sampling, and token lengths of its calls."""

from __future__ import annotations

from collections.abc import Sequence
from operator import not_
from typing import Any

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from ttsgraph.base.errors import SettingsError
from ttsgraph.base.parsing import ClosedModel
from ttsgraph.models.client import Sampling
from ttsgraph.pool.engine import Probability
from ttsgraph.pool.spec import Lengths, ModelPool, Temperature, TopP
from ttsgraph.tasks import get_task
from ttsgraph.tasks.base import Question, Task
from ttsgraph.tasks.prompts import Layout, Prompt, Style
from ttsgraph.tasks.sources import Source

FOUND_OUT: dict[str, Any] = {"readOnly": True}
"""Mark of fields for measurements, which are set by stages and not by users."""


class LengthSettings(ClosedModel):
    """Mean lengths of a task's prompts and answers in tokens. They determine costs until lengths
    are measured.
    """

    prompt_tokens: PositiveFloat | None = None
    """mean tokens of a question's prompt"""
    generated_tokens: PositiveFloat | None = None
    """mean tokens of an answer"""
    measured: dict[str, Lengths] = Field(default={}, json_schema_extra=FOUND_OUT)
    """lengths by pool member; added by the stages"""

    @model_validator(mode="after")
    def _both(self) -> LengthSettings:
        if (self.prompt_tokens is None) != (self.generated_tokens is None):
            raise ValueError(
                "expected both prompt_tokens and generated_tokens, or neither (then they are"
                " measured), found only one"
            )
        return self

    @property
    def given(self) -> Lengths | None:
        """Lengths given in the profile, or None."""
        if self.prompt_tokens is None or self.generated_tokens is None:
            return None
        return Lengths(self.prompt_tokens, self.generated_tokens)

    def of(self, pool: ModelPool, task: str) -> dict[str, Lengths]:
        """Return the lengths by pool member: measured ones, or else those given in the profile.
        Raises SettingsError if a member has neither.
        """
        found = {}
        for name in pool:
            lengths = self.measured.get(name) or self.given
            if lengths is None:
                raise SettingsError(
                    f"task {task!r}: expected lengths of {name!r}, on which costs depend, but they"
                    f" aren't measured yet; run `python -m ttsgraph_flows.profile --task {task}`,"
                    " or give lengths in the profile"
                )
            found[name] = lengths
        return found


class SplitSettings(ClosedModel):
    """Questions per split; `shots` are the worked examples of few-shot prompts."""

    shots: int = Field(default=0, ge=0)
    """worked examples in few-shot prompts"""
    train: PositiveInt
    """questions for trials and batches"""
    val: PositiveInt
    """questions for choosing among candidates"""
    test: PositiveInt
    """questions that no search sees"""

    def sizes(self) -> dict[str, int]:
        """Return the number of questions per split, in drawing order."""
        return {"shots": self.shots, "train": self.train, "val": self.val, "test": self.test}


class PromptSettings(ClosedModel):
    """Prompts of a task. Without an instruction, the kind's own is used; `layout` is only for
    few_shot.
    """

    style: Style = "chat"
    """few_shot: worked examples to continue; chat: messages"""
    instruction: str | None = None
    """start of every prompt; if not given, the kind's own instruction"""
    layout: Layout = Layout()
    """form of few-shot prompts"""

    def prompt(self, task: Task, shots: Sequence[Question]) -> Prompt:
        """Return the prompt settings from which roles build messages."""
        instruction = task.instruction if self.instruction is None else self.instruction
        return Prompt(instruction, self.style, tuple(shots), self.layout)


class SamplingSettings(ClosedModel):
    """Sampling of completions."""

    temperature: Temperature = 0.9
    """sampling temperature; 0 is greedy"""
    top_p: TopP = 1.0
    """share of the probability mass that tokens are drawn from"""
    max_tokens: PositiveInt = 512
    """maximum tokens of one answer"""
    stop: tuple[str, ...] = ()
    """strings that end an answer"""

    def sampling(self) -> Sampling:
        """Return the sampling parameters of a request."""
        return Sampling(self.temperature, self.top_p, self.max_tokens, self.stop)


class TaskSettings(ClosedModel):
    """One task: its kind (grader), source of questions, splits, prompts, sampling, and lengths for
    the budget.
    """

    kind: str
    """kind of task, which defines the parsing and grading of answers; docs/own-task.md lists the
    kinds
    """
    grading: dict[str, Any] = Field(default_factory=dict, exclude_if=not_)
    """settings of the kind (docs/own-task.md)"""
    source: Source
    """source of the questions"""
    splits: SplitSettings
    """number of questions per split"""
    prompt: PromptSettings
    """prompts of models"""
    sampling: SamplingSettings
    """sampling of answers"""
    accuracies: dict[str, Probability] = Field(default={}, json_schema_extra=FOUND_OUT)
    """accuracy by pool member, for weighted votes; added by the stages"""
    refused: tuple[str, ...] = Field(default=(), json_schema_extra=FOUND_OUT)
    """pool members that no graph uses, because their provider refuses every question; added by the
    stages
    """
    lengths: LengthSettings = LengthSettings()
    """mean lengths of prompts and answers; if not given, the profile stage measures them"""

    @model_validator(mode="after")
    def _known_kind(self) -> TaskSettings:
        try:
            get_task(self.kind, self.grading)
        except SettingsError as error:
            raise ValueError(str(error)) from None
        return self

    @property
    def task(self) -> Task:
        """Task of this kind, with these settings."""
        return get_task(self.kind, self.grading)
