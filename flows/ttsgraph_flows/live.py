"""Progress of stages: a live display on a terminal, otherwise a plain line at the end.

`make repro` has one board for all its stages: each writes its progress to a file, and the board
shows the latest.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ttsgraph.base.files import write_text
from ttsgraph.evaluation.progress import Event, Expense, Publish, RunState, Shown, run_state
from ttsgraph.runtime.limits import NO_LIMITS
from ttsgraph.settings.stages import LimitSettings

BOARD = "TTSGRAPH_BOARD"
"""Variable with the folder into which a stage writes its progress."""

EVERY_S = 0.5
REFRESH_PER_S = 4
BAR_WIDTH = 24


@dataclass(frozen=True, slots=True)
class Posting:
    """Progress of a stage: a share from 0 to 1, the time as text, known details, the line that
    remains at its end, and its outcome.
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
def live(state: RunState, limits: LimitSettings = NO_LIMITS) -> Iterator[Publish]:
    """Show a stage and its limits from this state on; yield the function to which events are
    published, from any thread.

    Under a board of the whole run, the stage is shown there; else on stderr: on a terminal as a
    live display, elsewhere as a line at the end.
    """
    view = View(state, limits)
    if BOARD in os.environ:
        with posted(view.posting, Path(os.environ[BOARD])):
            yield view.publish
    elif wants_display():
        # Other output of the stage goes above the display, and the last state stays on the screen.
        with Live(
            get_renderable=lambda: picture([view.posting()]),
            console=Console(stderr=True, highlight=False),
            refresh_per_second=REFRESH_PER_S,
        ):
            yield view.publish
    else:
        yield view.publish
        print(view.posting().line, file=sys.stderr, flush=True)


def shown(label: str, at_most: bool = False) -> Shown:
    """Return a function that shows a stage with this label, once the number of its questions is
    known.
    """
    return lambda total: live(run_state(label, total, at_most))


def wants_display() -> bool:
    """Return True if stderr is a terminal that accepts more than plain text."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM", "") in ("", "dumb", "unknown")
    return sys.stderr.isatty() and not plain


@contextmanager
def posted(now: Callable[[], Posting], folder: Path) -> Iterator[None]:
    """Write the posting into a folder, twice a second and once more at the end."""
    path = folder / f"{now().label.replace(' ', '-')}.json"
    stop = threading.Event()

    def post(ended: bool) -> None:
        with suppress(OSError):  # a stage must not fail for its progress
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
    """Postings of a run's stages in a folder, in the order in which they began."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[Path, Posting] = {}
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("*.json"):
            old.unlink()

    def postings(self) -> list[Posting]:
        """Return the latest posting of each stage."""
        for path in sorted(self._folder.glob("*.json")):
            with suppress(OSError, ValueError, TypeError):
                self._known[path] = Posting(**json.loads(path.read_text(encoding="utf-8")))
        return list(self._known.values())

    def __rich__(self) -> Group:
        return picture(self.postings())


def picture(found: list[Posting]) -> Group:
    """Return the board: a line for each ended stage, and a bar for each other one."""
    parts: list[Text | Table] = []
    for one in found:
        if one.ended:
            parts.append(Text.assemble(("✓ ", "green"), one.line))
            continue
        bar = Table.grid(padding=(0, 1))
        done = ProgressBar(total=1.0, completed=one.share, width=BAR_WIDTH)
        bar.add_row(done, Text(f"{100 * one.share:3.0f} %"), Text(one.time))
        parts += [Text(one.headline, style="bold"), bar]
        parts += [Text(each) for each in (one.details, one.outcome) if each]
    return Group(*parts)


@dataclass
class View:
    """State to show, updated by events; `clock` in seconds."""

    state: RunState
    limits: LimitSettings = NO_LIMITS
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._began = self.clock()
        self._lock = threading.Lock()

    def publish(self, event: Event) -> None:
        """Update the state by an event."""
        with self._lock:
            self.state = self.state.after(event)

    def posting(self) -> Posting:
        """Return the state as a posting; its `line` is the one for the end of the stage."""
        state = self.state
        elapsed = self.clock() - self._began
        headline = state.label
        if state.iteration:
            headline += f", iteration {state.iteration.number} of {state.iteration.most}"
        left = "time left not known yet"
        if (seconds := state.seconds_left(elapsed)) is not None:
            left = f"{'at most ' if state.at_most else ''}about {_span(seconds)} left (estimate)"
        known = _details(state, self.limits, elapsed)
        done = f"{headline}: done in {_span(elapsed)}"
        line = "; ".join(filter(None, (done, known, state.outcome)))
        taken = f"{_span(elapsed)}, {left}"
        return Posting(state.label, headline, state.share, taken, known, line, state.outcome)


def _details(state: RunState, limits: LimitSettings, elapsed_s: float) -> str:
    """Return the best score so far, calls per second, reuse and spending, as far as known."""
    parts = []
    if best := state.best:
        parts.append(f"best {best.accuracy:.2f} ({best.low:.2f} to {best.high:.2f}; {best.what})")
    if state.reused is None:
        return ", ".join(parts)
    rate = state.made_calls / elapsed_s if elapsed_s > 0 else 0.0
    parts.append(f"{rate:,.1f} calls/s" if rate < 10 else f"{rate:,.0f} calls/s")
    parts.append(f"{100 * state.reused:.0f} % reused")
    spent = state.spent or Expense(state.usage.spent_dollars)
    limit = f" of ${limits.dollars:,.2f}" if limits.dollars is not None else ""
    parts.append(f"${spent.dollars:,.4f}{limit}")
    if limits.tokens is not None:
        parts.append(f"{spent.tokens:,} of {limits.tokens:,} tokens")
    if limits.wall_s is not None:
        parts.append(f"{_span(spent.wall_s or elapsed_s)} of {_span(limits.wall_s)}")
    return ", ".join(parts) + " spent"


def _span(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
