"""A found graph as a file: with the same replies, the executor's answer after the same calls."""

import asyncio
import hashlib
import json
import re
import runpy
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.cli import done
from tests.support.running import branches
from tests.support.stub_server import StubServer, serve
from ttsgraph.api.export import export
from ttsgraph.api.given import TASK, profile_of
from ttsgraph.base.errors import InputError
from ttsgraph.deployment.bundle import DeployedVersion
from ttsgraph.graphs import topologies
from ttsgraph.graphs.graph import CollaborationGraph, Node
from ttsgraph.graphs.stopping import Gate, Stop
from ttsgraph.scaffold.cells import json_lines
from ttsgraph.tasks.base import TASKS
from ttsgraph.tasks.words import ExactTask

QUESTIONS = [f"What is thing {k}?" for k in range(4)]


class Telling(StubServer):
    """Its reply follows from all that it is asked; of a question alone it is one of two."""

    def completion(self, body, count):
        made = super().completion(body, count)
        asked = [body["model"], body["messages"], body.get("temperature"), body.get("max_tokens")]
        digest = hashlib.sha256(json.dumps([asked, body.get("stop")]).encode()).hexdigest()
        said = digest[:6] if len(body["messages"][-1]["content"]) > 40 else str(int(digest, 16) % 2)
        text = f"<think>Answer: 9</think>I think.\nAnswer: {said}\nENDS here"
        message = made["choices"][0]["message"]
        message["content"] = f"{text}<|im_end|>"
        if body["model"] == "c":
            thought = {"type": "thinking", "thinking": [{"type": "text", "text": "Answer: 9"}]}
            message["content"] = [thought, {"type": "text", "text": text}]
        elif body["model"] == "b" and int(digest, 16) % 3:
            message |= {"content": None, "reasoning_content": f"Answer: {said}"}
        return made


def deployed(folder: Path, url: str, graph: CollaborationGraph) -> DeployedVersion:
    rows = [{"question": f"q{k}?", "answer": f"{k}"} for k in range(20)]
    (folder / "qa.jsonl").write_text(json_lines(rows))
    variants = {"curt": {"temperature": 0.0, "stop": ["ENDS"], "instruction": "Be curt."}}
    shared = {"base_url": url, "price": 1.0}
    models = {
        "a": shared | {"variants": variants},
        "b": shared,
        "c": shared | {"extra_body": {"top_k": 5}},
    }
    return DeployedVersion(TASK, graph, profile_of(models, folder / "qa.jsonl", "exact", "$1"))


def changed(made: DeployedVersion, **changes: object) -> DeployedVersion:
    """The same with other settings of its task."""
    task = made.profile.task(TASK).model_copy(update=changes)
    return replace(made, profile=made.profile.model_copy(update={"tasks": {TASK: task}}))


def votes(models: list[str], rule: Stop, waves: tuple[int, ...]) -> CollaborationGraph:
    nodes = [Node(k, "assistant", model) for k, model in enumerate(models)]
    sink = Node(len(models), "voter", models[0], stop=rule, waves=waves)
    return CollaborationGraph((*nodes, sink), tuple((k, sink.id) for k in range(len(models))))


def gated(over: float, role: str) -> CollaborationGraph:
    """Two cheap answers; where they differ, a third and, of all, one; then a check of that."""
    nodes = [Node(k, "assistant", model) for k, model in enumerate("abc")]
    nodes += [Node(3, role, "b", gate=Gate(over, (0, 1))), Node(4, "assistant", "a:curt")]
    return CollaborationGraph(tuple(nodes), ((0, 3), (1, 3), (2, 3), (3, 4)))


GRAPHS = {
    "one call": topologies.single("a:curt"),
    "a vote": topologies.parallel(["a", "c", "b"], "b", "voter"),
    "a fan": topologies.parallel(["a", "b"], "b", "fuser"),
    "chains that vote": branches([["a", "b"], ["b", "c"]], "a", "voter"),
    "a vote in waves": votes(["a", "b", "c", "a:curt", "b"], Stop("lossless"), (2, 1)),
    "a sure vote": votes(["a", "b", "c", "a:curt", "b"], Stop("beta", 0.8), (1,)),
    "a gate": gated(0.3, "fuser"),
    "a gate with a vote": gated(0.3, "voter"),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_the_file_answers_as_the_executor_does(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    stub = Telling(("a", "b", "c"))
    with serve(stub) as url:
        made = deployed(tmp_path, url, GRAPHS[name])
        Path("answers.py").write_text(export(made))
        assert not re.search("^(import|from) ttsgraph", export(made), re.MULTILINE)
        answer = runpy.run_path("answers.py")["answer"]
        told = [asyncio.run(answer(question)) for question in QUESTIONS]
        calls = len(stub.requests)
        wanted = [asyncio.run(made.answer(q)) for q in QUESTIONS]
    assert told == [str(answer.text) for answer in wanted]
    assert calls == sum(answer.usage.calls for answer in wanted)
    if name in ("a vote in waves", "a sure vote", "a gate"):  # which ask for less at times
        assert calls < len(QUESTIONS) * sum(node.role != "voter" for node in made.graph.nodes)


HARM = "open('harm', 'w').close()"
HOSTILE = (
    f'"""\n{HARM}\n"""',
    f"''')\n{HARM}\nr'''",
    f"{{% set x = {HARM} %}}",
    f"\r{HARM}\u2028{HARM}",
)


@pytest.mark.parametrize("text", HOSTILE)
def test_what_a_bundle_says_is_data_and_never_code(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = deployed(tmp_path, "http://x/v1", GRAPHS["a fan"])
    settings = made.profile.task(TASK)
    prompt = settings.prompt.model_copy(update={"instruction": text})
    tasks = {text: settings.model_copy(update={"prompt": prompt})}
    pool = {
        name: model.model_copy(update={"served_as": text, "extra_body": {text: text}})
        for name, model in made.profile.pool.items()
    }
    profile = made.profile.model_copy(update={"tasks": tasks, "pool": pool})
    (tmp_path / "answers.py").write_text(export(replace(made, task=text, profile=profile)))
    scope = runpy.run_path("answers.py")
    assert not (tmp_path / "harm").exists()
    assert text in {node["instruction"] for node in scope["NODES"].values()}


@pytest.mark.parametrize("kind", ["exact", "math", "json", "choice"])
def test_the_command_writes_how_a_kind_reads_replies(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("found").mkdir()
    changed(deployed(tmp_path, "http://x/v1", GRAPHS["a vote"]), kind=kind).write(Path("found"))
    done("export", "found", "--out", "answers.py")
    extract = runpy.run_path("answers.py")["extract"]
    for reply in ("So.\nAnswer: 1,200", '{"a": [1]} or {"b": 2}', "The answer is (B).", "no", ""):
        assert extract(reply) == TASKS[kind].extract(reply)


class Otherwise(ExactTask):
    name = "otherwise"

    def extract(self, text: str) -> str | None:
        return text[:1] or None


def test_what_one_file_cannot_hold_is_named(tmp_path, monkeypatch):
    made = deployed(tmp_path, "http://x/v1", GRAPHS["a vote"])
    for task in (Otherwise(), TASKS["regex"], TASKS["calculation"]):
        monkeypatch.setitem(TASKS, task.name, task)
        with pytest.raises(InputError, match=f"kind {task.name}"):
            export(changed(made, kind=task.name))
    assert export(changed(replace(made, graph=GRAPHS["a fan"]), kind="regex"))
    for role in ("judge", "verifier", "weighted"):
        with pytest.raises(InputError, match=f"found {role}; serve"):
            export(replace(made, graph=topologies.parallel(["a", "b"], "b", role)))
    few = made.profile.task(TASK).prompt.model_copy(update={"style": "few_shot"})
    with pytest.raises(InputError, match="few_shot"):
        export(changed(made, prompt=few))
