"""What a profile needs of this machine and of its endpoints, what of it is missing, and how to get
it.

Looks, asks each model behind an endpoint one short question, and changes nothing but what is known
of endpoints.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ttsgraph.base.errors import EndpointError
from ttsgraph.base.state import STATE
from ttsgraph.pool.settings import ModelSettings
from ttsgraph.runtime.reach import Finding as Finding
from ttsgraph.runtime.reach import finding, reach
from ttsgraph.serving.environment import number_format, run_serving, vllm_build
from ttsgraph.serving.memory import GIB, USABLE, Need, hub_home, needs_of, weights_folder
from ttsgraph.serving.servers import SERVE_PYTHON, Hosted, ServerSlot, gpu_memory_gib, slots
from ttsgraph.settings.profile import Profile
from ttsgraph.tasks import get_task
from ttsgraph.tasks.base import CodeTask
from ttsgraph.tasks.programs import missing_layers

BYTES_PER_PARAMETER = 2
"""Weights are kept, and served on GPUs, as bfloat16."""

TOLERANCES = {"total": 1e-3, "non_embedding": 1e-3, "layers": 0.0, "hidden": 0.0}
"""How far a profile's facts may be from those of the weights, as shares."""

SERVER_GIB = 2.0
"""Of a server on the CPU beside its weights: activations, runtime, a cache for few prompts."""


def examine(profile: Profile, state: Path = STATE, python: str | None = None) -> list[Finding]:
    """Everything the profile needs, in the order in which a run would miss it."""
    findings: list[Finding] = []
    python = python or profile.engine.python
    if profile.hosted:
        findings += _engine(profile, state, python)
        findings += _memory(profile, state)
        findings += _weights(profile, state)
        findings += _facts(profile, state, python)
    findings += _keys(profile)
    findings += reach(profile, state)
    findings += _sources(profile)
    findings += _isolation(profile)
    return findings


def in_lines(
    findings: Sequence[Finding], estimates: Sequence[Mapping[str, Any]], unknown: Sequence[str]
) -> Iterator[str]:
    """Findings, what runs take, and why that is not known of others, a line each."""
    for one in findings:
        todo = f"; {one.advice}" if one.advice else ""
        yield f"{'ok     ' if one.ok else 'MISSING'}  {one.subject}: {one.found}{todo}"
    for why in unknown:
        yield f"unknown  what a run takes: {why}"
    for run in estimates:
        hours = "unknown" if run["seconds"] is None else f"{run['seconds'] / 3600:.1f} h"
        agent = (
            f" and ${run['agent']['dollars']:,.2f} for the agent" if run["agent"]["calls"] else ""
        )
        yield (
            f"about    {run['task']}: {run['calls']['total']:,} calls,"
            f" ${run['dollars']:,.2f}{agent}, time {hours};"
            f" of it ttsgraph run about ${run['expected']['dollars']:,.2f}"
        )


def _engine(profile: Profile, state: Path, python: str) -> Iterator[Finding]:
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
    yield finding("vLLM", wanted in ("auto", build.device), found, advice)
    if build.device == "cpu":
        dtype = number_format(profile.engine.dtype, python, state)
        yield Finding("number format", True, f"{dtype.name}: {dtype.why}")


def _memory(profile: Profile, state: Path) -> Iterator[Finding]:
    """Memory for the weights, on the GPUs or on this machine, as the launcher would spread them."""
    if profile.engine.device == "gpu":
        yield from _gpus(profile, state, gpu_memory_gib())
        return
    if unsized := [name for name, model in profile.hosted.items() if model.total is None]:
        advice = "give their parameters (total) in the profile's pool"
        yield Finding("memory", False, f"unknown for {', '.join(unsized)}", advice)
        return
    dtype = number_format(profile.engine.dtype, profile.engine.python, state)
    size = 2 if dtype.name == "float32" else 1
    replicas = sum(
        (size * weights_gib(model) + SERVER_GIB) * (model.serve.replicas or 1)
        for model in profile.hosted.values()
    )
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
    found = f"{total:.0f} GiB, servers need about {replicas:.0f}"
    advice = "take models out of the pool, or serve some elsewhere (base_url)"
    yield finding("memory", replicas <= total, found, advice)


def _gpus(profile: Profile, state: Path, gpus: Mapping[int, float]) -> Iterator[Finding]:
    """Each server on its GPU's memory by vLLM's arithmetic, then each GPU; `gpus` are GiB."""
    models = {}
    for name, model in profile.hosted.items():
        needs = needs_of(name, model, profile.engine, state)
        if not isinstance(needs, dict):
            facts = ", ".join(needs)
            advice = (
                f"give {facts} in the profile's pool, or fetch its weights; until then GPUs are"
                " shared evenly"
            )
            yield Finding(f"memory of {name}", False, f"unknown without {facts}", advice)
            needs = {}
        load = model.non_embedding or 0.0
        models[name] = Hosted(name, model.serve, needs=needs, load=load)
    if not gpus:
        total = 0.0
        for hosted in models.values():
            span, least = next(iter(hosted.needs.items()), (0, None))
            total += span * (hosted.replicas or 1) * (least.total if least else 0.0)
        advice = (
            f"run on a machine with NVIDIA GPUs of {total / USABLE:.0f} GiB in all, or serve the"
            " pool elsewhere (base_url)"
        )
        yield Finding("GPU", False, f"none, servers need about {total:.0f} GiB", advice)
        return
    try:
        servers = slots(models, gpus)
    except EndpointError as error:
        advice = "lower tensor_parallel, or use a machine with more GPUs"
        yield Finding("GPU", False, str(error), advice)
        return
    taken = dict.fromkeys(gpus, 0.0)
    work = dict.fromkeys(gpus, 0.0)
    for slot in servers:
        wanted = slot.hosted.needs.get(len(slot.gpus))
        for gpu in slot.gpus:
            taken[gpu] += wanted.total if wanted else 0.0
            work[gpu] += slot.load
        if wanted is not None:
            context = slot.hosted.serve.max_model_len or profile.engine.max_model_len
            yield _server(slot, wanted, min(gpus[gpu] for gpu in slot.gpus), context)
    busiest = max(work.values()) if len(gpus) > 1 else 0.0
    for gpu, size in gpus.items():
        done = f", and do {work[gpu] / busiest:.0%} of what the busiest ones do" if busiest else ""
        yield finding(
            f"GPU {gpu}",
            taken[gpu] <= USABLE * size,
            f"{size:.0f} GiB, its servers need about {taken[gpu]:.0f}{done}",
            "use larger or more GPUs, take models out of the pool, or serve some elsewhere"
            " (base_url)",
        )


def _server(slot: ServerSlot, wanted: Need, size: float, context: int) -> Finding:
    share = slot.gpu_memory * size
    where = ", ".join(map(str, slot.gpus))
    told = f"a share of {share:.1f} GiB on {size:.0f} GiB (GPU {where})"
    if wanted.total <= share:
        room = f"the cache holds {wanted.requests(share):.1f} requests of {context:,} tokens"
        return Finding(f"server {slot.title}", True, f"{wanted.words} fit {told}; {room}")
    alone = wanted.total <= USABLE * size
    advice = (
        "alone on this GPU it would fit: take models out of the pool, or serve some elsewhere"
        " (base_url)"
        if alone
        else "lower serve.max_model_len, spread it (serve.tensor_parallel), or use larger GPUs"
    )
    return Finding(f"server {slot.title}", False, f"{wanted.words} do not fit {told}", advice)


def weights_gib(model: ModelSettings) -> float:
    """What a model's weights take; 0 where the profile does not say how many parameters it has."""
    return (model.total or 0.0) * BYTES_PER_PARAMETER / GIB


def _weights(profile: Profile, state: Path) -> Iterator[Finding]:
    missing_gib = 0.0
    for name, model in profile.hosted.items():
        size = weights_gib(model)
        folder = weights_folder(name, model, state)
        if folder is not None and (folder / "config.json").exists():
            yield Finding(f"weights of {name}", True, str(folder))
        elif model.weights is not None and model.weights.hub is not None:
            missing_gib += size
            pinned = "" if model.revision == "unpinned" else f" --revision {model.revision}"
            advice = (
                f"`hf download {model.weights.hub}{pinned}` ({size:.1f} GiB; accept the model's"
                " licence on the hub first)"
            )
            yield Finding(f"weights of {name}", False, "not in the hub's cache here", advice)
            if not pinned:
                advice = "pin a commit of the hub's repository as its revision"
                yield Finding(f"revision of {name}", False, "unpinned", advice)
        else:
            advice = "run `ttsgraph prepare`, or correct the path in the profile"
            yield Finding(f"weights of {name}", False, "not there", advice)
    if missing_gib:
        known = (
            any(os.environ.get(key) for key in ("HF_TOKEN", "HF_TOKEN_PATH"))
            or hub_home().joinpath("token").exists()
        )
        found = "found" if known else "none; gated models need one"
        yield finding("hub token", known, found, "set HF_TOKEN, or run `hf auth login`")
        home = hub_home()
        there = next(path for path in (home, *home.parents) if path.exists())
        free = shutil.disk_usage(there).free / GIB
        found = f"{free:.0f} GiB free, downloads need {missing_gib:.0f}"
        advice = "free space, or point HF_HOME at a larger disk"
        yield finding("disk", free > missing_gib, found, advice)


def _facts(profile: Profile, state: Path, python: str) -> Iterator[Finding]:
    """The profile's facts against the configurations of the weights that are here."""
    here = {}
    for name, model in profile.hosted.items():
        folder = weights_folder(name, model, state)
        if folder is not None and (folder / "config.json").exists():
            here[name] = folder
    if not here or not Path(python).exists():
        return
    counted = count_parameters(list(here.values()), python)
    for name, found in zip(here, counted, strict=True):
        wrong = differences(profile.hosted[name], found)
        found_so = "; ".join(wrong) or "as configured"
        yield finding(f"facts of {name}", not wrong, found_so, "correct the profile")


def count_parameters(paths: list[Path], python: str = SERVE_PYTHON) -> list[dict[str, int]]:
    """Layers, hidden, total and non_embedding of each configuration, counted in the serve
    environment. Raises EndpointError when that fails.
    """
    command = ["count_parameters.py", *map(str, paths)]
    found = run_serving(python, command, "counting parameters failed: ")
    return [json.loads(line) for line in found]


def differences(model: ModelSettings, found: Mapping[str, int]) -> list[str]:
    """Where the profile's facts are off from the counted ones: sizes by more than 0.1 %, layers and
    hidden at all.

    Facts that the profile does not give can't be wrong.
    """
    wrong = []
    for key, tolerance in TOLERANCES.items():
        said = getattr(model, key)
        if said is not None and abs(said - found[key]) > tolerance * found[key]:
            wrong.append(f"{key}: the profile says {said:g}, its configuration {found[key]:g}")
    return wrong


def _keys(profile: Profile) -> Iterator[Finding]:
    named = {model.api_key_env for model in profile.pool.values()} | {profile.agent.api_key_env}
    for name in sorted(name for name in named if name):
        ok = bool(os.environ.get(name))
        yield finding(f"key {name}", ok, "set" if ok else "not set", f"export {name}=...")


def _sources(profile: Profile) -> Iterator[Finding]:
    for task, settings in profile.tasks.items():
        source = settings.source
        for part in source.parts if source.kind == "mixture" else (source,):
            if part.kind == "jsonl":
                found = str(part.path)
                ok = part.path.exists()
                advice = "put the file there, or correct source.path"
            elif part.kind == "hf":
                folder = hub_home() / "hub" / f"datasets--{part.path.replace('/', '--')}"
                ok = folder.exists()
                found = str(folder) if ok else "not in the hub's cache here"
                advice = (
                    "the sample stage fetches it, given a network; or `hf download --repo-type"
                    f" dataset {part.path}`"
                )
            else:
                continue
            yield finding(f"questions of {task}", ok, found, advice)


def _isolation(profile: Profile) -> Iterator[Finding]:
    """Whether programs that models write can be isolated, where a task runs some."""
    if not any(
        isinstance(get_task(settings.kind), CodeTask) for settings in profile.tasks.values()
    ):
        return
    missing = missing_layers()
    found = (
        "; ".join(f"{layer}: {why}" for layer, why in missing.items()) or "files and system calls"
    )
    advice = (
        "Linux 5.13 or later with Landlock, and libseccomp (libseccomp2); or accept limits alone:"
        " sandbox.accept_weaker: true"
    )
    yield finding("isolation of programs", not missing, found, advice)
