"""Run as a program: evaluates a copy of a project and dies by SIGKILL at one write after the other,
then evaluates it again.

`python -m tests.support.killing <project> <task> <method>` prints one JSON line for each kill: at
which write it was, what the registry held then, and what it held, and what was said, once it was
evaluated again; the first line is of a copy that nobody killed.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Engine

from ttsgraph.flows import evaluate
from ttsgraph.flows.registry import Registry
from ttsgraph.flows.stage import load_stage

ARTEFACTS_BETWEEN = 60
"""Of the hundreds of files of code that a version is logged with, every so many is one to be killed
at.
"""

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
        if path.startswith(here):
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


def evaluated(task: str, method: str, dies_at: int, seen: Path | None = None) -> int:
    """Evaluate in a process of its own that dies at this write, counted from 1; the writes are put
    into a file.
    """
    count = 0
    told: list[str] = []

    def note(what: str) -> None:
        nonlocal count
        count += 1
        told.append(what)
        if count == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def work() -> None:
        listen(note)
        evaluate.evaluate.fn(task, method)
        if seen is not None:
            os.write(os.open(seen, os.O_CREAT | os.O_WRONLY, 0o600), json.dumps(told).encode())

    return forked(work)


def chosen(writes: list[str]) -> list[int]:
    """At which of these to be killed: all, but of those of many artefacts in a row some."""
    numbers = []
    row = 0
    for number, what in enumerate(writes, 1):
        row = row + 1 if "mlruns" in what or "mlartifacts" in what else 0
        if row % ARTEFACTS_BETWEEN in (0, 1):
            numbers.append(number)
    return numbers


def main() -> None:
    """The command line."""
    project = Path(sys.argv[1])
    task = sys.argv[2]
    method = sys.argv[3]
    scratch = project.with_name(f"{project.name}-told")
    with copied(project):
        assert evaluated(task, method, 0, scratch) == 0
        writes = json.loads(scratch.read_text())
        assert forked(lambda: tell(task, method, scratch)) == 0
        print(json.dumps({"write": "none", "after": json.loads(scratch.read_text())}), flush=True)
    for number in chosen(writes):
        with copied(project):
            if evaluated(task, method, number) != signal.SIGKILL:
                continue  # it made fewer writes this time
            assert forked(lambda: tell(task, method, scratch)) == 0
            between = json.loads(scratch.read_text())
            assert evaluated(task, method, 0) == 0, writes[number - 1]
            assert forked(lambda: tell(task, method, scratch)) == 0
            line = {
                "write": writes[number - 1],
                "between": between,
                "after": json.loads(scratch.read_text()),
            }
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
