"""A pytest plugin for a run that has to end in time: `-p tests.support.until --until SECONDS`.

Files come in the order of what they would catch, with `--turn 1` in the reverse order: of two runs
of different turns, one begins with what the other may not reach. A test that has not begun by that
time (seconds since 1970) is not run, and the summary names it; one that has begun goes on, and one
that fails fails the run as ever.
"""

import time
from pathlib import Path

import pytest

_LISTED = Path(__file__).with_name("first.txt").read_text().splitlines()
FIRST = [name for line in _LISTED if (name := line.partition("#")[0].strip())]
"""What would be missed most, first; all other files follow as they stand."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--until", type=float, required=True, metavar="SECONDS")
    parser.addoption("--turn", type=int, choices=(0, 1), default=0)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    names = [*FIRST, *map(_named, items)]
    place = {name: number for number, name in enumerate(dict.fromkeys(names))}
    onwards = -1 if config.getoption("--turn") else 1
    items.sort(key=lambda item: onwards * place[_named(item)])


def _named(item: pytest.Item) -> str:
    """A test's file as FIRST names it: from its folder on, of the checker's from that on."""
    parts = item.path.parts[-3:] if "checker" in item.path.parts[-3:] else item.path.parts[-2:]
    return "/".join(parts)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if time.time() >= item.config.getoption("--until"):
        pytest.xfail("not reached in time")  # which is told test by test; skips are summed up
