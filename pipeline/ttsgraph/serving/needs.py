"""Check whether this machine meets the requirements of a profile's local servers."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ttsgraph.base.errors import EndpointError
from ttsgraph.pool.settings import ModelSettings
from ttsgraph.serving.environment import number_format, vllm_build
from ttsgraph.serving.memory import GIB, VALUE_BYTES, hub_home, weights_folder
from ttsgraph.serving.placement import servers_of
from ttsgraph.serving.running import hosted_model
from ttsgraph.serving.servers import HUB_TOKEN, gpu_memory_gib
from ttsgraph.settings.profile import Profile

SERVER_GIB = 2.0
"""Memory, in GiB, that a CPU server needs in addition to its weights: for activations, runtime and
a small cache.
"""
FIT = (
    "lower serve.max_model_len, raise serve.tensor_parallel, use larger or more GPUs, or serve some"
    " models elsewhere (base_url)"
)
"""Remedy if a server doesn't fit on its GPUs."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of checking one requirement: whether it is met, what was found, and the remedy."""

    subject: str
    ok: bool
    found: str
    advice: str = ""
    """Remedy, if the requirement is not met."""


def examine_servers(profile: Profile, state: Path) -> Iterator[Finding]:
    """Yield findings about a profile's servers: the serve environment, memory, then weights."""
    yield from _engine(profile)
    if profile.engine.device == "gpu":
        yield from _gpu_memory(profile, state, gpu_memory_gib())
    else:
        yield _cpu_memory(profile)
    yield from _weights(profile, state)


def _engine(profile: Profile) -> Iterator[Finding]:
    python, wanted = profile.engine.python, profile.engine.device
    try:
        build = vllm_build(python)
    except EndpointError as error:
        yield Finding("serve environment", False, str(error), "run `make setup`")
        return
    found = f"version {build.version}, built for the {build.device}"
    advice = f"install a vLLM built for the {wanted} for {python}, as docs/vllm.md says"
    yield Finding("vLLM", wanted in ("auto", build.device), found, advice)
    if build.device == "cpu":
        yield Finding("number format", True, ": ".join(number_format()))


def _cpu_memory(profile: Profile) -> Finding:
    size = 2 if number_format()[0] == "float32" else 1
    needed = sum(
        (size * _weights_gib(model) + SERVER_GIB) * (model.serve.replicas or 1)
        for model in profile.hosted.values()
    )
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
    found = f"{total:.0f} GiB, servers need about {needed:.0f}"
    advice = "take models out of the pool, or serve some elsewhere (base_url)"
    return Finding("memory", needed <= total, found, advice)


def _gpu_memory(profile: Profile, state: Path, gpus: Mapping[int, float]) -> Iterator[Finding]:
    """Yield a finding for each server: whether it fits on its GPUs by vLLM's calculation.

    `gpus` maps each GPU to its memory in GiB.
    """
    if not gpus:
        yield Finding("GPU", False, "none found", "use a machine with GPUs, or set base_url")
        return
    models = {n: hosted_model(n, m, profile.engine, state) for n, m in profile.hosted.items()}
    try:
        servers = servers_of(models, gpus)
    except EndpointError as error:
        yield Finding("memory", False, str(error), "correct the profile's pool, or use more GPUs")
        return
    for server in servers:
        hosted = models[server.model]
        need = hosted.needs[len(server.gpus)]
        share = server.share * min(gpus[gpu] for gpu in server.gpus)
        fits = need.total <= share
        requests = max(0.0, (share - need.weights - need.running) / need.cache)
        context = hosted.serve.max_model_len or profile.engine.max_model_len
        found = (
            f"{need.weights:.1f} GiB weights + {need.cache:.1f} GiB cache +"
            f" {need.running:.1f} GiB to run {'fit' if fits else 'do not fit'} a share of"
            f" {share:.1f} GiB (GPU {', '.join(map(str, server.gpus))}); the cache holds"
            f" {requests:.1f} requests of {context:,} tokens"
        )
        yield Finding(f"server {server.title}", fits, found, FIT)


def _weights_gib(model: ModelSettings) -> float:
    """Return the size of a model's weights in GiB, or 0 if the number of parameters is unknown."""
    return (model.total or 0.0) * VALUE_BYTES / GIB


def _weights(profile: Profile, state: Path) -> Iterator[Finding]:
    gated = False
    for name, model in profile.hosted.items():
        folder = weights_folder(name, model, state)
        found = str(folder or "not found")
        advice = "run `ttsgraph prepare`, or correct the path in the profile"
        if folder is None and model.weights is not None and model.weights.hub is not None:
            gated = True
            pinned = "" if model.revision == "unpinned" else f" --revision {model.revision}"
            found = "not in the local hub cache"
            advice = (
                f"`hf download {model.weights.hub}{pinned}` ({_weights_gib(model):.1f} GiB; accept"
                " the model's licence on the hub first)"
            )
        yield Finding(f"weights of {name}", folder is not None, found, advice)
    if gated:
        known = any(map(os.environ.get, HUB_TOKEN)) or (hub_home() / "token").exists()
        found = "found" if known else "none; gated models need one"
        yield Finding("hub token", known, found, "set HF_TOKEN, or run `hf auth login`")
