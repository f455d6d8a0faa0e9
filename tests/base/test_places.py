"""A place on the disk that can't be written: one line that names it, says why and what to do."""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lab import python_path
from tests.support.cli import PRICES, done
from tests.support.processes import ran, said_by
from tests.support.project import ROOT
from tests.support.stub_server import StubServer, serve
from ttsgraph.base import ending
from ttsgraph.base.ending import EXIT_INPUT, guarded
from ttsgraph.base.errors import InputError
from ttsgraph.base.files import makes, write_text


@pytest.fixture(autouse=True)
def plain_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a command does to the output of its process would outlast the test."""
    monkeypatch.setattr(ending, "hide_secrets_in_output", lambda: None)


def is_told(code: object, said: str, place: str, why: str) -> None:
    """A command ended with one line that names the place, and why."""
    assert code == EXIT_INPUT, said
    assert "Traceback" not in said
    line = said.splitlines()[-1]
    assert line.startswith("error: ")
    assert all(part in line for part in (place, why, "run again"))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
@pytest.mark.parametrize("wrapped", [False, True])
def test_the_system_s_reason_is_told_with_the_place(number, wrapped, capsys, monkeypatch, tmp_path):
    def fails(path: Path, content: bytes) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Path, "write_bytes", fails)

    def write() -> None:
        write_text(Path("kept/here.json"), "text")

    def within() -> None:
        try:
            write()
        except OSError as error:
            raise RuntimeError("could not go on") from error

    with pytest.raises(SystemExit) as ended:
        guarded(within if wrapped else write)
    is_told(ended.value.code, capsys.readouterr().err, "kept/here.json: ", os.strerror(number))


@pytest.mark.parametrize("error", [ConnectionResetError(104, "x"), PermissionError(13), KeyError()])
def test_what_is_about_no_place_is_a_defect_as_before(error):
    def work() -> None:
        try:
            raise FileExistsError(errno.EEXIST, "there", "x")
        except FileExistsError:
            raise error  # noqa: B904 (met on the way, and not what it is about)

    with pytest.raises(type(error)):
        guarded(work)


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, [150_000] * 2)
sys.argv[1:] = ["run"]
from ttsgraph.cli import main
main()
"""
"""`ttsgraph run` where no file may get larger."""


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


def test_run_ends_with_a_line_and_what_was_paid_is_kept(tmp_path):
    folder = tmp_path / "mine"
    here = folder, os.environ | {"PYTHONPATH": python_path(ROOT)}

    def run(*command: str) -> tuple[int, str]:
        ended = ran([sys.executable, *command], *here)
        return ended.returncode, ended.stderr

    with serve(StubServer(("m",), skill=0.7)) as url:
        done("init", str(folder), "--url", url, *PRICES)
        with in_place_of(folder / ".ttsgraph"):
            is_told(*run("-m", "ttsgraph", "run"), ".ttsgraph", "Not a directory")
        is_told(*run("-c", LIMITED), "calls.db", "disk I/O error")
        with in_place_of(folder / "results"):
            is_told(*run("-m", "ttsgraph", "run"), "results", "Not a directory")
        assert "spent $0.0000" in said_by([sys.executable, "-m", "ttsgraph", "run"], *here)


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
    environment = {"PYTHONIOENCODING": "latin-1", "PYTHONPATH": python_path(ROOT)}
    said = said_by([sys.executable, "-c", command], None, os.environ | environment)
    assert said == "a ? b\n"
