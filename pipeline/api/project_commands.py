"""The commands `ttsgraph init`, `run`, `compare` and `export`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ttsgraph.base.errors import InputError
from ttsgraph.scaffold.options import (
    ApiKeyEnv,
    PriceCompletion,
    PricePrompt,
    ProfileName,
    TaskName,
    echo,
)

if TYPE_CHECKING:  # a command imports what it needs, so that --help is there at once
    from ttsgraph.settings.profile import Params, Profile


def init(
    folder: Annotated[Path, typer.Argument(help="the new folder")],
    url: Annotated[str, typer.Option(help="an OpenAI-compatible endpoint, mostly ending in /v1")],
    model: Annotated[
        list[str] | None,
        typer.Option(help="a model of it; may be repeated (default: all that it lists)"),
    ] = None,
    price_prompt: PricePrompt = None,
    price_completion: PriceCompletion = None,
    budget: Annotated[
        str, typer.Option(help="what a question may cost: '$0.002' or '3 s'")
    ] = "$0.002",
    api_key_env: ApiKeyEnv = None,
) -> None:
    """Write a project into a new folder: settings, a profile with the endpoint's models, and a
    sample task.

    Example: ttsgraph init mysearch --url http://127.0.0.1:8000/v1 --price-prompt 0.1
    --price-completion 0.3
    """
    from ttsgraph.api import project

    if price_prompt is None or price_completion is None:
        raise InputError(
            "expected --price-prompt and --price-completion: dollars per million tokens (0 where"
            " nothing is paid)"
        )
    price = {"prompt": price_prompt, "completion": price_completion}
    names = project.init(folder, url.rstrip("/"), model or [], price, budget, api_key_env)
    echo(
        f"{folder} has a project with {', '.join(names)}; profiles/{project.PROFILE}.yaml says what"
        " they cost",
        f"next: cd {folder}, then ttsgraph run for the sample; ttsgraph new-task adds your own"
        " questions",
    )


def run(
    task: Annotated[
        str | None, typer.Option(help="a task of the profile (default: those of params.yaml)")
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="a search method (default: the first of params.yaml)")
    ] = None,
) -> None:
    """Search, test and save the graph to use, without the stages: no Prefect, DVC or MLflow, no
    pilot, no registry.

    Example: ttsgraph run --task sample
    """
    from ttsgraph.api import project
    from ttsgraph.api.result import shown_progress
    from ttsgraph.settings.profile import load_params

    params = load_params()
    for name in params.tasks if task is None else (task,):
        with shown_progress(True) as publish:
            result, folder = asyncio.run(project.run(params, name, publish, echo, method))
        echo(
            f"{name}: {result.sentence}",
            "",
            *(f"  {line}" for line in result.drawn()),
            "",
            str(result.compare()),
            f"${result.spent.dollars:.4f} spent; {folder} has the graph",
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
    from ttsgraph.study.stats import smallest_p

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
    echo(
        str(found.result.compare()),
        _written(name, task, label, found.to_dict()),
    )


def _written(profile: str, task: str, name: str, told: dict[str, Any]) -> str:
    """Keep a comparison below results/; returns a line that says where."""
    from ttsgraph.base.files import write_text

    path = Path("results") / profile / task / "compare" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(told, indent=1))
    return f"{path} has it, with seeds"
