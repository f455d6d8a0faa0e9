"""The options that several commands take, and how their lines are printed."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperCommand

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
    str | None,
    typer.Option(
        "--key-env", "--api-key-env", help="the environment variable with the endpoint's key"
    ),
]


ORDER = "options in order"


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


def echo(*lines: str) -> None:
    """Print lines, without secrets."""
    for line in lines:
        typer.echo(redact(line))
