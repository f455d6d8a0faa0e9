"""How-to pages begin in an empty folder, or say which page makes the one that they begin in."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from lab import python_path
from tests.support.docs_blocks import Block, blocks_of
from tests.support.processes import said_by
from tests.support.project import ROOT
from tests.support.quirky import Quirky
from tests.support.stub_server import StubServer, serve
from ttsgraph.deployment.bundle import FileLoader

KEY = "key-of-a-reader-0123456789"


def titled(page: str, title: str) -> Block:
    return next(block for block in blocks_of(page) if block.title == title)


def run(program: list[str], folder: Path, **variables: str) -> str:
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": python_path(ROOT), "HOME": str(folder)}
    environment |= variables
    environment["OPENBLAS_NUM_THREADS"] = "1"  # as in tests/__init__.py
    return said_by([sys.executable, *program], folder, environment)


KNOWN = {f"What is {k} + {k}?": str(2 * k) for k in range(100)}


@pytest.mark.slow
@pytest.mark.parametrize("page", ["README.md", "docs/start.md"])
def test_the_first_commands_of_a_page_lead_to_a_served_graph(page: str, tmp_path: Path) -> None:
    """All but `git clone`, the installation, and the port that `serve` takes."""
    block = next(block for block in blocks_of(page) if "ttsgraph init" in block.text)
    rows = "".join(f"{question},{answer}\n" for question, answer in KNOWN.items())
    (tmp_path / "my.csv").write_text(f"question,answer\n{rows}")
    stub = Quirky({"small": 0.5, "large": 0.9}, known=KNOWN, key=KEY, lists_prices=True)
    folder, served = tmp_path, ""
    with serve(stub) as url:
        for command in re.split(r" && |\n", block.text.replace("https://models.example/v1", url)):
            words = shlex.split(command)
            if words[:1] == ["cd"]:
                folder /= words[1]
            elif words[:2] == ["ttsgraph", "serve"]:
                served = words[2]
            elif words[:1] == ["ttsgraph"]:
                assert run(["-m", *words], folder, MY_KEY=KEY)
        name = FileLoader((folder / served,)).names[0]
    assert name == "my@found"
    assert f"`{name}`" in (ROOT / page).read_text()


def test_python_does_in_an_empty_folder_what_its_page_says(tmp_path: Path) -> None:
    row = json.loads(titled("docs/python.md", "qa.jsonl").text)
    rows = [row | {"question": f"{k} + {k + 1}", "answer": str(2 * k + 1)} for k in range(60)]
    (tmp_path / "qa.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (program,) = [block.text for block in blocks_of("docs/python.md") if ".serve()" in block.text]
    *lines, served = program.splitlines()
    assert served == 'ttsgraph.load("folder").serve()'  # which ends when it is interrupted
    quick = "init={'contest': {'calls': 100, 'block': 6, 'rounds': 1}},"
    quick += " search={'max_iterations': 2, 'patience': 1, 'candidates': 2, 'batch': 8},"
    text = "\n".join(lines).replace('budget="', f'{quick} budget="')
    assert quick in text
    with serve(StubServer(("small-1b", "large-8b"), skill=0.7)) as url:
        text = text.replace("http://127.0.0.1:8000/v1", url)
        said = run(["-c", f"{text}\nprint(result.compare())"], tmp_path)
    assert "<- in use" in said
    assert (tmp_path / "folder" / "bundle.json").exists()


def test_a_plug_in_of_its_page_is_what_it_says(tmp_path: Path) -> None:
    module = titled("docs/extend.md", "plugins/my_module.py")
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "my_module.py").write_text(module.text)
    tried = "from ttsgraph.settings.plugins import load_modules as load; load(['my_module'])"
    said = run(["-c", f"{tried}; from ttsgraph.tasks.base import TASKS; print(*TASKS)"], tmp_path)
    assert "haiku" in said
