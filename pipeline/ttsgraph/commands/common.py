"""Options and arguments that several commands take, and what they name."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ttsgraph.base.errors import InputError
from ttsgraph.base.secrets import redact

if TYPE_CHECKING:
    from ttsgraph.deployment.bundle import Deployed, Loader
    from ttsgraph.settings.profile import Params, Profile

app = typer.Typer(
    help="Search, cost and run multi-LLM collaboration graphs.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)
ProfileName = Annotated[
    str | None,
    typer.Option("--profile", help="a profile of profiles/ (default: that of params.yaml)"),
]
TaskName = Annotated[
    str | None,
    typer.Option("--task", help="a task of the profile (default: the first of params.yaml)"),
]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON instead of lines")]


def echo(*lines: str) -> None:
    """Print lines, without secrets."""
    for line in lines:
        typer.echo(redact(line))


def print_json(data: Any) -> None:
    """Print plain data."""
    typer.echo(json.dumps(data, indent=1))


def params() -> Params:
    """The settings of params.yaml. Raises SettingsError."""
    from ttsgraph.settings.profile import load_params

    return load_params()


def profile_named(name: str | None) -> tuple[Profile, str]:
    """The profile asked for, or that of params.yaml, and its name. Raises SettingsError."""
    from ttsgraph.settings.profile import load_profile

    name = params().profile if name is None else name
    return load_profile(name), name


def settings_of(profile: str | None, task: str | None) -> tuple[Profile, str, str]:
    """The profile asked for, its name, and the task asked for, or those of params.yaml. Raises
    SettingsError.
    """
    loaded, name = profile_named(profile)
    if task is None:
        known = (each for each in params().tasks if each in loaded.tasks)
        task = next(known, next(iter(loaded.tasks), ""))
    loaded.task(task)
    return loaded, name, task


def measured(profile: str | None, task: str | None) -> tuple[Profile, str]:
    """The same, its costs as its profile stage measured them, if that has run."""
    loaded, name, chosen = settings_of(profile, task)
    return as_measured(loaded, name, chosen), chosen


def as_measured(profile: Profile, name: str, task: str) -> Profile:
    """The profile of this name, its costs as its profile stage measured them, if that has run."""
    path = Path("results", name, task, "profile.parquet")
    if not path.exists():
        return profile
    from ttsgraph.stages.project import as_measured  # which imports what measures

    return as_measured(profile, task, path.parent)


def is_graph_file(name: str) -> bool:
    """Return whether this names a graph's file, not a folder or a version."""
    return Path(name).is_file() or Path(name).suffix == ".json"


def deployed(name: str) -> Deployed:
    """The contents of a folder or of a version of the registry. Raises InputError."""
    loader, names = loader_of([name])
    return loader.resolve(names[0])


def loader_of(models: list[str]) -> tuple[Loader, tuple[str, ...]]:
    """Where the models come from, and their names: folders if they all are, else the registry.
    Raises InputError.
    """
    from ttsgraph.deployment.bundle import FileLoader

    folders = tuple(Path(model) for model in models if Path(model).is_dir())
    if len(folders) == len(models):
        files = FileLoader(folders)
        return files, files.names
    for model in models:
        registered = "@" in model or "/" not in model or re.fullmatch(r"[^/]+/\d+", model)
        if not registered and not Path(model).is_dir():
            raise InputError(
                f"{model}: expected a results folder or a name like math@champion, but there is no"
                " such folder; `make repro` makes it, or `ttsgraph run`"
            )
    if folders:
        raise InputError(
            f"expected folders or names like math@champion, found both: {', '.join(models)}"
        )
    from ttsgraph_flows.registry import RegistryLoader

    return RegistryLoader(params().tracking_uri), tuple(models)
