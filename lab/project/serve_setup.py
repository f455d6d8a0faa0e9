"""Decide whether `make setup` builds the environment of local model servers.

    python -m lab.project.serve_setup FOLDER [--only-look]

Exits with code 0 if the environment has to be built. Otherwise prints the reason in one line and
exits with code 3: no model of params.yaml's profile is served from the environment, or the
environment is the user's own. With `--only-look`, only the latter is checked. Exits with code 2 if
settings are invalid.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from ttsgraph.base.errors import InputError
from ttsgraph.settings.profile import Profile, load_params, load_profile

OURS = (".begun", ".ready")
"""Files with which `make setup` marks its environment."""

LEAVE_ALONE = 3


def theirs(folder: Path) -> str:
    """Return the reason why an environment is the user's own, or "" if it isn't."""
    if next(iter(sorted(folder.glob("lib*/python*/site-packages/vllm-*.dist-info"))), None):
        return f"{folder} has a vLLM that was installed there by hand"
    if (folder / "bin" / "python").exists() and not any((folder / mark).exists() for mark in OURS):
        return f"{folder} is an environment that `make setup` did not make"
    return ""


def not_needed(profile: Profile, name: str, folder: Path) -> str:
    """Return the reason why a profile has no use for the environment that `make setup` would build
    in this folder, or "" if the profile needs it.
    """
    engine = profile.engine
    if not profile.hosted:
        return f"profile {name}: no model is served here, so no serve environment is needed"
    if Path(engine.python).parts[0] != str(folder):
        return f"profile {name}: servers run on your own {engine.python} (engine.python)"
    if engine.device == "gpu":
        return (
            f"profile {name}: needs vLLM for GPUs, but only vLLM for CPUs would be built here;"
            f" install vLLM for GPUs in {folder}, or in another environment that engine.python"
            " names (docs/vllm.md)"
        )
    return ""


def main(arguments: Sequence[str]) -> int:
    """Print the decision; return the exit code."""
    folder = Path(arguments[0])
    why = theirs(folder)
    try:
        if not why and "--only-look" not in arguments:
            name = load_params().profile
            why = not_needed(load_profile(name), name, folder)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if why:
        print(f"{why}; left as it is")
        return LEAVE_ALONE
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
