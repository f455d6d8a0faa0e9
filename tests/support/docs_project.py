"""A copy of the project in which the documentation's commands are typed, on stub models."""

from __future__ import annotations

import shlex
import shutil
import sys
from contextlib import ExitStack
from pathlib import Path

import yaml

from tests.support.background import background
from tests.support.docs_blocks import Block, changed, not_run, patched
from tests.support.project import ROOT, Copy, copy_folder
from tests.support.stub_server import StubServer
from ttsgraph.serving.servers import free_ports

EXAMPLE_URL = "https://models.example/v1"
EXAMPLE_PORT = "8080"
STUB = StubServer(("smollm2-135m", "gemma3-270m", "org/my-model", "org/my-small-model"), skill=0.6)


class DocsProject(Copy):
    """Where a page's blocks are carried out; what a page starts runs until `close`."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.exports: list[str] = []
        self.server = ExitStack()

    def create(self) -> None:
        """Copy the project: the laptop profile with the stub's models and a short search."""
        super().__init__(self.folder)
        (self.folder / "profiles").rmdir()
        for name in ("lab", "profiles"):
            copy_folder(name, self.folder)
        for name in ("Makefile", "params.yaml", "pyproject.toml"):
            shutil.copy(ROOT / name, self.folder)
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
        params = yaml.safe_load((self.folder / "params.yaml").read_text())
        params |= {"tasks": ["math"], "service": {"port": free_ports(1)[0]}}
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
            program = text.replace(f":{EXAMPLE_PORT}/", f":{self.port}/")
            self.done("a program", sys.executable, "-c", program)

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
            self.done(command, "bash", "-c", "; ".join([*self.exports, command]))

    def done(self, shown: str, *command: str) -> None:
        """Run to the end, and well."""
        done = self.run(*command, timeout=900)
        assert done.returncode == 0, f"{shown}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"

    def serve(self, command: str) -> None:
        """Start a server in place of the one before, and wait until it answers."""
        self.close()
        line = f"cd {shlex.quote(str(self.folder))} && exec {command}"
        health = f"http://127.0.0.1:{self.port}/healthz"
        log = self.folder.with_name(f"{self.folder.name}.log")
        server = background(log, "bash", "-c", line, health=health, **self.environment)
        self.server.enter_context(server)

    def close(self) -> None:
        self.server.close()
