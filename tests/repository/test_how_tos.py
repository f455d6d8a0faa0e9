"""How-to pages begin in an empty folder, or say which page makes the one that they begin in."""

import json
import re
import shlex
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


def run(program: list[str], folder: Path, **variables: str) -> str:
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": python_path(ROOT), "HOME": str(folder)}
    environment["OPENBLAS_NUM_THREADS"] = "1"  # as in tests/__init__.py
    return said_by([sys.executable, *program], folder, environment | variables)


KNOWN = {f"What is {k} + {k}?": str(2 * k) for k in range(100)}
LISTED_AT = "https://models.example/v1"


def stub(key: str | None = KEY, **skills: float) -> Quirky:
    skills = skills or {"small": 0.5, "large": 0.9}
    return Quirky(skills, known=KNOWN, key=key, lists_prices=True)


def typed(text: str, folder: Path, **variables: str) -> tuple[Path, str]:
    """Type the commands of a block; return the folder that they end in, and what they print.

    Cloning, installation and keys are the test's, and a server isn't started.
    """
    said = ""
    for command in re.split(r" && |\n", text):
        words = shlex.split(command)
        if words[:1] == ["cd"]:
            folder /= words[1]
        elif words[:1] == ["python"]:
            said += run(words[1:], folder, **variables)
        elif words[:1] == ["ttsgraph"] and words[1] != "serve":
            said += run(["-m", *words], folder, **variables)
    return folder, said


@pytest.mark.slow
@pytest.mark.parametrize("page", ["README.md", "docs/start.md"])
def test_the_first_commands_of_a_page_lead_to_a_served_graph(page: str, tmp_path: Path) -> None:
    """And, on the page that has it, to one readable file."""
    text = block_with(page, "ttsgraph serve")
    rows = "".join(f"{question},{answer}\n" for question, answer in KNOWN.items())
    (tmp_path / "my.csv").write_text(f"question,answer\n{rows}")
    with serve(stub()) as url:
        folder, said = typed(text.replace(LISTED_AT, url), tmp_path, MY_KEY=KEY)
        assert said
        if page == "docs/start.md":
            asked = block_with(page, "python answers.py").replace(
                "When is my refund paid?", "What is 21 + 21?"
            )
            _, said = typed(asked, folder, MY_KEY=KEY)
            assert re.search(r"\d", said.splitlines()[-1])
            key = "two-key-of-a-reader"
            with serve(stub(key, big=0.9)) as two:
                added = block_with(page, "TWO_KEY").replace("https://two.example/v1", two)
                typed(added, folder, TWO_KEY=key)
            assert "api_key_env: TWO_KEY" in (folder / "profiles/mine.yaml").read_text()
    (served,) = re.findall(r"^ttsgraph serve (\S+)$", text, re.MULTILINE)
    name = FileLoader((folder / served,)).names[0]
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
        _, said = typed(compare, folder)
        assert verdict.search(said)
        assert (folder / "results/mine/support/compare/team/comparison.json").exists()
        program = block_with(page, '"proposers": ["small"').replace(LISTED_AT, url)
        assert verdict.search(run(["-c", f"{program}\nprint(result.compare())"], tmp_path))


def test_python_does_in_an_empty_folder_what_its_page_says(tmp_path: Path) -> None:
    row = json.loads(block_with("docs/python.md", '"question":'))
    rows = [row | {"question": f"{k} + {k + 1}", "answer": str(2 * k + 1)} for k in range(60)]
    (tmp_path / "qa.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    program = block_with("docs/python.md", "ttsgraph.load(")
    quick = "init={'contest': {'calls': 100, 'block': 6, 'rounds': 1}},"
    quick += " search={'max_iterations': 2, 'patience': 1, 'candidates': 2, 'batch': 8},"
    text = program.replace('budget="', f'{quick} budget="')
    assert quick in text
    with serve(StubServer(("small-1b", "large-8b"), skill=0.7)) as url:
        text = text.replace("http://127.0.0.1:8000/v1", url)
        said = run(["-c", f"{text}\nprint(result.compare())"], tmp_path)
    assert "<- in use" in said
    assert (tmp_path / "folder" / "bundle.json").exists()
