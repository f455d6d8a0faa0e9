"""Right programs pass, whatever they use, return and are handed."""

import pytest
from cases import SQUARES, cases, programs

from codecheck.isolation import numpy_folder
from codecheck.sandbox import CheckedProgram, SandboxLimits, run_checked

LONG = "".join(f"    y += x if {k} < x else 0\n" for k in range(800))
PROGRAMS = cases("right_programs.txt") | {
    "uses a long function": (f"def f(x):\n    y = 0\n{LONG}    return y\n", SQUARES)
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_right_program_passes(name):
    if name.startswith("numpy") and numpy_folder() is None:
        pytest.skip("numpy is not installed")
    source, tests = PROGRAMS[name]
    given = programs()["given"] if name.startswith("takes ") else ""
    verdict = run_checked(
        CheckedProgram(source, "f", tests, given), SandboxLimits(cpu_s=20, wall_s=120)
    )
    assert verdict.passed, verdict.detail
