"""How-to pages begin in an empty folder, or say which page makes the one that they begin in."""

import json
import re
import sys
from pathlib import Path

import pytest

from lab import python_path
from tests.support.docs_blocks import blocks_of
from tests.support.processes import said_by
from tests.support.project import ROOT
from tests.support.quirky import Quirky
from tests.support.stub_server import StubServer, serve
from ttsgraph.deployment.bundle import FileLoader

KEY = "key-of-a-reader-0123456789"


def block_with(page: str, part: str) -> str:
    """The one block of a page that has this part."""
    (text,) = [block.text for block in blocks_of(page) if part in block.text]
    return text


# Cloning, installation and keys are the test's, and a server isn't started.
SHELL = f"""
set -e
git() {{ :; }}; pip() {{ :; }}; export() {{ :; }}
python() {{ '{sys.executable}' "$@"; }}
ttsgraph() {{ [ "$1" = serve ] || python -m ttsgraph "$@"; }}
"""


def typed(text: str, folder: Path, **variables: str) -> str:
    """Type the commands of a block; return what they print."""
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": python_path(ROOT), "HOME": str(folder)}
    environment["OPENBLAS_NUM_THREADS"] = "1"  # as in tests/__init__.py
    return said_by(["bash", "-c", SHELL + text], folder, environment | variables)


def run(program: str, folder: Path) -> str:
    """What a program prints, with the table of the comparison that it ends with."""
    (folder / "program.py").write_text(f"{program}\nprint(result.compare())")
    return typed("python program.py", folder)


KNOWN = {f"What is {k} + {k}?": str(2 * k) for k in range(100)}
LISTED_AT = "https://models.example/v1"


def stub(key: str | None = KEY, **skills: float) -> Quirky:
    skills = skills or {"small": 0.5, "large": 0.9}
    return Quirky(skills, known=KNOWN, key=key, lists_prices=True)


@pytest.mark.slow
@pytest.mark.parametrize("page", ["README.md", "docs/start.md"])
def test_the_first_commands_of_a_page_lead_to_a_served_graph(page: str, tmp_path: Path) -> None:
    """And, on the page that has it, to one readable file."""
    text = block_with(page, "ttsgraph serve")
    rows = "".join(f"{question},{answer}\n" for question, answer in KNOWN.items())
    (tmp_path / "my.csv").write_text(f"question,answer\n{rows}")
    mine = tmp_path / "mine"
    with serve(stub()) as url:
        assert typed(text.replace(LISTED_AT, url), tmp_path, MY_KEY=KEY)
        if page == "docs/start.md":
            asked = block_with(page, "python answers.py")
            asked = asked.replace("When is my refund paid?", "What is 21 + 21?")
            assert re.search(r"\d", typed(asked, mine, MY_KEY=KEY).splitlines()[-1])
            key = "two-key-of-a-reader"
            with serve(stub(key, big=0.9)) as two:
                added = block_with(page, "TWO_KEY").replace("https://two.example/v1", two)
                typed(added, mine, TWO_KEY=key)
            assert "api_key_env: TWO_KEY" in (mine / "profiles/mine.yaml").read_text()
    (served,) = re.findall(r"^ttsgraph serve (\S+)$", text, re.MULTILINE)
    name = FileLoader((mine / served,)).names[0]
    assert name == "my@found"
    assert f"`{name}`" in (ROOT / page).read_text()


@pytest.mark.slow
def test_a_team_is_compared_as_the_page_says(tmp_path: Path) -> None:
    page = "docs/python.md"
    rows = ({"question": question, "answer": answer} for question, answer in KNOWN.items())
    (tmp_path / "support.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    team = block_with(page, "proposers: [small, small, large]")
    begin, _, compare = block_with(page, "--preset team.yaml").partition("cd mine\n")
    verdict = re.compile(r"(not )?worth it")
    with serve(stub(None)) as url:
        typed(begin.replace(LISTED_AT, url), tmp_path)
        folder = tmp_path / "mine"
        (folder / "team.yaml").write_text(team)
        assert verdict.search(typed(compare, folder))
        assert (folder / "results/mine/support/compare/team/comparison.json").exists()
        program = block_with(page, '"proposers": ["small"').replace(LISTED_AT, url)
        assert verdict.search(run(program, tmp_path))


def test_python_does_in_an_empty_folder_what_its_page_says(tmp_path: Path) -> None:
    row = json.loads(block_with("docs/python.md", '"question":'))
    rows = [row | {"question": f"{k} + {k + 1}", "answer": str(2 * k + 1)} for k in range(60)]
    (tmp_path / "qa.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    program = block_with("docs/python.md", "ttsgraph.load(")
    quick = "init={'contest': {'calls': 100}},"
    quick += " search={'max_iterations': 2, 'patience': 1, 'candidates': 2, 'batch': 8},"
    text = program.replace('budget="', f'{quick} budget="')
    assert quick in text
    with serve(StubServer(("small-1b", "large-8b"), skill=0.7)) as url:
        assert "<- in use" in run(text.replace("http://127.0.0.1:8000/v1", url), tmp_path)
    assert (tmp_path / "folder" / "bundle.json").exists()
