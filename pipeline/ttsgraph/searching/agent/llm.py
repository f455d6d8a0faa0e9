"""Language model as the search agent, with prompts from template files and typed JSON answers
(paper, sections 5.2 and A.12).

An answer that is not legal is sent back once with its exact problems; the legal part of the last
answer is used. Every exchange is recorded. The model is called through `speak`.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import jinja2
import numpy as np

from ttsgraph.base.errors import SettingsError
from ttsgraph.graphs.distribution import GraphDistribution
from ttsgraph.graphs.roles import ASSISTANT, get_role
from ttsgraph.models.client import Chat, Message, estimate_tokens
from ttsgraph.searching.agent import answers, base, context
from ttsgraph.searching.agent.answers import Move
from ttsgraph.searching.agent.base import Brief, Counts, History, Preference, Trial
from ttsgraph.searching.agent.heuristic import HeuristicAgent
from ttsgraph.settings.profile import AgentPart, AgentSettings

PROMPTS = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).with_name("prompts")),
    undefined=jinja2.StrictUndefined,
    autoescape=False,
)
"""Templates of the prompts."""

FIRST_SHARE = 0.7
"""Share of the context that the first prompt may fill; the rest is reserved for an answer that is
sent back and for its problems.
"""

PROBLEMS_SHOWN = 12

Tables = Mapping[str, Sequence[str]]
"""Entries of each table of a prompt, the most informative first."""


class LLMAgent(HeuristicAgent):
    """Search agent that follows a language model's answers.

    Without insight 1 the init stages don't ask the model: the rules draw the start at random. The
    rules also take over if an answer in the init stages has no legal part, because a search must
    start somewhere. The loop has no such fallback: an update without a legal part changes
    nothing.
    """

    def __init__(self, rng: np.random.Generator, settings: AgentSettings, speak: Chat) -> None:
        super().__init__(rng, settings)
        self._speak = speak

    def select_family_size(self, brief: Brief, trials: Sequence[Trial]) -> Preference:
        """Ask for a ranking of the models that fit the budget; append the models that the answer
        leaves out, the most accurate first.
        """
        if not self.settings.uses("insight_1"):
            return super().select_family_size(brief, trials)
        models = brief.affordable
        tables = {
            "candidates": context.pool_table(brief, models),
            "trials": context.trial_table(trials) or ["(none)"],
            "pilot": context.pilot_table(brief),
        }
        example = json.dumps(models[0])
        answer, _ = self._ask("family_size", answers.Ranking, [brief], tables, example=example)
        if not answer.ranking:
            return super().select_family_size(brief, trials)
        ranking = dict.fromkeys([*answer.ranking, *brief.ranked(models)])
        return Preference(tuple(ranking), answer.reason)

    def select_instances(self, brief: Brief, preference: Preference, limit: int) -> list[Counts]:
        """Ask for model combinations; if none is legal, return the rules' combinations."""
        if not self.settings.uses("insight_1"):
            return super().select_instances(brief, preference, limit)
        tables = {
            "candidates": context.pool_table(brief, brief.affordable),
            "preference": preference.models,
            "pilot": context.pilot_table(brief),
        }
        values: dict[str, Any] = {"limit": limit, "max_nodes": brief.budget.max_nodes}
        values["example"] = json.dumps(preference.models[0])
        answer, _ = self._ask("instances", answers.Combinations, [brief], tables, **values)
        different = {frozenset(each.counts.items()): each.counts for each in answer.combinations}
        return [*different.values()][:limit] or super().select_instances(brief, preference, limit)

    def update(self, distribution: GraphDistribution, history: History, brief: Brief) -> Move:
        """Ask for changes to the distribution, and make the legal ones; a graph to try may be part
        of the answer. If models are open, the prompt lists all models that can be drawn, and the
        answer may also change their probabilities.
        """
        uses = _switches(self.settings)
        open_models = bool(distribution.open_models().any())
        kind = answers.OpenUpdate if open_models else answers.Update
        # if the nodes' models are fixed, the prompt describes each of these models once
        models = distribution.models if open_models else dict.fromkeys(distribution.assigned)
        knows_scaling = uses["insight_2"] or uses["insight_3"]
        without_call = [role for role in brief.roles if not get_role(role).calls_model]
        notes = brief.notes
        if brief.reading and without_call:
            # Reading was measured on these very models, so it replaces the paper's general advice.
            uses |= {"insight_2": False, "insight_3": False}
            instead = (
                f"On these models calls that read answers lose: {brief.reading}. So give the calls"
                " no edges between each other, and let a node without a call of its own"
                f" ({' or '.join(without_call)}) join as many of them as the budget allows."
            )
            notes = [instead, *notes]
        tables = {
            **context.update_tables(distribution, history, brief, uses["evidence"]),
            "pool": context.pool_table(brief, models),
            "pilot": context.pilot_table(brief) if knows_scaling else [],
            "notes": notes,
        }
        answer, refused = self._ask(
            "update",
            kind,
            [distribution, brief],
            tables,
            roles=distribution.roles,
            sink=distribution.ids[-1],
            open_models=open_models,
            agent=uses,
            example=_example(distribution, kind),
        )
        answers.apply_update(answer, distribution)
        return Move(answer.graph.graph if answer.graph else None, answer.reason, refused)

    def _prompt(self, stage: str, brief: Brief, tables: Tables, more: Mapping[str, Any]) -> str:
        """Return the prompt of a stage; its tables fill the tokens that the fixed text leaves free.
        Raises SettingsError if the fixed text by itself is too long for the context.
        """
        values = {
            "task": brief.task,
            "budget": f"{brief.budget.limit:g}",
            "metric": brief.cost.metric,
            "joint": brief.objective.joint,
            "weight": f"{brief.objective.weight:g}",
            "half_s": f"{brief.objective.half_s:g}",
            "agent": _switches(self.settings),
            **more,
        }
        template = PROMPTS.get_template(f"{stage}.md.j2")

        def within(room: int) -> str:
            return template.render(values | context.fitted(tables, room))

        limit = int(self.settings.context_tokens * FIRST_SHARE)
        fixed = estimate_tokens(within(0))
        if fixed > limit:
            raise SettingsError(
                f"agent.context_tokens: expected at least {int(fixed / FIRST_SHARE) + 1} for this"
                f" prompt, found {self.settings.context_tokens}"
            )
        return within(limit - fixed)

    def _ask(
        self, stage: str, kind: type[answers.A], known: Sequence[Any], tables: Tables, **values: Any
    ) -> tuple[answers.A, list[str]]:
        """Ask for an answer; if it has problems, send them back once. Return the legal part of the
        last answer, and its problems. `known` is the context of the answer (see `read_answer`).
        """
        prompt = self._prompt(stage, known[-1], tables, values)
        schema = json.dumps(kind.model_json_schema(mode="serialization"))
        first = Message("user", prompt)
        messages = news = [first]
        for attempt in range(1, base.ANSWERS + 1):
            done, dollars = self._speak(messages, stage, schema)
            answer, problems = answers.read_answer(done.text, kind, *known)
            if problems and done.completion_tokens >= self.settings.max_tokens:
                problems.insert(0, f"it was cut off at {done.completion_tokens} tokens; write less")
            again = attempt < base.ANSWERS and bool(problems)
            applied = {} if again else answer.model_dump(mode="json")
            told = [{"role": message.role, "content": message.content} for message in news]
            spent = done.prompt_tokens, done.completion_tokens, dollars, done.latency_s
            said = stage, attempt, told, done.text, applied, problems
            self.exchanges.append(base.Exchange(*said, *spent, done.cached))
            if not again:
                break
            news = self._sent_back(done.text, problems, estimate_tokens(prompt))
            messages = [first, *news]
        return answer, problems

    def _sent_back(self, text: str, problems: Sequence[str], used: int) -> list[Message]:
        """Return an invalid answer and its problems as the next two messages, shortened to fit the
        remaining context.
        """
        room = self.settings.context_tokens - used
        shown = max(1, context.fitting(problems[:PROBLEMS_SHOWN], room // 2))
        again = PROMPTS.get_template("again.md.j2").render(
            problems=problems[:shown], more=len(problems) - shown
        )
        while text and estimate_tokens(text) > room - estimate_tokens(again):
            text = text[: len(text) * 3 // 4]
        return [Message("assistant", text or "(no answer)"), Message("user", again)]


def _example(distribution: GraphDistribution, kind: type[answers.Update]) -> str:
    """Return an example of an answer in JSON, with current values, so that repeating it changes
    nothing. Its graph is a chain of the last two nodes.
    """
    tail = distribution.ids[-2:]
    edges = list(answers.edge_probabilities(distribution).items())[-1:]
    nodes = zip(tail, distribution.assigned[-2:], strict=True)
    why = {"reason": "..."}
    example: dict[str, Any] = {
        "edge_changes": [
            {"source": a, "target": b, "probability": round(p, 2)} | why for (a, b), p in edges
        ],
        "graph": {
            "nodes": [{"id": i, "role": ASSISTANT, "model": model} for i, model in nodes],
            "edges": [edge for edge, _ in edges],
        },
    } | why
    for name, names, table in (
        ("role", distribution.roles, distribution.role_preferences()),
        ("model", distribution.models, distribution.model_probabilities()),
    ):
        likeliest = {name: names[table[-1].argmax()], "probability": round(table[-1].max(), 2)}
        example[f"{name}_changes"] = [{"node": tail[-1]} | likeliest | why]
    return json.dumps({name: example[name] for name in kind.model_fields})


def _switches(settings: AgentSettings) -> dict[str, bool]:
    """Return whether the agent uses each part, for the prompts' templates."""
    return {part: settings.uses(part) for part in get_args(AgentPart)}
