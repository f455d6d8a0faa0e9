"""Check whether this machine meets the requirements of a profile's local servers."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ttsgraph.base.errors import EndpointError
from ttsgraph.pool.settings import ModelSettings
from ttsgraph.serving.environment import number_format, vllm_build
from ttsgraph.serving.memory import (
    GIB,
    USABLE,
    VALUE_BYTES,
    MemoryNeed,
    facts_of,
    hub_home,
    weights_folder,
)
from ttsgraph.serving.placement import PlacedServer, servers_of
from ttsgraph.serving.running import hosted_model
from ttsgraph.serving.servers import HUB_TOKEN, gpu_memory_gib
from ttsgraph.settings.profile import Profile

SERVER_GIB = 2.0
"""Memory, in GiB, that a CPU server needs in addition to its weights: for activations, runtime and
a small cache.
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of checking one requirement: whether it is met, what was found, and the remedy."""

    subject: str
    ok: bool
    found: str
    advice: str = ""
    """Remedy, if the requirement is not met."""


def examine_servers(profile: Profile, state: Path, python: str) -> Iterator[Finding]:
    """Yield findings about a profile's servers: the serve environment, memory, then weights."""
    yield from _engine(profile, python)
    if profile.engine.device == "gpu":
        yield from _gpu_memory(profile, state, gpu_memory_gib())
    else:
        yield _cpu_memory(profile)
    yield from _weights(profile, state)


def _engine(profile: Profile, python: str) -> Iterator[Finding]:
    try:
        build = vllm_build(python)
    except EndpointError as error:
        yield Finding("serve environment", False, str(error), "run `make setup`")
        return
    wanted = profile.engine.device
    found = f"version {build.version}, built for the {build.device}"
    advice = (
        f"install a vLLM built for the {wanted} into the environment of {python} (docs/vllm.md says"
        " how)"
    )
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

    `gpus` maps each GPU to its memory in GiB. Raises EndpointError if a model needs more GPUs.
    """
    models = {}
    for name, model in profile.hosted.items():
        models[name] = hosted_model(name, model, profile.engine, state)
        facts = facts_of(name, model, state)
        if missing := ", ".join(fact for fact, value in facts.items() if value is None):
            advice = (
                f"set {missing} in the profile's pool, or fetch its weights; until then GPUs are"
                " shared evenly"
            )
            yield Finding(f"memory of {name}", False, f"unknown without {missing}", advice)
    if not gpus:
        total = 0.0
        for hosted in models.values():
            least = min((span * need.total for span, need in hosted.needs.items()), default=0.0)
            total += least * (hosted.replicas or 1)
        advice = (
            f"run on a machine with {total / USABLE:.0f} GiB of NVIDIA GPU memory in all, or"
            " serve the pool elsewhere (base_url)"
        )
        yield Finding("GPU", False, f"none found, servers need about {total:.0f} GiB", advice)
        return
    for server in servers_of(models, gpus):
        hosted = models[server.model]
        if need := hosted.needs.get(len(server.gpus)):
            size = min(gpus[gpu] for gpu in server.gpus)
            context = hosted.serve.max_model_len or profile.engine.max_model_len
            yield _server(server, need, size, context)


def _server(server: PlacedServer, need: MemoryNeed, size: float, context: int) -> Finding:
    """Return a finding: whether a server fits its share of GPUs with `size` GiB, and what its cache
    holds.
    """
    share = server.share * size
    fits = need.total <= share
    requests = max(0.0, (share - need.weights - need.running) / need.cache)
    found = (
        f"{need.weights:.1f} GiB weights + {need.cache:.1f} GiB cache + {need.running:.1f} GiB to"
        f" run {'fit' if fits else 'do not fit'} a share of {share:.1f} GiB on {size:.0f} GiB"
        f" (GPU {', '.join(map(str, server.gpus))}); the cache holds {requests:.1f} requests of"
        f" {context:,} tokens"
    )
    advice = (
        "lower serve.max_model_len, raise serve.tensor_parallel, use larger or more GPUs, or"
        " serve some models elsewhere (base_url)"
    )
    return Finding(f"server {server.title}", fits, found, advice)


def _weights_gib(model: ModelSettings) -> float:
    """Return the size of a model's weights in GiB, or 0 if the number of parameters is unknown."""
    return (model.total or 0.0) * VALUE_BYTES / GIB


def _weights(profile: Profile, state: Path) -> Iterator[Finding]:
    missing_gib = 0.0
    for name, model in profile.hosted.items():
        folder = weights_folder(name, model, state)
        found = str(folder or "not found")
        advice = "run `ttsgraph prepare`, or correct the path in the profile"
        if folder is None and model.weights is not None and model.weights.hub is not None:
            size = _weights_gib(model)
            missing_gib += size
            pinned = "" if model.revision == "unpinned" else f" --revision {model.revision}"
            found = "not in the local hub cache"
            advice = (
                f"`hf download {model.weights.hub}{pinned}` ({size:.1f} GiB; accept the model's"
                " licence on the hub first)"
            )
        yield Finding(f"weights of {name}", folder is not None, found, advice)
    if missing_gib:
        home = hub_home()
        known = any(map(os.environ.get, HUB_TOKEN)) or (home / "token").exists()
        found = "found" if known else "none; gated models need one"
        yield Finding("hub token", known, found, "set HF_TOKEN, or run `hf auth login`")
        there = next(path for path in (home, *home.parents) if path.exists())
        free = shutil.disk_usage(there).free / GIB
        found = f"{free:.0f} GiB free, downloads need {missing_gib:.0f}"
        advice = "free space, or point HF_HOME at a larger disk"
        yield Finding("disk", free > missing_gib, found, advice)
