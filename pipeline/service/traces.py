"""Traces of requests on their way out of the server.

What a collector is sent is made in a process of its own (`otlp`): that takes more time than all
else that a trace costs, and here it would hold up other requests. A thread hands over what has
ended, several requests at a time.
"""

from __future__ import annotations

import logging
import multiprocessing
import queue
import threading
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ttsgraph.base.errors import InputError
from ttsgraph.service import otlp
from ttsgraph.service.doors import Sparing
from ttsgraph.service.spans import Span, request_span
from ttsgraph.settings.service import TraceSettings

if TYPE_CHECKING:
    from ttsgraph.service.answering import Answering

MOST_WAITING = 4096
"""Requests whose traces wait to be handed over; those that come then are not traced."""

EVERY_S = 0.1
AT_ONCE = 64
END_S = 60.0
_NEEDED = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
_log = logging.getLogger(__name__)
_log.addFilter(Sparing())


class Traces:
    """Sends the traces of sampled requests. `close` sends what is left.

    Raises InputError where what this needs is not installed.
    """

    def __init__(self, settings: TraceSettings) -> None:
        if not all(map(_is_there, _NEEDED)):
            said = "expected the extra traces: pip install 'ttsgraph[traces]'"
            raise InputError(f"service.traces.endpoint is set: {said}")
        self._settings = settings
        self._waiting: queue.SimpleQueue[otlp.Trace | None] = queue.SimpleQueue()
        context = multiprocessing.get_context("spawn")
        theirs, self._ours = context.Pipe(duplex=False)
        self._process = context.Process(target=otlp.run, args=(settings, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self._thread = threading.Thread(target=self._hand_over, name="traces", daemon=True)
        self._thread.start()

    def sampled(self, trace_id: str) -> bool:
        """Whether a request is traced: the same wherever its id is asked about."""
        return int(trace_id[:8], 16) < self._settings.rate * 2**32

    def record(
        self, trace_id: str, path: str, status: int, start: int, answering: Answering | None
    ) -> None:
        """The trace of a request that began then (ns since 1970) and has ended now."""
        if self._waiting.qsize() >= MOST_WAITING or not self._thread.is_alive():
            _log.warning("a request is not traced: too many wait to be sent, or can't be any more")
            return
        span = request_span(path, status, (start, time.time_ns()), answering, self._settings.texts)
        self._waiting.put((trace_id, span))

    def _hand_over(self) -> None:
        """Hand over what waits until there is nothing more to come."""
        going = True
        try:
            while going:
                batch: list[tuple[str, Span]] = []
                found = self._waiting.get()
                while found is not None and len(batch) < AT_ONCE:
                    batch.append(found)
                    if self._waiting.empty():
                        time.sleep(EVERY_S)
                    try:
                        found = self._waiting.get_nowait()
                    except queue.Empty:
                        break
                else:
                    going = found is not None
                    if found is not None:
                        batch.append(found)
                self._ours.send(batch)
        except OSError as error:
            _log.warning("traces are sent no more: their process ended (%s)", error)
        finally:
            self._ours.close()

    def close(self) -> None:
        """Send what is left, for so many seconds at most."""
        self._waiting.put(None)
        self._thread.join(END_S)
        self._process.join(END_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        return False
