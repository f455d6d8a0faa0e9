"""The view of a run: a live display on a terminal, else a plain line at the end; it shows what the
run publishes.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from rich.console import Console
from rich.live import Live

from ttsgraph.evaluation.progress import Event, Publish, RunState, Spent
from ttsgraph.runtime.limits import NO_LIMITS
from ttsgraph.settings.stages import LimitSettings
from ttsgraph_flows.board import BOARD, REFRESH_PER_S, Posting, picture, posted


@contextmanager
def live(state: RunState, limits: LimitSettings = NO_LIMITS) -> Iterator[Publish]:
    """Show a stage from this state on, and what it may spend; yields what events are published to,
    from any thread.

    Under a board of the whole run (ttsgraph_flows/board.py) the stage is shown there; else on
    stderr, on a terminal as a live display, elsewhere as a line at the end.
    """
    view = View(state, limits)
    if BOARD in os.environ:
        with posted(view.posting, Path(os.environ[BOARD])):
            yield view.publish
        return
    if not wants_display():
        yield view.publish
        print(view.posting().line, file=sys.stderr, flush=True)
        return
    console = Console(stderr=True, highlight=False)
    # What the stage prints meanwhile goes above the display, and the last state stays on the
    # screen.
    with Live(
        get_renderable=lambda: picture([view.posting()]),
        console=console,
        refresh_per_second=REFRESH_PER_S,
    ):
        yield view.publish


def wants_display() -> bool:
    """Whether stderr is a terminal that can move its cursor and may be sent more than plain
    text.
    """
    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM", "dumb") in (
        "",
        "dumb",
        "unknown",
    )
    return sys.stderr.isatty() and not plain


class View:
    """The state to show, kept up to date by events, and how long the stage has taken by `clock`
    (seconds).
    """

    def __init__(
        self,
        state: RunState,
        limits: LimitSettings = NO_LIMITS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits = limits
        self.state = state
        self._clock = clock
        self._began = clock()
        self._lock = threading.Lock()

    def publish(self, event: Event) -> None:
        """Take an event in."""
        with self._lock:
            self.state = self.state.after(event)

    def posting(self) -> Posting:
        """The state as a board shows it; its line is of a stage that has come to its end."""
        state = self.state
        elapsed = self._clock() - self._began
        known = details(state, self.limits, elapsed)
        done = f"{headline(state)}: done in {_span(elapsed)}"
        return Posting(
            state.label,
            headline(state),
            state.share,
            f"{_span(elapsed)}, {time_left(state, elapsed)}",
            known,
            "; ".join(filter(None, (done, known, state.outcome))),
            state.outcome,
        )


def headline(state: RunState) -> str:
    """The stage, and a search's iteration."""
    return (
        f"{state.label}, iteration {state.iteration.number} of {state.iteration.most}"
        if state.iteration
        else state.label
    )


def details(state: RunState, limits: LimitSettings, elapsed_s: float) -> str:
    """The best so far, calls a second, reuse, and what was spent of what may be; only what is
    known.
    """
    parts = []
    if best := state.best:
        parts.append(f"best {best.accuracy:.2f} ({best.low:.2f} to {best.high:.2f}; {best.what})")
    if state.reused is not None:
        rate = state.made_calls / elapsed_s if elapsed_s > 0 else 0.0
        parts += [
            f"{rate:,.1f} calls/s" if rate < 10 else f"{rate:,.0f} calls/s",
            f"{100 * state.reused:.0f} % reused",
        ]
        parts.append(_spending(state, limits, elapsed_s))
    return ", ".join(parts)


def time_left(state: RunState, elapsed_s: float) -> str:
    """The estimate of the time left, marked as one; an upper bound where a search may end early."""
    seconds = state.seconds_left(elapsed_s)
    if seconds is None:
        return "time left not known yet"
    return f"{'at most ' if state.at_most else ''}about {_span(seconds)} left (estimate)"


def _spending(state: RunState, limits: LimitSettings, elapsed_s: float) -> str:
    spent = state.spent or Spent(state.usage.spent_dollars)
    parts = [
        f"${spent.dollars:,.4f}"
        + (f" of ${limits.dollars:,.2f}" if limits.dollars is not None else "")
    ]
    if limits.tokens is not None:
        parts.append(f"{spent.tokens:,} of {limits.tokens:,} tokens")
    if limits.wall_s is not None:
        parts.append(f"{_span(spent.wall_s or elapsed_s)} of {_span(limits.wall_s)}")
    return ", ".join(parts) + " spent"


def _span(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
