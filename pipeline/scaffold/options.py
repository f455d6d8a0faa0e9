"""The options that several commands take, and how their lines are printed."""

from __future__ import annotations

from typing import Annotated

import typer

from ttsgraph.base.secrets import redact

ProfileName = Annotated[
    str | None,
    typer.Option("--profile", help="a profile of profiles/ (default: that of params.yaml)"),
]
TaskName = Annotated[
    str | None,
    typer.Option("--task", help="a task of the profile (default: the first of params.yaml)"),
]
PricePrompt = Annotated[
    float | None, typer.Option(help="dollars per million tokens of a prompt", min=0)
]
PriceCompletion = Annotated[
    float | None, typer.Option(help="dollars per million tokens of an answer", min=0)
]
ApiKeyEnv = Annotated[
    str | None, typer.Option(help="the environment variable with the endpoint's key")
]


def echo(*lines: str) -> None:
    """Print lines, without secrets."""
    for line in lines:
        typer.echo(redact(line))
