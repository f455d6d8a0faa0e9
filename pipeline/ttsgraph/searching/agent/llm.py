"""A language model as the search agent, with prompts from template files and typed JSON answers
(paper, section 5.2 and A.12).

An answer that is not legal is sent back with the exact errors, at most `reasks` times; of the last
one the legal part is used and the rest dropped. Every exchange is kept for the history. The model
is reached through `speak`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import jinja2
import numpy as np

from ttsgraph.base.arrays import FloatArray
from ttsgraph.base.errors import SettingsError
from ttsgraph.graphs.distribution import GraphDistribution
from ttsgraph.graphs.roles import ASSISTANT, get_role
from ttsgraph.models.client import AgentReply, Chat, Message, estimate_tokens
from ttsgraph.searching.agent import context
from ttsgraph.searching.agent.answers import (
    AgentAnswer,
    Combinations,
    Edits,
    Ranking,
    WiringEdits,
    check_edits,
    read_answer,
    shown,
)
from ttsgraph.searching.agent.base import (
    Brief,
    Counts,
    Exchange,
    History,
    Preference,
    Trial,
    affordable,
    counts_problem,
)
from ttsgraph.searching.agent.heuristic import HeuristicAgent
from ttsgraph.settings.profile import AgentSettings

PROMPTS = Path(__file__).with_name("prompts")
FIRST_SHARE = 0.7
"""Share of the context that the first prompt may fill; the rest is for an answer that is sent back
and its problems.
"""

PROBLEMS_SHOWN = 12
ANSWER_KEPT = 20_000
PROBLEMS_KEPT = 200
"""Characters of an answer, and number of problems, that the trace keeps."""

A = TypeVar("A", bound=AgentAnswer)


LegalPart = tuple[Mapping[str, Any], Sequence[str]]
"""Legal part of an answer as plain data, and the reasons why the rest was refused."""


class LLMAgent(HeuristicAgent):
    """Search agent that follows a language model's answers.

    Without insight 1 the init stages don't ask it: the rules draw the start at random. They also
    replace an answer of the init stages without a legal part, as a search must start somewhere. The
    loop has no fallback; an update without a legal part changes nothing.
    """

    def __init__(self, rng: np.random.Generator, settings: AgentSettings, speak: Chat) -> None:
        super().__init__(rng, settings)
        self._speak = speak

    def select_family_size(self, brief: Brief, trials: Sequence[Trial]) -> Preference:
        """Ask for a ranking of the models that fit the budget; missing models follow by their
        accuracy.
        """
        if not self.settings.insight_1:
            return super().select_family_size(brief, trials)
        candidates = affordable(brief)

        def check(answer: Ranking) -> LegalPart:
            legal: list[str] = []
            refused = []
            for model in answer.ranking:
                if model not in candidates:
                    refused.append(
                        f"ranking: {model!r} is not a candidate; expected {', '.join(candidates)}"
                    )
                elif model in legal:
                    refused.append(f"ranking: {model!r} stands twice")
                else:
                    legal.append(model)
            missing = [model for model in candidates if model not in legal]
            if missing:
                refused.append(f"ranking: {', '.join(missing)} not ranked")
            return {"ranking": legal}, refused

        def prompt(room: int) -> str:
            tables = {
                "candidates": context.pool_table(brief, candidates, room * 4 // 10),
                "trials": context.trial_table(trials, room * 4 // 10),
                "pilot": context.pilot_table(brief, room * 2 // 10),
            }
            return self._render("family_size", brief, example=_quoted(candidates[:1]), **tables)

        answer, applied = self._converse("family_size", prompt, Ranking, check)
        ranked = list(applied["ranking"])
        if not ranked:
            return super().select_family_size(brief, trials)
        missing = [model for model in candidates if model not in ranked]
        missing.sort(key=lambda model: -brief.single_scores.get(model, 0.0))
        return Preference((*ranked, *missing), answer.reason)

    def select_instances(self, brief: Brief, preference: Preference, limit: int) -> list[Counts]:
        """Ask for model combinations; use the rules' own if none is legal."""
        if not self.settings.insight_1:
            return super().select_instances(brief, preference, limit)

        def check(answer: Combinations) -> LegalPart:
            legal: list[Counts] = []
            refused = []
            for combination in answer.combinations:
                counts = combination.counts
                if problem := counts_problem(counts, brief):
                    refused.append(f"combination: {problem}")
                elif any(Counter(counts) == Counter(other) for other in legal):
                    refused.append(f"combination {dict(counts)} stands twice")
                elif len(legal) == limit:
                    refused.append(f"combination {dict(counts)} is beyond the {limit} asked for")
                else:
                    legal.append(counts)
            if not legal and not refused:
                refused.append("expected at least one combination, found none")
            return {"combinations": legal}, refused

        def prompt(room: int) -> str:
            models = preference.models
            tables = {
                "candidates": context.pool_table(brief, affordable(brief), room * 4 // 10),
                "pilot": context.pilot_table(brief, room * 2 // 10),
                "preference": context.fit(models, room * 4 // 10, separator=", "),
                "example": _quoted(models[:1]),
            }
            most = brief.budget.max_nodes
            return self._render("instances", brief, limit=limit, max_nodes=most, **tables)

        _, applied = self._converse("instances", prompt, Combinations, check)
        return list(applied["combinations"]) or super().select_instances(brief, preference, limit)

    def update(self, distribution: GraphDistribution, history: History, brief: Brief) -> Edits:
        """Ask for changes to the distribution and a graph to try; `apply_edits` drops illegal parts
        of the last answer.

        If models are open the agent sees the drawn ones, and may change their probabilities too.
        """
        open_models = bool(distribution.open_models().any())
        knows_scaling = self.settings.insight_2 or self.settings.insight_3

        def check(answer: WiringEdits) -> LegalPart:
            checked = check_edits(distribution, _edits(answer), brief)
            return checked.applied, checked.refused

        def prompt(room: int) -> str:
            pilot = context.pilot_table(brief, room // 10) if knows_scaling else ""
            left = room * 9 // 10 - estimate_tokens(pilot)
            evidence = self.settings.evidence
            tables = context.update_tables(distribution, history, brief, left, evidence)
            # fixed models of the nodes, each once
            models = distribution.models if open_models else dict.fromkeys(distribution.assigned)
            return self._render(
                "update",
                brief,
                roles=distribution.roles,
                sink=distribution.ids[-1],
                pool=context.pool_table(brief, list(models), room // 10),
                open_models=open_models,
                pilot=pilot,
                notes=context.fit(brief.notes, room // 10),
                reading=brief.reading,
                without_call=[r for r in brief.roles if not get_role(r).calls_model],
                example=_example(distribution, open_models),
                **tables,
            )

        answer, _ = self._converse("update", prompt, Edits if open_models else WiringEdits, check)
        return _edits(answer)

    def _render(self, name: str, brief: Brief, **values: Any) -> str:
        return _template(name).render(
            task=brief.task,
            budget=f"{brief.budget.limit:g}",
            metric=brief.cost.metric,
            joint=brief.joint,
            weight=f"{brief.objective.weight:g}",
            half_s=f"{brief.objective.half_s:g}",
            agent=self.settings,
            **values,
        )

    def _converse(
        self,
        stage: str,
        prompt: Callable[[int], str],
        kind: type[A],
        check: Callable[[A], LegalPart],
    ) -> tuple[A, Mapping[str, Any]]:
        """Ask, repeating with the errors until there are none; return the last answer and its legal
        part.
        """
        settings = self.settings
        schema = json.dumps(kind.model_json_schema(mode="serialization"))
        first = Message("user", self._bounded(prompt))
        messages = [first]
        news = [first]
        for attempt in range(1, settings.reasks + 2):
            reply = self._speak(messages, stage, schema)
            text = reply.completion.text
            answer, malformed = read_answer(text, kind)
            if malformed and reply.completion.completion_tokens >= settings.max_tokens:
                malformed.insert(
                    0, f"the answer was cut off at {settings.max_tokens} tokens; write less"
                )
            applied, problems = check(answer)
            refused = [*malformed, *map(shown, problems)]
            last = not refused or attempt > settings.reasks
            self._exchanges.append(
                _exchange(stage, attempt, news, reply, applied if last else {}, refused)
            )
            if last:
                break
            news = self._sent_back(text, refused, estimate_tokens(first.content))
            messages = [first, *news]
        return answer, applied

    def _bounded(self, prompt: Callable[[int], str]) -> str:
        """The prompt, with tables in the tokens that its fixed text leaves. Raises
        SettingsError.
        """
        limit = int(self.settings.context_tokens * FIRST_SHARE)
        # Each table has a line about omitted entries, which takes a little room even if it is
        # empty.
        fixed = estimate_tokens(prompt(0))
        if fixed > limit:
            least = int(fixed / FIRST_SHARE) + 1
            raise SettingsError(
                f"agent.context_tokens: expected at least {least} for this prompt, found"
                f" {self.settings.context_tokens}"
            )
        return prompt(limit - fixed)

    def _sent_back(self, text: str, refused: Sequence[str], used: int) -> list[Message]:
        """An invalid answer and its problems as the next messages, within the remaining context."""
        room = self.settings.context_tokens - used
        for count in range(min(PROBLEMS_SHOWN, len(refused)), 0, -1):
            more = len(refused) - count
            again = _template("again").render(problems=refused[:count], more=more)
            if estimate_tokens(again) <= room // 2:
                break
        return [
            Message("assistant", _head(text, room - estimate_tokens(again))),
            Message("user", again),
        ]


def _head(text: str, room: int) -> str:
    """Beginning of the text within `room` estimated tokens, each of at most three letters."""
    text = text[: 3 * max(room, 1)]
    while text and estimate_tokens(text) > room:
        text = text[: len(text) * 3 // 4]
    return text or "(no answer)"


def _exchange(
    stage: str,
    attempt: int,
    messages: Sequence[Message],
    reply: AgentReply,
    applied: Mapping[str, Any],
    refused: Sequence[str],
) -> Exchange:
    done = reply.completion
    text = done.text
    if len(text) > ANSWER_KEPT:
        text = f"{text[:ANSWER_KEPT]}... ({len(text)} characters in all)"
    if len(refused) > PROBLEMS_KEPT:
        refused = [*refused[:PROBLEMS_KEPT], f"and {len(refused) - PROBLEMS_KEPT} more"]
    return Exchange(
        stage,
        attempt,
        [{"role": message.role, "content": message.content} for message in messages],
        text,
        applied,
        list(refused),
        done.prompt_tokens,
        done.completion_tokens,
        reply.dollars,
        done.latency_s,
        done.cached,
    )


def _edits(answer: WiringEdits) -> Edits:
    """The answer as edits; fixed models don't change."""
    return answer if isinstance(answer, Edits) else Edits.model_validate(answer.model_dump())


def _example(distribution: GraphDistribution, open_models: bool) -> str:
    """Form of an answer, with current values, so that repeating it changes nothing; the graph is
    the last two nodes in sequence.
    """
    tail = distribution.ids[-2:]
    table = distribution.edge_probabilities()
    nodes = zip(tail, distribution.assigned[-2:], strict=True)
    edges = [list(tail)] if len(tail) > 1 else []
    role, role_p = _likeliest(distribution.roles, distribution.role_preferences()[-1])
    model, model_p = _likeliest(distribution.models, distribution.model_probabilities()[-1])
    why = {"reason": "..."}
    example: dict[str, Any] = {
        "edge_changes": [
            {"source": a, "target": b, "probability": round(float(table[-2, -1]), 2)} | why
            for a, b in edges
        ],
        "role_changes": [{"node": tail[-1], "role": role, "probability": role_p} | why],
        "graph": {
            "nodes": [{"id": i, "role": ASSISTANT, "model": known} for i, known in nodes],
            "edges": edges,
        },
    } | why
    if not open_models:
        return WiringEdits.model_validate(example).model_dump_json()
    example["model_changes"] = [{"node": tail[-1], "model": model, "probability": model_p} | why]
    return Edits.model_validate(example).model_dump_json()


def _likeliest(names: Sequence[str], probabilities: FloatArray) -> tuple[str, float]:
    """Most probable name, and its probability as shown."""
    k = int(probabilities.argmax())
    return names[k], round(float(probabilities[k]), 2)


def _quoted(models: Sequence[str]) -> str:
    return ", ".join(json.dumps(model) for model in models)


@cache
def _template(name: str) -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(PROMPTS),
        undefined=jinja2.StrictUndefined,
        autoescape=False,
        keep_trailing_newline=False,
    )
    return environment.get_template(f"{name}.md.j2")
