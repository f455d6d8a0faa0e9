"""What comes through between a solution and its tests: values, objects of its classes, and
exceptions.
"""

import pytest
from cases import SQUARES

from codecheck.sandbox import CheckedProgram, SandboxLimits, run_checked

LIMITS = SandboxLimits(cpu_s=2, wall_s=60)


def run(solution, tests=SQUARES, given=""):
    return run_checked(CheckedProgram(solution, "square", tests, given), LIMITS)


@pytest.mark.parametrize(
    ("returned", "holds"),
    [
        ("range(3)", "f(0) == range(3) and type(f(0)) is range"),
        ("{1: 2}.keys()", "f(0) == {1} and f(0) == {1: 3}.keys()"),
        ("{1: [2]}.values()", "list(f(0)) == [[2]] and len(f(0)) == 1"),
        ("{1: 2}.items()", "f(0) == {(1, 2)}"),
        (
            "(k * k for k in range(3))",
            "list(f(0)) == [0, 1, 4] and isinstance(f(0), types.GeneratorType)",
        ),
        ("itertools.count(3)", "list(itertools.islice(f(0), 3)) == [3, 4, 5] and next(f(0)) == 3"),
        ("map(str, [1, 2])", "tuple(f(0)) == ('1', '2')"),
        ("iter(range(100_000))", "sum(f(0)) == 4999950000"),
        ("deque([1, 2], 5)", "f(0) == deque([1, 2]) and f(0).popleft() == 1"),
        ("Counter('aab')", "f(0).most_common(1) == [('a', 2)]"),
        ("OrderedDict(b=1, a=2)", "list(f(0)) == ['b', 'a'] and f(0) == OrderedDict(b=1, a=2)"),
        ("namedtuple('P', 'x y')(1, 2)", "f(0) == (1, 2) and f(0).x == 1"),
        ("bytearray(b'ab')", "f(0) == bytearray(b'ab') and type(f(0)) is bytearray"),
        ("datetime.date(2024, 2, 29)", "f(0) == datetime.date(2024, 2, 29) and f(0).year == 2024"),
        (
            "datetime.datetime(2024, 7, 1, 12, tzinfo=zoneinfo.ZoneInfo('Europe/Berlin'))",
            "f(0).utcoffset().seconds == 7200",
        ),
        (
            "datetime.timedelta(days=-1, seconds=3)",
            "f(0) == datetime.timedelta(days=-1, seconds=3)",
        ),
        ("datetime.timezone.utc", "f(0) == datetime.timezone.utc"),
        ("Ellipsis", "f(0) is ..."),
        (
            "Point(1, [2])",
            "f(0).x == 1 and f(0).y == [2] and f(0).total() == 3 and str(f(0)) == '<1 [2]>'",
        ),
        (
            "Point(1, [2])",
            (
                "f(0) == f(0) and f(0) is not f(0) and len(f(0)) == 2 and list(f(0)) == [1, [2]]"
                " and 1 in f(0)"
            ),
        ),
        (
            "[Point(1, 2), {'a': Point(3, 4)}]",
            "f(0)[1]['a'].x == 3 and type(f(0)[0]).__name__ == 'Point'",
        ),
        ("Color.RED", "f(0).name == 'RED' and f(0).value == 1 and f(0) == f(0)"),
        ("object()", "f(0) != f(0)"),
        ("type('Bare', (), {})()", "f(0) != f(0)"),
        ("Size.BIG", "f(0) == 2"),
        ("lambda y: lambda z: y + z", "f(0)(1)(2) == 3 and callable(f(0))"),
        ("Point", "f(0)(1, 2).x == 1 and f(0).__name__ == 'Point'"),
        ("Point(1, 2) if x == 0 else x.x + 10", "f(f(0)) == 11"),
    ],
)
def test_what_tests_need_of_a_value_comes_through(returned, holds):
    imports = "import datetime, itertools, types, zoneinfo, enum\nfrom collections import *\n"
    solution = f"""{imports}
class Point:
    def __init__(self, x, y): self.x, self.y = x, y
    def __str__(self): return f"<{{self.x}} {{self.y}}>"
    def __len__(self): return 2
    def __eq__(self, other): return isinstance(other, Point) and vars(self) == vars(other)
    def __iter__(self): return iter([self.x, self.y])
    def total(self): return self.x + sum(self.y)
class Color(enum.Enum): RED = 1
class Size(enum.IntEnum): BIG = 2
def square(x): return {returned}
"""
    verdict = run(solution, f"{imports}def check(f): assert {holds}")
    assert verdict.passed, verdict.detail


@pytest.mark.parametrize(
    ("raised", "caught", "holds"),
    [
        ("Own('no', 3)", "ValueError", "error.args == ('no', 3) and type(error).__name__ == 'Own'"),
        ("Both('a')", "KeyError", "isinstance(error, IndexError) and error.args == ('a',)"),
        ("Coded()", "RuntimeError", "error.code == 7 and str(error) == 'code 7'"),
        ("KeyError('a', [1])", "KeyError", "error.args == ('a', [1])"),
        ("KeyError('a')", "LookupError", "str(error) == \"'a'\" and type(error) is KeyError"),
        ("json.JSONDecodeError('bad', 'x', 0)", "ValueError", "error.pos == 0"),
        ("OSError(2, 'gone')", "FileNotFoundError", "error.errno == 2"),
        (
            "UnicodeDecodeError('utf-8', b'x', 0, 1, 'no')",
            "UnicodeDecodeError",
            "error.reason == 'no'",
        ),
        ("decimal.InvalidOperation('x')", "ArithmeticError", "True"),
        ("Given('x')", "Given", "error.args == ('x',)"),
    ],
)
def test_exceptions_are_of_the_class_that_was_raised_or_like_it(raised, caught, holds):
    solution = f"""import json, decimal
class Own(ValueError): pass
class Both(KeyError, IndexError): pass
class Coded(RuntimeError):
    def __init__(self): self.code = 7
    def __str__(self): return f"code {{self.code}}"
def square(x): raise {raised}
"""
    tests = f"""
def check(f):
    try: f(0)
    except {caught} as error: assert {holds}
    else: assert False
"""
    verdict = run(solution, tests, "class Given(Exception): pass")
    assert verdict.passed, verdict.detail


@pytest.mark.parametrize(
    "kind", ["StopIteration", "StopAsyncIteration", "type('Stop', (StopIteration,), {})"]
)
def test_stopping_an_iteration_ends_no_loop_of_the_tests(kind):
    solution = f"def square(x): raise {kind}()"
    assert not run(
        solution, "def check(f): assert all(map(lambda x: f(x) == x * x, (2, 3)))"
    ).passed
    assert not run(solution, "def check(f): assert all(map(f, (2, 3)))").passed
    assert not run(solution, "def check(f): assert [*map(f, (2, 3))] == []").passed


def test_instances_of_given_classes_travel_both_ways():
    given = (
        "class Node:\n    def __init__(self, value, next=None): self.value, self.next = value,"
        " next\n"
    )
    given += "    def __eq__(self, other): return vars(self) == vars(other)\n"
    tests = "def check(f): assert f(Node(1, Node(2))) == Node(3, Node(1, Node(2)))"
    assert run("def square(x): return Node(3, x)", tests, given).passed
    assert run(f"{given}def square(x): return Node(3, x)", tests, given).passed
    assert not run("def square(x): return Node(4, x)", tests, given).passed
    lying = "class Node:\n    def __eq__(self, other): return True\ndef square(x): return Node()"
    assert not run(lying, tests, given).passed


def test_what_follows_the_definitions_of_a_module_is_run_and_no_fault_of_them():
    solution = "def square(x): return TABLE[x]\nTABLE = {}\nfor k in range(9): TABLE[k] = k * k\n"
    for after in (
        "",
        "print(square(input()))",
        "assert square(2) == 5",
        "import sys\nsys.exit(3)",
        "square('a')",
    ):
        assert run(solution + after).passed, after
    assert not run("import sys\nsys.exit(3)\ndef square(x): return x * x").passed


@pytest.mark.parametrize(
    "claim",
    ["f(2) == 4", "4 == f(2)", "not f(2) != 4", "f(2) in (4,)", "4 in f(2)", "f(2) >= 4", "f(2) - 4 < 1", "abs(f(2)) < 1",
     "isinstance(f(2), int)", "{f(2)} == {4}", "[f(2)] == [4]", "sorted([f(2), 4]) == [4, 4]",
     "f(2).__eq__(4)", "f(2).__class__ is int"],
)  # fmt: skip
def test_a_lying_object_decides_nothing(claim):
    methods = (
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "hash",
        "contains",
        "sub",
        "rsub",
        "abs",
        "add",
        "radd",
    )
    lies = "\n".join(
        f"    __{name}__ = lambda *_: {'0' if name == 'hash' else 'True'}" for name in methods
    )
    solution = (
        f"class Liar:\n{lies}\n    __iter__ = lambda self: iter([])\n    __class__ = int\ndef"
        " square(x): return Liar()"
    )
    assert not run(solution, f"def check(f): assert {claim}").passed


LIBRARY_S = {
    "json.JSONDecodeError": ("import json", "json.loads('{')", "error.pos == 1"),
    "decimal.InvalidOperation": ("import decimal", "decimal.Decimal('x')", "True"),
    "re.error": ("import re", "re.compile('(')", "error.pos == 0"),
    "zlib.error": ("import zlib", "zlib.decompress(b'x')", "True"),
}


@pytest.mark.parametrize("kind", LIBRARY_S)
def test_an_exception_of_the_standard_library_is_caught_as_what_it_is(kind):
    imported, raises, holds = LIBRARY_S[kind]
    tests = (
        f"{imported}\ndef check(f):\n    try:\n        f(1)\n    except {kind} as error:\n"
        f"        assert {holds}\n    else:\n        assert False"
    )
    program = f"{imported}\ndef f(_):\n    {raises}"
    ended = run_checked(CheckedProgram(program, "f", tests))
    assert ended.passed, ended.detail
    lies = "class Own(Exception): pass\ndef f(_):\n    raise Own"
    assert not run_checked(CheckedProgram(lies, "f", tests)).passed
