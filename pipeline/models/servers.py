"""Which local model servers to run, and with which command: the flags here were measured, the comments say what for.

A server is described by a `ServerSpec`; `launcher.py` starts and stops it. The servers run in an environment of their
own (`.venv-serve`), so nothing here imports torch or vLLM.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Literal
from urllib.request import ProxyHandler, build_opener

HOST = "127.0.0.1"
SERVE_PYTHON = ".venv-serve/bin/python"
# A proxy set for the outside world must not be asked for this machine's own servers.
LOCAL = build_opener(ProxyHandler({}))
# vLLM closes an idle connection after 5 s, at times just as a client is about to use it again: a read error.
_ALWAYS = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "600"}
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


@dataclass(frozen=True)
class ServerSpec:
    """One server to start: its command, what it adds to the environment, where it listens and where it logs."""

    name: str
    served_models: tuple[str, ...]
    command: tuple[str, ...]
    env: Mapping[str, str]
    port: int
    log: Path

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
    """Which cores each of `servers` binds its compute to, as VLLM_CPU_OMP_THREADS_BIND writes it ("0", "0,1").

    Where there are more cores than servers one stays free for the API processes and the client; with fewer, they share.
    """
    each = max(1, (len(cores) - 1) // servers)
    return [",".join(str(cores[(i * each + j) % len(cores)]) for j in range(each)) for i in range(servers)]


def vllm_specs(
    models: Mapping[str, str],
    *,
    log_dir: Path,
    python: str = SERVE_PYTHON,
    device: Literal["cpu", "gpu"] = "cpu",
    ports: Mapping[str, int] | None = None,
    max_model_len: int = 2048,
    offline: bool = True,
    revisions: Mapping[str, str] | None = None,
    extra: Sequence[str] = (),
) -> tuple[ServerSpec, ...]:
    """One vLLM server per model; `models` maps the served name to a model folder (or, with `offline=False`, a hub id).

    `revisions` pins hub ids. Free ports are chosen for models without one in `ports`. `extra` is appended to every command.
    """
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    shares = core_shares(len(models), cores) if models else []
    specs = []
    for (name, source), share, spare in zip(models.items(), shares, free_ports(len(models)), strict=True):
        port = (ports or {}).get(name, spare)
        # The `vllm` command looks up a distribution of that name, which the CPU build doesn't have: hence the module.
        command = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(source)]
        command += ["--served-model-name", name, "--host", HOST, "--port", str(port)]
        command += ["--max-model-len", str(max_model_len), "--disable-log-stats", "--disable-uvicorn-access-log"]
        if revisions and name in revisions:
            command += ["--revision", revisions[name]]
        env = {**_ALWAYS, **(_OFFLINE if offline else {})}
        if device == "cpu":
            # Blocks of 32 tokens, the smallest the CPU kernels take: prompt prefixes are reused in whole blocks, and
            # with the default of 128 short few-shot prompts share nothing (half the speed). bfloat16 is 1.7 times as
            # fast as float32 where the processor knows it; eager starts in a fifth of the time at the same speed.
            command += ["--dtype", "bfloat16", "--enforce-eager", "--block-size", "32"]
            env |= {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": share}
        log = log_dir / f"{name.replace('/', '--')}.log"
        specs.append(ServerSpec(name, (name,), (*command, *extra), env, port, log))
    return tuple(specs)


def served_models(base_url: str, timeout_s: float = 2.0) -> tuple[str, ...] | None:
    """The model names an OpenAI API lists, or None when nothing there answers as one."""
    try:
        with LOCAL.open(f"{base_url}/models", timeout=timeout_s) as response:
            return tuple(str(model["id"]) for model in json.load(response)["data"])
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        return None
