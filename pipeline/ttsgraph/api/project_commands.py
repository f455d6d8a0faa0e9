"""The commands `ttsgraph init`, `run`, `compare` and `export`."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ttsgraph.base.ending import stopped_by_signals
from ttsgraph.base.errors import InputError
from ttsgraph.base.secrets import refuse_secrets
from ttsgraph.scaffold.options import ORDER, ProfileName, TaskName, echo

if TYPE_CHECKING:  # a command imports what it needs, so that --help is there at once
    from ttsgraph.scaffold.providers import Provider
    from ttsgraph.settings.profile import Params, Profile


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
) -> None:
    """Write a project into a new folder: each model is asked once, the questions are looked at, and
    what was made of them is said.

    Example: ttsgraph init mine --questions my.csv --url http://127.0.0.1:8000/v1
    """
    from ttsgraph.api import project

    pairs = ctx.meta[ORDER]
    asking = (lambda words: float(typer.prompt(words, type=float))) if sys.stdin.isatty() else None
    lines = project.init(folder, providers_of(pairs), budget, questions, kind, asking)
    echo(*lines, f"next: cd {folder}, then ttsgraph run; profiles/{project.PROFILE}.yaml says all")


PRICES = ("--price", "--price-prompt", "--price-completion")
OF_A_URL = ("--key-env", "--api-key-env", "--model", *PRICES)


def providers_of(pairs: Sequence[tuple[str, str]]) -> list[Provider]:
    """The endpoints with what was typed after each; what came before the first is of all. Raises
    InputError where it can't be told what an option is of.
    """
    from ttsgraph.scaffold.providers import Provider

    shared: dict[str, list[str]] = {}
    each: list[tuple[str, dict[str, list[str]]]] = []
    for name, value in pairs:
        if name == "--url":
            if any(value.rstrip("/") == url for url, _ in each):
                raise InputError(f"--url: expected each endpoint once, found {value} twice")
            each.append((value.rstrip("/"), {}))
        elif name in OF_A_URL:
            name = "--key-env" if name == "--api-key-env" else name
            (each[-1][1] if each else shared).setdefault(name, []).append(value)
    for name in ("--key-env", "--price-prompt", "--price-completion"):
        given = shared.get(name, []) + [value for _, own in each for value in own.get(name, [])]
        at_once = any(len(own.get(name, [])) > 1 for own in (shared, *(own for _, own in each)))
        if len(given) == len(each) > 1 and at_once:  # one for each, all behind the last
            shared.pop(name, None)
            for (_, own), value in zip(each, given, strict=True):
                own[name] = [value]
        elif at_once:
            raise InputError(f"{name}: expected it once behind its --url, found {len(given)}")
        elif len(given) == 1 and name != "--key-env":
            shared[name] = given
    found = []
    for url, own in each:
        told = {name: values[0] for name, values in (shared | own).items() if name != "--model"}
        both = [told.get("--price-prompt"), told.get("--price-completion")]
        if (both[0] is None) != (both[1] is None):
            raise InputError(
                "expected --price-prompt and --price-completion together: dollars per million"
                " tokens (0 where nothing is paid)"
            )
        price = None
        if both[0] is not None and both[1] is not None:
            price = {"prompt": float(both[0]), "completion": float(both[1])}
            _require_price(price, "--price-prompt")
        if key_env := told.get("--key-env"):
            refuse_secrets({"api_key_env": key_env}, "--key-env")
        models = tuple(own.get("--model", shared.get("--model", [])))
        prices = prices_of(shared.get("--price", []) + own.get("--price", []))
        found.append(Provider(url, key_env, models, price, prices))
    return found


def prices_of(given: Sequence[str]) -> dict[str, dict[str, float]]:
    """By model what --price says. Raises InputError."""
    found = {}
    for text in given:
        name, equals, values = text.rpartition("=")
        try:
            prompt, completion = map(float, values.split(","))
        except ValueError:
            equals = ""
        if not equals or not name:
            raise InputError(
                f"--price: expected MODEL=PROMPT,ANSWER such as small=0.1,0.3, found {text!r}"
            )
        found[name] = {"prompt": prompt, "completion": completion}
        _require_price(found[name], "--price")
    return found


def _require_price(price: Mapping[str, float], option: str) -> None:
    if not all(0 <= value < float("inf") for value in price.values()):
        raise InputError(
            f"{option}: expected dollars per million tokens, 0 or more, found {dict(price)}"
        )


NO_PAGE = "no page with tables and plots: pip install 'ttsgraph[page]'"


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
    MLflow, no pilot, no registry.

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
    from ttsgraph.settings.profile import load_params, load_profile

    if (methods is None) == (preset is None):
        raise InputError("expected --methods a,b or --preset team.yaml, one of them")
    params = load_params()
    name = profile or params.profile
    loaded = load_profile(name)
    chosen = task or next(
        iter(name for name in params.tasks if name in loaded.tasks), next(iter(loaded.tasks))
    )
    loaded.task(chosen)
    if preset is not None:
        _compare_team(loaded, params, name, chosen, preset)
        return
    from ttsgraph.api.comparing import compare_methods, told_of
    from ttsgraph.evaluation.stats import smallest_p

    named = [name.strip() for name in (methods or "").split(",") if name.strip()]
    numbers = range(params.seed, params.seed + seeds)
    found = asyncio.run(compare_methods(loaded, chosen, named, numbers, say=echo))
    echo(
        *(scores.line() for scores in found),
        f"paired Wilcoxon tests over {seeds} seeds; p is never below {smallest_p(seeds, 1):.3g}",
        _written(name, chosen, "-".join(named), told_of(loaded, found)),
    )


def _compare_team(loaded: Profile, params: Params, name: str, task: str, preset: Path) -> None:
    from ttsgraph.api.comparing import compare_team
    from ttsgraph.api.presets import read_preset
    from ttsgraph.api.result import shown_progress

    team = read_preset(preset, loaded)
    label = preset.stem
    with shown_progress(True) as publish:
        work = compare_team(
            loaded, task, team, label, params.seed, params.methods[0], publish, echo
        )
        found = asyncio.run(work)
    table = found.compare()
    told = {"team": label, "seed": params.seed} | table.to_dict()
    echo(str(table), _written(name, task, label, told))


def _written(profile: str, task: str, name: str, told: dict[str, Any]) -> str:
    """Keep a comparison below results/; returns a line that says where."""
    from ttsgraph.base.files import write_text

    path = Path("results") / profile / task / "compare" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(told, indent=1))
    return f"{path} has it, with seeds"
