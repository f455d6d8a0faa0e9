"""What the servers of a profile's models need of GPUs: from the profile, and from weights that are
here."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ttsgraph.base.state import STATE
from ttsgraph.pool.engine import EngineSettings
from ttsgraph.pool.settings import ModelSettings
from ttsgraph.serving.memory import ModelShape, Need, need


def need_of(
    name: str, model: ModelSettings, engine: EngineSettings, state: Path = STATE
) -> Need | tuple[str, ...]:
    """What one server of this model needs of each of its GPUs, or the facts without which that
    can't be said.
    """
    serve = model.serve
    heads = _heads(weights_folder(name, model, state))
    flags = [*serve.extra_args, *engine.extra_args]
    known = {
        "total": model.total,
        "non_embedding": model.non_embedding,
        "layers": model.layers,
        "hidden": model.hidden,
        "serve.kv_heads": serve.kv_heads or heads.get("kv_heads"),
        "serve.head_dim": serve.head_dim or heads.get("head_dim"),
    }
    if missing := tuple(fact for fact, value in known.items() if value is None):
        return missing
    facts: dict[str, Any] = {fact.removeprefix("serve."): value for fact, value in known.items()}
    weight_bytes = 4 if _flag(flags, "--dtype") in ("float32", "float") else 2
    cache_bytes = 1 if _flag(flags, "--kv-cache-dtype").startswith("fp8") else weight_bytes
    shape = ModelShape(**facts, weight_bytes=weight_bytes, cache_bytes=cache_bytes)
    context = serve.max_model_len or engine.max_model_len
    return need(shape, context, engine.concurrency, serve.tensor_parallel)


def _flag(flags: Sequence[str], name: str) -> str:
    """The value of a server's flag, the last one if it stands there twice; nothing without one."""
    found = ""
    for place, word in enumerate(flags):
        if word == name:
            found = "".join(flags[place + 1 : place + 2])
        elif word.startswith(f"{name}="):
            found = word.removeprefix(f"{name}=")
    return found


def _heads(folder: Path | None) -> dict[str, int]:
    """`kv_heads` and `head_dim` as the configuration of weights has them, nothing if it hasn't."""
    try:
        data = json.loads((folder / "config.json").read_text()) if folder is not None else {}
    except (OSError, ValueError):
        return {}
    config = data.get("text_config", data)
    heads = config.get("num_attention_heads")
    hidden = config.get("hidden_size")
    kv_heads = config.get("num_key_value_heads", heads)
    head_dim = config.get("head_dim") or (hidden // heads if hidden and heads else None)
    found = {"kv_heads": kv_heads, "head_dim": head_dim}
    return {name: int(value) for name, value in found.items() if value is not None}


def weights_folder(name: str, model: ModelSettings, state: Path = STATE) -> Path | None:
    """Where the weights of a model are on this disk, if they are."""
    weights = model.weights
    if weights is None:
        return None
    if weights.converted:
        return state / "models" / name
    if weights.path is not None:
        return weights.path
    repository = hub_home() / "hub" / f"models--{str(weights.hub).replace('/', '--')}" / "snapshots"
    if model.revision != "unpinned":
        return repository / model.revision
    return next(iter(sorted(repository.glob("*"))), None)


def hub_home() -> Path:
    """Where the hub's client keeps what it fetched."""
    return Path(os.environ.get("HF_HOME", Path.home() / ".cache" / "huggingface"))
