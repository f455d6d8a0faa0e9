"""The commands `ttsgraph init`, `run` and `compare`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from ttsgraph.base.ending import stopped_by_signals
from ttsgraph.base.errors import InputError
from ttsgraph.base.secrets import refuse_secrets
from ttsgraph.scaffold.commands import ProfileName, TaskName, echo, settings_of

if TYPE_CHECKING:  # a command imports what it needs, so that --help is there at once
    from ttsgraph.scaffold.providers import Provider

ORDER = "options in order"
PRICES = ("--price", "--price-prompt", "--price-completion")
OF_A_URL = ("--key-env", "--api-key-env", "--model", *PRICES)
NO_PAGE = "no page with tables and plots: pip install 'ttsgraph[page]'"


class InOrder(TyperCommand):
    """A command that keeps the order of its options, as an option may be about the one before."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Keep names and values as they were typed."""
        pairs: list[tuple[str, str]] = []
        for place, arg in enumerate(args):
            name, equals, value = arg.partition("=")
            if name.startswith("--"):
                pairs.append((name, value if equals else "".join(args[place + 1 : place + 2])))
        ctx.meta[ORDER] = pairs
        return super().parse_args(ctx, args)


def init(
    ctx: typer.Context,
    folder: Annotated[Path, typer.Argument(help="the new folder")],
    url: Annotated[
        list[str],
        typer.Option(
            help="an OpenAI-compatible endpoint, mostly ending in /v1; may be repeated: --key-env,"
            " --model and prices are then of the --url before them, or of all if they come first"
        ),
    ],
    questions: Annotated[
        Path | None,
        typer.Option(help="questions and answers: JSONL, CSV or parquet (default: sums, to try)"),
    ] = None,
    kind: Annotated[
        str | None, typer.Option(help="how answers are graded (default: told from the questions)")
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            help="what a question may cost: 0.002 (dollars) or '3 s' (default: a few calls)"
        ),
    ] = None,
    key_env: Annotated[
        list[str] | None,
        typer.Option(
            "--key-env", "--api-key-env", help="the environment variable with an endpoint's key"
        ),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(help="a model; may be repeated (default: all that are listed)"),
    ] = None,
    price: Annotated[
        list[str] | None,
        typer.Option(help="MODEL=PROMPT,ANSWER: a model's dollars per million tokens"),
    ] = None,
    price_prompt: Annotated[
        list[float] | None, typer.Option(help="the same of all models of an endpoint: prompts")
    ] = None,
    price_completion: Annotated[list[float] | None, typer.Option(help="and answers")] = None,
    question_column: Annotated[
        str | None, typer.Option(help="the column with questions (default: told by its name)")
    ] = None,
    answer_column: Annotated[str | None, typer.Option(help="and with answers")] = None,
) -> None:
    """Write a project into a new folder: each model is asked once, the questions are looked at, and
    what was made of them is said; a terminal is asked for what can't be found out.

    Example: ttsgraph init mine --questions my.csv --url http://127.0.0.1:8000/v1
    """
    from ttsgraph.api import project

    providers = providers_of(ctx.meta[ORDER])
    ask = (lambda words: str(typer.prompt(words))) if sys.stdin.isatty() else None
    named = (question_column, answer_column)
    lines = project.init(folder, providers, budget, questions, kind, named, ask)
    echo(*lines, f"next: cd {folder}, then ttsgraph run; profiles/{project.PROFILE}.yaml says all")


def providers_of(pairs: Sequence[tuple[str, str]]) -> list[Provider]:
    """The endpoints with what was typed after each; what came before the first is of all. Raises
    InputError where it can't be told what an option is of.
    """
    shared: dict[str, list[str]] = {}
    each: dict[str, dict[str, list[str]]] = {}
    current = shared
    for name, value in pairs:
        if name == "--url":
            url = value.rstrip("/")
            if url in each:
                raise InputError(f"--url: expected each endpoint once, found {value} twice")
            current = each[url] = {}
        elif name in OF_A_URL:
            name = "--key-env" if name == "--api-key-env" else name
            current.setdefault(name, []).append(value)
    for name in ("--key-env", *PRICES[1:]):
        given = [own.get(name, []) for own in (shared, *each.values())]
        if (most := max(map(len, given))) > 1:
            raise InputError(f"{name}: expected it once behind its --url, found {most}")
        if name != "--key-env" and sum(map(len, given)) == 1:  # one price is of all
            shared[name] = next(values for values in given if values)
    return [_provider(url, shared, own) for url, own in each.items()]


def _provider(url: str, shared: dict[str, list[str]], own: dict[str, list[str]]) -> Provider:
    """One endpoint, of the options of all and its own. Raises InputError."""
    from ttsgraph.scaffold.providers import Provider, read_price

    told = {name: values[0] for name, values in (shared | own).items()}
    price = None
    parts = [told[name] for name in PRICES[1:] if name in told]
    if parts:
        if len(parts) == 1:
            raise InputError(
                "expected --price-prompt and --price-completion together: dollars per million"
                " tokens (0 where nothing is paid)"
            )
        price = read_price("--price-prompt", ",".join(parts))
    if key_env := told.get("--key-env"):
        refuse_secrets({"api_key_env": key_env}, "--key-env")
    prices = {}
    for text in shared.get("--price", []) + own.get("--price", []):
        name, _, values = text.rpartition("=")
        if not name:
            raise InputError(f"--price: expected MODEL=PRICE such as small=0.1,0.3, found {text!r}")
        prices[name] = read_price(f"--price {name}", values)
    models = own.get("--model", shared.get("--model", []))
    return Provider(url, key_env, tuple(models), price, prices)


def run(
    task: Annotated[
        str | None, typer.Option(help="a task of the profile (default: those of params.yaml)")
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="a search method (default: the first of params.yaml)")
    ] = None,
    limit: Annotated[
        float | None,
        typer.Option(
            help="dollars that this project may spend in all, over all starts (default:"
            " limits.dollars of the profile)"
        ),
    ] = None,
) -> None:
    """Search, test and save the graph to use with its page, without the stages: no Prefect, DVC or
    MLflow, no registry, and with a contest no pilot.

    Example: ttsgraph run --task sample
    """
    from ttsgraph.api import project
    from ttsgraph.api.result import shown_progress
    from ttsgraph.settings.profile import load_params

    if limit is not None and limit <= 0:
        raise InputError(f"--limit: expected dollars above 0, found {limit:g}")
    params = load_params()
    for name in params.tasks if task is None else (task,):
        with stopped_by_signals(), shown_progress(True) as publish:
            result, folder = asyncio.run(project.run(params, name, publish, echo, method, limit))
        echo(
            f"{name}: {result.sentence}",
            "",
            *(f"  {line}" for line in result.drawn()),
            "",
            str(result.compare()),
            f"${result.spent.dollars:.4f} spent now; {folder} has the graph",
            f"page: {page}" if (page := folder / "index.html").exists() else NO_PAGE,
            f"next: ttsgraph serve {folder}",
        )


def compare(
    methods: Annotated[
        str | None,
        typer.Option(
            help="search methods with commas between; the others are compared with the first"
        ),
    ] = None,
    preset: Annotated[
        Path | None,
        typer.Option(
            help="a team of yours, proposers and an aggregator (YAML) or a graph (JSON): is it"
            " worth what it costs?"
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(help="how many seeds, for --methods", min=2)] = 10,
    task: TaskName = None,
    profile: ProfileName = None,
) -> None:
    """Compare methods over seeds, or a team of yours with what a search finds for the same cost.

    The test questions stay, tests are paired. Example: ttsgraph compare --preset team.yaml
    """
    from ttsgraph.api.comparing import compare_methods, in_lines, preset_case, splits_of
    from ttsgraph.api.result import result_of, shown_progress
    from ttsgraph.api.whole import search_whole
    from ttsgraph.base.files import json_text, write_text
    from ttsgraph.settings.profile import load_params

    if (methods is None) == (preset is None):
        raise InputError("expected --methods a,b or --preset team.yaml, one of them")
    params = load_params()
    loaded, name, chosen = settings_of(profile, task)
    if preset is not None:
        team = preset_case(preset, loaded)
        label = preset.stem
        splits = splits_of(loaded, chosen, params.seed)
        with shown_progress(True) as publish:
            method = params.methods[0]
            work = search_whole(
                loaded, chosen, splits, params.seed, method, publish=publish, say=echo, team=team
            )
            table = result_of(asyncio.run(work)).compare()
        told = {"team": label, "seed": params.seed} | table.to_dict()
        lines = [str(table)]
    else:
        named = [each.strip() for each in (methods or "").split(",") if each.strip()]
        label = "-".join(named)
        numbers = range(params.seed, params.seed + seeds)
        told = asyncio.run(compare_methods(loaded, chosen, named, numbers, say=echo))
        lines = list(in_lines(told))
    path = Path("results") / name / chosen / "compare" / f"{label}.json"
    write_text(path, json_text(told))
    echo(*lines, f"{path} has it, with seeds")
