"""The test of a search's result: the found graph and its rivals on the test questions, and the
worth of each of its nodes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from ttsgraph.evaluation.archive import score_columns
from ttsgraph.evaluation.compare import Difference, against_first
from ttsgraph.evaluation.environment import Feedback
from ttsgraph.evaluation.node_answers import CHANGES, NodeAnswers, worth
from ttsgraph.evaluation.progress import Event, QuestionDone
from ttsgraph.graphs import topologies
from ttsgraph.graphs.budget import Budget, CostModel
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import get_role
from ttsgraph.models.client import Message
from ttsgraph.searching.agent.base import Brief
from ttsgraph.searching.response.calibration import SAMPLES, expected_leads
from ttsgraph.searching.response.evidence import Evidence
from ttsgraph.searching.response.model import ResponseModel
from ttsgraph.stages import trials
from ttsgraph.stages.project import Project, StepModels, ToAsk
from ttsgraph.stages.steps import evidence_in, start_of
from ttsgraph.stages.trials import Case, Tried

PLACEHOLDER = "[what a predecessor answered]"
"""Placeholder for a predecessor's answer in the prompts that the node table shows."""


@dataclass(frozen=True, slots=True)
class TestOutcome:
    """Result of a test: its graphs with their feedback, the found graph first; their table; and,
    for each graph, the found graph's expected lead over it according to the search's evidence.
    """

    tried: Sequence[Tried]
    table: pd.DataFrame
    leads: Sequence[Difference | None] = ()


def tested(project: Project, tried: Sequence[Tried]) -> TestOutcome:
    """Return the result of a test, without graphs that could not be scored. Raises RunStopped if
    the found graph could not be scored.
    """
    trials.scored(tried[:1])
    able = trials.scored(tried)
    table = trials.cases_table(able, project.profile.cost_model(project.task))
    return TestOutcome(able, table.join(against_first([feedback for _, feedback in able])))


def evaluate(
    project: Project, method: str, more: Iterable[Case] = (), thorough: bool = True
) -> ToAsk[TestOutcome]:
    """Return the work of testing a search's result against its rivals and the cases in `more`. The
    work writes the test's tables. A `thorough` test grades every node, and tries the found graph
    without each of its nodes.

    The work raises RunStopped if too many questions are lost, or if the found graph could not be
    scored.
    """
    folder, profile, brief = project.folder.of_search(method), project.profile, project.brief()
    graph = CollaborationGraph.read(folder.path / "graph.json")
    router = start_of(project).routed
    tables = project.folder.table("pilot"), project.folder.table("profile")
    known = evidence_in(project, brief.greedy, folder)
    kind, test = project.settings.task, project.questions["test"]
    # not the brief's budget: roles that the search may not use compete too
    budget = profile.budget_on(project.task)
    cases = [*trials.test_cases(graph, *tables, budget, kind, router), *more]
    few = test[: profile.evaluate.ablation if thorough else 0]
    removed = removal_cases(removals(graph, brief.cost)) if few else []

    async def work(asked: StepModels) -> TestOutcome:
        grading = asked.environment.with_node_grades(if_free=not thorough)
        with asked.shown(len(cases) * len(test) + len(removed) * len(few)) as publish:

            def counted(event: Event) -> None:
                """Publish only finished questions, not best scores, because a graph that lacks a
                node doesn't compete.
                """
                if isinstance(event, QuestionDone):
                    publish(event)

            tried = await trials.try_cases(cases, grading, test, publish)
            rests = await trials.try_cases(removed, asked.environment, few, counted)
        outcome = tested(project, tried)
        folder.write("test", outcome.table)
        folder.write("answers", trials.answers_table(outcome.tried, kind.extract))
        rng = np.random.default_rng([project.seed, 2])
        losses = predicted_losses(graph, brief, known, rng)
        folder.write("nodes", node_table(project, tried[0], rests, losses))
        graphs = [case.graph for case, _ in outcome.tried]
        rng = np.random.default_rng([project.seed, 3])
        return replace(outcome, leads=expected_leads(graphs, tuple(brief.cost.pool), known, rng))

    return work


def removals(graph: CollaborationGraph, cost: CostModel) -> dict[int, CollaborationGraph]:
    """Return, by node ID, the graph without the node, for each node that can be left out.

    Nodes that can no longer reach the sink, or that lose predecessors required by their role, are
    removed too; a sink that loses such predecessors becomes an assistant, as in trimming. The sink
    itself can be left out if exactly one of its predecessors has no other successor; that
    predecessor then answers.
    """
    if graph.route is not None:  # nodes are left out of one branch at a time
        branches = list(graph.branches)
        return {
            i: topologies.routed(graph.route.router, [*branches[:k], rest, *branches[k + 1 :]])
            for k, branch in enumerate(branches)
            for i, rest in removals(branch, cost).items()
        }
    found = {}
    for node in graph.nodes:
        ends = [p for p in graph.predecessors[node.id] if graph.successors[p] == (node.id,)]
        if node.id != graph.sink:
            found[node.id] = Budget(cost).without(graph, node.id)
        elif len(ends) == 1:
            found[node.id] = graph.up_to(ends[0])
    return found


def removal_cases(without: Mapping[int, CollaborationGraph]) -> list[Case]:
    """Return a case for each distinct graph in `without`. Leaving out any of several equivalent
    nodes gives the same graph.
    """
    different = {graph.content_hash: graph for graph in without.values()}
    return [Case(graph, {"without": digest}) for digest, graph in different.items()]


def predicted_losses(
    graph: CollaborationGraph, brief: Brief, known: Evidence, rng: np.random.Generator
) -> dict[int, Difference]:
    """Return, by node ID, the accuracy that the graph is predicted to lose without the node, for
    each node that can be left out; empty without evidence.
    """
    if not known.graphs:
        return {}
    model = ResponseModel(known, tuple(brief.cost.pool), rng, SAMPLES)
    return {i: model.difference(graph, rest) for i, rest in removals(graph, brief.cost).items()}


def node_table(
    project: Project, found: Tried, rests: Sequence[Tried], losses: Mapping[int, Difference]
) -> pd.DataFrame:
    """Return one row per node of the found graph (columns of schemas.Nodes). `found` is the graph
    in the test; `rests` are the graphs without a node (`removal_cases`), perhaps on fewer
    questions. The scores in a row belong to the graph without the node; they are empty if that
    graph was not tried. If removing any of several nodes gives the same graph, only the first of
    these nodes has calls and tokens.
    """
    graph, tested = found.case.graph, found.feedback
    settings, cost = project.settings, project.profile.cost_model(project.task)
    prompt = settings.prompt.prompt(settings.task, project.questions["shots"])
    without = removals(graph, cost) if rests else {}
    by_hash = {case.graph.content_hash: feedback for case, feedback in rests}
    answers = NodeAnswers()
    answers.add(0, graph, tested.results)
    changes = worth(answers.table()).reindex([node.id for node in graph.nodes])
    counts = ["n_answers", *CHANGES]
    changes[counts] = changes[counts].fillna(0).astype(int)
    units = {i: graph.asked[i] * each for i, each in cost.node_costs(graph).items()}
    total = math.fsum(units.values())
    unknown = Difference(math.nan, math.nan)
    rows = []
    for node in graph.nodes:
        rest = without.get(node.id)
        digest = rest.content_hash if rest is not None else ""
        feedback = by_hash.get(digest, Feedback(()))
        by_hash[digest] = Feedback(feedback.results)  # without usage: it is charged only once
        ids = {result.question_id for result in feedback.results}
        whole = Feedback(tuple(each for each in tested.results if each.question_id in ids))
        role = get_role(node.role)
        messages: Sequence[Message] = ()
        if role.speak is not None:
            sent = cost.pool[node.model].prompt(prompt)
            read = [PLACEHOLDER] * len(graph.reads[node.id])
            messages = role.speak(settings.task, sent, project.questions["val"][0], read)
        loss = losses.get(node.id, unknown)
        row = {
            "node": node.id,
            "role": node.role,
            "model": node.model if role.calls_model else "",
            "is_sink": node.id == graph.sink,
            "budget_units": units[node.id],
            "cost_share": units[node.id] / total if total else 0.0,
            "prompt": json.dumps([{"role": m.role, "content": m.content} for m in messages]),
            "nodes_left": 0 if rest is None else len(rest.nodes),
            "whole_accuracy": whole.accuracy,
            "predicted_loss": loss.mean,
            "predicted_spread": loss.spread,
        }
        rows.append(row | score_columns(feedback))
    return pd.DataFrame(rows).join(changes.reset_index(drop=True))
