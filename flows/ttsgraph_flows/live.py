"""Progress of a stage: a live display on a terminal, otherwise a plain line at the end."""

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from rich.console import Console, Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from ttsgraph.evaluation.progress import Event, Expense, Publish, RunState

REFRESH_PER_S = 4
BAR_WIDTH = 24


@contextmanager
def live(label: str, total: int) -> Iterator[Publish]:
    """Show on stderr the progress of a stage that has at most `total` questions to answer; yield
    the function with which any thread can publish events.
    """
    view = View(RunState(label, total, total))
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM", "") in ("", "dumb", "unknown")
    if sys.stderr.isatty() and not plain:
        # Other output of the stage goes above the display, and the last state stays on the screen.
        console = Console(stderr=True, highlight=False, markup=False, emoji=False)
        with Live(view, console=console, refresh_per_second=REFRESH_PER_S):
            yield view.publish
    else:
        yield view.publish
        print(view.line, file=sys.stderr, flush=True)


class View:
    """State of a stage as shown to the user, updated by events."""

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._began = time.monotonic()
        self._lock = threading.Lock()
        columns = (TaskProgressColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        self._bar = Progress(BarColumn(BAR_WIDTH), *columns)
        self._task = self._bar.add_task("", total=state.total)

    def publish(self, event: Event) -> None:
        """Update the state with an event."""
        with self._lock:
            self._state = state = self._state.after(event)
            self._bar.update(self._task, completed=state.total - state.left)

    @property
    def line(self) -> str:
        """Summary line for the end of the stage."""
        elapsed = timedelta(seconds=round(time.monotonic() - self._began))
        done = f"{self._headline}: done in {elapsed}"
        return "; ".join(filter(None, (done, self._details, self._state.outcome)))

    @property
    def _headline(self) -> str:
        state = self._state
        if not state.iteration:
            return state.label
        return f"{state.label}, iteration {state.iteration.number} of {state.iteration.most}"

    def __rich__(self) -> Group:
        more = filter(None, (self._details, self._state.outcome))
        return Group(self._headline, self._bar, *more)

    @property
    def _details(self) -> str:
        """The best score so far, calls per second, the share of reused calls, and the expense, as
        far as they are known.
        """
        state = self._state
        parts = []
        if best := state.best:
            interval = f"{best.low:.2f} to {best.high:.2f}"
            parts.append(f"best {best.accuracy:.2f} ({interval}; {best.what})")
        calls, reused = state.usage.calls, state.usage.cached_calls
        if calls:
            rate = (calls - reused) / max(1e-9, time.monotonic() - self._began)
            spent = state.spent or Expense(state.usage.spent_dollars)
            parts.append(f"{rate:,.{int(rate < 10)}f} calls/s")
            parts.append(f"{100 * (reused / calls):.0f} % reused")
            parts.append(f"${spent.dollars:,.4f} spent")
        return ", ".join(parts)
