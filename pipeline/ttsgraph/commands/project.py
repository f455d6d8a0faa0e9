"""Commands of a project: `ttsgraph init`, `add`, `run`, `compare`, and commands for its
settings.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml

from ttsgraph.base.ending import stopped_by_signals
from ttsgraph.base.errors import InputError
from ttsgraph.base.secrets import refuse_secrets
from ttsgraph.commands.common import app, command, echo, measured, params, profile_named, task_of

if TYPE_CHECKING:
    from ttsgraph.scaffold.add import Additions

NO_PAGE = "page: not written; to get tables and plots, run pip install 'ttsgraph[page]'"


def _options(
    *,
    questions: Path | None = None,
    url: list[str] | None = None,
    key_env: str | None = None,
    model: list[str] | None = None,
    price: list[str] | None = None,
    setting: Annotated[str, typer.Option("--set")] = "{}",
    budget: str | None = None,
    kind: str | None = None,
    grading: str = "{}",
    question_column: str | None = None,
    answer_column: str | None = None,
    no_header: bool = False,
    name: str | None = None,
) -> None:
    """Declare the options of `init` and `add`, which `_wanted` reads.

    Args:
        questions: questions and answers: CSV, JSONL, JSON, parquet or .xlsx
        url: URL of an OpenAI-compatible endpoint, usually ending in /v1; with a query if it needs
            one: 'https://NAME.openai.azure.com/openai/deployments/my-gpt?api-version=2024-10-21'
        key_env: environment variable with the endpoint's key
        model: models, separated by commas; * matches any text (default: all listed)
        price: MODEL=PROMPT,ANSWER, or PROMPT,ANSWER for all: dollars per million tokens
        setting: settings of the endpoint's models, as in a profile's pool, as JSON:
            '{"api_key_header": "api-key"}'
        budget: budget per question: 0.002 (dollars) or '3 s' (default: a few calls)
        kind: how answers are graded: exact, choice, number, math, json, similarity, judge, ...
            (default: detected from the questions)
        grading: settings for that kind, as JSON: '{"tolerance": 0.01}'
        question_column: column with questions (default: detected by name)
        answer_column: column with answers (default: detected by name)
        no_header: the table has no header; columns are named 1, 2, ...
        name: name of the task (default: the file's name)
    """


@command(app, shared=_options)
def init(folder: Path, **options: Any) -> None:
    """Create a project in a new folder, with models of a provider (each is called to test it) and
    questions (generated sums if none are given).

    `ttsgraph add` adds more, such as models of another provider.
    Example: ttsgraph init mine --questions my.csv --url http://127.0.0.1:8000/v1

    Args:
        folder: new folder
    """
    from ttsgraph.scaffold import add

    wanted = _wanted(options)
    then = "ttsgraph run" if wanted.provider else "ttsgraph add --url ... --questions ..."
    then += f"; profiles/{add.PROFILE}.yaml has all settings"
    echo(*add.init(folder, wanted), f"next: cd {folder}, then {then}")


@command(app, "add", shared=_options)
def add_to(*, profile: str | None = None, **options: Any) -> None:
    """Add models (each is called to test it) and questions to the project in this folder; other
    settings stay unchanged.

    Example: ttsgraph add --questions inputs/invoices.jsonl --profile mine
    """
    from ttsgraph.scaffold import add

    used = profile or params().profile
    wanted = _wanted(options)
    task = "" if wanted.questions is None else f" --task {add.task_name(wanted)}"
    echo(*add.add(used, wanted), f"written to profiles/{used}.yaml; next: ttsgraph run{task}")


def _wanted(given: Mapping[str, Any]) -> Additions:
    """Return the additions that a command's options request. Raises InputError if an option is
    invalid.
    """
    from ttsgraph.scaffold.add import Additions
    from ttsgraph.scaffold.providers import Provider, read_price
    from ttsgraph.scaffold.questions import QuestionSource

    grading = _mapping("--grading", given["grading"])
    settings = _mapping("--set", given["setting"])
    columns = given["question_column"], given["answer_column"]
    file, header = given["questions"], not given["no_header"]
    questions = file and QuestionSource(file, given["kind"], grading, *columns, header)
    urls = given["url"] or []
    if len(urls) > 1:
        raise InputError(
            f"--url: expected one endpoint, found {len(urls)}; add others with `ttsgraph add --url`"
        )
    key_env = given["key_env"] or None
    refuse_secrets({"api_key_env": key_env}, "--key-env")
    names = (name.strip() for name in ",".join(given["model"] or ()).split(","))
    models = tuple(filter(None, names))
    prices = dict(map(read_price, given["price"] or ()))
    provider = Provider(urls[0].rstrip("/"), key_env, models, prices, settings) if urls else None
    return Additions(provider, questions, given["name"], given["budget"])


def _mapping(option: str, text: str) -> dict[str, Any]:
    """Return settings in JSON or YAML, as an option has them. Raises InputError for other text."""
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError:
        found = None
    if not isinstance(found, dict):
        raise InputError(
            f"{option}: expected settings in JSON, such as '{{\"name\": 1}}', found {text[:80]!r}"
        )
    return found


@command(app)
def run(
    *,
    task: str | None = None,
    method: str | None = None,
    limit: Annotated[float | None, typer.Option(max=1e9)] = None,
) -> None:
    """Search for a graph, test it and save it with its report page, without the stages: no
    Prefect, DVC, MLflow or registry and, for a contest, no pilot.

    Example: ttsgraph run --task sample

    Args:
        task: task of the profile (default: those in params.yaml)
        method: search method (default: the first in params.yaml)
        limit: dollars that this project may spend in total, over all runs (default:
            limits.dollars of the profile)
    """
    from ttsgraph.api.result import project_search
    from ttsgraph.reporting.explain import ways

    settings = params()
    for name in settings.tasks if task is None else (task,):
        with stopped_by_signals():
            result, folder = project_search(settings, name, echo, method, limit)
        echo(
            f"{name}: {result.sentence}",
            "",
            *(f"  {line}" for line in ways(result.graph, result.deployed.profile.model_pool())),
            "",
            str(result.compare()),
            f"spent ${result.spent.dollars:.4f}; the graph is in {folder}",
            f"page: {page}" if (page := folder / "index.html").exists() else NO_PAGE,
            f"next: ttsgraph serve {folder}",
        )


@command(app)
def compare(*, preset: Path, task: str | None = None, profile: str | None = None) -> None:
    """Compare a given team of models with a search that may spend as much per question, on the same
    test questions and with paired tests.

    Example: ttsgraph compare --preset team.yaml

    Args:
        preset: proposers and an aggregator (YAML), or a graph (JSON)
    """
    from ttsgraph.api.result import project_search

    loaded, name = profile_named(profile)
    settings = params().model_copy(update={"profile": name})
    with stopped_by_signals():
        result, folder = project_search(settings, task_of(loaded, task), echo, team=preset)
    echo(str(result.compare()), f"written to {folder}")


@command(app)
def estimate(*, profile: str | None = None, task: str | None = None, json: bool = False) -> None:
    """Estimate the cost of `ttsgraph run` before anything is spent; with --json, also the cost of
    each stage.

    Example: ttsgraph estimate --profile paper --task math
    """
    from ttsgraph.stages.estimate import estimate_run

    loaded, chosen = measured(profile, task)
    found = estimate_run(loaded, chosen)
    echo(*([found] if json else _in_words(found)))


def _in_words(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines that describe an estimate: the expected cost, its range and its parts."""
    expected, agent, seconds = found["expected"], found["agent"], found["expected"]["seconds"]
    by_stage = {**expected["calls"]}
    total = by_stage.pop("total")
    yield (
        f"{found['task']}: ttsgraph run is expected to cost ${expected['dollars']:.2g} for"
        f" {total:,} calls"
    )
    yield "range: {} to {}".format(*(f"${value:.2g}" for value in expected["dollars_between"]))
    stages = ", ".join(f"{stage} {calls:,}" for stage, calls in by_stage.items() if calls)
    hours = "" if seconds is None else f"; about {seconds / 3600:.2g} h in all"
    more = f"; agent at most ${agent['dollars']:.2g} more" if agent["calls"] else ""
    yield f"calls by stage: {stages}{hours}{more}; {found['note']}"


@command(app)
def doctor(*, profile: str | None = None) -> None:
    """Check whether this machine and the endpoints meet a profile's requirements, and name
    remedies.

    Ends with exit code 2 if something is missing. Example: ttsgraph doctor --profile paper
    """
    from ttsgraph.runtime.doctor import examine, in_lines

    findings = examine(profile_named(profile)[0])
    echo(*in_lines(findings))
    if not all(finding.ok for finding in findings):
        sys.exit(2)


@command(app)
def prepare(*, profile: str | None = None) -> None:
    """Prepare the weights of a profile's local models in advance; `make setup` does this too.

    Example: ttsgraph prepare --profile laptop
    """
    from ttsgraph.serving.running import prepare_weights

    loaded, _ = profile_named(profile)
    if not loaded.hosted:
        raise InputError(
            f"expected a profile with locally served models, found engine {loaded.engine.kind}"
        )
    python = loaded.engine.python
    echo({name: prepare_weights(name, m, python) for name, m in loaded.hosted.items()})


@command(app)
def schema() -> None:
    """Write JSON schemas with which editors complete and check params.yaml and profiles.

    Example: ttsgraph schema
    """
    from ttsgraph.base.files import json_text, write_text
    from ttsgraph.base.state import STATE
    from ttsgraph.settings.profile import Params, Profile

    for name, kind, above in (("params", Params, ""), ("profile", Profile, "../")):
        path = STATE / "schema" / f"{name}.json"
        write_text(path, json_text(kind.model_json_schema()))
        first = f"# yaml-language-server: $schema={above}{path.as_posix()}"
        echo(f"{path}: for files whose first line is `{first}`")
