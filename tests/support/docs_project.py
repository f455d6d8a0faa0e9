"""A copy of the project in which the documentation's commands are typed, on stub models."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import yaml

from tests.support.background import background
from tests.support.docs_blocks import NOT_RUN, Block, changed, patched
from tests.support.project import ROOT, Copy, copy_folder
from tests.support.stub_server import StubServer
from ttsgraph.serving.servers import free_ports

EXAMPLE_URLS = ("https://models.example/v1", "http://127.0.0.1:8000/v1")
EXAMPLE_PORT = ":8080/"
STUB = StubServer(
    ("smollm2-135m", "gemma3-270m", "org/my-model", "org/my-small-model", "org/rival-8b"), skill=0.6
)
MOODS = [{"text": f"{k} + {k + 1}", "label": str(2 * k + 1)} for k in range(30)]


class DocsProject(Copy):
    """Where a page's blocks are carried out; what a page starts runs until `close`."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.port = free_ports(1)[0]
        self.exports: list[str] = []
        self.server = ExitStack()
        self.close = self.server.close

    def create(self) -> None:
        """Copy the project: the laptop profile with the stub's models and a short search."""
        super().__init__(self.folder)
        (self.folder / "profiles").rmdir()
        for name in ("lab", "profiles"):
            copy_folder(name, self.folder)
        for name in ("Makefile", "params.yaml", "pyproject.toml"):
            shutil.copy(ROOT / name, self.folder)
        moods = "".join(json.dumps(row) + "\n" for row in MOODS)
        (self.folder / "inputs" / "moods.jsonl").write_text(moods)
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
        changed(self.folder / "params.yaml", "params.yaml", "tasks: [math]")
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

    def carry_out(self, block: Block) -> None:
        """Type a block's commands, run its program, write its file, or change settings and code."""
        text = block.text.replace(EXAMPLE_PORT, f":{self.port}/")
        for example in EXAMPLE_URLS:
            text = text.replace(example, self.url)
        if block.language == "sh":
            for command in replace(block, text=text).commands:
                if command not in NOT_RUN:
                    self.type(command)
        elif block.language == "yaml":
            assert block.title, f"{block.page}:{block.line}: expected the settings file as a title"
            self.settings(block.title, text)
        elif block.language == "diff":
            patched(self.folder, text)
        elif block.title:
            (self.folder / block.title).write_text(text)
        elif block.language == "python":
            self.said_by(sys.executable, "-c", text)
        else:
            assert block.language in {"json", "text"}, f"{block.page}:{block.line}"

    def settings(self, title: str, text: str) -> None:
        """Change a settings file; a profile of the reader's own begins as the laptop's."""
        path = self.folder / title.removeprefix("add to ")
        if not path.exists():
            shutil.copy(self.folder / "profiles" / "laptop.yaml", path)
        changed(path, title, text)

    def type(self, command: str) -> None:
        """Type a command: `export` holds for what follows, and a server goes on meanwhile."""
        if command.startswith("export "):
            self.exports.append(command)
        elif command.startswith("ttsgraph serve "):
            self.serve(command)
        else:
            self.said_by("bash", "-c", "; ".join([*self.exports, command]))

    def serve(self, command: str) -> None:
        """Start a server in place of the one before, and wait until it answers."""
        self.close()
        line = f"cd {shlex.quote(str(self.folder))} && exec {command} --port {self.port}"
        health = f"http://127.0.0.1:{self.port}/healthz"
        log = self.folder.with_name(f"{self.folder.name}.log")
        server = background(log, "bash", "-c", line, health=health, **self.environment)
        self.server.enter_context(server)
