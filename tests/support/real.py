"""The packaged models behind real servers: where they are, the laptop profile on them, and small
questions to search with.

They need the serve environment (TTSGRAPH_SERVE_PYTHON, default .venv-serve/bin/python) and the
converted models (TTSGRAPH_MODELS, default .ttsgraph/models), both made by `make setup`; without
them a test is skipped, and says so.
"""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from ttsgraph.base.parsing import parse
from ttsgraph.base.state import SERVE_PYTHON
from ttsgraph.pool.engine import ServeSettings
from ttsgraph.serving import convert
from ttsgraph.settings.profile import Profile
from ttsgraph.tasks.base import Question

ROOT = Path(__file__).resolve().parents[2]
GEMMA = "gemma3-270m"
SMOLLM = "smollm2-135m"
PYTHON = Path(os.environ.get("TTSGRAPH_SERVE_PYTHON", str(ROOT / SERVE_PYTHON))).absolute()
MODELS = Path(os.environ.get("TTSGRAPH_MODELS", str(ROOT / ".ttsgraph" / "models"))).absolute()
# Without blanks, as a model may write these to its last token.
OUTPUTS = '{"backend": "xgrammar", "disable_any_whitespace": true}'
CALLS = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes")
TOOLS = ServeSettings(extra_args=(*CALLS, "--structured-outputs-config", OUTPUTS))
"""Of a server that reads calls of tools out of what the model writes."""
SUMS = [
    Question(f"q{a}{b}", f"{a} + {b} =", str(a + b)) for a in range(1, 10) for b in range(1, 10)
]


def require_models() -> None:
    """Skip the test where the models can't be served."""
    lacking = [str(PYTHON)] if not PYTHON.exists() else []
    lacking += [name for name in (GEMMA, SMOLLM) if convert.revision_in(MODELS / name) is None]
    if lacking:
        remedy = "`make setup`, or set TTSGRAPH_SERVE_PYTHON and TTSGRAPH_MODELS"
        pytest.skip(f"no {', '.join(lacking)}: {remedy}")


def link_serve_environment(folder: Path) -> None:
    """Put the serve environment where a stage in this folder looks for it."""
    (folder / SERVE_PYTHON).parents[1].symlink_to(PYTHON.parents[1])


def laptop(pool: tuple[str, ...] = (SMOLLM, GEMMA), **sections: dict[str, Any]) -> Profile:
    """The laptop profile on the converted models, with changes by section."""
    data = yaml.safe_load((ROOT / "profiles" / "laptop.yaml").read_text())
    data["pool"] = {
        name: data["pool"][name] | {"weights": {"path": str(MODELS / name)}} for name in pool
    }
    for section, changes in sections.items():
        data[section] |= changes
    return parse(Profile, data, "profile")
