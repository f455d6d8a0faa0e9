"""GPU memory that a vLLM server needs, computed as vLLM computes it.

vLLM claims the share `gpu_memory_utilization` of a GPU's memory, and refuses to start if less is
free. It subtracts weights, runtime and the measured peak of activations, and uses the rest as its
cache of keys and values. The cache must hold one request of the longest context and one more block.
"""

import math
import os
from dataclasses import dataclass
from pathlib import Path

from ttsgraph.base.state import STATE
from ttsgraph.pool.engine import EngineSettings
from ttsgraph.pool.settings import ModelSettings
from ttsgraph.pool.spec import FACTS

GIB = 2**30
USABLE = 0.9
"""Share of a GPU's memory that all its servers together may use."""

VALUE_BYTES = 2
"""Bytes per parameter of weights, and per number in the cache: in bfloat16."""

BLOCK = 16
"""Number of tokens in a cache block: vLLM's default on GPUs."""

BATCHED_TOKENS = 8192
"""Maximum number of tokens in one step: vLLM's default on large GPUs, lower on small ones."""

RUNTIME_GIB = 1.0
"""Memory, in GiB, for CUDA's context and libraries, and for captured graphs."""


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """Minimum memory of a server on each of its GPUs, in GiB.

    `cache` is for one request of the longest context, `running` for activations and runtime.
    """

    weights: float
    running: float
    cache: float

    @property
    def total(self) -> float:
        """Total memory, in GiB, for weights, activations, runtime and cache."""
        return self.weights + self.running + self.cache


SPANS = (1, 2, 4, 8)
"""Numbers of GPUs per server to try if the profile doesn't set one."""


def needs_of(model: ModelSettings, engine: EngineSettings) -> dict[int, MemoryNeed]:
    """Return a map from the number of GPUs per server to a server's memory need on each GPU; empty
    if one of the model's FACTS is unknown.
    """
    facts = [getattr(model, fact) for fact in FACTS]
    if None in facts:
        return {}
    total, non_embedding, layers, hidden = facts
    kv_heads, head_dim = hidden, 1  # an upper bound: keys and values as wide as the model
    if model.serve.kv_heads and model.serve.head_dim:
        kv_heads, head_dim = model.serve.kv_heads, model.serve.head_dim
    blocks = math.ceil((model.serve.max_model_len or engine.max_model_len) / BLOCK) + 1
    # An upper bound: as if all parameters except embeddings were in gated feed-forward layers.
    inner = non_embedding / layers / (3 * hidden)
    vocabulary = (total - non_embedding) / hidden
    logits = 3 * 4 * engine.concurrency * vocabulary  # float32, and two copies for sampling

    def need(gpus: int) -> MemoryNeed:
        held = math.ceil(kv_heads / gpus)  # a head stays on one GPU
        token_bytes = 2 * layers * held * head_dim * VALUE_BYTES  # times 2: keys and values
        step = BATCHED_TOKENS * (3 * inner / gpus + 4 * hidden) * VALUE_BYTES
        weights = total * VALUE_BYTES / gpus / GIB
        cache = blocks * BLOCK * token_bytes / GIB
        return MemoryNeed(weights, RUNTIME_GIB + (step + logits) / GIB, cache)

    spans = SPANS if model.serve.tensor_parallel is None else (model.serve.tensor_parallel,)
    return {span: need(span) for span in spans}


def weights_folder(name: str, model: ModelSettings, state: Path = STATE) -> Path | None:
    """Return the local folder of a model's weights, or None if they aren't on this machine."""
    weights = model.weights
    if weights is None:
        return None
    folders = [state / "models" / name if weights.converted else weights.path]
    if weights.hub is not None:
        hub = f"models--{weights.hub.replace('/', '--')}"
        pattern = "*" if model.revision == "unpinned" else model.revision
        folders = [*sorted((hub_home() / "hub" / hub / "snapshots").glob(pattern))]
    return next((each for each in folders if each and (each / "config.json").exists()), None)


def hub_home() -> Path:
    """Return the folder in which the hub's client stores downloads and the token."""
    return Path(os.environ.get("HF_HOME", Path.home() / ".cache" / "huggingface"))
