"""Right programs pass, whatever they use, return and are handed."""

import pytest
from right_programs import programs

from codecheck.isolation import numpy_folder
from codecheck.sandbox import CheckedProgram, SandboxLimits, run_checked

PROGRAMS = programs()
FAST = (
    "uses a pool of threads",
    "uses asyncio.run",
    "uses a temporary folder",
    "uses input() at the end",
    "returns an object that equals a number",
    "returns a coroutine",
    "takes a list, changed, with a number returned",
    "takes a cycle of nodes",
    "takes a function to be curried",
    "numpy: an array of numpy",
)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in PROGRAMS],
)
def test_a_right_program_passes(name):
    if name.startswith("numpy") and numpy_folder() is None:
        pytest.skip("numpy is not installed")
    source, tests, given = PROGRAMS[name]
    verdict = run_checked(
        CheckedProgram(source, "f", tests, given), SandboxLimits(cpu_s=20, wall_s=120)
    )
    assert verdict.passed, verdict.detail
