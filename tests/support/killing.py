"""Run as a program: evaluates a copy of a project and dies by SIGKILL at one write after the other,
then evaluates it again.

`python -m tests.support.killing <project> <task> <method>` prints one JSON line for each copy: at
which writes it was killed, what the registry held after each kill, and what it held, and what was
said, once it was evaluated to the end; the first line is of a copy that nobody killed, and has all
the writes. A copy is killed once, but for the hundreds of files that a version is logged with:
there it is started again and killed at the next one, ARTEFACTS_A_COPY times.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from mlflow.utils import requirements_utils
from sqlalchemy import event
from sqlalchemy.engine import Engine

from ttsgraph.stages import schemas
from ttsgraph_flows import evaluate
from ttsgraph_flows.registry import Registry
from ttsgraph_flows.stage import load_stage

ARTEFACTS_A_COPY = 40
ARTEFACT = "/models/"
"""What the paths of the files have in common that a version is logged with."""

WRITING = os.O_WRONLY | os.O_RDWR
MOVES = {"os.rename": 2, "os.remove": 1, "os.mkdir": 2, "os.rmdir": 1}
"""With the position of the folder that a path is relative to, if it is to another than the working
directory.
"""

READS = ("SELECT", "PRAGMA")


def listen(note: Callable[[str], None]) -> None:
    """Hear of every write below the working directory, before it is made: files opened, made or
    moved, and commits of what was changed.
    """
    here = os.getcwd() + os.sep

    def hook(name: str, arguments: tuple[Any, ...]) -> None:
        told = arguments[0] if arguments else None
        if name == "open" and not (isinstance(arguments[2], int) and arguments[2] & WRITING):
            return
        if (name != "open" and name not in MOVES) or not isinstance(
            told, str | bytes | os.PathLike
        ):
            return
        folder = arguments[MOVES[name]] if name in MOVES else -1
        base = here if folder == -1 else os.readlink(f"/proc/self/fd/{folder}")
        path = os.path.abspath(os.path.join(base, os.fsdecode(told)))
        there = name == "os.mkdir" and os.path.isdir(path)  # nothing will be written
        if path.startswith(here) and not there:
            note(f"{name} {path.removeprefix(here)}")

    def changes(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if not statement.lstrip().upper().startswith(READS):
            connection.info["changed"] = True

    def commits(connection: Any) -> None:
        if connection.info.pop("changed", False):
            note("commit")

    sys.addaudithook(hook)
    event.listen(Engine, "before_cursor_execute", changes)
    event.listen(Engine, "commit", commits)


def forked(work: Callable[[], None]) -> int:
    """Do work in a process of its own; returns how that ended."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1]


@contextmanager
def copied(project: Path) -> Iterator[Path]:
    """A copy of the project under its own name, so that absolute paths in it hold; the original
    stands aside meanwhile.
    """
    aside = project.with_name(f"{project.name}-aside")
    project.rename(aside)
    shutil.copytree(aside, project, symlinks=True)
    os.chdir(project)
    try:
        yield project
    finally:
        shutil.rmtree(project)
        aside.rename(project)


def held(task: str, method: str) -> dict[str, Any]:
    """What there is: versions and aliases, and what was said last."""
    stage = load_stage(task)
    versions = Registry(stage.params.tracking_uri).versions(task)
    lineage = stage.results / method / "lineage.json"
    told = json.loads(lineage.read_text()) if lineage.exists() else {}
    return {
        "versions": [version.label for version in versions],
        "aliases": {version.label: list(version.aliases) for version in versions},
        "said": {key: told.get(key) for key in ("version", "promoted", "reason")},
        "files": sorted(
            str(path)
            for path in (stage.results / method).iterdir()
            if not path.name.startswith(".")
        ),
    }


def tell(task: str, method: str, file: Path) -> None:
    """Write down what is held."""
    file.write_text(json.dumps(held(task, method)))


def evaluated(task: str, method: str, after: Path, dies_at: int = 0, among: str = "") -> int:
    """Evaluate in a process of its own that dies at this write, counted from 1 among those whose
    names have `among` in them.

    One that ends writes what is held then, its writes and its modules into the file.
    """
    count = 0
    told: list[str] = []

    def note(what: str) -> None:
        nonlocal count
        told.append(what)
        count += among in what
        if count == dies_at and among in what:
            os.kill(os.getpid(), signal.SIGKILL)

    def work() -> None:
        listen(note)
        evaluate.evaluate.fn(task, method)
        found = {"writes": told[:], "modules": list(sys.modules), "after": held(task, method)}
        after.write_text(json.dumps(found))

    return forked(work)


def warm(modules: list[str]) -> None:
    """Have done here what every evaluation does at its beginning, so that those that are forked
    from here begin with it.
    """
    for name in modules:
        with suppress(Exception):  # some are made as they are used, and can't be imported
            importlib.import_module(name)
    requirements_utils._init_packages_to_modules_map()  # looks at each file of each package
    for schema in schemas.Table.__subclasses__():
        schema.to_schema()


def copies(writes: Sequence[str]) -> Iterator[tuple[list[int], str]]:
    """For each copy the writes to be killed at, and among which they count. All copies together
    have every write.
    """
    artefacts = [what for what in writes if ARTEFACT in what]
    for number, what in enumerate(writes, 1):
        if ARTEFACT not in what:
            yield [number], ""
    numbers = range(1, len(artefacts) + 1)
    for start in range(0, len(numbers), ARTEFACTS_A_COPY):
        yield list(numbers[start : start + ARTEFACTS_A_COPY]), ARTEFACT


def main() -> None:
    """The command line."""
    project = Path(sys.argv[1])
    task = sys.argv[2]
    method = sys.argv[3]
    scratch = project.with_name(f"{project.name}-told")
    with copied(project):
        assert evaluated(task, method, scratch) == 0
        undisturbed = json.loads(scratch.read_text())
    warm(undisturbed.pop("modules"))
    print(json.dumps(undisturbed), flush=True)
    for kills, among in copies(undisturbed["writes"]):
        with copied(project):
            between = []
            for number in kills:
                died = evaluated(task, method, scratch, number, among)
                assert died == signal.SIGKILL, (number, among)
                assert forked(lambda: tell(task, method, scratch)) == 0
                between.append(json.loads(scratch.read_text()))
            assert evaluated(task, method, scratch) == 0, kills
            after = json.loads(scratch.read_text())["after"]
            print(json.dumps({"kills": kills, "between": between, "after": after}), flush=True)


if __name__ == "__main__":
    main()
