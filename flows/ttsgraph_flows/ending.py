"""Start and end of stages, and of commands that run several stages: arguments, errors and exit
codes.
"""

import argparse
import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any

from ttsgraph.base import ending
from ttsgraph.base.wording import first_line

EXIT_CODES = (
    "exit codes: 0 success, 2 invalid input, 3 stopped early, 4 a limit in the profile was reached;"
    " with 3 and 4, computed results are kept, and the next start resumes"
)


PROFILE: Mapping[str, Any] = {"help": "profile in profiles/ (default: the one in params.yaml)"}
"""The option `--profile`, which most commands have."""


def command(work: Callable[..., Any], **options: Mapping[str, Any]) -> None:
    """Run `work` from the command line, with options as for `ArgumentParser.add_argument`. Errors
    end the process as in `guarded`.
    """
    about = inspect.cleandoc(work.__doc__ or "").partition("\n\n")[0]
    parser = argparse.ArgumentParser(description=about, epilog=EXIT_CODES)
    for name, option in options.items():
        parser.add_argument(f"--{name.replace('_', '-')}", **option)
    guarded(lambda: work(**vars(parser.parse_args())))


def guarded(work: Callable[[], Any]) -> None:
    """Run `work` as `ending.guarded` does, and also treat an unreachable Prefect server and an
    MLflow failure as expected errors.
    """
    ending.guarded(work, _server_away)


def _server_away(error: Exception) -> str:
    """Return the message for an MLflow error, or for a Prefect server that can't be reached or
    didn't start in time; "" for other errors. Prefect has no specific exception for such a server.
    """
    mlflow = sys.modules.get("mlflow.exceptions")  # not imported here: it is slow
    if mlflow is not None and isinstance(error, mlflow.MlflowException):
        return f"MLflow: {first_line(error)}; {ending.GO_ON}"
    texts = ("Failed to reach API", "ephemeral Prefect API")
    away = isinstance(error, RuntimeError) and any(text in str(error) for text in texts)
    hint = "start that Prefect server, or unset PREFECT_API_URL to start one automatically"
    return f"{str(error).rstrip('.')}; {hint}; then run again" if away else ""
