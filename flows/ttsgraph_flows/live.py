"""Progress of a stage: a live display on a terminal, otherwise a plain line at the end."""

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from rich import progress
from rich.console import Console, Group
from rich.live import Live

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
        headline, *more = view.texts()
        elapsed = timedelta(seconds=round(view.elapsed))
        print("; ".join([f"{headline}: done in {elapsed}", *more]), file=sys.stderr, flush=True)


class View:
    """State of a stage as shown to the user, updated by events."""

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._began = time.monotonic()
        self._lock = threading.Lock()
        times = progress.TimeElapsedColumn(), progress.TimeRemainingColumn()
        bar = progress.BarColumn(BAR_WIDTH), progress.TaskProgressColumn()
        self._bar = progress.Progress(*bar, *times)
        self._task = self._bar.add_task("", total=state.total)

    def publish(self, event: Event) -> None:
        """Update the state with an event."""
        with self._lock:
            self._state = state = self._state.after(event)
            self._bar.update(self._task, completed=state.total - state.left)

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    def __rich__(self) -> Group:
        headline, *more = self.texts()
        return Group(headline, self._bar, *more)

    def texts(self) -> list[str]:
        """Return the stage with its iteration; then, as far as they are known, the best score so
        far, calls per second, the share of reused calls and the expense; and the outcome.
        """
        state, parts = self._state, []
        headline = state.label
        if now := state.iteration:
            headline += f", iteration {now.number} of {now.most}"
        if best := state.best:
            interval = f"{best.low:.2f} to {best.high:.2f}"
            parts.append(f"best {best.accuracy:.2f} ({interval}; {best.what})")
        calls, reused = state.usage.calls, state.usage.cached_calls
        if calls:
            rate = (calls - reused) / max(1e-9, self.elapsed)
            spent = state.spent or Expense(state.usage.spent_dollars)
            parts.append(f"{rate:,.{int(rate < 10)}f} calls/s")
            parts.append(f"{100 * (reused / calls):.0f} % reused")
            parts.append(f"${spent.dollars:,.4f} spent")
        return [headline, *filter(None, (", ".join(parts), state.outcome))]
