"""End of a command or a stage: one readable line on stderr and an exit code."""

import io
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from ttsgraph.base.errors import InputError, LimitReached, TTSGraphError
from ttsgraph.base.extras import missing
from ttsgraph.base.files import unusable
from ttsgraph.base.secrets import hide_secrets_in_output, redact

EXIT_INPUT = 2
EXIT_STOPPED = 3
EXIT_LIMIT = 4
EXIT_UNVERIFIED = 6
"""Exit code of a verification that found no difference but could not check everything."""
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
GO_ON = "computed results are kept; run again to continue"


class StopSignal(BaseException):
    """Request by a signal to stop; not an Exception, so that no `except Exception` swallows it."""


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Raise StopSignal on the first SIGTERM, SIGINT or SIGHUP in this context; ignore later ones.

    SIGINT also stops background jobs, which would ignore it by default.
    """

    def stop(number: int, _frame: object) -> None:
        for each in SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        raise StopSignal(signal.Signals(number))

    before = {number: signal.signal(number, stop) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def say(line: str) -> None:
    """Print a line on stderr, without secrets."""
    print(redact(line), file=sys.stderr, flush=True)


def guarded(work: Callable[[], Any], known: Callable[[Exception], str] = lambda error: "") -> None:
    """Run `work`, and turn expected errors into one line on stderr and an exit code.

    `known` describes errors of other libraries that stop a run. It returns "" for an error that is
    a bug, and that error is raised again.
    """
    hide_secrets_in_output()
    if isinstance(sys.stdout, io.TextIOWrapper):  # not every locale has all characters
        sys.stdout.reconfigure(errors="replace")
    try:
        work()
    except InputError as error:
        _end(f"error: {error}", EXIT_INPUT)
    except ModuleNotFoundError as error:
        _end(f"error: {missing(error)}", EXIT_INPUT)
    except TTSGraphError as error:
        limit = isinstance(error, LimitReached)
        _end(f"stopped: {error}", EXIT_LIMIT if limit else EXIT_STOPPED)
    except Exception as error:
        if why := unusable(error):
            _end(f"error: {why}", EXIT_INPUT)
        if not (why := known(error)):
            raise
        _end(f"stopped: {why}", EXIT_STOPPED)
    except StopSignal as stopped:
        (number,) = stopped.args
        _end(f"stopped by {number.name}: {GO_ON}", 128 + number)
    except KeyboardInterrupt:
        _end(f"interrupted: {GO_ON}", 128 + signal.SIGINT)


def _end(line: str, code: int) -> NoReturn:
    say(line)
    sys.exit(code)
