"""A place on the disk that can't be written: one line that names it, says why and what to do."""

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab import python_path
from tests.support.cli import PRICES
from tests.support.project import HANGS_S, ROOT
from tests.support.stub_server import StubServer, serve
from ttsgraph.base import ending
from ttsgraph.base.ending import EXIT_INPUT, guarded
from ttsgraph.base.errors import InputError
from ttsgraph.base.files import makes, naming, write_text

KINDS = ("ENOSPC", "EROFS", "EACCES")


@pytest.fixture(autouse=True)
def plain_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a command does to the output of its process would outlast the test."""
    monkeypatch.setattr(ending, "hide_secrets_in_output", lambda: None)


def line_of(raises: Callable[[], object], capsys: pytest.CaptureFixture[str]) -> str:
    """How a command ends whose work does this: its one line on stderr."""
    with pytest.raises(SystemExit) as ended:
        guarded(raises)
    assert ended.value.code == EXIT_INPUT
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wrapped", [False, True])
def test_the_system_s_reason_is_told_with_the_place(kind, wrapped, capsys):
    number = getattr(errno, kind)

    def write() -> None:
        with naming(Path("kept/here.json")):
            raise OSError(number, os.strerror(number))

    def within() -> None:
        try:
            write()
        except OSError as error:
            raise RuntimeError("could not go on") from error

    line = line_of(within if wrapped else write, capsys)
    assert line.startswith("error: kept/here.json: ")
    assert os.strerror(number) in line
    assert "run again" in line


@pytest.mark.parametrize(
    "error",
    [ConnectionResetError(errno.ECONNRESET, "reset"), PermissionError(13, "no"), KeyError()],
)
def test_what_is_about_no_place_is_a_defect_as_before(error):
    def work() -> None:
        try:
            raise FileExistsError(errno.EEXIST, "there", "x")
        except FileExistsError:
            raise error  # noqa: B904 (met on the way, and not what it is about)

    with pytest.raises(type(error)):
        guarded(work)


@dataclass
class Paid:
    """The folder of a project of `ttsgraph init`."""

    folder: Path

    def run(
        self, *command: str, bytes_a_file: int = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    ) -> subprocess.CompletedProcess[str]:
        """A command in the project, whose files may get so large."""
        return subprocess.run(
            [sys.executable, "-m", "ttsgraph", *command],
            cwd=self.folder,
            env=os.environ | {"PYTHONPATH": python_path(ROOT)},
            capture_output=True,
            text=True,
            timeout=HANGS_S,
            check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, [bytes_a_file] * 2),
        )


@pytest.fixture
def paid(tmp_path: Path) -> Iterator[Paid]:
    with serve(StubServer(("m",), skill=0.7)) as url:
        made = Paid(tmp_path).run("init", "mine", "--url", url, *PRICES)
        assert made.returncode == 0, made.stderr
        yield Paid(tmp_path / "mine")


def ends(done: subprocess.CompletedProcess[str], place: str, why: str) -> None:
    """It ended with one line that has both."""
    assert done.returncode == EXIT_INPUT, done.stderr
    assert "Traceback" not in done.stderr
    line = done.stderr.splitlines()[-1]
    assert line.startswith("error: ")
    assert place in line
    assert why in line
    assert "run again" in line


@contextmanager
def in_place_of(folder: Path) -> Iterator[None]:
    """A file where a folder is expected."""
    aside = folder.with_name("aside")
    if folder.exists():
        folder.rename(aside)
    folder.write_text("a file")
    yield
    folder.unlink()
    if aside.exists():
        aside.rename(folder)


def test_run_ends_with_a_line_and_what_was_paid_is_kept(paid):
    with in_place_of(paid.folder / ".ttsgraph"):
        ends(paid.run("run"), ".ttsgraph", "Not a directory")
    ends(paid.run("run", bytes_a_file=150_000), "calls.db", "disk I/O error")
    with in_place_of(paid.folder / "results"):
        ends(paid.run("run"), "results", "Not a directory")
    done = paid.run("run")
    assert done.returncode == 0, done.stderr
    assert "spent $0.0000" in done.stdout


def test_a_folder_is_no_file_to_write_and_stays_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="found a folder"):
        write_text(tmp_path, "text")
    assert not [*tmp_path.iterdir(), *tmp_path.parent.glob("*.part")]


def test_a_damaged_file_of_a_run_is_made_by_a_run() -> None:
    found = Path("results/mine/my/found/bundle.json")
    assert makes("evaluate", found).startswith("`ttsgraph run`")
    stage = makes("evaluate", Path("results/mine/my/random/graph.json"))
    assert "--profile mine --task my --method random" in stage


def test_a_terminal_without_a_character_gets_another_one():
    command = "from ttsgraph.base.ending import guarded; guarded(lambda: print('a → b'))"
    said = subprocess.run(
        [sys.executable, "-c", command],
        env=os.environ | {"PYTHONIOENCODING": "latin-1", "PYTHONPATH": python_path(ROOT)},
        capture_output=True,
        check=True,
    )
    assert said.stdout == b"a ? b\n"
