"""Benchmark of the report on an archive of 10,000 candidates: time to write it, size of its page,
and time to open the page.
"""

import tempfile
import time
from contextlib import chdir
from pathlib import Path

from lab.benchmarks.archive import CANDIDATES, NAME, big_archive
from lab.benchmarks.browser import WHY_NOT, OpenedPage, browser, chromium
from lab.benchmarks.measured import Ratio
from ttsgraph_flows.dvc_stages import flow_of

OPENS = 3


def measure() -> list[Ratio]:
    """Return the time to write the report, the size of its page and, if there is a browser, the
    time until the page is loaded and all its plots are drawn.
    """
    with tempfile.TemporaryDirectory() as name:
        big_archive(Path(name))
        with chdir(name):
            started = time.perf_counter()
            flow_of("report")()
            writing = time.perf_counter() - started
        page = Path(name, "reports", NAME, "index.html")
        weight = page.stat().st_size / 1e6
        opening = _seconds_to_open(page) if chromium() else []
    details = {"candidates": CANDIDATES}
    found = [
        Ratio("report of 10,000 candidates, s", round(writing, 2), "at most", 20.0, details),
        Ratio("page of 10,000 candidates, MB", round(weight, 2), "at most", 10.0, details),
    ]
    if not opening:
        print(f"the time to open the page was not measured: {WHY_NOT}")
        return found
    # The first opening also fills the browser's caches, but every opening has to meet the bound.
    slowest = round(max(opening), 2)
    return [
        *found,
        Ratio("page of 10,000 candidates opens, s", slowest, "at most", 3.0, {"seconds": opening}),
    ]


def _seconds_to_open(path: Path) -> list[float]:
    seconds = []
    with browser() as started:
        for _ in range(OPENS):
            before = time.perf_counter()
            opened = OpenedPage(started, path)
            opened.ready()
            seconds.append(round(time.perf_counter() - before, 2))
            opened.close()
    return seconds
