"""A found graph as a Python file: with the same replies it gives the executor's answer."""

from __future__ import annotations

import asyncio
import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.stub_server import StubServer, serve
from ttsgraph.api.export import to_python
from ttsgraph.api.given import TASK, profile_of
from ttsgraph.base.errors import InputError
from ttsgraph.deployment.bundle import Deployed
from ttsgraph.graphs import topologies
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.runtime.asking import ask_graph


class Telling(StubServer):
    """Its reply follows from all that it is asked, so that equal answers mean equal prompts, on the
    whole way.
    """

    def completion(self, body, count):
        made = super().completion(body, count)
        asked = json.dumps(
            [body["model"], body["messages"], body.get("temperature"), body.get("max_tokens")]
        )
        digest = hashlib.sha256(asked.encode()).hexdigest()
        made["choices"][0]["message"]["content"] = (
            "I think.\nAnswer:"
            f" {digest[:6] if len(body['messages'][-1]['content']) > 40 else 'one'}"
        )
        return made


def deployed(folder: Path, url: str, graph: CollaborationGraph, kind: str = "exact") -> Deployed:
    rows = [{"question": f"q{k}?", "answer": f"{k}"} for k in range(20)]
    (folder / "qa.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    profile = profile_of(["a", "b"], folder / "qa.jsonl", 20, kind, "$1", base_url=url, price=1.0)
    return Deployed(TASK, graph, profile)


GRAPHS = {
    "one call": topologies.single("a"),
    "a vote": topologies.parallel(["a", "a", "b"], "b", "voter"),
    "a fan": topologies.parallel(["a", "b"], "b", "fuser"),
    "chains that vote": topologies.branches([["a", "b"], ["b", "a"]], "a", "voter"),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_the_file_answers_as_the_executor_does(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with serve(Telling(("a", "b"))) as url:
        found = deployed(tmp_path, url, GRAPHS[name])
        (tmp_path / "answers.py").write_text(to_python(found))
        done = subprocess.run(
            [sys.executable, "-I", "answers.py", "What is it?"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        wanted = asyncio.run(ask_graph(found.graph, "What is it?", found.profile, TASK))
    assert done.stdout.rstrip("\n") == wanted.text
    assert "import pipeline" not in (tmp_path / "answers.py").read_text()


def test_what_one_file_cannot_hold_is_named(tmp_path: Path) -> None:
    vote = deployed(tmp_path, "http://x/v1", GRAPHS["a vote"], "number")
    with pytest.raises(
        InputError,
        match=(
            "expected a graph without votes, or of kind exact, to export: how answers of kind"
            " number"
        ),
    ):
        to_python(vote)
    assert to_python(deployed(tmp_path, "http://x/v1", GRAPHS["a fan"], "number"))
