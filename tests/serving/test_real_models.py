"""The packaged models: their conversion, and (marked `models`) that they speak."""

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
from openai import OpenAI

from tests.support.real import GEMMA, SMOLLM
from ttsgraph.serving import convert


@pytest.fixture
def packaged(tmp_path, monkeypatch):
    """A package that is known and installed, with two small files for weights."""
    folder = tmp_path / "site" / "tiny_weights"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("raise ImportError('its own imports are missing')")
    (folder / "a.part0").write_bytes(b"GG")
    (folder / "a.part1").write_bytes(b"UF")
    info = tmp_path / "site" / "tiny_weights-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.2\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    files = ("tiny_weights/a.part0", "tiny_weights/a.part1")
    monkeypatch.setitem(convert.SOURCES, "tiny_weights", convert.WeightSource(files, "<s>", (1,)))
    return "tiny_weights"


def test_a_converted_folder_is_whole_and_has_its_revision(packaged, tmp_path, monkeypatch):
    written = []

    def write(source: convert.WeightSource, gguf: Path, folder: Path) -> None:
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(b"weights")
        written.append(gguf.read_bytes())
        if len(written) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(convert, "_write_model", write)
    out = tmp_path / "models" / "tiny"
    revision = convert.revision_of(convert.SOURCES[packaged], hashlib.sha256(b"GGUF").hexdigest())
    asked = {"package": packaged, "out": str(out)}
    with pytest.raises(SystemExit, match=f"revision other, found {revision}"):
        convert.main(asked | {"revision": "other"})
    with pytest.raises(KeyboardInterrupt):
        convert.main(asked | {"revision": revision})
    assert list(out.parent.iterdir()) == []
    for _ in range(2):
        convert.main(asked | {"revision": revision})
        assert convert.revision_in(out) == revision
        assert [path.name for path in out.parent.iterdir()] == ["tiny"]
    assert set(written) == {b"GGUF"}


def test_a_revision_depends_on_weights_and_template(packaged):
    source = convert.SOURCES[packaged]
    plain = replace(source, document_start="")
    revisions = {
        convert.revision_of(*each) for each in ((source, "a"), (source, "b"), (plain, "a"))
    }
    assert len(revisions) == 3


def test_a_release_is_found_by_name_in_a_folder_and_known_by_its_bytes(tmp_path, monkeypatch):
    def write(source: convert.WeightSource, gguf: Path, folder: Path) -> None:
        folder.mkdir()

    monkeypatch.setattr(convert, "_write_model", write)
    (tmp_path / "some.gguf").write_bytes(b"GGUF")
    known = hashlib.sha256(b"GGUF").hexdigest()
    asked = {"file": "some.gguf", "folder": str(tmp_path), "out": str(tmp_path / "out")}
    with pytest.raises(SystemExit, match=f"expected sha256 {'0' * 64}, found {known}"):
        convert.main(asked | {"sha256": "0" * 64})
    revision = convert.revision_of(convert.WeightSource(), known)
    convert.main(asked | {"sha256": known, "revision": revision})
    assert convert.revision_in(tmp_path / "out") == revision
    with pytest.raises(SystemExit, match=f"expected other.gguf in {tmp_path}"):
        convert.main(asked | {"sha256": known, "file": "other.gguf"})


@pytest.fixture
def served(real_pool):
    return {
        model: OpenAI(base_url=url, api_key="none", timeout=120)
        for model, (url,) in real_pool.urls.items()
    }


def say(served: dict[str, OpenAI], model: str, prompt: str) -> tuple[str, int]:
    """The model's likeliest continuation of the line, and the prompt's tokens."""
    messages = [{"role": "user", "content": prompt}]
    wanted = {"temperature": 0, "max_tokens": 8, "stop": ["\n"]}
    answer = served[model].chat.completions.create(model=model, messages=messages, **wanted)
    return (answer.choices[0].message.content or "").strip(), answer.usage.prompt_tokens


@pytest.mark.models
@pytest.mark.parametrize("model", [GEMMA, SMOLLM])
def test_a_served_model_speaks_sense(served, model):
    """Fails where the document's start is missing or doubled, or the prompt is in turns."""
    assert say(served, model, "Italy: Rome\nSpain: Madrid\nFrance:")[0] == "Paris"
    sums = "A: 2 + 2 = 4\nA: 5 + 1 = 6\nA: 3 + 4 = 7\nA: 1 + 2 = 3\n"
    assert say(served, model, sums + "A: 4 + 1 =")[0] == "5"


@pytest.mark.models
@pytest.mark.parametrize("model", [GEMMA, SMOLLM])
def test_a_prompt_starts_with_one_document_start(served, model):
    text = "The capital of France is"
    plain = served[model].completions.create(model=model, prompt=text, temperature=0, max_tokens=8)
    chat, tokens = say(served, model, text)
    assert tokens == plain.usage.prompt_tokens == 6
    assert plain.choices[0].text.strip().startswith(chat)
