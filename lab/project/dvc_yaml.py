"""dvc.yaml from the stages' plans: `make dvc.yaml` writes it, and a test compares."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from ttsgraph.base.files import write_text
from ttsgraph.stages.plan import IDENTITY, STAGES, StagePlan

HEAD = """\
# Made by `make dvc.yaml` from ttsgraph/stages/plan.py. One Prefect flow a stage, for each task,
# and from search on for each method.
# The stage `identity` always runs, in a second: it writes what results depend on beside their
# inputs (settings and code, see ttsgraph_flows/identity.py), and the stages that follow run again
# if that has changed.
"""


def dvc_yaml() -> str:
    """The text of dvc.yaml."""
    first = {"cmd": "python -m ttsgraph_flows.identity", "outs": [_path(IDENTITY)]}
    stages = {"identity": first} | {plan.name: _stage(plan) for plan in STAGES}
    return HEAD + yaml.safe_dump({"stages": stages}, sort_keys=False, width=120)


def _stage(plan: StagePlan) -> dict[str, Any]:
    arguments = "".join(f" --{name} ${{item.{name}}}" for name in plan.per)
    stage: dict[str, Any] = (
        {"matrix": {name: f"${{{name}s}}" for name in plan.per}} if plan.per else {}
    )
    stage |= {"cmd": f"python -m {plan.module}{arguments}"}
    stage |= {"deps": [_path(plan.identity), *_paths(plan.reads)], "outs": _paths(plan.writes)}
    if plan.metrics:
        stage["metrics"] = _paths(plan.metrics)
    if plan.plots:
        stage["plots"] = [
            {_path(path): {"template": template}} for path, template in plan.plots.items()
        ]
    return stage


def _paths(templates: Sequence[str]) -> list[str]:
    return [_path(template) for template in templates]


def _path(template: str) -> str:
    return template.format(profile="${profile}", task="${item.task}", method="${item.method}")


if __name__ == "__main__":
    write_text(Path("dvc.yaml"), dvc_yaml())
