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
from ttsgraph.serving.memory import GIB, USABLE, VALUE_BYTES, facts_of, hub_home, weights_folder
from ttsgraph.serving.placement import servers_of
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


def _cpu_memory(profile: Profile) -> Iterator[Finding]:
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
    advice = "take models out of the pool, or serve some elsewhere (base_url)"
    yield Finding("memory", needed <= total, found, advice)


def _gpu_memory(profile: Profile, state: Path, gpus: Mapping[int, float]) -> Iterator[Finding]:
    """Yield a finding for each server: whether it fits on its GPUs by vLLM's calculation.

    `gpus` maps each GPU to its memory in GiB.
    """
    engine = profile.engine
    models = {}
    for name, model in profile.hosted.items():
        models[name] = hosted_model(name, model, engine, state)
        facts = facts_of(name, model, state)
        if missing := ", ".join(fact for fact, value in facts.items() if value is None):
            advice = (
                f"set {missing} in the profile's pool, or fetch its weights; until then GPUs are"
                " shared evenly"
            )
            yield Finding(f"memory of {name}", False, f"unknown without {missing}", advice)
    if not gpus:
        least = (
            min((span * need.total for span, need in hosted.needs.items()), default=0.0)
            * (hosted.replicas or 1)
            for hosted in models.values()
        )
        total = sum(least)
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
        hosted = models[server.model]
        if (need := hosted.needs.get(len(server.gpus))) is None:
            continue
        size = min(gpus[gpu] for gpu in server.gpus)
        share = server.share * size
        fits = need.total <= share
        context = hosted.serve.max_model_len or engine.max_model_len
        found = (
            f"{need.weights:.1f} GiB weights + {need.cache:.1f} GiB cache"
            f" + {need.running:.1f} GiB to run {'fit' if fits else 'do not fit'} a share of"
            f" {share:.1f} GiB on {size:.0f} GiB (GPU {', '.join(map(str, server.gpus))})"
        )
        if fits:
            requests = need.requests(share)
            found += f"; the cache holds {requests:.1f} requests of {context:,} tokens"
        advice = (
            "lower serve.max_model_len, raise serve.tensor_parallel, use larger or more GPUs, or"
            " serve some models elsewhere (base_url)"
        )
        yield Finding(f"server {server.title}", fits, found, advice)


def _weights_gib(model: ModelSettings) -> float:
    """Return the size of a model's weights in GiB, or 0 if the number of parameters is unknown."""
    return (model.total or 0.0) * VALUE_BYTES / GIB


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
    if profile.engine.device == "gpu":
        yield from _gpu_memory(profile, state, gpu_memory_gib())
    else:
        yield from _cpu_memory(profile)
    yield from _weights(profile, state)
