"""Which local model servers to run, and with which command: the flags here were measured, the
comments say what for.

A server is described by a `ServerSpec`; `launcher.py` starts and stops it. The servers run in an
environment of their own (`.venv-serve`), so nothing here imports torch or vLLM.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import socket
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Literal
from urllib.request import ProxyHandler, build_opener

from ttsgraph.base.errors import EndpointError
from ttsgraph.serving.environment import SERVE_PYTHON as SERVE_PYTHON
from ttsgraph.serving.environment import ChosenFormat, NumberFormat, number_format
from ttsgraph.serving.placement import Hosted as Hosted
from ttsgraph.serving.placement import Placed, place, shares

ServerEngine = Literal["vllm", "transformers"]

HOST = "127.0.0.1"
# A proxy set for the outside world must not be asked for this machine's own servers.
LOCAL = build_opener(ProxyHandler({}))
# vLLM closes an idle connection after 5 s, at times just as a client is about to use it again: a
# read error.
_ALWAYS = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "600"}
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
HUB_TOKEN = ("HF_TOKEN", "HF_TOKEN_PATH")
"""Where the hub's token is, for servers that fetch their weights from it."""


@dataclass(frozen=True)
class ServerSpec:
    """One server to start: its command and environment, where it listens and where it logs."""

    name: str
    model: str
    command: tuple[str, ...]
    env: Mapping[str, str]
    port: int
    log: Path
    lists_models: bool = True
    """Whether /v1/models names what is served; if not, a healthy server is taken at its word."""

    gpus: tuple[int, ...] = ()
    """Those that it takes memory of: of servers that share one, one starts at a time."""

    secrets: tuple[str, ...] = ()
    """Secret variables of the environment that it gets; it gets no other."""

    note: str = ""
    """What is told when it starts."""

    @property
    def base_url(self) -> str:
        """The OpenAI API's address."""
        return f"http://{HOST}:{self.port}/v1"


def free_ports(count: int) -> list[int]:
    """`count` different TCP ports that nothing listens on now."""
    with contextlib.ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind((HOST, 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def core_shares(servers: int, cores: Sequence[int]) -> list[str]:
    """Which cores each of `servers` binds its compute to, as VLLM_CPU_OMP_THREADS_BIND writes it
    ("0", "0,1").

    Where there are more cores than servers one stays free for the API processes and the client;
    with fewer, they share.
    """
    each = max(1, (len(cores) - 1) // max(1, servers))
    return [
        ",".join(str(cores[(i * each + j) % len(cores)]) for j in range(each))
        for i in range(servers)
    ]


@dataclass(frozen=True)
class ServerSlot:
    """Where one server of the pool goes: its title and port, the CPU cores or the GPUs it has, its
    share of their memory, and what it has to do on each, where servers are placed by that.
    """

    title: str
    name: str
    hosted: Hosted
    port: int
    cores: str
    gpus: tuple[int, ...]
    gpu_memory: float
    load: float


def slots(
    models: Mapping[str, Hosted], gpus: Mapping[int, float] | None = None
) -> list[ServerSlot]:
    """One slot per replica of each model (served name -> what to serve); free ports where none is
    given.

    `gpus` are those to take, with GiB of memory; None: servers run on the CPU. Raises EndpointError
    when a model needs more GPUs than there are.
    """
    placed = _replicas(models) if gpus is None else _placed(models, gpus)
    cores = (
        sorted(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else list(range(os.cpu_count() or 1))
    )
    many = Counter(one.model for one in placed)
    number: Counter[str] = Counter()
    found = []
    for one, spare, cores_of, share in zip(
        placed,
        free_ports(len(placed)),
        core_shares(len(placed), cores),
        [0.0] * len(placed) if gpus is None else shares(models, placed, gpus),
        strict=True,
    ):
        name = one.model
        hosted = models[name]
        port = hosted.port(number[name]) or spare
        number[name] += 1
        title = name if many[name] == 1 else f"{name}-{number[name]}"
        found.append(ServerSlot(title, name, hosted, port, cores_of, one.gpus, share, one.load))
    return found


def _replicas(models: Mapping[str, Hosted]) -> list[Placed]:
    """A server a replica, without GPUs."""
    return [Placed(name, ()) for name, each in models.items() for _ in range(each.replicas or 1)]


def _placed(models: Mapping[str, Hosted], gpus: Mapping[int, float]) -> list[Placed]:
    """Each server by load and memory where these are known and all fit, else on GPUs in turn."""
    known = models and all(hosted.needs for hosted in models.values())
    if known and (by_load := place(models, gpus)) is not None:
        return by_load
    turn = itertools.cycle(gpus)
    found = []
    for server in _replicas(models):
        span = models[server.model].serve.tensor_parallel or 1
        if span > len(gpus):
            raise EndpointError(
                f"expected at least {span} GPUs for a model with tensor_parallel {span}, found"
                f" {len(gpus)}"
            )
        found.append(Placed(server.model, tuple(next(turn) for _ in range(span))))
    return found


def server_specs(
    engine: ServerEngine,
    models: Mapping[str, Hosted],
    *,
    log_dir: Path,
    python: str = SERVE_PYTHON,
    gpus: Mapping[int, float] | None = None,
    max_model_len: int = 2048,
    extra: Sequence[str] = (),
    max_seqs: int | None = None,
    dtype: ChosenFormat | None = None,
) -> tuple[ServerSpec, ...]:
    """The servers of a pool (served name -> what to serve), one per replica; `extra` is appended to
    every command.

    Those of hub ids may go online, and get the hub's token. `max_seqs` is the most requests that
    one is sent at once, `gpus` as for `slots`, and `dtype` the number format on the CPU (the faster
    one there if not given). Raises as `slots`.
    """
    specs = []
    if gpus is None:
        dtype = dtype or number_format("auto", python)
    for slot in slots(models, gpus):
        hosted = slot.hosted
        context = hosted.serve.max_model_len or max_model_len
        name = dtype.name if dtype else None
        if engine == "vllm":
            command, env = _vllm(slot, python, name, context, max_seqs)
        else:
            command, env = _transformers(slot, python, name, context)
        env |= _ALWAYS | ({} if hosted.from_hub else _OFFLINE)
        if gpus is not None:
            env["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, slot.gpus))
        specs.append(
            ServerSpec(
                slot.title,
                slot.name,
                (*command, *hosted.serve.extra_args, *extra),
                env,
                slot.port,
                log_dir / f"{slot.title.replace('/', '--')}.log",
                engine == "vllm",
                slot.gpus,
                HUB_TOKEN if hosted.from_hub else (),
                f"number format {dtype.name}: {dtype.why}" if dtype else "",
            )
        )
    return tuple(specs)


def _vllm(
    slot: ServerSlot,
    python: str,
    dtype: NumberFormat | None,
    max_model_len: int,
    max_seqs: int | None,
) -> tuple[list[str], dict[str, str]]:
    """On the CPU in the number format `dtype`; on GPUs (None) in that of the weights."""
    # The `vllm` command looks up a distribution of that name, which the CPU build doesn't have:
    # hence the module.
    command = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", slot.hosted.source]
    command += ["--served-model-name", slot.name, "--host", HOST, "--port", str(slot.port)]
    command += ["--max-model-len", str(max_model_len), "--disable-uvicorn-access-log"]
    if slot.hosted.revision is not None:
        command += ["--revision", slot.hosted.revision]
    if dtype is not None:
        # Blocks of 32 tokens, the smallest the CPU kernels take: prompt prefixes are reused in
        # whole blocks, and with the default of 128 short few-shot prompts share nothing (half the
        # speed). Eager starts in a fifth of the time at the same speed.
        command += ["--dtype", dtype, "--enforce-eager", "--block-size", "32"]
        return command, {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": slot.cores}
    if max_seqs is not None:
        # As many as there can be: vLLM keeps memory for the logits of all of them, 1 GiB for 1024
        # of a large vocabulary.
        command += ["--max-num-seqs", str(max_seqs)]
    command += ["--tensor-parallel-size", str(len(slot.gpus))]
    command += ["--gpu-memory-utilization", str(slot.gpu_memory)]
    return command, {}


def _transformers(
    slot: ServerSlot, python: str, dtype: NumberFormat | None, max_model_len: int
) -> tuple[list[str], dict[str, str]]:
    """For models unknown to vLLM. Ignores stop sequences (the client cuts), lists no models."""
    server = str(Path(__file__).with_name("transformers_server.py"))
    command = [python, "-P", server, str(max_model_len), slot.hosted.source_at_revision]
    command += ["--host", HOST, "--port", str(slot.port), "--continuous-batching"]
    command += ["--dtype", dtype or "bfloat16"]
    # Room for the keys and values of 16 full prompts; left alone, it takes nearly all the memory
    # there is.
    command += ["--cb-block-size", "32", "--cb-num-blocks", str(16 * max_model_len // 32)]
    if dtype is None:
        return [*command, "--device", "cuda:0"], {}
    # Threads that spin while they wait for one another make every layer wait for whatever else runs
    # on their cores: 15 ms instead of 0.2 for a small product on two busy cores.
    return [*command, "--device", "cpu"], {
        "OMP_NUM_THREADS": str(slot.cores.count(",") + 1),
        "OMP_WAIT_POLICY": "passive",
    }


def served_models(base_url: str, timeout_s: float = 2.0) -> tuple[str, ...] | None:
    """The model names an OpenAI API lists, or None when nothing there answers as one."""
    try:
        with LOCAL.open(f"{base_url}/models", timeout=timeout_s) as response:
            return tuple(str(model["id"]) for model in json.load(response)["data"])
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        return None


def gpu_memory_gib() -> dict[int, float]:
    """Memory of each GPU that NVIDIA's driver shows, in GiB; empty without one."""
    try:
        command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return {}
    return {gpu: float(line) / 1024 for gpu, line in enumerate(done.stdout.split())}
