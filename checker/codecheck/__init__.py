"""Check programs written by language models: find them in replies, and run them in isolation
against tests that they can't access.

>>> from codecheck import CheckedProgram, program_of, run_checked
>>> reply = "Sure!\\n```python\\ndef square(x):\\n    return x * x\\n```"
>>> tests = "def check(square):\\n    assert square(3) == 9\\n"
>>> run_checked(CheckedProgram(program_of(reply, "square"), "square", tests)).passed
True
"""

from codecheck.completion import completed, head_of, parameters_of, part_of
from codecheck.errors import CheckerError, NotChecked, NotIsolated, TestsError
from codecheck.isolation import require
from codecheck.public_tests import given_tests, shown_tests
from codecheck.replies import answer_of, program_of
from codecheck.sandbox import (
    CheckedProgram,
    SandboxLimits,
    SandboxVerdict,
    missing_layers,
    run_checked,
    run_scorer,
)

__all__ = [
    "CheckedProgram",
    "CheckerError",
    "NotChecked",
    "NotIsolated",
    "SandboxLimits",
    "SandboxVerdict",
    "TestsError",
    "answer_of",
    "completed",
    "given_tests",
    "head_of",
    "missing_layers",
    "parameters_of",
    "part_of",
    "program_of",
    "require",
    "run_checked",
    "run_scorer",
    "shown_tests",
]
