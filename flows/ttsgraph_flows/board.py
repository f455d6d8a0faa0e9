"""One live board for a whole run: each stage writes how far it is into a file, `make repro` shows
them together.

Where there is no terminal there is no board: each stage then prints one line when it has ended.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ttsgraph.base.files import write_text

BOARD = "TTSGRAPH_BOARD"
"""The variable that tells a stage the folder into which it writes how far it is."""

GRACE_S = 4.0
"""Seconds that what DVC runs has to end by itself when all is to stop."""

EVERY_S = 0.5
REFRESH_PER_S = 4
BAR_WIDTH = 24

BEGINS = "Running stage '"
CHATTER = (
    "> python -m ttsgraph_flows.",
    "Stage '",
    "Updating lock file",
    "Generating lock file",
    "Use `dvc push`",
    "To track the changes",
    "\tgit add",
    "To enable auto staging",
    "\tdvc config core.autostage",
)
"""What DVC says beside, of no use to who waits for a result."""


@dataclass(frozen=True, slots=True)
class Posting:
    """How far a stage is: a share from 0 to 1, the time in words, what is known so far, the line
    that stays when it has ended, and what it came to.
    """

    label: str
    headline: str
    share: float
    time: str
    details: str
    line: str
    outcome: str = ""
    ended: bool = False


@contextmanager
def posted(now: Callable[[], Posting], folder: Path) -> Iterator[None]:
    """Write what `now` says into a folder, twice a second and once more at the end."""
    path = folder / f"{now().label.replace(' ', '-')}.json"
    stop = threading.Event()

    def post(ended: bool) -> None:
        with suppress(OSError):  # progress is no reason to fail
            write_text(path, json.dumps(asdict(now()) | {"ended": ended}))

    def go_on() -> None:
        while not stop.wait(EVERY_S):
            post(False)

    post(False)
    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        post(True)


class Board:
    """What the stages of a run have written into a folder, in the order in which they began."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[Path, Posting] = {}
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("*.json"):
            old.unlink()

    def postings(self) -> list[Posting]:
        """The last one of each stage."""
        for path in sorted(self._folder.glob("*.json")):
            with suppress(OSError, ValueError, TypeError):
                self._known[path] = Posting(**json.loads(path.read_text(encoding="utf-8")))
        return list(self._known.values())

    def __rich__(self) -> Group:
        return picture(self.postings())


def picture(found: list[Posting]) -> Group:
    """The board: a line for each stage that has ended, and the others with a bar."""
    parts: list[Text | Table] = []
    for one in found:
        if one.ended:
            parts.append(Text.assemble(("✓ ", "green"), one.line))
            continue
        bar = Table.grid(padding=(0, 1))
        bar.add_row(
            ProgressBar(total=1.0, completed=one.share, width=BAR_WIDTH),
            Text(f"{100 * one.share:3.0f} %"),
            Text(one.time),
        )
        parts += [Text(one.headline, style="bold"), bar]
        parts += [Text(each) for each in (one.details, one.outcome) if each]
    return Group(*parts)


@contextmanager
def ended_with_all_below(child: subprocess.Popen[str]) -> Iterator[None]:
    """A process ends with what is raised here, then what it started, so that it starts nothing
    more.
    """
    try:
        yield
    except BaseException:
        import psutil

        below: list[psutil.Process] = []
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(child.pid)
            process.suspend()  # so that it starts nothing between the look and its end
            below = process.children(recursive=True)
        child.kill()
        for process in below:
            with suppress(psutil.NoSuchProcess):
                process.terminate()
        for process in psutil.wait_procs(below, timeout=GRACE_S)[1]:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        raise


def run(
    command: Sequence[str], env: Mapping[str, str], folder: Path, console: Console | None
) -> int:
    """Run DVC; returns its exit status. With a console its stages are shown on one board, and what
    they print stands above it. Without, DVC says which stage it runs, and a stage what it came to.
    Whatever is raised meanwhile ends DVC with all that it runs.
    """
    shown = {BOARD: str(folder.resolve())} if console else {}
    child = subprocess.Popen(
        command,
        env={**env, **shown},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if console else None,
        text=True,
        errors="replace",
    )
    with child, ended_with_all_below(child):
        assert child.stdout is not None
        if console is None:
            for line in child.stdout:
                if line.startswith(BEGINS):
                    print(line.rstrip().rstrip(":"), flush=True)
            return child.wait()
        with Live(Board(folder), console=console, refresh_per_second=REFRESH_PER_S):
            for line in child.stdout:
                if line.strip() and not line.startswith((BEGINS, *CHATTER)):
                    console.print(Text(line.rstrip()), soft_wrap=True)
            return child.wait()
