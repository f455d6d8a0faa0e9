"""What a profile needs of this machine and its endpoints, what is missing, and how to get it. It
asks each model one short question, and changes nothing but what is known of endpoints.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import openai

from ttsgraph.base.errors import EndpointError
from ttsgraph.base.state import STATE
from ttsgraph.endpoints.endpoints import FailurePolicy
from ttsgraph.endpoints.learning import refusal_of, said_in
from ttsgraph.endpoints.openai_client import Endpoint, OpenAIClient, Retries, probe
from ttsgraph.endpoints.transport import reason_of
from ttsgraph.models.client import Message, Request, Sampling
from ttsgraph.models.dialect import HABITS, Habits
from ttsgraph.pool.settings import ModelSettings
from ttsgraph.runtime.clients import endpoint_of
from ttsgraph.serving.environment import number_format, run_convert, vllm_build
from ttsgraph.serving.memory import GIB, USABLE, Need, hub_home, needs_of, weights_folder
from ttsgraph.serving.placement import Hosted, Placed, servers_of
from ttsgraph.serving.servers import HUB_TOKEN, SERVE_PYTHON, gpu_memory_gib
from ttsgraph.settings.profile import Profile
from ttsgraph.tasks import get_task
from ttsgraph.tasks.base import CodeTask
from ttsgraph.tasks.programs import missing_layers

BYTES_PER_PARAMETER = 2
"""Weights are kept, and served on GPUs, as bfloat16."""

TOLERANCES = {"total": 1e-3, "non_embedding": 1e-3, "layers": 0.0, "hidden": 0.0}
"""How far a profile's facts may be from those of the weights, as shares."""

SERVER_GIB = 2.0
"""Of a server on the CPU next to its weights: activations, runtime, a cache for few prompts."""

ASKED = (Message("system", "Answer with one word."), Message("user", "Say OK."))
MOST_TOKENS = 32
"""Of an answer that nobody reads."""

LONGEST_S = 60.0
SHOWN = 8
"""Names of an endpoint's list that are shown."""

_ELSEWHERE = "take models out of the pool, or serve some elsewhere (base_url)"
_NO_MODEL = re.compile(
    r"(model|deployment).{0,80}(not (found|exist|available|a valid)|n't"
    r" exist|unknown|invalid|not_found|no longer)"
    r"|(invalid|unknown|no such|not a valid|no endpoints found"
    r" for).{0,30}(model|deployment)|DeploymentNotFound",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing a profile needs: whether it is there, what was found, and what to do if not."""

    subject: str
    ok: bool
    found: str
    advice: str = ""
    """Nothing where all is well."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "advice", "" if self.ok else self.advice)


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
    findings += asyncio.run(_reach_all(profile, state))
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
    yield Finding("vLLM", wanted in ("auto", build.device), found, advice)
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
    needed = sum(
        (size * _weights_gib(model) + SERVER_GIB) * (model.serve.replicas or 1)
        for model in profile.hosted.values()
    )
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
    found = f"{total:.0f} GiB, servers need about {needed:.0f}"
    yield Finding("memory", needed <= total, found, _ELSEWHERE)


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
        models[name] = Hosted(name, model.serve, needs=needs, load=model.non_embedding or 0.0)
    if not gpus:
        total = sum(
            span * (hosted.replicas or 1) * need.total
            for hosted in models.values()
            for span, need in list(hosted.needs.items())[:1]
        )
        advice = (
            f"run on a machine with NVIDIA GPUs of {total / USABLE:.0f} GiB in all, or serve the"
            " pool elsewhere (base_url)"
        )
        yield Finding("GPU", False, f"none, servers need about {total:.0f} GiB", advice)
        return
    try:
        servers = servers_of(models, gpus)
    except EndpointError as error:
        advice = "lower tensor_parallel, or use a machine with more GPUs"
        yield Finding("GPU", False, str(error), advice)
        return
    taken = dict.fromkeys(gpus, 0.0)
    work = dict.fromkeys(gpus, 0.0)
    for server in servers:
        wanted = models[server.model].needs.get(len(server.gpus))
        for gpu in server.gpus:
            taken[gpu] += wanted.total if wanted else 0.0
            work[gpu] += server.load
        if wanted is not None:
            context = models[server.model].serve.max_model_len or profile.engine.max_model_len
            yield _server(server, wanted, min(gpus[gpu] for gpu in server.gpus), context)
    busiest = max(work.values()) if len(gpus) > 1 else 0.0
    for gpu, size in gpus.items():
        done = f", and do {work[gpu] / busiest:.0%} of what the busiest ones do" if busiest else ""
        found = f"{size:.0f} GiB, its servers need about {taken[gpu]:.0f}{done}"
        advice = f"use larger or more GPUs, {_ELSEWHERE}"
        yield Finding(f"GPU {gpu}", taken[gpu] <= USABLE * size, found, advice)


def _server(server: Placed, wanted: Need, size: float, context: int) -> Finding:
    share = server.share * size
    fits = wanted.total <= share
    found = (
        f"{wanted.weights:.1f} GiB weights + {wanted.cache:.1f} GiB cache"
        f" + {wanted.running:.1f} GiB to run {'fit' if fits else 'do not fit'} a share of"
        f" {share:.1f} GiB on {size:.0f} GiB (GPU {', '.join(map(str, server.gpus))})"
    )
    if fits:
        found += f"; the cache holds {wanted.requests(share):.1f} requests of {context:,} tokens"
    advice = (
        f"alone on this GPU it would fit: {_ELSEWHERE}"
        if wanted.total <= USABLE * size
        else "lower serve.max_model_len, spread it (serve.tensor_parallel), or use larger GPUs"
    )
    return Finding(f"server {server.title}", fits, found, advice)


def _weights_gib(model: ModelSettings) -> float:
    """0 where the profile does not say how many parameters a model has."""
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
            yield Finding(subject, False, "not in the hub's cache here", advice)
            if not pinned:
                advice = "pin a commit of the hub's repository as its revision"
                yield Finding(f"revision of {name}", False, "unpinned", advice)
        else:
            advice = "run `ttsgraph prepare`, or correct the path in the profile"
            yield Finding(subject, False, "not there", advice)
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


def _facts(profile: Profile, state: Path, python: str) -> Iterator[Finding]:
    """The profile's facts against the configurations of the weights that are here."""
    folders = {name: weights_folder(name, model, state) for name, model in profile.hosted.items()}
    here = {name: folder for name, folder in folders.items() if folder is not None}
    if not here or not Path(python).exists():
        return
    counted = count_parameters(list(here.values()), python)
    for name, found in zip(here, counted, strict=True):
        wrong = differences(profile.hosted[name], found)
        found_so = "; ".join(wrong) or "as configured"
        yield Finding(f"facts of {name}", not wrong, found_so, "correct the profile")


def count_parameters(paths: list[Path], python: str = SERVE_PYTHON) -> list[dict[str, int]]:
    """Facts counted from each configuration in the serve environment. Raises EndpointError."""
    command = ["--count", *map(str, paths)]
    found = run_convert(python, command, "counting parameters failed: ")
    return [json.loads(line) for line in found]


def differences(model: ModelSettings, found: Mapping[str, int]) -> list[str]:
    """Where given facts are off from the counted ones: sizes by over 0.1 %, others at all."""
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
        yield Finding(f"key {name}", ok, "set" if ok else "not set", f"export {name}=...")


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
            yield Finding(f"questions of {task}", ok, found, advice)


def _isolation(profile: Profile) -> Iterator[Finding]:
    """Whether programs that models write can be isolated, where a task runs some."""
    if not any(isinstance(get_task(each.kind), CodeTask) for each in profile.tasks.values()):
        return
    missing = missing_layers()
    found = "; ".join(f"{layer}: {why}" for layer, why in missing.items())
    advice = (
        "Linux 5.13 or later with Landlock, and libseccomp (libseccomp2); or accept limits alone:"
        " sandbox.accept_weaker: true"
    )
    yield Finding("isolation of programs", not missing, found or "files and system calls", advice)


async def _reach_all(profile: Profile, state: Path) -> list[Finding]:
    """Ask each model at each base_url, and the agent's; what they refuse is kept for runs."""
    habits = Fresh(state / HABITS)
    task = next(iter(profile.tasks.values()), None)
    drawn = Sampling() if task is None else task.sampling.sampling()
    calls = []
    for spec in profile.model_pool().values() if profile.pool else ():
        other = spec.variant
        if other is not None and other.reasoning_effort is None and other.extra_body is None:
            continue  # it sends the same parameters as its model
        model = profile.pool[spec.model]
        endpoint = endpoint_of(spec.model, model, profile.engine.seeds)
        sampling = spec.sampling(drawn)
        short = replace(sampling, max_tokens=min(MOST_TOKENS, sampling.max_tokens))
        request = Request(spec.model, "probe", ASKED, short)
        for url in model.base_urls:
            at = replace(endpoint, base_urls=(url,))
            calls.append(_reach(f"model {spec.name}", at, request, profile, habits))
    agent = profile.agent
    if agent.kind == "llm" and agent.base_url is not None and agent.model is not None:
        endpoint = Endpoint((agent.base_url,), agent.model, agent.api_key_env)
        asked = probe(agent.model)
        calls.append(_reach(f"agent {agent.model}", endpoint, asked, profile, Habits()))
    return list(await asyncio.gather(*calls))


class Fresh(Habits):
    """Finds out again what is known, and keeps what is found."""

    def get(self, name: str) -> None:
        """Nothing is known."""


async def _reach(
    subject: str, endpoint: Endpoint, request: Request, profile: Profile, habits: Habits
) -> Finding:
    try:
        retries = Retries(0, timeout_s=min(LONGEST_S, profile.engine.timeout_s))
        client = OpenAIClient({request.model: endpoint}, retries, FailurePolicy(), habits)
    except EndpointError as error:  # a key that is not set, or can't be sent
        return Finding(subject, False, str(error), f"export {endpoint.api_key_env}=...")
    try:
        async with asyncio.timeout(retries.timeout_s):
            return await _asked(subject, client, endpoint, request)
    except TimeoutError:
        found = f"{endpoint.base_urls[0]} does not answer within {retries.timeout_s:g} s"
        return Finding(subject, False, found, "see what its server does")
    finally:
        await client.aclose()


async def _asked(
    subject: str, client: OpenAIClient, endpoint: Endpoint, request: Request
) -> Finding:
    started = time.monotonic()
    url = endpoint.base_urls[0]
    try:
        answer = await client.once(url, request)
    except Exception as error:  # whatever a server that is none of models makes of it
        return Finding(subject, False, *await _why(error, client, endpoint, request.model))
    client.keep(request)
    listed = await _listed(client, url, request.model)
    seconds = time.monotonic() - started
    names = {endpoint.served_as, f"{endpoint.served_as}:latest"}
    if listed and endpoint.lists_models and not names & listed:
        found = f"{url} answers, but it does not list {endpoint.served_as!r} ({_names(listed)})"
        advice = "correct served_as, or say `listed: false` if this name is right"
        return Finding(subject, False, found, advice)
    how = client.manner(request).words
    asked = f"; asked {how}" if how else ""
    tokens = f"{answer.prompt_tokens} tokens read and {answer.completion_tokens} written"
    if answer.reasoning_tokens:
        tokens += f", {answer.reasoning_tokens} of them reasoning"
    found = f"{url} answers after {seconds:.1f} s, {tokens}{asked}"
    return Finding(subject, True, found)


async def _why(
    error: Exception, client: OpenAIClient, endpoint: Endpoint, model: str
) -> tuple[str, str]:
    """What is wrong, with the server's own words, and what to do about it."""
    url = endpoint.base_urls[0]
    said = said_in(error)
    words = f" ({said})" if said else ""
    if not isinstance(error, openai.APIStatusError):
        if isinstance(error, openai.APIConnectionError):
            found = f"no server at {url}: the connection is refused or broken"
            return found, "start the server, or correct base_url"
        found = f"{url} answers, but not as an OpenAI-compatible server: {reason_of(error)}"
        return found, "correct base_url; it mostly ends in /v1"
    status = error.status_code
    found = f"{url} can't answer now"
    advice = "try again later"
    if status in (401, 403):
        named = endpoint.api_key_env
        found = f"{url} refuses {f'the key in {named}' if named else 'a request without a key'}"
        advice = f"correct {named}" if named else "name the key's variable: api_key_env"
    elif status in (400, 404, 422) and _NO_MODEL.search(said):
        names = _names(await _listed(client, url, model) or set())
        found = f"{url} has no model {endpoint.served_as!r}"
        advice = f"correct served_as; the server has {names}"
    elif status in (404, 405) or 300 <= status < 400:
        found = f"nothing at {url}/chat/completions"
        advice = "correct base_url; it mostly ends in /v1"
    elif status == 402 or (status == 429 and "quota" in said.lower()):
        found = f"{url} wants to be paid first"
        advice = "see the account that the key is of"
    elif refusal_of(error) is not None:
        found = f"{url} refuses the request"
        advice = "see left_out, tokens_key and extra_body in docs/own-models.md"
    return f"{found}: HTTP {status}{words}", advice


async def _listed(client: OpenAIClient, url: str, model: str) -> set[str] | None:
    try:
        return await client.listed(url, model)
    except EndpointError:
        return None


def _names(listed: set[str]) -> str:
    shown = ", ".join(sorted(listed)[:SHOWN]) or "none in its list"
    return shown + (f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else "")
