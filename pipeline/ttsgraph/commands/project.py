"""Commands of a project: `ttsgraph init`, `add`, `run`, `compare`, and commands for its
settings.
"""

from __future__ import annotations

import asyncio
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml
from typer.core import TyperCommand

from ttsgraph.base.ending import stopped_by_signals
from ttsgraph.base.errors import InputError
from ttsgraph.base.secrets import refuse_secrets
from ttsgraph.commands.common import (
    app,
    command,
    echo,
    measured,
    params,
    print_json,
    profile_named,
    settings_of,
)

if TYPE_CHECKING:
    from ttsgraph.scaffold.add import Additions
    from ttsgraph.scaffold.providers import Provider

ORDER = "options in order"
ONE_OF_A_URL = ("key_env", "price_prompt", "price_completion")
OF_A_URL = (*ONE_OF_A_URL, "model", "price", "setting")
NO_PAGE = "page: not written; to get tables and plots, run pip install 'ttsgraph[page]'"


def _options(
    *,
    questions: Path | None = None,
    url: list[str] | None = None,
    key_env: list[str] | None = None,
    model: list[str] | None = None,
    budget: str | None = None,
    kind: str | None = None,
    grading: str = "{}",
    question_column: str | None = None,
    answer_column: str | None = None,
    no_header: bool = False,
    name: str | None = None,
    price: list[str] | None = None,
    price_prompt: list[float] | None = None,
    price_completion: list[float] | None = None,
    setting: Annotated[list[str] | None, typer.Option("--set")] = None,
) -> None:
    """Declare the options of `init` and `add`, which `_wanted` reads.

    Args:
        questions: questions and answers: CSV, JSONL, JSON, parquet or .xlsx
        url: URL of an OpenAI-compatible endpoint, usually ending in /v1; repeatable: --key-env,
            --model, --set and prices then apply to the preceding --url, or to all endpoints if they
            come first
        key_env: environment variable with an endpoint's key
        model: models, separated by commas; * matches any text (default: all listed)
        budget: budget per question: 0.002 (dollars) or '3 s' (default: a few calls)
        kind: how answers are graded: exact, choice, number, math, json, similarity, judge, ...
            (default: detected from the questions)
        grading: settings for that kind, as JSON: '{"tolerance": 0.01}'
        question_column: column with questions (default: detected by name)
        answer_column: column with answers (default: detected by name)
        no_header: the table has no header; columns are named 1, 2, ...
        name: name of the task (default: the file's name)
        price: MODEL=PROMPT,ANSWER, or PROMPT,ANSWER for all: dollars per million tokens
        price_prompt: dollars per million prompt tokens, for all models
        price_completion: dollars per million answer tokens, for all models
        setting: KEY=VALUE: setting of an endpoint's models, as in a profile's pool: revision=5f0b,
            api_key_header=api-key, query.api-version=2024-10-21
    """


class OrderedCommand(TyperCommand):
    """Command that records the order of its options, because some apply to the --url before
    them.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Record the names of options in the order given, then parse the arguments."""
        _, _, order = self.make_parser(ctx).parse_args(args=list(args))
        ctx.meta[ORDER] = [each.name for each in order]
        return super().parse_args(ctx, args)


@command(app, shared=_options, cls=OrderedCommand)
def init(ctx: typer.Context, folder: Path, **options: Any) -> None:
    """Create a project in a new folder, with models (each is called to test it) and questions
    (generated sums if none are given).

    Prints what was detected and, in a terminal, asks for missing information. `ttsgraph add` adds
    more later. Example: ttsgraph init mine --questions my.csv --url http://127.0.0.1:8000/v1

    Args:
        folder: new folder
    """
    from ttsgraph.scaffold import add

    wanted = _wanted(ctx)
    lines = add.init(folder, wanted, _terminal())
    then = "ttsgraph run" if wanted.providers else "ttsgraph add --url ... --questions ..."
    echo(*lines, f"next: cd {folder}, then {then}; profiles/{add.PROFILE}.yaml has all settings")


@command(app, "add", shared=_options, cls=OrderedCommand)
def add_to(ctx: typer.Context, *, profile: str | None = None, **options: Any) -> None:
    """Add models (each is called to test it) and questions to the project in this folder; other
    settings stay unchanged.

    Example: ttsgraph add --questions inputs/invoices.jsonl --profile mine
    """
    from ttsgraph.scaffold import add

    used = profile or params().profile
    wanted = _wanted(ctx)
    task = "" if wanted.questions is None else f" --task {add.task_name(wanted)}"
    lines = add.add(used, wanted, _terminal())
    echo(*lines, f"written to profiles/{used}.yaml; next: ttsgraph run{task}")


def _terminal() -> Callable[[str], str] | None:
    """Return a function that prompts the user, or None if standard input isn't a
    terminal.
    """
    return (lambda words: str(typer.prompt(words))) if sys.stdin.isatty() else None


def _wanted(ctx: typer.Context) -> Additions:
    """Return the additions that a command's options request. Raises InputError if an option is
    invalid.
    """
    from ttsgraph.scaffold.add import Additions
    from ttsgraph.scaffold.questions import QuestionSource

    given = ctx.params
    try:
        grading = json.loads(given["grading"])
    except json.JSONDecodeError as error:
        raise InputError(
            "--grading: expected a JSON object, but it can't be read:"
            f" {error.msg} at column {error.colno}"
        ) from None
    if not isinstance(grading, dict):
        raise InputError(f"--grading: expected a JSON object, found {given['grading'][:40]}")
    questions = given["questions"] and QuestionSource(
        given["questions"],
        given["kind"],
        grading,
        given["question_column"],
        given["answer_column"],
        not given["no_header"],
    )
    return Additions(
        providers_of(ctx.meta[ORDER], given), questions, given["name"], given["budget"]
    )


def providers_of(order: Sequence[str], given: Mapping[str, Any]) -> list[Provider]:
    """Return the endpoints, each with the options that follow its --url in the `order` of options.
    Options before the first --url apply to all endpoints. Raises InputError for a repeated --url,
    or an invalid or ambiguous option.
    """
    values = {name: iter(given[name] or ()) for name in ("url", *OF_A_URL)}
    shared: dict[str, list[Any]] = {name: [] for name in OF_A_URL}
    current = shared
    each: dict[str, dict[str, list[Any]]] = {}
    for name in order:
        if name == "url":
            url = next(values["url"]).rstrip("/")
            if url in each:
                raise InputError(f"--url: expected each endpoint once, found {url} twice")
            current = each[url] = {name: [] for name in OF_A_URL}
        elif name in OF_A_URL:
            current[name].append(next(values[name]))
    for name in ONE_OF_A_URL:
        counts = [len(options[name]) for options in (shared, *each.values())]
        if max(counts) > 1:
            raise InputError(
                f"--{name.replace('_', '-')}: expected it at most once per --url, found it"
                f" {max(counts)} times"
            )
        if name != "key_env" and sum(counts) == 1:  # a single price applies to all
            shared[name] = list(given[name])
    return [_provider(url, shared, own) for url, own in each.items()]


def _provider(url: str, shared: dict[str, list[Any]], own: dict[str, list[Any]]) -> Provider:
    """Return one endpoint; its own options take precedence over the shared ones. Raises InputError
    if an option is invalid.
    """
    from ttsgraph.scaffold.providers import Provider, read_price

    first = {name: own[name] or shared[name] for name in OF_A_URL}
    parts = [*first["price_prompt"], *first["price_completion"]]
    if len(parts) == 1:
        raise InputError(
            "expected --price-prompt and --price-completion together: dollars per million tokens"
            " (0 if free)"
        )
    price = read_price("--price-prompt", ",".join(map(str, parts))) if parts else None
    key_env = next(filter(None, first["key_env"]), None)
    refuse_secrets({"api_key_env": key_env}, "--key-env")
    prices = {}
    for text in shared["price"] + own["price"]:
        name, _, values = text.rpartition("=")
        if name:
            prices[name] = read_price(f"--price {name}", values)
        else:
            price = read_price("--price", values)
    models = tuple(name.strip() for name in ",".join(first["model"]).split(",") if name.strip())
    return Provider(
        url, key_env, models, price, prices, _settings(shared["setting"] + own["setting"])
    )


def _settings(texts: Sequence[str]) -> dict[str, Any]:
    """Return settings such as revision=5f0b or query.version=2 as data. Raises InputError for a
    malformed one.
    """
    found: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        section, dot, name = key.partition(".")
        try:
            if not key or not equals:
                raise TypeError
            if dot:
                found.setdefault(section, {})[name] = value
            else:
                found[key] = yaml.safe_load(value)
        except (yaml.YAMLError, TypeError):
            raise InputError(
                f"--set: expected KEY=VALUE such as revision=5f0b, with a value in YAML, found"
                f" {text!r}"
            ) from None
    return found


@command(app)
def run(*, task: str | None = None, method: str | None = None, limit: float | None = None) -> None:
    """Search for a graph, test it and save it with its report page, without the stages: no
    Prefect, DVC, MLflow or registry and, for a contest, no pilot.

    Example: ttsgraph run --task sample

    Args:
        task: task of the profile (default: those in params.yaml)
        method: search method (default: the first in params.yaml)
        limit: dollars that this project may spend in total, over all runs (default:
            limits.dollars of the profile)
    """
    from ttsgraph.api.result import project_search, shown_progress

    if limit is not None and not 0 < limit < math.inf:  # NaN is refused too
        raise InputError(
            f"--limit: expected an amount above 0 dollars, such as 5, found {limit:g}; without"
            " --limit only limits.dollars of the profile applies"
        )
    settings = params()
    for name in settings.tasks if task is None else (task,):
        with stopped_by_signals(), shown_progress(True) as publish:
            work = project_search(settings, name, publish, echo, method, limit)
            result, folder = asyncio.run(work)
        echo(
            f"{name}: {result.sentence}",
            "",
            *(f"  {line}" for line in result.drawn()),
            "",
            str(result.compare()),
            f"spent ${result.spent.dollars:.4f}; the graph is in {folder}",
            f"page: {page}" if (page := folder / "index.html").exists() else NO_PAGE,
            f"next: ttsgraph serve {folder}",
        )


@command(app)
def compare(
    *,
    methods: str | None = None,
    preset: Path | None = None,
    seeds: Annotated[int, typer.Option(min=2)] = 10,
    task: str | None = None,
    profile: str | None = None,
) -> None:
    """Compare methods over seeds, or a given team of models with a search at the same cost.

    All are tested on the same questions and compared with paired tests.

    Example: ttsgraph compare --preset team.yaml

    Args:
        methods: search methods, separated by commas; the others are compared with the first
        preset: team of models to compare with a search at the same cost: proposers and an
            aggregator (YAML), or a graph (JSON)
        seeds: number of seeds for --methods
    """
    from ttsgraph.api.comparing import compare_methods, in_lines, preset_case, splits_of
    from ttsgraph.api.result import result_of, shown_progress
    from ttsgraph.api.whole import search_whole
    from ttsgraph.base.files import json_text, write_text

    if (methods is None) == (preset is None):
        raise InputError("expected either --methods a,b or --preset team.yaml")
    settings = params()
    loaded, name, chosen = settings_of(profile, task)
    if preset is not None:
        team = preset_case(preset, loaded)
        label = preset.stem
        splits = splits_of(loaded, chosen, settings.seed)
        with shown_progress(True) as publish:
            method = settings.methods[0]
            work = search_whole(
                loaded, chosen, splits, settings.seed, method, publish=publish, say=echo, team=team
            )
            table = result_of(asyncio.run(work)).compare()
        data = {"team": label, "seed": settings.seed} | table.to_dict()
        lines = [str(table)]
    else:
        named = [each.strip() for each in (methods or "").split(",") if each.strip()]
        label = "-".join(named)
        numbers = range(settings.seed, settings.seed + seeds)
        data = asyncio.run(compare_methods(loaded, chosen, named, numbers, say=echo))
        lines = list(in_lines(data))
    path = Path("results") / name / chosen / "compare" / f"{label}.json"
    write_text(path, json_text(data))
    echo(*lines, f"written to {path}, with the seeds")


@command(app)
def estimate(*, profile: str | None = None, task: str | None = None, json: bool = False) -> None:
    """Estimate the cost of `ttsgraph run` before anything is spent; with --json, also the cost of
    each stage.

    Example: ttsgraph estimate --profile paper --task math
    """
    from ttsgraph.stages.estimate import estimate_run

    loaded, chosen = measured(profile, task)
    found = estimate_run(loaded, chosen)
    if json:
        print_json(found)
    else:
        echo(*_in_words(found))


def _in_words(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines that describe an estimate: the expected cost, its range and its parts."""
    expected = found["expected"]
    low, high = (f"${value:.2g}" for value in expected["dollars_between"])
    yield (
        f"{found['task']}: ttsgraph run is expected to cost ${expected['dollars']:.2g} for"
        f" {expected['calls']['total']:,} calls"
    )
    yield f"range: {low} to {high}"
    stages = {name: calls for name, calls in expected["calls"].items() if name != "total" and calls}
    by_stage = ", ".join(f"{stage} {calls:,}" for stage, calls in stages.items())
    agent = found["agent"]
    more = f"; agent at most ${agent['dollars']:.2g} more" if agent["calls"] else ""
    seconds = expected["seconds"]
    hours = "" if seconds is None else f"; about {seconds / 3600:.2g} h in all"
    yield f"calls by stage: {by_stage}{hours}{more}; {found['note']}"


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
            "expected a profile with locally served models, found one with engine"
            f" {loaded.engine.kind}"
        )
    python = loaded.engine.python
    print_json({name: prepare_weights(name, m, python=python) for name, m in loaded.hosted.items()})


@command(app)
def schema() -> None:
    """Write JSON schemas that let editors complete params.yaml and profiles.

    Example: ttsgraph schema
    """
    from ttsgraph.base.state import STATE
    from ttsgraph.scaffold.schemas import write_schemas

    params, profile = write_schemas(STATE / "schema")
    echo(f"{params}: params.yaml begins with `# yaml-language-server: $schema={params.as_posix()}`")
    echo(
        f"{profile}: profiles begin with `# yaml-language-server: $schema=../{profile.as_posix()}`"
    )
