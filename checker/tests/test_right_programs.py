"""Right programs pass, whatever they use, return and are handed."""

import pytest
from right_programs import programs

from codecheck.isolation import numpy_folder
from codecheck.sandbox import CheckedProgram, SandboxLimits, run_checked

PROGRAMS = programs()


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_right_program_passes(name):
    if name.startswith("numpy") and numpy_folder() is None:
        pytest.skip("numpy is not installed")
    source, tests, given = PROGRAMS[name]
    verdict = run_checked(
        CheckedProgram(source, "f", tests, given), SandboxLimits(cpu_s=20, wall_s=120)
    )
    assert verdict.passed, verdict.detail
