"""What guides Agent-REINFORCE (paper, section 5.2): what an agent knows, which model multisets are
legal, and its exchanges with a language model. What it may answer is in answers.py.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ttsgraph.agent.history import Scored
from ttsgraph.evaluation.objective import ACCURACY, Objective
from ttsgraph.graphs.budget import Budget, CostModel
from ttsgraph.graphs.topologies import least_cost
from ttsgraph.models.client import Completion, Message, Usage

if TYPE_CHECKING:  # it loads scipy, and most stages have agents' words alone
    pass

Counts = Mapping[str, int]
"""A model multiset: model name -> instances."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A model multiset that was tried: its mean score over topologies, under the search's
    objective, and the questions scored.
    """

    counts: Counts
    score: float
    n_scored: int


@dataclass(frozen=True, slots=True)
class Brief:
    """What an agent knows before the loop: the task, the budget, with the pool and its costs, and
    single-model accuracies.

    `objective` is what the search maximises: accuracy, or latency too (A.9). `pilot` are the graphs
    of the pilot sweeps with what they scored, also those over the budget; none where no pilot was
    run. `greedy` are the members of the pool that always give a question the same answer, so that
    asking them twice adds nothing. `notes` are lines on what else is known of graphs, the most
    telling first. `questions` are the texts of training questions by id, for examples.
    """

    task: str
    budget: Budget
    single_scores: Mapping[str, float]
    roles: Sequence[str]
    objective: Objective = ACCURACY
    pilot: Sequence[Scored] = ()
    greedy: frozenset[str] = frozenset()
    notes: Sequence[str] = ()
    questions: Mapping[str, str] = field(default_factory=dict)

    @property
    def cost(self) -> CostModel:
        """What calls and graphs cost."""
        return self.budget.cost

    @property
    def joint(self) -> bool:
        """Whether latency counts as well as accuracy."""
        return self.objective.joint


@dataclass(frozen=True, slots=True)
class Preference:
    """Models from most to least preferred, and why."""

    models: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Exchange:
    """One question to a language model that acts as agent, its answer, and what came of it.

    `messages` are the prompt, or, where an answer was sent back, what was sent after the prompt:
    that answer and its problems. `stage` is family_size, instances or update; `attempt` counts from
    1 and is above it when an invalid answer was sent back. `applied` is the legal part that is
    used, empty when the answer was sent back; `refused` says what was wrong with the rest.
    """

    stage: str
    attempt: int
    messages: Sequence[Mapping[str, str]]
    answer: str
    applied: Mapping[str, Any]
    refused: Sequence[str]
    prompt_tokens: int
    completion_tokens: int
    dollars: float
    seconds: float
    cached: bool

    @property
    def usage(self) -> Usage:
        """Tokens and dollars; an answer from the call cache was paid for earlier."""
        spent = 0.0 if self.cached else self.dollars
        return Usage(
            self.prompt_tokens, self.completion_tokens, self.dollars, spent, 1, int(self.cached)
        )


@dataclass(frozen=True, slots=True)
class AgentReply:
    """An agent model's completion, and its price in dollars."""

    completion: Completion
    dollars: float


Chat = Callable[[Sequence[Message], str, str], AgentReply]
"""(messages, the answer's name, its JSON schema) -> the model's reply. How an agent reaches a
language model: it is given this.
"""


def family_size_trials(brief: Brief) -> list[Counts]:
    """Stage 1's trials: each model once, and each family's smallest model twice (section 5.2); only
    what fits the budget.
    """
    wanted: list[Counts] = [{model: 1} for model in brief.cost.pool]
    wanted += [{models[0].name: 2} for models in brief.cost.pool.families.values()]
    return [counts for counts in wanted if legal_counts(counts, brief)]


def affordable(brief: Brief) -> list[str]:
    """The models of which one call fits the budget, in the pool's order."""
    return [model for model in brief.cost.pool if brief.cost.single(model) <= brief.budget.limit]


def counts_problem(counts: Counts, brief: Brief) -> str:
    """Why a model multiset is not legal, or nothing. Legal: known models, positive counts, within
    max_nodes and the budget.
    """
    unknown = next((model for model in counts if model not in brief.cost.pool), None)
    if unknown is not None:
        return f"unknown model {unknown!r}; the pool has {', '.join(brief.cost.pool)}"
    wrong = next((model for model, count in counts.items() if count < 1), None)
    if wrong is not None or not counts:
        return f"expected at least one instance of each model, found {dict(counts)}"
    total = sum(counts.values())
    if total > brief.budget.max_nodes:
        return f"{total} instances are over the limit of {brief.budget.max_nodes}"
    least = brief.cost.floor(counts)
    if least <= brief.budget.limit:  # costs more to find, so only where it matters
        least = least_cost(counts, brief.cost)
    return (
        ""
        if least <= brief.budget.limit
        else f"{dict(counts)} costs at least {least:.4g}, over the budget {brief.budget.limit:g}"
    )


def legal_counts(counts: Counts, brief: Brief) -> bool:
    """Whether a model multiset has no `counts_problem`."""
    return not counts_problem(counts, brief)


def most_that_fit(model: str, brief: Brief) -> int:
    """How many instances of one model the budget holds."""
    count = 0
    while legal_counts({model: count + 1}, brief):
        count += 1
    return count


def in_words(counts: Counts) -> str:
    """A model multiset in words."""
    return " + ".join(f"{count} x {model}" for model, count in counts.items())


def same_counts(a: Counts, b: Counts) -> bool:
    """Whether two multisets are equal, absent models counting as 0."""
    return Counter(a) == Counter(b)


def trace_page(exchanges: Sequence[Mapping[str, Any]]) -> str:
    """Markdown: each exchange with what was asked, answered, applied and refused. Takes `asdict` of
    exchanges.
    """
    parts = ["# What the agent was asked, and answered"]
    for number, exchange in enumerate(exchanges, 1):
        parts.append(f"## {number}. {exchange['stage']}, attempt {exchange['attempt']}")
        used = (
            f"{exchange['prompt_tokens']} + {exchange['completion_tokens']} tokens,"
            f" ${exchange['dollars']:.6f}"
        )
        if "seconds" in exchange:  # which the files of earlier stages don't say
            source = "from the call cache" if exchange["cached"] else "asked now"
            used += f", {exchange['seconds']:.1f} s, {source}"
        parts.append(used)
        parts += [_block(message["role"], message["content"]) for message in exchange["messages"]]
        parts.append(_block("answer", exchange["answer"]))
        parts.append(_block("applied", json.dumps(exchange["applied"])))
        refused = "\n".join(f"- {problem}" for problem in exchange["refused"])
        parts.append(_block("refused", refused or "nothing"))
    return "\n\n".join(parts) + "\n"


def _block(title: str, text: str) -> str:
    """A titled block of literal text, indented so that no text in it can end it."""
    return f"### {title}\n\n" + "\n".join(f"    {line}" for line in text.splitlines() or [""])
