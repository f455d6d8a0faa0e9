"""How a stage and what runs several of them begin and end."""

import argparse
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from ttsgraph.base import ending

EXIT_CODES = (
    "exit codes: 0 done, 2 something given can't be used, 3 stopped early, 4 a limit of the profile"
    " was reached; 3 and 4 keep what was computed, and the next start goes on"
)


PROFILE: Mapping[str, Any] = {"help": "a profile of profiles/ (default: the one in params.yaml)"}
"""The option that most commands have."""


def command(work: Callable[..., Any], **options: Mapping[str, Any]) -> None:
    """Run work from the command line, with options as `ArgumentParser.add_argument` takes them;
    ends as `guarded`.
    """
    about = inspect.cleandoc(work.__doc__ or "").partition("\n\n")[0]
    parser = argparse.ArgumentParser(description=about, epilog=EXIT_CODES)
    for name, option in options.items():
        parser.add_argument(f"--{name.replace('_', '-')}", **option)
    guarded(lambda: work(**vars(parser.parse_args())))


def guarded(work: Callable[[], Any]) -> None:
    """As `ending.guarded`, and knows when Prefect's server is away."""
    ending.guarded(work, _prefect_away)


def _prefect_away(error: Exception) -> str:
    """That Prefect's server could not be reached or did not start in time, for which Prefect has
    no error of its own; "" of other errors.
    """
    away = isinstance(error, RuntimeError) and any(
        said in str(error) for said in ("Failed to reach API", "ephemeral Prefect API")
    )
    hint = "start that Prefect server, or unset PREFECT_API_URL to have one started here"
    return f"{str(error).rstrip('.')}; {hint}, and start again" if away else ""
