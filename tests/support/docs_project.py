"""A copy of the project in which the documentation's commands are typed, on stub models."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import yaml

from lab import python_path
from tests.support.docs_blocks import Block, changed, not_run, patched
from tests.support.project import ROOT, copy_folder
from tests.support.stub_server import StubServer

EXAMPLE_URL = "https://models.example/v1"
EXAMPLE_PORT = "8080"
STUB = StubServer(("smollm2-135m", "gemma3-270m", "org/my-model", "org/my-small-model"), skill=0.6)
COPIED = ("checker", "flows", "lab", "pipeline", "profiles", "reader", "requirements")
FILES = (
    "Makefile",
    "dvc.yaml",
    ".dvcignore",
    "params.yaml",
    "pyproject.toml",
)


class DocsProject:
    """Where a page's blocks are carried out; what a page starts runs until `close`."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.exports: list[str] = []
        self.server: subprocess.Popen[bytes] | None = None

    def create(self) -> None:
        """Copy the project: the laptop profile with the stub's models and a short search."""
        for name in COPIED:
            copy_folder(name, self.folder)
        for name in FILES:
            shutil.copy(ROOT / name, self.folder)
        (self.folder / "inputs").mkdir()
        (self.folder / "inputs" / "README.md").write_text("nothing yet\n")
        path = self.folder / "profiles" / "laptop.yaml"
        laptop = yaml.safe_load(path.read_text())
        laptop["engine"] = {"kind": "external", "max_retries": 0}
        for model in laptop["pool"].values():
            del model["weights"]
            model["base_url"] = self.url
        laptop["search"] |= {"max_iterations": 2, "patience": 2}
        laptop["pilot"] = {"questions": 8, "widths": [1, 2], "depths": [1, 2], "max_nodes": 4}
        laptop["init"] = {"questions": 8, "candidates": 2, "topologies": 1}
        laptop["tasks"]["math"]["splits"] = {"shots": 4, "train": 20, "val": 10, "test": 10}
        path.write_text(yaml.safe_dump(laptop))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        params = yaml.safe_load((self.folder / "params.yaml").read_text())
        params |= {"tasks": ["math"], "service": {"port": port}}
        (self.folder / "params.yaml").write_text(yaml.safe_dump(params))
        # The environment is the one that the tests run in, and ready.
        for name in (".venv", ".venv-serve"):
            (self.folder / name).mkdir()
            (self.folder / name / ".ready").touch()
        for name in ("bin", "lib", "pyvenv.cfg"):
            (self.folder / ".venv" / name).symlink_to(Path(sys.prefix) / name)
        self.type("dvc init --no-scm -q")

    def copy(self, folder: Path) -> DocsProject:
        """The same in another folder, with all that was built."""
        shutil.copytree(self.folder, folder, symlinks=True, dirs_exist_ok=True)
        for name in (".venv", ".venv-serve"):
            (folder / name / ".ready").touch()
        return DocsProject(folder, self.url)

    @property
    def port(self) -> int:
        """Where `ttsgraph serve` listens in place of its usual port."""
        return int(yaml.safe_load((self.folder / "params.yaml").read_text())["service"]["port"])

    def carry_out(self, block: Block) -> None:
        """Type a block's commands, run its program, write its file, or change settings and code."""
        text = block.text.replace(EXAMPLE_URL, self.url)
        if block.language == "sh":
            for command in block.commands:
                if command not in not_run():
                    self.type(command)
        elif block.language == "yaml":
            assert block.title, (
                f"{block.page}:{block.line}: expected a title that names the settings file"
            )
            self.settings(block.title, text)
        elif block.language == "diff":
            patched(self.folder, text)
        elif block.title:
            (self.folder / block.title).write_text(text)
        elif block.language == "python":
            self.run(
                [sys.executable, "-c", text.replace(f":{EXAMPLE_PORT}/", f":{self.port}/")],
                "a program",
            )

    def settings(self, title: str, text: str) -> None:
        """Change a settings file; a profile of the reader's own begins as the laptop's."""
        path = self.folder / title.removeprefix("add to ")
        port = self.port
        if not path.exists() and path.parent.name == "named":
            path.write_text("{}")
        elif not path.exists():
            shutil.copy(self.folder / "profiles" / "laptop.yaml", path)
        changed(path, title, text)
        if path.name == "params.yaml":
            changed(path, title, yaml.safe_dump({"service": {"port": port}}))

    def type(self, command: str) -> None:
        """Type a command: `export` holds for what follows, and a server goes on meanwhile."""
        if command.startswith("export "):
            self.exports.append(command)
        elif command.startswith("ttsgraph serve "):
            self.serve(command)
        else:
            self.run(["bash", "-c", "; ".join([*self.exports, command])], command)

    def run(self, arguments: list[str], shown: str) -> None:
        """Run to the end, and well."""
        done = subprocess.run(
            arguments,
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert done.returncode == 0, f"{shown}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"

    def serve(self, command: str) -> None:
        """Start a server in place of the one before, and wait until it answers."""
        self.close()
        # A session of its own: ending it ends what it started.
        self.server = subprocess.Popen(
            ["bash", "-c", f"exec {command}"], cwd=self.folder, env=self.env, start_new_session=True
        )
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            assert self.server.poll() is None, f"{command} ended with {self.server.returncode}"
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/healthz", timeout=2):
                    return
            except OSError:
                time.sleep(0.2)
        raise AssertionError(f"{command} does not answer")

    def close(self) -> None:
        """End the server, if there is one."""
        if self.server is not None:
            self.server.terminate()
            self.server.wait(60)
            self.server = None

    @property
    def env(self) -> dict[str, str]:
        """That of the commands: the copy's code and the tests' interpreter come first."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return os.environ | {"PYTHONPATH": python_path(self.folder), "PATH": path}
