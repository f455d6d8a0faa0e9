"""The benchmarks' own parts: what they measure against, and how a run ends."""

import json
import subprocess
import sys

import pytest

from lab import python_path
from lab.benchmarks import __main__ as bench
from lab.benchmarks import kernels, wall
from lab.benchmarks.measured import Ratio
from tests.support.project import ROOT


@pytest.mark.parametrize(
    ("value", "rule", "holds"),
    [(1.0, "at most", True), (1.1, "at most", False), (0.9, "at least", False)],
)
def test_a_ratio_holds_up_to_its_bound(value, rule, holds):
    assert Ratio("r", value, rule, 1.0, {}).holds is holds


def test_a_kernel_that_gets_slower_breaks_its_bound():
    now = [0.0]

    def ratios(delay_s):
        def over(work):
            def worked():
                now[0] += delay_s
                return work()

            return worked

        return kernels.compare(over, repetitions=3, clock=lambda: now[0])

    assert {ratio.holds for ratio in ratios(0.0)} == {True}
    assert {ratio.holds for ratio in ratios(0.011)} == {False}


@pytest.mark.parametrize(
    ("chains", "depth", "at_once", "delay_s", "core_s", "seconds"),
    [
        (1, 4, 8, 0.05, 0.0, 0.2),  # the critical path
        (192, 4, 32, 0.05, 0.0, 1.2),  # 768 calls, 32 at once
        (10, 1, 10, 0.0, 0.01, 0.1),  # the core
        (3, 1, 3, 1.0, 0.2, 1.4),  # the last is sent at 0.3 s, and read from 1.3 s on
    ],
)
def test_a_schedule_that_never_rests_takes_what_is_known_of_it(
    chains, depth, at_once, delay_s, core_s, seconds
):
    assert wall.unresting(chains, depth, at_once, delay_s, core_s) == pytest.approx(seconds)


@pytest.mark.slow
def test_a_run_stores_the_machine_and_the_ratios(tmp_path):
    command = [sys.executable, "-m", "lab.benchmarks", "growth"]
    env = {"PYTHONPATH": python_path(ROOT), "PATH": ""}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    stored = json.loads((tmp_path / "reports" / "bench.json").read_text())
    assert stored["machine"]["cores"] >= 1
    (row,) = stored["ratios"]
    assert row["holds"] == (done.returncode == 0)
    assert row["name"] in done.stdout


def test_an_unknown_benchmark_lists_the_known_ones(capsys):
    assert bench.main(["speed"]) == 2
    assert (
        "unknown benchmark 'speed'; expected some of kernels, client_rate"
        in capsys.readouterr().err
    )
