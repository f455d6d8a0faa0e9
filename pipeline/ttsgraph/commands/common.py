"""Options and arguments shared by several commands, and functions that load what they name."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_origin

import typer

from ttsgraph.base.errors import InputError
from ttsgraph.base.secrets import redact

if TYPE_CHECKING:
    from ttsgraph.deployment.bundle import DeployedVersion, Loader
    from ttsgraph.settings.profile import Params, Profile

app = typer.Typer(
    help="Search, cost and run multi-LLM collaboration graphs.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)
Function = TypeVar("Function", bound=Callable[..., Any])
SHARED = {
    "graph": "graph file, results folder, or version in the registry such as math@champion",
    "profile": "profile in profiles/ (default: the one in params.yaml)",
    "task": "task of the profile (default: the first in params.yaml)",
    "tasks": "tasks of the profile (default: those in params.yaml)",
    "json": "print JSON instead of lines",
}
"""Help texts of parameters that several commands have."""


def command(
    group: typer.Typer, name: str | None = None, shared: Callable[..., None] | None = None
) -> Callable[[Function], Function]:
    """Return a decorator that registers a function as a command of a group. Positional parameters
    are arguments, the others are options; their help is in the section `Args` of the docstring, or
    in SHARED. The parameters of `shared` take the place of `**options`.
    """

    def register(function: Function) -> Function:
        text, parameters = _described(function)
        if shared is not None:
            parameters[-1:] = _described(shared)[1]
        vars(function)["__signature__"] = inspect.Signature(parameters)
        return group.command(name, help=text)(function)

    return register


def _described(function: Callable[..., Any]) -> tuple[str, list[inspect.Parameter]]:
    """Return the docstring of a function without the section `Args`, and the function's parameters
    with the help from that section.
    """
    text, _, section = inspect.cleandoc(function.__doc__ or "").partition("\n\nArgs:\n")
    entries = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", section, re.MULTILINE)
    helps = SHARED | {name: " ".join(said.split()) for name, said in entries}
    parameters = []
    for each in inspect.signature(function, eval_str=True).parameters.values():
        said = helps.get(each.name)
        if get_origin(each.annotation) is Annotated:
            get_args(each.annotation)[1].help = said
        elif said:
            option = typer.Option(f"--{each.name.replace('_', '-')}", help=said)
            info = option if each.kind is each.KEYWORD_ONLY else typer.Argument(help=said)
            each = each.replace(annotation=Annotated[each.annotation, info])
        parameters.append(each)
    return text, parameters


def echo(*lines: Any) -> None:
    """Print lines, and plain data as JSON, with secrets redacted."""
    for line in lines:
        typer.echo(redact(line if isinstance(line, str) else json.dumps(line, indent=1)))


def params() -> Params:
    """Return the settings of params.yaml. Raises SettingsError if they are missing or invalid."""
    from ttsgraph.settings.profile import load_params

    return load_params()


def profile_named(name: str | None) -> tuple[Profile, str]:
    """Return the named profile (by default the one that params.yaml names) and its name. Raises
    SettingsError if there is no such profile, or if it is invalid.
    """
    from ttsgraph.settings.profile import load_profile

    name = params().profile if name is None else name
    return load_profile(name), name


def measured(profile: str | None, task: str | None) -> tuple[Profile, str]:
    """Return the profile, with measured costs if the task's profile stage has run, and the task;
    params.yaml names the defaults. Raises SettingsError if there is no such profile or task.
    """
    loaded, name = profile_named(profile)
    task = task_of(loaded, task)
    path = Path("results", name, task, "profile.parquet")
    if not path.exists():
        return loaded, task
    from ttsgraph.stages.project import as_measured  # imports pandas, which is slow

    return as_measured(loaded, task, path.parent), task


def task_of(profile: Profile, task: str | None) -> str:
    """Return the named task, by default the profile's first one in params.yaml. Raises
    SettingsError if the profile has no such task.
    """
    if task is None:
        known = (each for each in params().tasks if each in profile.tasks)
        task = next(known, next(iter(profile.tasks), ""))
    profile.task(task)
    return task


def is_graph_file(name: str) -> bool:
    """Return True if the name belongs to a graph file, not to a folder or a version."""
    return Path(name).is_file() or Path(name).suffix == ".json"


def deployed(name: str) -> DeployedVersion:
    """Return the deployed version in a results folder, or the version with this name in the
    registry. Raises InputError if there is none.
    """
    loader, names = loader_of([name])
    return loader.resolve(names[0])


def loader_of(models: list[str]) -> tuple[Loader, tuple[str, ...]]:
    """Return a loader for these models, and their names. Raises InputError unless the models are
    all results folders, or all versions in the registry.
    """
    from ttsgraph.deployment.bundle import FileLoader

    folders = tuple(Path(model) for model in models if Path(model).is_dir())
    if len(folders) == len(models):
        files = FileLoader(folders)
        return files, files.names
    for model in models:
        registered = "@" in model or "/" not in model or re.fullmatch(r"[^/]+/\d+", model)
        if not Path(model).is_dir() and (folders or not registered):
            raise InputError(
                f"{model}: expected results folders, or names like math@champion, found no such"
                " folder; `ttsgraph run` or `make repro` makes one"
            )
    from ttsgraph_flows.registry import Registry

    return Registry(params().tracking_uri), tuple(models)
