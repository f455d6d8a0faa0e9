"""What a run takes, as estimated, against what the same stages do on the simulated pool."""

from __future__ import annotations

from pathlib import Path

import pytest

from ttsgraph.settings.profile import load_profile
from ttsgraph.stages.estimate import estimate_run

PROFILES = Path(__file__).parents[2] / "profiles"


def papers(task, limit):
    """The paper's profile on the simulated pool."""
    profile = load_profile("simulated", PROFILES)
    paper = load_profile("paper", PROFILES)
    section = profile.task(task).model_copy(update={"splits": paper.task(task).splits})
    changes = {name: getattr(paper, name) for name in ("pilot", "init", "search", "evaluate")}
    budget = profile.budget.model_copy(update={"limit": limit})
    return profile.model_copy(update=changes | {"budget": budget, "tasks": {task: section}})


MODEL = "llama-3.2-1b"


def one_model(calls=1000, speed=(28.8, 57.6), engine=(), kind=(), **changes):
    """A contest of one model, whose calls take $0.000003 each and, 32 at a time, 180 seconds of
    these 5760; a budget of five calls. Of 200 training questions a contest sees 160.
    """
    profile = papers("math", 1.5e-5)
    section = profile.task("math")
    splits = section.splits.model_copy(update={"train": 200, "val": 10, "test": 20})
    lengths = section.lengths.model_copy(update={"prompt_tokens": 100, "generated_tokens": 50})
    changed = {"splits": splits, "lengths": lengths} | dict(kind)
    section = section.model_copy(update=changed)
    contest = profile.init.contest.model_copy(update={"enabled": True, "calls": calls})
    changes = {
        "tasks": {"math": section},
        "budget": profile.budget.model_copy(update={"metric": "dollars", "max_nodes": 10}),
        "init": profile.init.model_copy(update={"contest": contest}),
        "evaluate": profile.evaluate.model_copy(update={"ablation": 8}),
        "pool": {MODEL: profile.pool[MODEL].model_copy(update={"speed": speed})},
        "engine": profile.engine.model_copy(update=dict(engine)),
    } | changes
    return profile.model_copy(update=changes)


def test_what_a_contest_of_one_model_takes_adds_up():
    found = estimate_run(one_model(), "math")
    calls = found["calls"] | {"pilot": 0}
    assert calls == {
        "profile": 200,
        "pilot": 0,
        "init_family": 300,
        "init_instances": 700,
        "evaluate": 20 * 5,
        "ablation": 8 * 5,
        "total": 1340 + found["calls"]["pilot"],
    }
    # What reads answers, on the way to a graph, takes a quarter more; pilot and ablation are not
    # part of `ttsgraph run`.
    dollars = (200 + 1.25 * 1000 + 100) * 3e-6
    assert found["expected"]["calls"]["total"] == 1300
    assert found["expected"]["dollars"] == pytest.approx(dollars)
    assert found["expected"]["dollars_between"] == pytest.approx([dollars / 2, dollars * 2])
    # Of a larger allowance it takes what its 160 questions, and 10 to validate, give occasion for.
    more = estimate_run(one_model(calls=5000), "math")["calls"]
    assert more["init_family"] + more["init_instances"] == round(170 * (2.4 + 2.0 + 0.4 * 5))


def test_judges_read_what_each_call_writes():
    judge = {"base_url": "http://127.0.0.1:1/v1", "price": {"prompt": 1, "completion": 10}}
    judged = {"kind": "judge", "grading": {"rubric": "Right or not.", "models": {"j": judge}}}
    alone, both = (estimate_run(one_model(kind=kind), "math")["expected"] for kind in ({}, judged))
    calls, longer = both["calls"]["total"], 1550  # by what those cost that read answers
    read = (100 + 2 * 50) * longer + 100 * calls
    more = both["dollars"] - alone["dollars"]
    assert more == pytest.approx(0.45 * (read + 10 * 30 * calls) / 1e6)


def test_an_agent_with_a_language_model_takes_at_most_its_limits():
    limits = {"reasks": 2, "context_tokens": 900, "max_tokens": 100}
    agent = papers("math", 8.0).agent.model_copy(update={"kind": "llm", "model": MODEL} | limits)
    found = estimate_run(one_model(agent=agent), "math")["agent"]
    calls = (papers("math", 8.0).search.max_iterations + 2) * 3
    assert found == {
        "calls": calls,
        "tokens": 1000 * calls,
        "dollars": pytest.approx(1000 * calls * 0.02e-6),
    }
