"""What a solution in the sandbox can do, what counts as a pass, and when there is no verdict."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Thread

import pytest
from cases import SQUARES

from codecheck import sandbox
from codecheck.errors import NotChecked, NotIsolated
from codecheck.isolation import require
from codecheck.sandbox import CheckedProgram, SandboxLimits, missing_layers, run_checked
from processes import alive, descendants_of, refused_calls, wait_until

ROOT = Path(__file__).parents[1]
LIMITS = SandboxLimits(cpu_s=2, wall_s=60)


def run(solution, tests=SQUARES, given="", limits=LIMITS):
    return run_checked(CheckedProgram(solution, "square", tests, given), limits)


def returns(expression):
    """A verdict on whether a solution's answer equals an expression that the tests work out
    themselves.
    """
    imports = "from fractions import Fraction\nfrom decimal import Decimal\n"
    return run(
        f"{imports}def square(x): return {expression}",
        f"{imports}def check(f):\n    assert f(0) == {expression}",
    )


@pytest.mark.parametrize(
    "solution",
    [
        "def square(x): return x * x",
        "square = lambda x: x ** 2",
        (
            "import math, decimal, hashlib, zlib, sqlite3, asyncio, threading, statistics\ndef"
            " square(x): return int(math.pow(x, 2))"
        ),
        "print('x' * 10_000_000)\ndef square(x):\n    print(x)\n    return x * x",
        "def square(x):\n    x = 'ü\ud800' and x\n    return x * x",
        (
            "def square(x):\n    with open('mine', 'w') as file: file.write(str(x))\n    return"
            " int(open('mine').read()) ** 2"
        ),
        (
            "import tempfile\ndef square(x):\n    with tempfile.TemporaryFile() as file: return x *"
            " file.write(b'a' * x)"
        ),
        (
            "import os\nassert dict(os.environ) == {} and os.listdir('.') == []\ndef square(x):"
            " return x * x"
        ),
    ],
)
def test_a_right_solution_passes(solution):
    assert run(solution).passed


# Tests without `check`, as MBPP has them.
MARGIN = {
    "asserts": "assert square(2) == 4\nassert square(3) == 9\n",
    "after imports and helpers": "import math\ndef four(): return 4\nassert math.isclose(square(2), four())\n",
    "in a loop": "for x in range(4):\n    assert square(x) == x * x\n",
    "of a result that is kept": "found = [square(x) for x in (2, 3)]\nassert found == [4, 9]\n",
    "of what it raises": "try:\n    square('a')\nexcept TypeError:\n    pass\nelse:\n    assert False\nassert square(2) == 4\n",
}  # fmt: skip


@pytest.mark.parametrize("tests", MARGIN)
def test_asserts_at_the_margin_are_tests(tests):
    assert run("def square(x): return x * x", MARGIN[tests]).passed
    for wrong in ("def square(x): return x + 1", "def other(x): return x * x", "1 / 0"):
        assert not run(wrong, MARGIN[tests]).passed


@pytest.mark.parametrize("tests", ["", "x = 1\n", "assert square(2\n", "assert four == 4\n"])
def test_tests_that_test_nothing_give_no_verdict(tests):
    with pytest.raises(NotChecked, match=r"tests of square can.t check it"):
        run("def square(x): return x * x", tests)


@pytest.mark.parametrize(
    ("solution", "detail"),
    [
        ("def square(x): return x", "AssertionError"),
        ("def square(x: return x", "SyntaxError"),
        ("\x00", "null bytes"),  # a SyntaxError or, in older Python, a ValueError
        ("pass", "square"),
        ("raise ValueError('while loading')", "while loading"),
        ("square = 4", "not callable"),
        ("def square(x): return x / 0", "ZeroDivisionError"),
        ("def square(x): return undefined", "undefined"),
        ("import sys; sys.exit(0)", "SystemExit: 0"),
        ("def square(x): raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("import os; os._exit(0)", ""),
        ("def square(x):\n    import os\n    os.abort()", ""),
        ("def square(x): return input()", "EOFError"),
        ("import pytest", "ModuleNotFoundError"),
        ("import pipeline", "ModuleNotFoundError"),
        ("def square(x):\n    a = []\n    a.append(a)\n    return a", "AssertionError"),
        ("def square(x): return 'x' * (32 << 20)", "too long"),
    ],
)
def test_a_wrong_solution_fails_and_says_why(solution, detail):
    verdict = run(solution)
    assert not verdict.passed
    assert not verdict.timed_out
    assert detail in verdict.detail


@pytest.mark.parametrize(
    "expression",
    ["None", "True", "-0.0", "2 ** 300", "-(2 ** 70)", "'ü\\ud800'", "b'ab'", "[1, [2.5, 'a']]", "(1, (2,))", "{1, (2, 3)}",
     "frozenset({1})", "{'a': [1], 2: {}, (3,): None}", "1 + 2j", "float('inf')", "Fraction(1, 3)", "Decimal('0.10')"],
)  # fmt: skip
def test_plain_data_comes_back_as_it_was(expression):
    assert returns(expression).passed


@pytest.mark.parametrize(
    ("returned", "expected"),
    [("(1, 2)", "[1, 2]"), ("[1, 2]", "(1, 2)"), ("'1'", "1"), ("range(2)", "[0, 1]"), ("iter([1])", "[1]"), ("1.1", "1"),
     ("object()", "None"), ("float('nan')", "float('nan')"), ("lambda: 1", "1"), ("{1: 2}.keys()", "[1]"),
     ("{1: 2}.values()", "{1: 2}.values()"), ("None", "0")],
)  # fmt: skip
def test_what_differs_stays_different(returned, expected):
    assert not run(
        f"def square(x): return {returned}", f"def check(f): assert f(0) == {expected}"
    ).passed


def test_tests_use_what_is_given_not_what_the_solution_makes_of_it():
    given = "def double(x):\n    return 2 * x\n"
    tests = "def check(f): assert f(4) == double(8)"
    assert run(f"{given}def square(x): return x * double(x) // 2", tests, given).passed
    assert not run("def double(x): return 5\ndef square(x): return 5", tests, given).passed


NOISE = """
import os
for pipe in range(3, 60):
    try: os.write(pipe, {line!r}.encode() * 5)
    except OSError: pass
"""


@pytest.mark.parametrize(
    "message",
    [
        "passed",
        '{"value"',
        "{}",
        "[]",
        "4",
        '{"reply": {"root": {}, "table": [], "raised": false}}',
        '{"reply": {"root": ["exec", "1"], "table": [], "raised": false}}',
        '{"reply": {"root": ["at", 0], "table": [], "raised": false}}',
        '{"reply": {"root": ["at", 0], "table": [["list", null, 4]], "raised": false}}',
        '{"reply": {"root": ["at", 0], "table": [["given", "f", []]], "raised": false}}',
        '{"reply": {"root": ["at", 0], "table": [["dict", null, []]], "raised": true}}',
        '{"ask": {"root": ["tuple", ["call", null, [], {}]], "table": []}}',
        "[" * 100_000,
    ],
)
def test_noise_instead_of_answers_is_no_pass(message):
    noise = NOISE.format(line=f"{message}\n")
    assert not run(noise).passed
    assert not run(f"{noise}\ndef square(x): return x * x + 1").passed


@pytest.mark.parametrize(
    ("tests", "message"),
    [
        ("def check(f: pass", "SyntaxError"),
        ("pass", "KeyError: 'check'"),
        ("import pytest", "ModuleNotFoundError"),
    ],
)
def test_tests_that_are_no_program_are_a_failed_call(tests, message):
    with pytest.raises(NotChecked, match=rf"the tests of square can't check it: .*{message}"):
        run("def square(x): return x", tests)


@pytest.mark.parametrize(
    ("solution", "passes"),
    [("def square(x): pass", True), ("def square(x:", False), ("exit", False)],
)
def test_tests_that_call_nothing_still_need_a_solution_that_loads(solution, passes):
    assert run(solution, "def check(f): pass").passed == passes
    assert not run(solution, "def check(f): assert False").passed


IN_PLACE = {
    "sorted": ("xs.sort()", "[3, 1, 2]", "[1, 2, 3]"),
    "nested": ("xs[0][0] = 9", "[[1], [2]]", "[[9], [2]]"),
    "a dictionary": ("xs.update(a=[1]); xs['b'].append(2)", "{'b': []}", "{'b': [2], 'a': [1]}"),
    "a set": ("xs.add(3)", "{1}", "{1, 3}"),
    "emptied": ("xs.clear()", "[1, 2]", "[]"),
    "a bytearray": ("xs[0] = 0", "bytearray(b'ab')", "bytearray(b'\\x00b')"),
}


@pytest.mark.parametrize("case", IN_PLACE)
def test_what_a_solution_makes_of_its_arguments_is_seen(case):
    change, before, after = IN_PLACE[case]
    tests = (
        f"def check(f):\n    xs = {before}\n    same = xs\n    f(xs)\n"
        f"    assert xs == {after} and xs is same"
    )
    assert run(f"def square(xs): {change}", tests).passed
    assert not run("def square(xs): pass", tests).passed


LENT = {
    "a function": ("[x(k) for k in (1, 2)]", "f(lambda k: k + 1) == [2, 3]"),
    "one of the library's": ("sorted(['aa', 'b'], key=x)", "f(len) == ['b', 'aa']"),
    "a class of the library's": ("x('3')", "f(int) == 3"),
    "an iterator": ("sum(x)", "f(iter([1, 2])) == 3"),
    "a generator": ("[next(x), next(x)]", "f(k for k in range(9)) == [0, 1]"),
    "an object": ("x.a + x.b()", "f(Own()) == 3"),
    "a function that calls back": ("x(lambda k: 2 * k)", "f(lambda g: g(g(1))) == 4"),
    "one that fails": ("x(0)", "fails(lambda: f(lambda k: 1 // k))"),
}


@pytest.mark.parametrize("case", LENT)
def test_whatever_tests_hand_over_a_solution_can_use(case):
    expression, holds = LENT[case]
    tests = (
        "class Own:\n    a = 1\n    def b(self): return 2\n"
        "def fails(call):\n    try: call()\n    except ZeroDivisionError: return True\n"
        f"def check(f): assert {holds}"
    )
    assert run(f"def square(x): return {expression}", tests).passed
    assert not run("def square(x): return 5", tests).passed


@pytest.mark.parametrize(
    "looks",
    [
        "x.__globals__",
        "x.__class__",
        "x.b.__func__.__globals__",
        "x._ask('attribute', x, '__class__')",
        "x._ask('attribute', x.b, '__self__')",
        "x._ask('attribute', x.b, 'im_self')",
        "x._ask('set', x, 'a', 5)",
        "x._ask('state', x)",
        "x._ask('call', 'exec', '1')",
        "x._ask('call', ['library', ['os', '_exit']], 0)",
        "x.gi_frame",
    ],
)
def test_a_solution_sees_nothing_of_the_tests_through_what_it_was_lent(looks):
    tests = "class Own:\n    a = 1\n    def b(self): return 2\ndef check(f): assert f(Own()) == 'refused'"
    solution = (
        f"def square(x):\n    try:\n        found = {looks}\n"
        "    except Exception:\n        return 'refused'\n"
        "    return 'refused' if type(found).__name__ == 'type' and found.__name__ == 'Lent' else found"
    )
    assert run(solution, tests).passed


@pytest.mark.parametrize(
    "kind", ["['library', ['os', '_exit']]", "['lent', [99]]", "['lent', [-1]]", "['library', 1]"]
)
def test_a_forged_answer_names_nothing_of_the_checker(kind):
    forged = (
        "import gc, json\nwrite = [o for o in gc.get_objects() if type(o).__name__ == 'Channel'][0]\n"
        f"def square(x):\n    write.send({{'reply': {{'root': {kind}, 'table': [], 'raised': False}}}})\n    return 4"
    )
    assert not run(forged).passed


def test_a_solution_cannot_make_its_tests_look_broken():
    assert not run("def square(x): return object()", "def check(f): assert f(f(2)) == 16").passed
    assert run("def square(x): return x * x", "def check(f): assert f(f(2)) == 16").passed


def test_a_solution_that_waits_is_killed():
    verdict = run("import time; time.sleep(600)", limits=SandboxLimits(wall_s=2))
    assert (verdict.passed, verdict.timed_out) == (False, True)


def test_a_process_that_is_slow_to_start_takes_nothing_from_its_program(tmp_path):
    slow = tmp_path / "python"
    slow.write_text(f'#!/bin/sh\nsleep 2\nexec {sys.executable} "$@"\n')
    slow.chmod(0o755)
    program = CheckedProgram(
        "def square(x): return x * x", "square", "def check(f): assert f(2) == 4"
    )
    assert run_checked(program, SandboxLimits(wall_s=1.5), python=str(slow)).passed


def test_a_solution_that_fills_its_folder_before_the_tests_are_ready_has_failed():
    solution = (
        "import time\nfor k in range(10): open(str(k), 'w').close()\ntime.sleep(60)\ndef square(x):"
        " return x * x"
    )
    for _ in range(5):
        verdict = run(solution, limits=SandboxLimits(folder_files=3))
        assert (verdict.passed, verdict.detail) == (False, "it wrote more than its folder may hold")


def test_the_folder_is_removed(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert run("open('mine', 'w').close()\ndef square(x): return x * x").passed
    assert list(tmp_path.iterdir()) == []


def test_hashes_are_the_same_in_every_run():
    assert len({run("raise ValueError(hash('a'))").detail for _ in range(2)}) == 1


@pytest.mark.parametrize(
    ("python", "message"),
    [
        ("/nonexistent/python", "can.t start a process .*No such file"),
        ("/bin/false", "can.t start a process .* ended with status 1"),
    ],
)
def test_a_child_that_cannot_start_is_a_failed_call(python, message):
    with pytest.raises(NotChecked, match=message):
        run_checked(CheckedProgram("", "square", SQUARES), LIMITS, python=python)


def test_nowhere_to_work_is_a_failed_call(monkeypatch):
    missing_layers()
    monkeypatch.setattr("tempfile.tempdir", "/nonexistent/folder")
    with pytest.raises(NotChecked, match=r"can't start a process for a program: .*No such file"):
        run("pass")


def test_no_descriptor_is_left_open():
    run("pass")
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    for _ in range(5):
        run("pass")
    assert before == (len(os.listdir("/proc/self/fd")) if before else 0)


GRADE = """
from codecheck import CheckedProgram, NotIsolated, run_checked
two, three = (CheckedProgram(f"def f(): return {k}", "f", "def check(f): assert f() == 2") for k in (2, 3))
try:
    print("confined", run_checked(two).passed)
except NotIsolated as error:
    print("refused", error)
print("weaker", run_checked(two, accept_weaker=True).passed, run_checked(three, accept_weaker=True).passed)
"""


def test_without_isolation_it_refuses_unless_less_is_accepted():
    output = refused_calls(["landlock_create_ruleset"], GRADE)
    assert output.startswith("refused programs written by models can't be isolated here (files:")
    assert output.endswith("weaker True False\n")


def test_isolation_needs_no_namespaces():
    assert refused_calls(["unshare"], GRADE).startswith("confined True\n")


def test_what_is_missing_is_named():
    with pytest.raises(NotIsolated, match=r"\(files: no\); expected Linux 5.13"):
        require({"files": "no"}, accept_weaker=False)
    require({"files": "no"}, accept_weaker=True)
    require({}, accept_weaker=False)


def test_a_solution_ends_with_the_process_that_asked(tmp_path):
    program = (
        "import sys\nfrom codecheck.sandbox import *\nrun_checked(CheckedProgram('import time;"
        " time.sleep(600)', 'f', 'def check(f): f()'))"
    )
    asking = subprocess.Popen(
        [sys.executable, "-c", program], env=os.environ | {"TMPDIR": str(tmp_path)}
    )
    wait_until(lambda: len(descendants_of(asking.pid)) == 3)
    running = descendants_of(asking.pid)
    asking.kill()
    asking.wait()
    wait_until(lambda: not any(alive(pid) for pid in running))


def test_a_template_that_is_killed_is_a_failed_call_and_the_next_one_works():
    run("pass")
    before = descendants_of(os.getpid())
    failed = []

    def ask():
        try:
            run("import time; time.sleep(600)")
        except NotChecked as error:
            failed.append(str(error))

    asking = Thread(target=ask)
    asking.start()
    wait_until(lambda: len(descendants_of(os.getpid()) - before) == 2)
    (template,) = (pid for pid in before if descendants_of(pid) - before)
    os.kill(template, signal.SIGKILL)
    asking.join()
    assert "ended with status -9" in failed[0]
    assert run("def square(x): return x * x").passed


def test_whenever_a_verdict_is_interrupted_the_next_ones_are_right():
    def interrupt(*_):
        raise ZeroDivisionError

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for milliseconds in range(1, 31):
            with contextlib.suppress(ZeroDivisionError):
                signal.setitimer(signal.ITIMER_REAL, milliseconds / 1000)
                run("def square(x): return x * x")
                signal.setitimer(signal.ITIMER_REAL, 0)
            assert not run("def square(x): return x").passed
            assert run("def square(x): return x * x").passed
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_folders_of_processes_that_were_killed_are_removed_by_the_next_one(tmp_path, monkeypatch):
    monkeypatch.setattr(sandbox.tempfile, "tempdir", str(tmp_path))
    script = (
        "import os, signal, sys, tempfile; sys.path.insert(0, sys.argv[1]); tempfile.tempdir ="
        " sys.argv[2]\nfrom codecheck.sandbox import _folder\nwith _folder():\n   "
        " print('there', flush=True); {}"
    )
    command = [
        sys.executable,
        "-c",
        script.format("os.kill(os.getpid(), signal.SIGKILL)"),
        str(ROOT),
        str(tmp_path),
    ]
    for _ in range(2):
        subprocess.run(command, check=False)
    (left,) = tmp_path.iterdir()
    command[2] = script.format("input()")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"there\n"
        (held,) = tmp_path.iterdir()
        assert held != left
        sandbox._remove_left_folders.cache_clear()
        with sandbox._folder() as mine:
            assert {str(path) for path in tmp_path.iterdir()} == {str(held), mine}
        holder.communicate(b"\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "hide",
    [
        "os.unlink(name)",
        "os.rename(name, 'other')",
        "held.append(mmap.mmap(file.fileno(), 0)); file.close(); os.unlink(name)",
        "held.append(mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE)); file.close(); os.unlink(name)",
    ],
)
def test_files_without_a_name_count_too(hide):
    solution = f"""
import os, mmap, time
held = []
def square(x):
    for k in range(40):
        name = f"file"
        file = open(name, "wb+")
        file.write(os.urandom(1 << 20)); file.flush()
        held.append(file)
        {hide}
    time.sleep(20)
"""
    limits = SandboxLimits(cpu_s=5, wall_s=15)
    verdict = run(solution, limits=limits)
    assert verdict.detail == "it wrote more than its folder may hold"


ITERATORS = [
    "(k for k in (2, 3))",
    "iter([2, 3])",
    "map(abs, [2, 3])",
    "zip([2], [3])",
    "reversed([2, 3])",
]


@pytest.mark.parametrize("returned", ITERATORS)
def test_an_iterator_of_the_solution_can_be_given_back_to_it(returned):
    tests = "def check(f): assert f(f(2)) == 'again'"
    solution = (
        f"def square(x): return 'again' if hasattr(x, '__next__') and len(list(x)) else {returned}"
    )
    assert run(solution, tests).passed
    assert not run(
        solution.replace("'again'", "'other'"), tests
    ).passed  # wrong, and no trouble of the tests


NUMBER = """
class Number:
    def __init__(self, value): self.value = value
    def same(self, other): return self.value == other.value
    def __eq__(self, other): return self.same(other)
"""


@pytest.mark.parametrize(
    ("change", "passes"), [("value = 4", True), ("same = lambda other: True", False)]
)
def test_a_solution_may_set_the_state_of_a_trusted_class_and_not_its_methods(change, passes):
    solution = f"def square(x):\n    number = Number(0)\n    number.{change}\n    return number"
    assert run(solution, "def check(f): assert f(2) == Number(4)", NUMBER).passed == passes
