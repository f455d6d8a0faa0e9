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
from ttsgraph.serving.memory import GIB, USABLE, MemoryNeed, hub_home, needs_of, weights_folder
from ttsgraph.serving.placement import HostedModel, PlacedServer, servers_of
from ttsgraph.serving.servers import HUB_TOKEN, gpu_memory_gib
from ttsgraph.settings.profile import Profile

BYTES_PER_PARAMETER = 2
"""Bytes per parameter of weights as they are stored, and served on GPUs: in bfloat16."""

SERVER_GIB = 2.0
"""Memory, in GiB, that a CPU server needs in addition to its weights: for activations, runtime and
a small cache.
"""

_ELSEWHERE = "take models out of the pool, or serve some elsewhere (base_url)"


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of checking one requirement: whether it is met, what was found, and the remedy."""

    subject: str
    ok: bool
    found: str
    advice: str = ""
    """Remedy; empty if the requirement is met."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "advice", "" if self.ok else self.advice)


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
        dtype = number_format()
        yield Finding("number format", True, f"{dtype.name}: {dtype.why}")


def _memory(profile: Profile, state: Path) -> Iterator[Finding]:
    """Yield findings about the memory for servers, either of the GPUs or of this machine."""
    if profile.engine.device == "gpu":
        yield from _gpus(profile, state, gpu_memory_gib())
        return
    if unsized := [name for name, model in profile.hosted.items() if model.total is None]:
        advice = "set their numbers of parameters (`total`) in the profile's pool"
        yield Finding("memory", False, f"unknown for {', '.join(unsized)}", advice)
        return
    size = 2 if number_format().name == "float32" else 1
    needed = sum(
        (size * _weights_gib(model) + SERVER_GIB) * (model.serve.replicas or 1)
        for model in profile.hosted.values()
    )
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
    found = f"{total:.0f} GiB, servers need about {needed:.0f}"
    yield Finding("memory", needed <= total, found, _ELSEWHERE)


def _gpus(profile: Profile, state: Path, gpus: Mapping[int, float]) -> Iterator[Finding]:
    """Yield a finding for each server (whether it fits on its GPUs by vLLM's calculation), then a
    finding for each GPU.

    `gpus` maps each GPU to its memory in GiB.
    """
    models = {}
    for name, model in profile.hosted.items():
        needs = needs_of(name, model, profile.engine, state)
        if not isinstance(needs, dict):
            found = f"unknown without {', '.join(needs)}"
            advice = (
                f"set {', '.join(needs)} in the profile's pool, or fetch its weights; until then"
                " GPUs are shared evenly"
            )
            yield Finding(f"memory of {name}", False, found, advice)
            needs = {}
        models[name] = HostedModel(name, model.serve, needs=needs, load=model.non_embedding or 0.0)
    if not gpus:
        total = sum(
            min((span * need.total for span, need in hosted.needs.items()), default=0.0)
            * (hosted.replicas or 1)
            for hosted in models.values()
        )
        advice = (
            f"run on a machine with {total / USABLE:.0f} GiB of NVIDIA GPU memory in all, or"
            " serve the pool elsewhere (base_url)"
        )
        yield Finding("GPU", False, f"none found, servers need about {total:.0f} GiB", advice)
        return
    try:
        servers = servers_of(models, gpus)
    except EndpointError as error:
        advice = "lower tensor_parallel, or use a machine with more GPUs"
        yield Finding("GPU", False, str(error), advice)
        return
    for server in servers:
        if (wanted := models[server.model].needs.get(len(server.gpus))) is not None:
            context = models[server.model].serve.max_model_len or profile.engine.max_model_len
            yield _server(server, wanted, min(gpus[gpu] for gpu in server.gpus), context)
    work = {gpu: sum(one.load for one in servers if gpu in one.gpus) for gpu in gpus}
    busiest = max(work.values()) if len(gpus) > 1 else 0.0
    for gpu, size in gpus.items():
        here = [one for one in servers if gpu in one.gpus]
        needs_here = [models[one.model].needs.get(len(one.gpus)) for one in here]
        taken = sum(need.total for need in needs_here if need is not None)
        done = f"; {work[gpu] / busiest:.0%} of the busiest GPU's load" if busiest else ""
        found = f"{size:.0f} GiB, its servers need about {taken:.0f}{done}"
        advice = f"use larger or more GPUs, {_ELSEWHERE}"
        yield Finding(f"GPU {gpu}", taken <= USABLE * size, found, advice)


def _server(server: PlacedServer, wanted: MemoryNeed, size: float, context: int) -> Finding:
    share = server.share * size
    fits = wanted.total <= share
    found = (
        f"{wanted.weights:.1f} GiB weights + {wanted.cache:.1f} GiB cache"
        f" + {wanted.running:.1f} GiB to run {'fit' if fits else 'do not fit'} a share of"
        f" {share:.1f} GiB on {size:.0f} GiB (GPU {', '.join(map(str, server.gpus))})"
    )
    if fits:
        found += f"; the cache holds {wanted.requests(share):.1f} requests of {context:,} tokens"
    advice = "lower serve.max_model_len, raise serve.tensor_parallel, or use larger GPUs"
    if wanted.total <= USABLE * size:
        advice = f"it would fit with this GPU to itself: {_ELSEWHERE}"
    return Finding(f"server {server.title}", fits, found, advice)


def _weights_gib(model: ModelSettings) -> float:
    """Return the size of a model's weights in GiB, or 0 if the number of parameters is unknown."""
    return (model.total or 0.0) * BYTES_PER_PARAMETER / GIB


def _weights(profile: Profile, state: Path) -> Iterator[Finding]:
    missing_gib = 0.0
    for name, model in profile.hosted.items():
        subject = f"weights of {name}"
        if (folder := weights_folder(name, model, state)) is not None:
            yield Finding(subject, True, str(folder))
        elif model.weights is not None and model.weights.hub is not None:
            size = _weights_gib(model)
            missing_gib += size
            pinned = "" if model.revision == "unpinned" else f" --revision {model.revision}"
            advice = (
                f"`hf download {model.weights.hub}{pinned}` ({size:.1f} GiB; accept the model's"
                " licence on the hub first)"
            )
            yield Finding(subject, False, "not in the local hub cache", advice)
            if not pinned:
                advice = "pin a commit of the hub's repository as its revision"
                yield Finding(f"revision of {name}", False, "unpinned", advice)
        else:
            advice = "run `ttsgraph prepare`, or correct the path in the profile"
            yield Finding(subject, False, "not found", advice)
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


def examine_servers(profile: Profile, state: Path, python: str) -> Iterator[Finding]:
    """Yield findings about a profile's servers: the serve environment, memory, then weights."""
    yield from _engine(profile, python)
    yield from _memory(profile, state)
    yield from _weights(profile, state)
