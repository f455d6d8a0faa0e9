"""Check, before anything is installed, that a profile for GPUs can run on this machine. The check
needs only Python's standard library, so it reads the profile with regular expressions.

    python3 lab/project/preflight.py [PROFILE]     # default: the profile in params.yaml

Exits with code 2 if the profile needs GPUs and there is none, or if there is no such profile.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

GIB = 2**30
BYTES_PER_PARAMETER = 2


def missing(profile: str) -> list[str]:
    """Return a line for each of a profile's requirements that this machine lacks; `profile` is
    YAML.
    """
    engine = re.search(r"(?m)^engine:(.*(?:\n[ #].*)*)", profile)
    if engine is None or not re.search(r"\bdevice: *gpu\b", engine[1]):
        return []
    shown = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    if shutil.which(shown[0]) is not None:
        done = subprocess.run(shown, capture_output=True, text=True, check=False)
        if done.returncode == 0 and done.stdout.split():
            return []
    sizes = [float(size) for size in re.findall(r"\btotal: *([0-9.e+]+)", profile)]
    gib = sum(sizes) * BYTES_PER_PARAMETER / GIB
    found = [
        f"GPU: nvidia-smi shows none here; the weights of the profile's {len(sizes)} models take"
        f" {gib:.0f} GiB of GPU memory, and running them takes half as much again",
        f"weights: {gib:.0f} GiB to download; gated models need a Hugging Face token (HF_TOKEN)",
    ]
    keys = sorted(set(re.findall(r"\bapi_key_env: *(\w+)", profile)))
    return found + [f"key: export {key}=..." for key in keys]


def main(names: list[str]) -> int:
    """Print what is missing; return the exit code."""
    params = Path("params.yaml").read_text(encoding="utf-8")
    given = re.search(r"(?m)^profile: *(\S+)", params)
    name = names[0] if names else given[1] if given else ""
    path = Path("profiles", f"{name}.yaml")
    if not path.is_file():
        print(f"error: expected a profile at {path}, found none", file=sys.stderr)
        return 2
    lines = missing(path.read_text(encoding="utf-8"))
    for line in lines:
        print(f"MISSING  {line}")
    if lines:
        print(
            f"error: profile {name} can't run on this machine; nothing was installed or fetched"
            " (docs/vllm.md says what the profile needs)",
            file=sys.stderr,
        )
    return 2 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
