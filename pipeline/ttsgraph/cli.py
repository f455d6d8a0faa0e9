"""The `ttsgraph` command line: a thin layer over the library."""

import sys
from importlib import import_module
from typing import Any

import typer

from ttsgraph.base.ending import EXIT_INPUT, guarded
from ttsgraph.base.errors import InputError
from ttsgraph.commands.common import app as app

for group in ("project", "graph", "results"):  # in the order in which --help lists them
    import_module(f"ttsgraph.commands.{group}")


def main() -> None:
    """Run the command line. An error ends it with a one-line message and exit code 2 (invalid
    input), 3 (interrupted run) or 4 (limit reached).
    """
    guarded(in_a_line)


def in_a_line() -> None:
    """Run a command. Raises InputError for a usage error, which Typer would print in a box."""
    usage_error = typer.BadParameter.__mro__[1]  # not exported by Typer
    try:
        code = app(standalone_mode=False)
    except typer.Abort:
        raise InputError("aborted; nothing was written") from None
    except Exception as error:
        if not isinstance(error, usage_error):
            raise
        usage: Any = error
        if not (said := usage.format_message()):  # empty if a group's help was printed
            sys.exit(EXIT_INPUT)
        at = usage.ctx.command_path if usage.ctx else "ttsgraph"
        raise InputError(f"{said.rstrip('.')}; see {at} --help") from None
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
