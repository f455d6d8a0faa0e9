"""Specifications of local model servers; comments give the measured reasons for their flags.

The servers run in a separate environment (`.venv-serve`), so this module imports neither torch nor
vLLM.
"""

import contextlib
import os
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ttsgraph.pool.engine import EngineSettings
from ttsgraph.serving.environment import number_format
from ttsgraph.serving.guard import GRACE_S
from ttsgraph.serving.placement import Gpus, HostedModel, Models, PlacedServer, servers_of

HOST = "127.0.0.1"
# By default, vLLM closes idle connections after 5 s, and a client that reuses a connection at that
# moment gets a read error. Idle connections are therefore kept for 10 minutes.
_ALWAYS = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "600"}
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
# On the CPU, a vLLM server runs two processes instead of three, without a separate worker. For a
# small model, messages to a worker cost more than the model's steps (4 calls per second and core
# instead of 6, with one thread per server), and a worker's import of vLLM takes 12 core seconds.
# Threads sleep while they wait for each other, because spinning threads delay other threads on
# their cores: two vLLM servers on two cores together answer 22 calls a second instead of 11. In
# transformers, a small matrix product on two busy cores takes 0.2 ms instead of 15 ms.
_ON_CPU = {
    "OMP_WAIT_POLICY": "passive",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
}
HUB_TOKEN = ("HF_TOKEN", "HF_TOKEN_PATH")
"""Environment variables with the hub's token or its path, for servers that download weights."""


@dataclass(frozen=True)
class ServerSpec:
    """Specification of a server to start: its command, environment, port and log."""

    name: str
    model: str
    command: tuple[str, ...]
    env: Mapping[str, str]
    port: int
    log: Path
    gpus: tuple[int, ...] = ()
    """GPUs of the server; servers that share a GPU are started one at a time."""

    secrets: tuple[str, ...] = ()
    """Names of the secret environment variables that the server gets; it gets no others."""

    grace_s: float = GRACE_S
    """Seconds from SIGTERM to SIGKILL."""

    @property
    def base_url(self) -> str:
        """Base URL of the server's OpenAI-compatible API."""
        return f"http://{HOST}:{self.port}/v1"


def free_ports(count: int) -> list[int]:
    """Return `count` different TCP ports that are free now."""
    with contextlib.ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind((HOST, 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def server_specs(
    engine: EngineSettings,
    models: Models,
    log_dir: Path,
    gpus: Gpus | None = None,
    has_command: bool = False,
) -> tuple[ServerSpec, ...]:
    """Return the specifications of a pool's servers, one per replica, on free ports.

    Only servers of models from the hub may go online. `gpus` is as in `servers_of`, `has_command`
    as in `Build`. Raises like `servers_of`.
    """
    placed = servers_of(models, gpus)
    cores = len(os.sched_getaffinity(0))
    # Twice each server's share of the cores: while a search calls only one model, the other servers
    # are idle, so more threads help. With two cores, that model answers 1.6 times as fast.
    threads = max(1, min(cores, 2 * cores // max(1, len(placed))))
    specs = []
    for server, port in zip(placed, free_ports(len(placed)), strict=True):
        hosted = models[server.model]
        context = hosted.serve.max_model_len or engine.max_model_len
        if engine.kind == "transformers":
            command = _transformers(hosted, context, gpus is None)
        elif has_command:  # same as `vllm serve`, run with this Python
            command = ["-m", "vllm.entrypoints.cli.main", "serve", hosted.source]
        else:
            command = ["-m", "vllm.entrypoints.openai.api_server", "--model", hosted.source]
        if engine.kind == "vllm":
            command += _vllm_flags(server, hosted, context, engine.concurrency)
        env = _ALWAYS | ({} if hosted.from_hub else _OFFLINE)
        if gpus is None:
            env |= {"OMP_NUM_THREADS": str(threads)} | _ON_CPU
        else:
            env |= {"CUDA_VISIBLE_DEVICES": ",".join(map(str, server.gpus))}
        address = ("--host", HOST, "--port", str(port))
        whole = (engine.python, *command, *address, *hosted.serve.extra_args)
        log = log_dir / f"{server.title.replace('/', '--')}.log"
        secrets = HUB_TOKEN if hosted.from_hub else ()
        known = server.title, server.model, whole, env, port, log, server.gpus
        specs.append(ServerSpec(*known, secrets))
    return tuple(specs)


def _vllm_flags(server: PlacedServer, hosted: HostedModel, context: int, seqs: int) -> list[str]:
    """Return vLLM's flags for a server on GPUs or, if it has none, on the CPU."""
    flags = ["--served-model-name", server.model]
    flags += ["--max-model-len", str(context), "--disable-uvicorn-access-log"]
    if hosted.revision is not None:
        flags += ["--revision", hosted.revision]
    if not server.gpus:
        # Blocks have 32 tokens, the minimum for the CPU kernels. Prefixes are reused in whole
        # blocks, so with the default of 128, short few-shot prompts would share nothing and run at
        # half the speed. Eager mode starts in a fifth of the time and runs at the same speed.
        return [*flags, "--dtype", number_format()[0], "--enforce-eager", "--block-size", "32"]
    # More sequences would only waste memory: vLLM reserves memory for the logits of all sequences,
    # for example 1 GiB for 1024 sequences with a large vocabulary.
    flags += ["--max-num-seqs", str(seqs), "--tensor-parallel-size", str(len(server.gpus))]
    return [*flags, "--gpu-memory-utilization", str(server.share)]


def _transformers(hosted: HostedModel, max_model_len: int, on_cpu: bool) -> list[str]:
    """Return the command of a transformers server, for models that vLLM doesn't support.

    That server lists no models. It ignores stop sequences, so the client cuts answers at them.
    """
    program = str(Path(__file__).with_name("transformers_server.py"))
    command = ["-P", program, str(max_model_len), hosted.source_at_revision]
    command += ["--continuous-batching", "--dtype", number_format()[0] if on_cpu else "bfloat16"]
    # The cache is limited to the keys and values of 16 full prompts, because by default it takes
    # nearly all memory.
    command += ["--cb-block-size", "32", "--cb-num-blocks", str(16 * max_model_len // 32)]
    return [*command, "--device", "cpu" if on_cpu else "cuda:0"]


def gpu_memory_gib() -> dict[int, float]:
    """Return a map from each GPU's index to its memory in GiB; empty if NVIDIA's driver reports no
    GPU.
    """
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return {gpu: float(line) / 1024 for gpu, line in enumerate(done.stdout.split())}
    return {}
