"""`ttsgraph init` and `ttsgraph run`: a project in a folder of its own, and a whole search in it
without the stages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import yaml

from ttsgraph.api.given import budget_of
from ttsgraph.api.result import Result, result_of
from ttsgraph.api.whole import search_whole
from ttsgraph.base.errors import InputError
from ttsgraph.base.files import write_text
from ttsgraph.base.parsing import parse
from ttsgraph.endpoints.wire import Endpoint
from ttsgraph.evaluation.progress import Publish
from ttsgraph.scaffold.listing import models_at
from ttsgraph.scaffold.names import require_name
from ttsgraph.scaffold.profile_text import flow
from ttsgraph.scaffold.task import split_sizes
from ttsgraph.settings.profile import Params, Profile, load_profile
from ttsgraph.tasks.sources import load_questions, split_questions

PROFILE = "mine"
SAMPLE = "sample"
SAMPLES = 40
SCORES = "scores.json"
"""What `dvc metrics show` shows of a task, beside the folder of what was found."""

FOUND = "found"
"""The folder of what `ttsgraph run` found, below results/<profile>/<task>/."""

DVC = """\
# `dvc repro` searches again when questions, settings or the seed have changed;
# `dvc exp run -S seed=1` with another seed, and `dvc exp show` shows the scores of both.
stages:
  run:
    matrix:
      task: ${tasks}
    cmd: ttsgraph run --task ${item.task}
    deps: [inputs]
    params:
      - seed
      - methods
      - profiles/${profile}.yaml:
    outs: ["results/${profile}/${item.task}/found"]
    metrics: ["results/${profile}/${item.task}/scores.json"]
"""

PARAMS = """\
# What is searched: the profile, its tasks, and the methods (`ttsgraph run` takes the first).
profile: mine
tasks: [sample]
methods: [agent_reinforce]
seed: 0
"""

IGNORED = ".ttsgraph/\n/results/\n__pycache__/\n"


def init(
    folder: Path,
    url: str,
    models: Sequence[str],
    price: float | dict[str, float],
    budget: str,
    api_key_env: str | None,
) -> list[str]:
    """Write a project into a new folder, with the endpoint's models as its pool; returns their
    names.

    Raises InputError, and writes nothing, when there is something in the folder or the endpoint
    can't be asked or lacks a model.
    """
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder}: expected a new folder, found files in it; choose another name")
    # An endpoint without a list can't say what it lacks.
    found = models_at(Endpoint((url,), "", api_key_env), True)
    listed = list(models) if found is None else list(found)
    if missing := [model for model in models if model not in listed]:
        raise InputError(
            f"{url}: expected model {missing[0]!r}, but the server has"
            f" {', '.join(listed) or 'none'}"
        )
    pool: dict[str, dict[str, object]] = {}
    for model in models or listed:
        name = model.rsplit("/", 1)[-1]
        require_name(name, "a model")
        pool[name] = {"price": price, "base_url": url, "served_as": model}
        pool[name] |= {"api_key_env": api_key_env} if api_key_env else {}
    if not pool:
        raise InputError(f"{url}: expected an endpoint with models, found none")
    text = profile_text(pool, budget)
    parse(
        Profile, yaml.safe_load(text), "profiles/mine.yaml"
    )  # what is wrong with it is said before anything is written
    parse(Params, yaml.safe_load(PARAMS), "params.yaml")
    for path, content in {
        "params.yaml": PARAMS,
        "dvc.yaml": DVC,
        ".gitignore": IGNORED,
        f"profiles/{PROFILE}.yaml": text,
        f"inputs/{SAMPLE}.jsonl": "".join(json.dumps(row) + "\n" for row in sample_rows()),
    }.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        write_text(folder / path, content)
    return list(pool)


def sample_rows() -> list[dict[str, str]]:
    """Questions to try a project on."""
    return [
        {"question": f"What is {7 * k + 12} + {3 * k + 5}?", "answer": str(10 * k + 17)}
        for k in range(SAMPLES)
    ]


def profile_text(pool: Mapping[str, Mapping[str, object]], budget: str) -> str:
    """A profile as people write them: one entry a line, with a comment where it helps."""
    models = "\n".join(f"  {name}: {flow(entry)}" for name, entry in pool.items())
    return f"""\
engine: {{kind: external}}

# Prices are dollars per million tokens. `ttsgraph new-model` adds another one.
pool:
{models}

# `ttsgraph new-task` adds your own questions.
tasks:
  {SAMPLE}:
    kind: number
    source: {{kind: jsonl, path: inputs/{SAMPLE}.jsonl}}
    splits: {flow(split_sizes(SAMPLES))}
    prompt: {{style: chat}}
    sampling: {{temperature: 0.9, max_tokens: 512}}

roles: [assistant, fuser, voter]

# What a question may cost: dollars, or `flops` in calls of the cheapest model, or `runtime` in
# seconds.
budget: {flow(budget_of(budget))}

# What a search may spend in all before it stops: `dollars`, `tokens`, `wall_s`.
limits: {{}}
pilot: {{}}
init: {{}}
search: {{}}
agent: {{}}
"""


async def run(
    params: Params,
    task: str,
    publish: Publish,
    say: Callable[[str], None],
    method: str | None = None,
) -> tuple[Result, Path]:
    """Search a task of the project and save what is found below results/. Raises InputError,
    RunStopped.
    """
    profile = load_profile(params.profile)
    settings = profile.task(task)
    questions = load_questions(settings.task, settings.source, params.seed)
    splits = split_questions(questions, settings.splits.sizes(), params.seed)
    searched = await search_whole(
        profile, task, splits, params.seed, method or params.methods[0], publish=publish, say=say
    )
    result = result_of(searched)
    folder = Path("results") / params.profile / task
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / SCORES, json.dumps(scores_of(result, params.seed), indent=1))
    return result, result.save(folder / FOUND)


def scores_of(result: Result, seed: int) -> dict[str, float]:
    """The numbers of a search, for tables of several: the graph in use, and the one that was
    found.
    """
    table = result.compare()
    used = next(row for row in table if row["graph"] == table.used)
    first = next(iter(table))
    return {
        "seed": seed,
        "accuracy": used["accuracy"],
        "cost": used["cost"],
        "found_accuracy": first["accuracy"],
        "found_cost": first["cost"],
    }
