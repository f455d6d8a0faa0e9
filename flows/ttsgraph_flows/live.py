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
from rich.progress_bar import ProgressBar
from rich.table import Table

from ttsgraph.evaluation.progress import Event, Expense, Publish, RunState
from ttsgraph.runtime.limits import NO_LIMITS
from ttsgraph.settings.stages import LimitSettings

REFRESH_PER_S = 4
BAR_WIDTH = 24


@contextmanager
def live(
    label: str, total: int, at_most: bool = False, limits: LimitSettings = NO_LIMITS
) -> Iterator[Publish]:
    """Show on stderr the progress and limits of a stage that has `total` questions to answer; yield
    the function with which any thread can publish events.
    """
    view = View(RunState(label, total, total, at_most), limits)
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

    def __init__(self, state: RunState, limits: LimitSettings) -> None:
        self._state = state
        self._limits = limits
        self._began = time.monotonic()
        self._lock = threading.Lock()

    def publish(self, event: Event) -> None:
        """Update the state with an event."""
        with self._lock:
            self._state = self._state.after(event)

    @property
    def line(self) -> str:
        """Summary line for the end of the stage."""
        elapsed = time.monotonic() - self._began
        done = f"{self._headline}: done in {_span(elapsed)}"
        return "; ".join(filter(None, (done, self._details(elapsed), self._state.outcome)))

    @property
    def _headline(self) -> str:
        state = self._state
        if not state.iteration:
            return state.label
        return f"{state.label}, iteration {state.iteration.number} of {state.iteration.most}"

    def __rich__(self) -> Group:
        state = self._state
        elapsed = time.monotonic() - self._began
        left = "time left not known yet"
        if (seconds := state.seconds_left(elapsed)) is not None:
            left = f"{'at most ' if state.at_most else ''}about {_span(seconds)} left (estimate)"
        bar = Table.grid(padding=(0, 1))
        share = 1 - state.left / state.total if state.total else 1.0
        done = ProgressBar(total=1.0, completed=share, width=BAR_WIDTH)
        bar.add_row(done, f"{100 * share:3.0f} %", f"{_span(elapsed)}, {left}")
        return Group(self._headline, bar, *filter(None, (self._details(elapsed), state.outcome)))

    def _details(self, elapsed_s: float) -> str:
        """Return the best score so far, calls per second, the share of reused calls, and the
        expense, as far as they are known.
        """
        state, limits = self._state, self._limits
        parts = []
        if best := state.best:
            interval = f"{best.low:.2f} to {best.high:.2f}"
            parts.append(f"best {best.accuracy:.2f} ({interval}; {best.what})")
        calls, reused = state.usage.calls, state.usage.cached_calls
        if not calls:
            return ", ".join(parts)
        rate = (calls - reused) / elapsed_s if elapsed_s > 0 else 0.0
        parts.append(f"{rate:,.{int(rate < 10)}f} calls/s")
        parts.append(f"{100 * (reused / calls):.0f} % reused")
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
