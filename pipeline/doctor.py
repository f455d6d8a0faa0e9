"""What a profile needs of this machine, what of it is missing, and how to get it. Looks, and changes nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import EndpointError
from pipeline.models.builds import vllm_build
from pipeline.models.servers import SERVE_PYTHON, Hosted, gpu_memory_gib, served_models, slots
from pipeline.settings import ModelSettings, Profile
from pipeline.state import STATE
from pipeline.tasks import get_task
from pipeline.tasks.base import CodeTask
from pipeline.tasks.sandbox import missing_layers
from pipeline.tasks.sources import Part

GIB = 2**30
BYTES_PER_PARAMETER = 2
"""Weights are served as bfloat16."""

SERVER_GIB = 2.0
"""What a server takes beside its weights at the least: activations, its runtime, and keys and values for a few prompts."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing a profile needs: whether it is there, what was found, and what to do about it if not."""

    subject: str
    ok: bool
    found: str
    advice: str = ""


def examine(profile: Profile, state: Path = STATE, python: str = SERVE_PYTHON) -> list[Finding]:
    """Everything the profile needs, in the order in which a run would miss it."""
    findings: list[Finding] = []
    if profile.engine.kind in ("vllm", "transformers"):
        findings += _engine(profile, python)
        findings += _memory(profile)
        findings += _weights(profile, state)
        findings += _facts(profile, state, python)
    findings += _keys(profile)
    findings += _endpoints(profile)
    findings += _sources(profile)
    findings += _isolation(profile)
    return findings


def _engine(profile: Profile, python: str) -> Iterator[Finding]:
    try:
        build = vllm_build(python)
    except EndpointError as error:
        yield Finding("serve environment", False, str(error), "run `make setup`")
        return
    wanted = profile.engine.device
    ok = wanted in ("auto", build.device)
    advice = "" if ok else f"install a vLLM built for the {wanted} into the environment of {python} (docs/vllm.md says how)"
    yield Finding("vLLM", ok, f"version {build.version}, built for the {build.device}", advice)


def _memory(profile: Profile) -> Iterator[Finding]:
    """Memory for the weights, on the GPUs or on this machine, as the launcher would spread them."""
    needs = {name: model.total * BYTES_PER_PARAMETER / GIB + SERVER_GIB for name, model in profile.pool.items()}
    replicas = sum(needs[name] * model.serve.replicas for name, model in profile.pool.items())
    if profile.engine.device != "gpu":
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
        advice = "" if replicas <= total else "take models out of the pool, or serve some elsewhere (base_url)"
        yield Finding("memory", replicas <= total, f"{total:.0f} GiB, servers need about {replicas:.0f}", advice)
        return
    gpus = gpu_memory_gib()
    if not gpus:
        advice = f"run on a machine with NVIDIA GPUs of {replicas:.0f} GiB in all, or serve the pool elsewhere (engine: external)"
        yield Finding("GPU", False, f"none, servers need about {replicas:.0f} GiB", advice)
        return
    models = {
        name: Hosted("", replicas=m.serve.replicas, tensor_parallel=m.serve.tensor_parallel) for name, m in profile.pool.items()
    }
    try:
        placed = slots(models, "gpu", range(len(gpus)))
    except EndpointError as error:
        yield Finding("GPU", False, str(error), "lower tensor_parallel, or use a machine with more GPUs")
        return
    loads = [0.0] * len(gpus)
    for slot in placed:
        for gpu in slot.gpus:
            loads[gpu] += needs[slot.name] / len(slot.gpus)
    for gpu, (load, size) in enumerate(zip(loads, gpus, strict=True)):
        ok = load <= 0.9 * size
        advice = "" if ok else "use larger or more GPUs, or take models out of the pool"
        yield Finding(f"GPU {gpu}", ok, f"{size:.0f} GiB, its servers need about {load:.0f}", advice)


def _weights(profile: Profile, state: Path) -> Iterator[Finding]:
    missing_gib = 0.0
    for name, model in profile.pool.items():
        size = model.total * BYTES_PER_PARAMETER / GIB
        folder = weights_folder(name, model, state)
        if folder is not None and (folder / "config.json").exists():
            yield Finding(f"weights of {name}", True, str(folder))
        elif model.weights is not None and model.weights.hub is not None:
            missing_gib += size
            pinned = "" if model.revision == "unpinned" else f" --revision {model.revision}"
            advice = f"`hf download {model.weights.hub}{pinned}` ({size:.1f} GiB; accept the model's licence on the hub first)"
            yield Finding(f"weights of {name}", False, "not in the hub's cache here", advice)
            if pinned == "":
                yield Finding(f"revision of {name}", False, "unpinned", "pin a commit of the hub's repository as its revision")
        else:
            yield Finding(f"weights of {name}", False, "not there", "run `ttsgraph prepare`, or correct the path in the profile")
    if missing_gib:
        known = any(os.environ.get(key) for key in ("HF_TOKEN", "HF_TOKEN_PATH")) or _hub_home().joinpath("token").exists()
        advice = "" if known else "set HF_TOKEN, or run `hf auth login`"
        yield Finding("hub token", known, "found" if known else "none; gated models need one", advice)
        free = shutil.disk_usage(_existing(_hub_home())).free / GIB
        advice = "" if free > missing_gib else "free space, or point HF_HOME at a larger disk"
        yield Finding("disk", free > missing_gib, f"{free:.0f} GiB free, downloads need {missing_gib:.0f}", advice)


def _facts(profile: Profile, state: Path, python: str) -> Iterator[Finding]:
    """The profile's facts, from which budgets follow, against the configurations of the weights that are here."""
    folders = {name: weights_folder(name, model, state) for name, model in profile.pool.items()}
    here = {name: folder for name, folder in folders.items() if folder is not None and (folder / "config.json").exists()}
    if not here or not Path(python).exists():
        return
    counted = count_parameters(list(here.values()), python)
    for name, found in zip(here, counted, strict=True):
        wrong = differences(profile.pool[name], found)
        yield Finding(f"facts of {name}", not wrong, "; ".join(wrong) or "as configured", "correct the profile" if wrong else "")


def count_parameters(paths: list[Path], python: str = SERVE_PYTHON) -> list[dict[str, int]]:
    """Layers, hidden, total and non_embedding of each configuration, counted in the serve environment."""
    command = [python, "-P", str(Path(__file__).parent / "models" / "facts.py"), *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise EndpointError(f"counting parameters failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def differences(model: ModelSettings, found: Mapping[str, int]) -> list[str]:
    """Where the profile's facts are off from the counted ones: sizes by more than 0.1 %, layers and hidden at all."""
    wrong = []
    for key, tolerance in (("total", 1e-3), ("non_embedding", 1e-3), ("layers", 0.0), ("hidden", 0.0)):
        said, counted = float(getattr(model, key)), float(found[key])
        if abs(said - counted) > tolerance * counted:
            wrong.append(f"{key}: the profile says {said:g}, its configuration {counted:g}")
    return wrong


def weights_folder(name: str, model: ModelSettings, state: Path = STATE) -> Path | None:
    """Where the weights of a model are on this disk, if they are."""
    weights = model.weights
    if weights is None:
        return None
    if weights.package is not None:
        return state / "models" / name
    if weights.path is not None:
        return weights.path
    repository = _hub_home() / "hub" / f"models--{str(weights.hub).replace('/', '--')}" / "snapshots"
    if model.revision != "unpinned":
        return repository / model.revision
    return next(iter(sorted(repository.glob("*"))), None)


def _keys(profile: Profile) -> Iterator[Finding]:
    named = {model.api_key_env for model in profile.pool.values()} | {profile.agent.api_key_env}
    for name in sorted(name for name in named if name):
        ok = bool(os.environ.get(name))
        yield Finding(f"key {name}", ok, "set" if ok else "not set", "" if ok else f"export {name}=...")


def _endpoints(profile: Profile) -> Iterator[Finding]:
    """Endpoints that run elsewhere: whether they answer. Those that want a key may refuse this keyless look, and count as there."""
    for url in sorted({url for model in profile.pool.values() if not model.api_key_env for url in model.base_urls}):
        found = served_models(url)
        advice = "" if found is not None else "start the server, or correct base_url"
        yield Finding(f"endpoint {url}", found is not None, f"serves {', '.join(found)}" if found else "does not answer", advice)


def _sources(profile: Profile) -> Iterator[Finding]:
    for task, settings in profile.tasks.items():
        source = settings.source
        for part in source.parts if source.kind == "mixture" else (source,):
            yield from _source(task, part)


def _source(task: str, source: Part) -> Iterator[Finding]:
    if source.kind == "jsonl":
        ok = source.path.exists()
        yield Finding(f"questions of {task}", ok, str(source.path), "" if ok else "put the file there, or correct source.path")
    elif source.kind == "hf":
        folder = _hub_home() / "hub" / f"datasets--{source.path.replace('/', '--')}"
        ok = folder.exists()
        advice = "" if ok else f"the sample stage fetches it, given a network; or `hf download --repo-type dataset {source.path}`"
        yield Finding(f"questions of {task}", ok, str(folder) if ok else "not in the hub's cache here", advice)


def _isolation(profile: Profile) -> Iterator[Finding]:
    """Whether programs that models write can be isolated, where a task runs some."""
    if not any(isinstance(get_task(settings.kind), CodeTask) for settings in profile.tasks.values()):
        return
    missing = missing_layers()
    found = "; ".join(f"{layer}: {why}" for layer, why in missing.items()) or "files and system calls"
    advice = "Linux 5.13 or later with Landlock, and libseccomp (libseccomp2); or accept limits alone: sandbox.accept_weaker: true"
    yield Finding("isolation of programs", not missing, found, advice if missing else "")


def _hub_home() -> Path:
    return Path(os.environ.get("HF_HOME", Path.home() / ".cache" / "huggingface"))


def _existing(path: Path) -> Path:
    """The path, or its nearest parent that exists."""
    return next(p for p in (path, *path.parents) if p.exists())
