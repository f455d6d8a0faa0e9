"""A task as settings: its questions, prompts, sampling, and how much its calls read and write."""

from __future__ import annotations

from collections.abc import Sequence
from operator import not_
from typing import Annotated, Any

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from ttsgraph.base.errors import SettingsError
from ttsgraph.base.parsing import Closed
from ttsgraph.models.client import Sampling
from ttsgraph.pool.engine import Probability
from ttsgraph.pool.spec import Lengths, ModelPool, Temperature, TopP
from ttsgraph.tasks import TASKS, get_task
from ttsgraph.tasks.base import Question, Task
from ttsgraph.tasks.prompts import Layout, Prompt, Style
from ttsgraph.tasks.sources import Source

FOUND_OUT: dict[str, Any] = {"readOnly": True}
"""Of what stages measure and add to a profile: no key that a user sets."""


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
    by_role: dict[str, tuple[float, float]] = Field(default_factory=dict)
    """the last two, in each role in which they were measured"""


class LengthSettings(Closed):
    """A task's average prompt and generation lengths in tokens, from which costs follow until they
    are measured.
    """

    prompt_tokens: PositiveFloat | None = None
    """of a question's prompt, on average"""
    generated_tokens: PositiveFloat | None = None
    """of an answer, on average"""
    measured: dict[str, MeasuredLengths] = Field(default={}, json_schema_extra=FOUND_OUT)
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


class SplitSettings(Closed):
    """Questions per split; `shots` are the worked examples of few-shot prompts."""

    shots: int = Field(default=0, ge=0)
    """worked examples in few-shot prompts"""
    train: PositiveInt
    """questions that trials and batches are drawn from"""
    val: PositiveInt
    """questions that choose among candidates"""
    test: PositiveInt
    """questions that no search sees"""

    def sizes(self) -> dict[str, int]:
        """Split -> number of questions, in drawing order."""
        return {"shots": self.shots, "train": self.train, "val": self.val, "test": self.test}


class PromptSettings(Closed):
    """How a task speaks to models. Without an instruction, the task's own is used; `layout` is for
    few_shot alone.
    """

    style: Style = "chat"
    """worked examples to go on from, or messages of a chat"""
    instruction: str | None = None
    """what every prompt begins with; the task's own if not given"""
    layout: Layout = Layout()
    """how few-shot prompts are written"""

    def prompt(self, task: Task, shots: Sequence[Question]) -> Prompt:
        """The value that roles build messages from."""
        instruction = task.instruction if self.instruction is None else self.instruction
        return Prompt(instruction, self.style, tuple(shots), self.layout)


class SamplingSettings(Closed):
    """How completions are drawn."""

    temperature: Temperature = 0.9
    """of sampling; 0 is greedy"""
    top_p: TopP = 1.0
    """share of probability that tokens are drawn from"""
    max_tokens: PositiveInt = 512
    """of one answer"""
    stop: tuple[str, ...] = ()
    """texts that end an answer"""

    def sampling(self) -> Sampling:
        """The value that goes into a request."""
        return Sampling(self.temperature, self.top_p, self.max_tokens, self.stop)


class TaskSettings(Closed):
    """One task: its kind (grader), source of questions, splits, prompts, sampling, and lengths for
    the budget.
    """

    kind: str
    """how answers are read and graded; docs/own-task.md lists the kinds"""
    grading: dict[str, Any] = Field(default_factory=dict, exclude_if=not_)
    """settings of the kind (docs/own-task.md)"""
    source: Source
    """where the questions come from"""
    splits: SplitSettings
    """how many questions for what"""
    prompt: PromptSettings
    """how models are asked"""
    sampling: SamplingSettings
    """how answers are drawn"""
    accuracies: dict[str, Probability] = Field(default={}, json_schema_extra=FOUND_OUT)
    """by member of the pool, for weighted votes; the stages put it here"""
    refused: tuple[str, ...] = Field(default=(), json_schema_extra=FOUND_OUT)
    """members of the pool whose provider refuses every question, so that no graph has them; the
    stages put it here"""
    lengths: LengthSettings = LengthSettings()
    """measured by the profile stage if not given"""

    @model_validator(mode="after")
    def _known_kind(self) -> TaskSettings:
        if self.kind not in TASKS:
            raise ValueError(f"expected kind as one of {', '.join(TASKS)}, found {self.kind!r}")
        try:
            get_task(self.kind, self.grading)
        except SettingsError as error:
            raise ValueError(str(error)) from None
        return self

    @property
    def task(self) -> Task:
        """The kind, with this task's settings."""
        return get_task(self.kind, self.grading)
