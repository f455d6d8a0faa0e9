"""The local model servers to run, and their commands: the flags were measured, comments say why.
They run in an environment of their own (`.venv-serve`): nothing here imports torch or vLLM.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ttsgraph.base.state import SERVE_PYTHON as SERVE_PYTHON
from ttsgraph.serving.environment import ChosenFormat, number_format
from ttsgraph.serving.guard import GRACE_S
from ttsgraph.serving.placement import Hosted as Hosted
from ttsgraph.serving.placement import Placed, servers_of

ServerEngine = Literal["vllm", "transformers"]

HOST = "127.0.0.1"
# vLLM closes an idle connection after 5 s, at times just as a client is about to use it again: a
# read error.
_ALWAYS = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "600"}
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
# Of vLLM's three processes a server two are left: messages between the engine and a worker of its
# own cost each step of a small model more than the step (4 calls a second and core instead of 6,
# with one thread a server), and the worker's import of vLLM costs 12 core seconds. Threads of
# transformers that spin while they wait for one another make every layer wait for whatever else
# runs on their cores: 15 ms instead of 0.2 for a small product on two busy cores.
_ON_CPU: dict[ServerEngine, dict[str, str]] = {
    "vllm": {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"},
    "transformers": {"OMP_WAIT_POLICY": "passive"},
}
HUB_TOKEN = ("HF_TOKEN", "HF_TOKEN_PATH")
"""Variables with the hub's token, for servers that fetch their weights from it."""


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
    """True if /v1/models names what is served; if not, a healthy server is taken at its word."""

    gpus: tuple[int, ...] = ()
    """The GPUs whose memory it takes; servers that share one start one at a time."""

    secrets: tuple[str, ...] = ()
    """Secret variables of the environment that it gets; it gets no other."""

    note: str = ""
    """Said when it starts."""

    grace_s: float = GRACE_S
    """Seconds from SIGTERM to SIGKILL."""

    @property
    def base_url(self) -> str:
        """The OpenAI API's address."""
        return f"http://{HOST}:{self.port}/v1"

    def entry(self) -> dict[str, Any]:
        """The server in a record: its names and where it answers."""
        return {
            "name": self.name,
            "model": self.model,
            "base_url": self.base_url,
            "lists_models": self.lists_models,
        }


def free_ports(count: int) -> list[int]:
    """`count` different TCP ports that nothing listens on now."""
    with contextlib.ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind((HOST, 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def threads_of_each(servers: int, cores: int) -> int:
    """Threads for each server; one core, of more than servers, stays free for the client."""
    return max(1, (cores - 1) // max(1, servers))


def server_specs(
    engine: ServerEngine,
    models: Mapping[str, Hosted],
    *,
    log_dir: Path,
    python: str = SERVE_PYTHON,
    gpus: Mapping[int, float] | None = None,
    max_model_len: int = 2048,
    max_seqs: int | None = None,
    dtype: ChosenFormat | None = None,
    has_command: bool = False,
) -> tuple[ServerSpec, ...]:
    """The servers of a pool (served name -> what to serve), one per replica, at free ports if none
    is given. Those of hub ids may go online. `max_seqs` is the most requests at once, `gpus` as for
    `servers_of`, `dtype` the number format on the CPU (by default the faster one), `has_command`
    as in `Build`. Raises as `servers_of`.
    """
    if gpus is None:
        dtype = dtype or number_format()
    placed = servers_of(models, gpus)
    threads = threads_of_each(len(placed), len(os.sched_getaffinity(0)))
    specs = []
    for server, spare in zip(placed, free_ports(len(placed)), strict=True):
        hosted = models[server.model]
        port = spare if hosted.serve.port is None else hosted.serve.port + server.replica
        context = hosted.serve.max_model_len or max_model_len
        if engine == "vllm":
            command = ["-m", "vllm.entrypoints.openai.api_server", "--model", hosted.source]
            if has_command:  # `vllm serve`, but in this environment's Python
                command = ["-m", "vllm.entrypoints.cli.main", "serve", hosted.source]
            command += _vllm(server, hosted, context, dtype, max_seqs)
        else:
            command = _transformers(hosted, context, dtype)
        env = _ALWAYS | ({} if hosted.from_hub else _OFFLINE)
        if gpus is not None:
            env |= {"CUDA_VISIBLE_DEVICES": ",".join(map(str, server.gpus))}
        else:
            env |= {"OMP_NUM_THREADS": str(threads)} | _ON_CPU[engine]
        address = ("--host", HOST, "--port", str(port))
        specs.append(
            ServerSpec(
                server.title,
                server.model,
                (python, *command, *address, *hosted.serve.extra_args),
                env,
                port,
                log_dir / f"{server.title.replace('/', '--')}.log",
                engine == "vllm",
                server.gpus,
                HUB_TOKEN if hosted.from_hub else (),
                f"number format {dtype.name}: {dtype.why}" if dtype else "",
            )
        )
    return tuple(specs)


def _vllm(
    server: Placed,
    hosted: Hosted,
    max_model_len: int,
    dtype: ChosenFormat | None,
    max_seqs: int | None,
) -> list[str]:
    """Flags: on the CPU in the number format `dtype`; on GPUs (None) in that of the weights."""
    flags = ["--served-model-name", server.model]
    flags += ["--max-model-len", str(max_model_len), "--disable-uvicorn-access-log"]
    if hosted.revision is not None:
        flags += ["--revision", hosted.revision]
    if dtype is not None:
        # Blocks of 32 tokens, the smallest the CPU kernels take: prompt prefixes are reused in
        # whole blocks, and with the default of 128 short few-shot prompts share nothing (half the
        # speed). Eager starts in a fifth of the time at the same speed.
        return [*flags, "--dtype", dtype.name, "--enforce-eager", "--block-size", "32"]
    if max_seqs is not None:
        # As many as there can be: vLLM keeps memory for the logits of all of them, 1 GiB for 1024
        # of a large vocabulary.
        flags += ["--max-num-seqs", str(max_seqs)]
    flags += ["--tensor-parallel-size", str(len(server.gpus))]
    return [*flags, "--gpu-memory-utilization", str(server.share)]


def _transformers(hosted: Hosted, max_model_len: int, dtype: ChosenFormat | None) -> list[str]:
    """For models unknown to vLLM. Ignores stop sequences (the client cuts), lists no models."""
    program = str(Path(__file__).with_name("transformers_server.py"))
    command = ["-P", program, str(max_model_len), hosted.source_at_revision]
    command += ["--continuous-batching", "--dtype", dtype.name if dtype else "bfloat16"]
    # Room for the keys and values of 16 full prompts; left alone, it takes nearly all the memory
    # there is.
    command += ["--cb-block-size", "32", "--cb-num-blocks", str(16 * max_model_len // 32)]
    return [*command, "--device", "cpu" if dtype else "cuda:0"]


def gpu_memory_gib() -> dict[int, float]:
    """Memory of each GPU that NVIDIA's driver shows, in GiB; empty without one."""
    try:
        command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return {}
    return {gpu: float(line) / 1024 for gpu, line in enumerate(done.stdout.split())}
