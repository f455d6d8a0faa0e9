"""Stages of a project from its dvc.yaml: their order, tasks, methods and outputs.

DVC itself could list them, but takes a second to import.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import yaml

from ttsgraph.base.errors import DataError, EndpointError, InputError
from ttsgraph.base.wording import first_line
from ttsgraph.settings.profile import Params

DVC_YAML = Path("dvc.yaml")
DVC = (sys.executable, "-m", "dvc")
"""Command that runs DVC in this Python, regardless of the PATH."""

Lock = Mapping[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StageRun:
    """A stage of a profile, run for a task and a method if it depends on them; `outputs` are the
    paths of its results.
    """

    stage: str
    task: str | None
    method: str | None
    outputs: tuple[str, ...]

    @property
    def name(self) -> str:
        """Name of the stage in DVC."""
        item = "-".join(filter(None, [self.task, self.method]))
        return "@".join(filter(None, [self.stage, item]))

    def locked(self, lock: Lock) -> dict[str, str]:
        """Return path -> MD5 of the stage's results in dvc.lock."""
        return {item["path"]: item["md5"] for item in lock.get(self.name, {}).get("outs", [])}

    def run(self) -> None:
        """Run the stage without Prefect."""
        flow_of(self.stage)(*filter(None, [self.task, self.method]))


def runs_of(params: Params, *tasks: str, of_all: bool = False) -> Iterator[StageRun]:
    """Yield the stages of these tasks in order; a stage that depends on the task or the method
    appears once for each of them.

    `of_all`: include the stages that don't depend on the task.
    """
    for stage, plan in stages().items():
        per = plan.get("matrix", {})
        for task in tasks if "task" in per else (None,) * of_all:
            for method in params.methods if "method" in per else (None,):
                names = {"profile": params.profile, "item.task": task, "item.method": method}
                outputs = tuple(_filled(path, names) for path in _outputs(plan))
                yield StageRun(stage, task, method, outputs)


def _outputs(plan: Mapping[str, Any]) -> Iterator[str]:
    for out in chain.from_iterable(plan.get(kind, ()) for kind in ("outs", "metrics", "plots")):
        # An output with options is a mapping from its path to the options.
        yield from [out] if isinstance(out, str) else out


def _filled(path: str, names: Mapping[str, str | None]) -> str:
    return re.sub(r"\$\{([^}]*)\}", lambda found: names.get(found[1], found[0]) or "", path)


def stages() -> dict[str, Any]:
    """Return stage -> its entry in dvc.yaml. Raises InputError if there is no dvc.yaml, or if it is
    damaged.
    """
    found: dict[str, Any] = read_record(DVC_YAML, lambda found: dict(found["stages"]), {})
    if not found:
        raise InputError(f"expected {DVC_YAML} with stages in {Path.cwd()}, found none")
    return found


def read_record(path: Path, read: Callable[[Any], T], missing: T) -> T:
    """Return what `read` extracts from one of DVC's files (dvc.yaml, dvc.lock, *.dvc), or `missing`
    if the file doesn't exist. Raises DataError if the file is damaged, for instance by a merge.
    """
    try:
        return read(yaml.safe_load(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return missing
    except (OSError, ValueError, LookupError, TypeError, AttributeError, yaml.YAMLError) as error:
        raise DataError(
            f"{path}: expected a file of DVC, but it can't be read: {first_line(error)}; restore it"
            " with `git checkout`"
        ) from None


def read_lock(path: Path = Path("dvc.lock")) -> Lock:
    """Return stage -> DVC's record of it; empty if the file doesn't exist. Raises DataError if the
    file is damaged.
    """
    return read_record(path, lambda found: dict(found.get("stages", {})), {})


def dvc(*arguments: str, folder: Path | None = None) -> str:
    """Run DVC and return its output. Raises EndpointError with DVC's message if DVC fails."""
    command = [*DVC, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        why = " ".join(done.stderr.split()).removeprefix("ERROR: ") or "no message"
        raise EndpointError(
            f"`dvc {arguments[0]}` failed: {why}; mend that or, outside a DVC repository, run"
            " `dvc init --no-scm` first"
        )
    return done.stdout


def with_this_python() -> dict[str, str]:
    """Return an environment in which the commands of dvc.yaml run in this Python, regardless of the
    PATH.
    """
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    return os.environ | {"PATH": path}


def flow_of(stage: str) -> Callable[..., Any]:
    """Return a stage's function, to be called without Prefect."""
    from prefect import Flow

    members = vars(import_module(f"{__package__}.{stage}")).values()
    return next(each.fn for each in members if isinstance(each, Flow) and each.name == stage)
