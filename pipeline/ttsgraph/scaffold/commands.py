"""The commands `ttsgraph new-task`, `new-model`, `schema` and `check`, and the options that several
commands take.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ttsgraph.base.errors import InputError
from ttsgraph.base.secrets import redact

if TYPE_CHECKING:  # a command imports what it needs, so that --help is there at once
    from ttsgraph.settings.profile import Profile

ProfileName = Annotated[
    str | None,
    typer.Option("--profile", help="a profile of profiles/ (default: that of params.yaml)"),
]
TaskName = Annotated[
    str | None,
    typer.Option("--task", help="a task of the profile (default: the first of params.yaml)"),
]


def echo(*lines: str) -> None:
    """Print lines, without secrets."""
    for line in lines:
        typer.echo(redact(line))


def settings_of(profile: str | None, task: str | None) -> tuple[Profile, str, str]:
    """The profile asked for, its name, and the task asked for, or those of params.yaml."""
    from ttsgraph.settings.profile import load_params, load_profile

    name = load_params().profile if profile is None else profile
    loaded = load_profile(name)
    if task is None:
        known = (each for each in load_params().tasks if each in loaded.tasks)
        task = next(known, next(iter(loaded.tasks), ""))
    loaded.task(task)
    return loaded, name, task


def new_task(
    name: Annotated[str, typer.Argument(help="what the task is to be called")],
    questions: Annotated[
        Path,
        typer.Argument(
            help='a file with one JSON object a line, such as {"question": ..., "answer": ...}'
        ),
    ],
    profile: ProfileName = None,
    kind: Annotated[
        str | None,
        typer.Option(
            help=(
                "how answers are graded: exact, choice, number, similarity, judge, ... (default:"
                " told from the rows; texts need one)"
            )
        ),
    ] = None,
    grading: Annotated[
        str, typer.Option(help='settings of the kind, as JSON: {"tolerance": 0.01}')
    ] = "{}",
    few_shot: Annotated[
        bool,
        typer.Option(
            "--few-shot", help="worked examples instead of an instruction, for base models"
        ),
    ] = False,
    max_tokens: Annotated[int, typer.Option(help="of one answer", min=1)] = 512,
) -> None:
    """Add a task to a profile from a file of questions; the cheapest model is asked five of them
    first.

    Texts can be graded in many ways, so they need --kind; docs/own-task.md lists them.

    Example: ttsgraph new-task invoices inputs/invoices.jsonl --profile mine
    """
    from ttsgraph.scaffold.entries import new_task as add
    from ttsgraph.settings.profile import load_params

    try:
        options = json.loads(grading)
    except json.JSONDecodeError as error:
        raise InputError(
            f"--grading: expected a JSON object, but {error.msg} at column {error.colno}"
        ) from None
    if not isinstance(options, dict):
        raise InputError(f"--grading: expected a JSON object, found {grading[:40]}")
    used = profile or load_params().profile
    style: Any = "few_shot" if few_shot else "chat"
    lines = asyncio.run(add(name, questions, used, kind, style, max_tokens, options))
    echo(
        *lines,
        f"next: ttsgraph estimate --profile {used} --task {name}, then add {name} to `tasks` in"
        " params.yaml and `make repro`",
        f"or, without the stages: ttsgraph run --task {name}",
    )


def schema(
    markdown: Annotated[
        Path | None, typer.Option(help="write the reference of all settings there instead")
    ] = None,
) -> None:
    """Write the JSON schemas that editors complete params.yaml and profiles from, by the first line
    of each.

    Example: ttsgraph schema
    """
    from ttsgraph.base.files import write_text
    from ttsgraph.base.state import STATE
    from ttsgraph.scaffold.reference import page, write_schemas

    if markdown is not None:
        write_text(markdown, page())
        echo(str(markdown))
        return
    params, profile = write_schemas(STATE / "schema")
    echo(f"{params}: params.yaml begins with `# yaml-language-server: $schema={params.as_posix()}`")
    echo(
        f"{profile}: profiles begin with `# yaml-language-server: $schema=../{profile.as_posix()}`"
    )


def new_model(  # whole: long by its options alone
    name: Annotated[str, typer.Argument(help="what the model is to be called")],
    url: Annotated[
        str, typer.Argument(help="its OpenAI-compatible endpoint, mostly ending in /v1")
    ],
    profile: ProfileName = None,
    task: Annotated[
        str | None, typer.Option(help="a task of the profile to try it on (default: the first)")
    ] = None,
    served_as: Annotated[
        str | None, typer.Option(help="its name at the endpoint, if it differs")
    ] = None,
    family: Annotated[
        str | None,
        typer.Option(
            help="which models it is compared with by size (default: the name's first part)"
        ),
    ] = None,
    total: Annotated[float | None, typer.Option(help="parameters in all", min=1)] = None,
    non_embedding: Annotated[
        float | None, typer.Option(help="parameters without embeddings", min=1)
    ] = None,
    layers: Annotated[int | None, typer.Option(help="layers", min=1)] = None,
    hidden: Annotated[int | None, typer.Option(help="hidden size", min=1)] = None,
    price_prompt: Annotated[
        float | None, typer.Option(help="dollars per million tokens of a prompt", min=0)
    ] = None,
    price_completion: Annotated[
        float | None, typer.Option(help="dollars per million tokens of an answer", min=0)
    ] = None,
    api_key_env: Annotated[
        str | None,
        typer.Option(
            "--key-env", "--api-key-env", help="the environment variable with the endpoint's key"
        ),
    ] = None,
    api_key_header: Annotated[
        str | None,
        typer.Option(help="the header with the key, if not Authorization: Bearer (Azure: api-key)"),
    ] = None,
    query: Annotated[
        list[str] | None,
        typer.Option(help="name=value, added to each URL (Azure: api-version=2024-10-21)"),
    ] = None,
    revision: Annotated[
        str | None, typer.Option(help="which version of the model is served")
    ] = None,
) -> None:
    """Add a model to a profile's pool from its endpoint; it is asked five questions first.

    Its name and price come from the endpoint's list where that has them; sizes are for a FLOPs
    budget alone.

    Example: ttsgraph new-model my-model https://models.example/v1 --profile mine --price-prompt 0.1
    --price-completion 0.3
    """
    from ttsgraph.scaffold.entries import new_model as add
    from ttsgraph.settings.profile import load_params

    used = profile or load_params().profile
    pairs = [pair.partition("=") for pair in query or []]
    if any(not (key and equals) for key, equals, _ in pairs):
        raise InputError(f"--query: expected name=value, found {', '.join(query or [])}")
    price = {"prompt": price_prompt, "completion": price_completion}
    known = {
        "base_url": url.rstrip("/"),
        "family": family,
        "total": total,
        "non_embedding": non_embedding,
        "layers": layers,
        "hidden": hidden,
        "price": {part: dollars for part, dollars in price.items() if dollars is not None},
        "served_as": served_as,
        "api_key_env": api_key_env,
        "api_key_header": api_key_header,
        "query": {key: value for key, _, value in pairs} or None,
        "revision": revision,
    }
    known = {key: value for key, value in known.items() if value is not None}
    echo(
        *asyncio.run(add(name, known, used, task)),
        f"next: ttsgraph doctor --profile {used}; `make repro` searches with it, or for a champion"
        " `python -m ttsgraph_flows.research`",
    )
