"""The mutation score of search, cost or graders: how many small faults the fast tests notice.

    python -m lab.mutants cost --seed 1 --count 120

Works on a copy of the checkout, build/mutants. Which lines each test runs is written down once, in
build/mutants.json (10 minutes; delete it after changes). A fault is noticed if tests that run its
line fail or run out of time with it, and pass without it.
"""

from __future__ import annotations

import argparse
import ast
import gc
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple

import hypothesis
import pytest

from lab import python_path
from ttsgraph.evaluation.environment import wilson

COST = "graphs/budget graphs/mean_cost graphs/stopping graphs/settle pool/spec runtime/limits"
FILES = {
    "search": tuple(f"searching/{room}/*" for room in ("methods", "contest", "response")),
    "cost": (*COST.split(), "stages/estimate", "evaluation/objective"),
    "graders": ("tasks/[!s]*", "tasks/s[!o]*", "../../reader/finalanswer/*"),  # sources fetches
}
TESTS = """reader/tests tests/tasks tests/graphs tests/searching tests/pool tests/evaluation
tests/models tests/stages tests/api/test_estimates.py tests/runtime/test_money.py
tests/runtime/test_limits.py"""
FAST = "not slow and not long and not models and not vllm"
OUT = "out of time or memory"
SECONDS = 10.0  # of tests for one fault, the quick ones first
COPY, RECORD, NOTE = (Path("build", name) for name in ("mutants", "mutants.json", "mutants.note"))

SWAPS = """Lt:LtE,GtE LtE:Lt,Gt Gt:GtE,LtE GtE:Gt,Lt Eq:NotEq NotEq:Eq Is:IsNot IsNot:Is In:NotIn
NotIn:In And:Or Or:And Add:Sub Sub:Add Mult:Div Div:Mult FloorDiv:Mult Mod:Mult Pow:Mult
BitOr:BitAnd BitAnd:BitOr min:max max:min any:all all:any minimum:maximum maximum:minimum"""
SWAPPED = {old: new.split(",") for old, new in (pair.split(":") for pair in SWAPS.split())}
# Faults in these change words alone, or show as soon as the program starts.
LEFT_ALONE = (ast.Import, ast.ImportFrom, ast.Raise, ast.Assert, ast.JoinedStr, ast.arg)


class Site(NamedTuple):
    """A fault: what is written for a node, and the outermost function and the statement of it."""

    file: str
    node: Any
    text: str
    function: Any
    statement: Any


def faults(node: ast.AST) -> Iterator[tuple[Any, str]]:
    """What can be wrong in a node: the part that is replaced, and by what."""
    match node:
        case ast.BinOp(left=ast.Constant(value=str()) | ast.JoinedStr()):
            pass  # a message
        case ast.Compare(ops=[op, *_]) | ast.BinOp(op=op) | ast.BoolOp(op=op):
            for name in SWAPPED.get(type(op).__name__, []):
                new: Any = ast.parse(ast.unparse(node), mode="eval").body
                if isinstance(node, ast.Compare):
                    new.ops[0] = getattr(ast, name)()
                else:
                    new.op = getattr(ast, name)()
                yield node, ast.unparse(new)
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield node, ast.unparse(node.operand)
        case ast.Constant(value=bool()):
            yield node, str(not node.value)
        case ast.Constant(value=int() | float() as number):
            yield node, repr(number + 1)
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in SWAPPED:
            yield node.func, ast.unparse(node.func).removesuffix(name) + SWAPPED[name][0]
        case ast.If() | ast.IfExp() if not isinstance(node.test, ast.Compare | ast.UnaryOp):
            yield node.test, f"not ({ast.unparse(node.test)})"
        case ast.Return(value=ast.expr()) if not isinstance(node.value, ast.Constant):
            yield node.value, "None"
        case ast.Expr(value=ast.Constant() | ast.Yield()):
            pass
        case ast.AugAssign() | ast.Continue() | ast.Break() | ast.Expr():
            yield node, "pass"


def read(file: str) -> str:
    """A file's text."""
    return Path(file).read_text()


def files(group: str) -> list[str]:
    """The group's files."""
    found = (path for name in FILES[group] for path in Path("pipeline/ttsgraph").glob(f"{name}.py"))
    return sorted(os.path.relpath(path) for path in found)


def choices(module: ast.Module) -> set[ast.stmt]:
    """A module's constants with a text below that says what they are for: how large is a choice."""
    found: set[ast.stmt] = set()
    constants: list[ast.stmt] = []
    for each in module.body:
        match each:
            case ast.Assign():
                constants.append(each)
                continue
            case ast.Expr(value=ast.Constant(value=str())):
                found.update(constants)
        constants = []
    return found


def sites(file: str) -> list[Site]:
    """All faults of a file."""
    found: list[Site] = []
    module = ast.parse(read(file))
    chosen = choices(module)

    def visit(node: Any, function: ast.AST | None, statement: ast.AST | None) -> None:
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "decorator_list"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if not isinstance(child, ast.AST) or isinstance(child, LEFT_ALONE):
                    continue
                if isinstance(child, ast.keyword) and child.arg == "strict":
                    continue  # as an assert
                if statement in chosen and isinstance(child, ast.Constant):
                    continue
                body = field == "body" and hasattr(node, "args")
                around = function or (node if body else None)
                here = child if isinstance(child, ast.stmt) else statement
                found.extend(Site(file, *fault, around, here) for fault in faults(child))
                visit(child, around, here)

    visit(module, None, None)
    return found


def with_fault(source: str, site: Site) -> str:
    """The file's text with the fault in it."""
    text, node = source.encode(), site.node
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    start = starts[node.lineno - 1] + node.col_offset
    end = starts[node.end_lineno - 1] + node.end_col_offset
    new = site.text if site.text == "pass" else f"({site.text})"
    return (text[:start] + new.encode() + text[end:]).decode()


def ran_at(site: Site) -> set[int]:
    """Lines that run where a fault matters: its own, or those that name what it makes on import."""
    if site.function is not None:
        return {site.statement.lineno, *range(site.node.lineno, site.node.end_lineno + 1)}
    made = {each.id for each in ast.walk(site.statement) if isinstance(each, ast.Name)}
    every = ast.walk(ast.parse(read(site.file)))
    users = (n for n in every if isinstance(n, ast.Name | ast.Attribute))
    return {n.lineno for n in users if getattr(n, "id", getattr(n, "attr", None)) in made}


def parts(code: CodeType) -> Iterator[CodeType]:
    """The codes of a file's functions, at any depth."""
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield part
            yield from parts(part)


def place(code: CodeType) -> tuple[str, int, str]:
    """By what a function is known again in its changed file."""
    return code.co_filename, code.co_firstlineno, code.co_name


def put_in(made: Sequence[FunctionType], file: Path, source: str) -> bool:
    """Give functions in memory, of one definition, their code in a changed file, if it fits."""
    if not made:
        return False
    old = made[0].__code__
    new = [part for part in parts(compile(source, file, "exec")) if place(part) == place(old)]
    if len(new) != 1 or old.co_freevars != new[0].co_freevars:
        return False
    for each in made:
        each.__code__ = new[0]
    return True


class Trial:
    """A plugin that tries faults on the tests that pytest collected, each in a fork of it."""

    def __init__(self, group: str, seed: int, count: int) -> None:
        self.group, self.seed, self.count = group, seed, count
        self.failed, self.clock = "", int(time.time())
        self.sound: set[str] = set()
        self.made: dict[tuple[str, int, str], list[FunctionType]] = {}

    def pytest_configure(self) -> None:
        """Draw the same examples each time, however busy the machine is."""
        calm = hypothesis.settings(deadline=None, derandomize=True, database=None)
        hypothesis.settings.register_profile("mutants", calm)
        hypothesis.settings.load_profile("mutants")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember whether a test failed."""
        self.failed = self.failed or ("" if report.passed else report.nodeid)

    def fork(self, work: Callable[[], str], seconds: float = 3 * SECONDS) -> str:
        """What work returns in a process of its own, or that it ran out of time or memory."""
        note, end = Path("..", NOTE.name), time.monotonic() + 6 * seconds
        note.unlink(missing_ok=True)
        child = os.fork()
        if not child:
            os.setsid()
            memory = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (memory + 3 * 2**30,) * 2)
            resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 5))
            try:
                note.write_text(work())
            finally:
                os._exit(0)
        while os.waitpid(child, os.WNOHANG)[0] == 0:
            time.sleep(0.02)
            if time.monotonic() > end:
                os.kill(child, signal.SIGKILL)
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        return note.read_text() if note.exists() else OUT

    def first_failed(self, items: Sequence[pytest.Item]) -> str:
        """The first of the tests to fail, as far as the time goes."""
        end = time.process_time() + SECONDS
        for item, following in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.failed or time.process_time() > end:
                break
        return self.failed

    def record(self, items: Sequence[pytest.Item], known: dict[str, Any]) -> str:
        """The lines that each test runs and its seconds, as JSON, of those that pass."""
        wanted = {str(Path(name).absolute()): name for group in FILES for name in files(group)}
        ran: dict[str, set[int]] = {}

        def trace(frame: FrameType, _event: str, _argument: object) -> Any:
            if (name := wanted.get(frame.f_code.co_filename)) is None:
                return None
            ran.setdefault(name, set()).add(frame.f_lineno)
            return trace

        threading.settrace(trace)
        missing = [item for item in items if item.nodeid not in known]
        for item, following in zip(missing, [*missing[1:], None], strict=False):
            self.failed, began = "", time.process_time()
            ran.clear()
            sys.settrace(trace)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            sys.settrace(None)
            lines = {name: sorted(numbers) for name, numbers in ran.items()}
            seconds = time.process_time() - began
            known[item.nodeid] = {"seconds": seconds, "lines": {} if self.failed else lines}
        return json.dumps(known)

    def anew(self, items: Sequence[pytest.Item]) -> str:
        """Whether a test fails in a new process, for faults that matter on import."""
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
        tests = [item.nodeid for item in items]
        ended = subprocess.run([*command, *tests], capture_output=True, check=False)
        return tests[-1] if ended.returncode else ""

    def noticed(self, site: Site, items: Sequence[pytest.Item]) -> tuple[bool, str]:
        """Whether these tests fail with a fault and pass without it; and the first that fails."""
        path, source, definition = Path(site.file).absolute(), read(site.file), site.function
        made: list[FunctionType] = []
        if definition is not None:
            decorators = getattr(definition, "decorator_list", [])
            first = min(each.lineno for each in [definition, *decorators])
            made = self.made.get((str(path), first, getattr(definition, "name", "<lambda>")), [])

        def run(text: str, items: Sequence[pytest.Item]) -> str:
            self.clock += 1  # so that no compiled file counts as up to date
            path.write_text(text)
            os.utime(path, (self.clock, self.clock))
            return self.first_failed(items) if put_in(made, path, text) else self.anew(items)

        names = [item.nodeid for item in items]
        failed = self.fork(lambda: run(with_fault(source, site), items))
        through = items[: names.index(failed) + 1] if failed in names else items
        if failed and failed not in self.sound:
            before = self.fork(lambda: run(source, through))
            self.sound |= {failed} if not before else set()
            failed = f"{failed}, as without the fault" if before else failed
        path.write_text(source)
        noticed = failed in self.sound
        self.sound.discard(OUT)  # which says nothing of the next fault
        return noticed, failed

    def tests_of(self, site: Site, known: dict[str, Any]) -> list[str]:
        """The tests that run a fault's lines, or its file if none does, the quick ones first."""
        lines = ran_at(site)
        ran = {name: set(test["lines"].get(site.file, ())) for name, test in known.items()}
        near = [name for name in ran if ran[name] & lines] or [name for name in ran if ran[name]]
        return sorted(near, key=lambda name: known[name]["seconds"])

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try the faults, in the place of the tests."""
        session.config.pluginmanager.unregister(name="terminalreporter")
        record = Path("..", RECORD.name)
        known = json.loads(record.read_text()) if record.exists() else {}
        record.write_text(self.fork(lambda: self.record(session.items, known), 3600))
        known = json.loads(record.read_text())
        items = {item.nodeid: item for item in session.items}
        for each in gc.get_objects():
            if isinstance(each, FunctionType):
                self.made.setdefault(place(each.__code__), []).append(each)
        gc.freeze()  # so that forks share more of their memory
        every = [site for name in files(self.group) for site in sites(name)]
        random.Random(self.seed).shuffle(every)
        found = 0
        for site in every[: self.count]:
            chosen: list[pytest.Item] = []
            seconds = 0.0
            for name in self.tests_of(site, known):
                if name not in items:
                    continue
                seconds += known[name]["seconds"]
                if chosen and seconds > SECONDS:
                    break
                chosen.append(items[name])
            noticed, test = self.noticed(site, chosen) if chosen else (False, "")
            found += noticed
            here = f"{site.file}:{site.node.lineno} {ast.unparse(site.node)} -> {site.text}"
            print(
                "noticed" if noticed else "MISSED", here, test or f"{len(chosen)} tests", flush=True
            )
        low, high = wilson(found, self.count)
        share = f"{found / self.count:.0%} ({low:.0%} to {high:.0%})"
        print(f"{self.group}: {found} of {self.count}, {share}; drawn of {len(every)} faults")
        return True


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("group", choices=FILES)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=120)
    given = parser.parse_args()
    if Path(".git").exists():
        shutil.rmtree(COPY, ignore_errors=True)
        for name in subprocess.check_output(["git", "ls-files", "-z"], text=True).split("\0")[:-1]:
            (COPY / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(name, COPY / name)
        again = [sys.executable, "-m", "lab.mutants", *sys.argv[1:]]
        paths = os.environ | {"PYTHONPATH": python_path(COPY.absolute())}
        sys.exit(subprocess.run(again, cwd=COPY, env=paths, check=False).returncode)
    calm = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    calm += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of what is imported here
    arguments = [*calm, "-m", FAST, *TESTS.split()]
    sys.exit(pytest.main(arguments, plugins=[Trial(given.group, given.seed, given.count)]))


if __name__ == "__main__":
    main()
