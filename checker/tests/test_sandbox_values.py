"""What comes through between a solution and its tests: values, objects of its classes, exceptions
and arguments.
"""

import pytest
from cases import SQUARES, programs, tables

from codecheck.sandbox import CheckedProgram, SandboxLimits, run_checked

LIMITS = SandboxLimits(cpu_s=2, wall_s=60)
TABLES = tables("values.txt")
PARTS = programs()
IMPORTS, CLASSES, LENT = (PARTS[title] for title in ("imports", "classes", "lent"))


def run(solution, tests=SQUARES, given=""):
    return run_checked(CheckedProgram(solution, "square", tests, given), LIMITS)


def returning(expression, holds):
    """The verdict on a solution that returns this, by a test of this."""
    solution = f"{IMPORTS}{CLASSES}def square(x): return {expression}"
    return run(solution, f"{IMPORTS}def check(f): assert {holds}")


@pytest.mark.parametrize("row", TABLES["returned, and what holds of it"], ids=" ".join)
def test_what_tests_need_of_a_value_comes_through(row):
    verdict = returning(row[0], row[1] if row[1:] else f"f(0) == {row[0]}")
    assert verdict.passed, verdict.detail


@pytest.mark.parametrize("row", TABLES["returned, and what does not hold of it"], ids=" ".join)
def test_what_differs_stays_different_and_a_lying_object_decides_nothing(row):
    assert not returning(*row).passed


@pytest.mark.parametrize("row", TABLES["raised, caught, and what holds of it"], ids=" ".join)
def test_exceptions_are_of_the_class_that_was_raised_or_like_it(row):
    raises, caught, holds = row
    solution = f"{IMPORTS}{CLASSES}def square(x):\n    {raises}"
    tests = (
        f"{IMPORTS}def check(f):\n    try: f(0)\n    except {caught} as error: assert {holds}\n"
        "    else: assert False"
    )
    verdict = run(solution, tests, "class Given(Exception): pass")
    assert verdict.passed, verdict.detail
    lies = "class Other(BaseException): pass\ndef square(x): raise Other"
    assert not run(lies, tests, "class Given(Exception): pass").passed


@pytest.mark.parametrize(
    "kind", ["StopIteration", "StopAsyncIteration", "type('Stop', (StopIteration,), {})"]
)
def test_stopping_an_iteration_ends_no_loop_of_the_tests(kind):
    solution = f"def square(x): raise {kind}()"
    for holds in ("all(map(lambda x: f(x) == x * x, (2, 3)))", "[*map(f, (2, 3))] == []"):
        assert not run(solution, f"def check(f): assert {holds}").passed


@pytest.mark.parametrize(
    "row", TABLES["of what is given, a solution, a test, passes"], ids=" ".join
)
def test_what_is_given_travels_both_ways_and_is_the_tests_own(row):
    """The state of a class that is given may be set, and neither its methods nor a function."""
    solution, holds, passes = row
    verdict = run(
        solution.replace("GIVEN", PARTS["given to both"]),
        f"def check(f): assert {holds}",
        PARTS["given to both"],
    )
    assert verdict.passed is (passes == "yes"), verdict.detail


@pytest.mark.parametrize("row", TABLES["an argument, changed in place"], ids=" ".join)
def test_what_a_solution_makes_of_its_arguments_is_seen(row):
    change, before, after = row
    tests = (
        f"def check(f):\n    xs = {before}\n    same = xs\n    f(xs)\n"
        f"    assert xs == {after} and xs is same"
    )
    assert run(f"def square(xs): {change}", tests).passed
    assert not run("def square(xs): pass", tests).passed


@pytest.mark.parametrize("row", TABLES["an argument, used"], ids=" ".join)
def test_whatever_tests_hand_over_a_solution_can_use(row):
    expression, holds = row
    tests = f"{LENT}{PARTS['fails']}def check(f): assert {holds}"
    assert run(f"def square(x): return {expression}", tests).passed
    assert not run("def square(x): return 5", tests).passed


@pytest.mark.parametrize("row", TABLES["looks behind an argument"], ids=" ".join)
def test_a_solution_sees_nothing_of_the_tests_through_what_it_was_lent(row):
    solution = (
        f"def square(x):\n    try:\n        found = {row[0]}\n"
        "    except Exception:\n        return 'refused'\n"
        "    is_proxy = type(found).__name__ == 'type' and found.__name__ == 'Lent'\n"
        "    return 'refused' if is_proxy else found"
    )
    tests = LENT.replace("Lent", "Own") + "def check(f): assert f(Own()) == 'refused'"
    assert run(solution, tests).passed
