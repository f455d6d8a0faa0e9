"""Programs that try to do harm, in text files, each under the harm it tries. All of them do it where
nothing stops them.

A program finds its targets under the names of `Scene.names`, and calls harm("...") when it has
succeeded in something that leaves no trace of its own. SCALE is how far it goes: all the way in the
sandbox, three steps where it would succeed.
"""

import os
import socketserver
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from cases import SQUARES, cases

CANARY = "canary-5d41"


@dataclass
class Scene:
    """What there is to attack: files, a process, servers, a secret in the environment and in an
    open descriptor.
    """

    folder: Path
    home: Path
    project: Path
    victim: subprocess.Popen[bytes]
    descriptor: int
    visitors: list[str] = field(default_factory=list)
    ports: dict[str, int | str] = field(default_factory=dict)

    @property
    def canary(self) -> Path:
        """A file that nobody may change."""
        return self.folder / "canary"

    @property
    def new(self) -> Path:
        """A file that nobody may make."""
        return self.folder / "new"

    def names(self, scale: int) -> str:
        """The start of every attack."""
        values = {
            "SCALE": scale,
            "CANARY": str(self.canary),
            "NEW": str(self.new),
            "HOME": str(self.home),
            "PROJECT": str(self.project),
            "VICTIM": self.victim.pid,
            "WORD": CANARY[:6],
            **self.ports,
        }
        lines = [f"{name} = {value!r}" for name, value in values.items()]
        return "\n".join([*lines, "def harm(what=''): raise SystemError(f'HARM {what}')", ""])


@dataclass(frozen=True)
class Outcome:
    """How a run ended: whether it was taken for a pass, what was said, and whether anything
    outlived twice the time limit.
    """

    passed: bool
    said: str = ""
    outlived: bool = False


Harm: TypeAlias = Callable[[Scene, Outcome], bool]


@dataclass(frozen=True)
class Attack:
    """A program, and how its harm shows. `tests` are those of the task that it pretends to
    solve.
    """

    name: str
    source: str
    done: Harm
    tests: str = SQUARES

    def program(self, scene: Scene, scale: int) -> str:
        """The whole solution."""
        return (
            f"{scene.names(scale)}{self.source}\nif 'f' not in globals():\n    def f(x): return"
            " None\n"
        )


def killed(scene: Scene, outcome: Outcome) -> bool:
    """The harm of a signal."""
    try:
        return scene.victim.wait(0.3) is not None
    except subprocess.TimeoutExpired:
        return False


def changed(scene: Scene, outcome: Outcome) -> bool:
    """The harm of writing outside: the canary is not as it was, or there is something new."""
    untouched = scene.canary.exists() and scene.canary.read_text() == CANARY
    return (
        not untouched
        or scene.canary.stat().st_mode & 0o777 != 0o640
        or scene.canary.stat().st_mtime != 1e9
        or scene.new.exists()
    )


FILES = ("resources", "files", "outside", "verdicts", "means", "values")
HARMS: dict[str, Harm] = {
    "killed": killed,
    "changed": changed,
    "says_so": lambda scene, outcome: "HARM" in outcome.said,  # as it leaves no trace of its own
    "passes": lambda scene, outcome: outcome.passed,
    "leaks": lambda scene, outcome: CANARY in outcome.said,
    "outlives": lambda scene, outcome: outcome.outlived,
    "gone": lambda scene, outcome: not scene.canary.exists(),
    "visits": lambda scene, outcome: bool(scene.visitors),
}
ATTACKS = {
    name: Attack(name, source, HARMS[harm], tests)
    for file in FILES
    for title, (source, tests) in cases(f"attacks/{file}.txt").items()
    for harm, _, name in [title.partition(": ")]
}


@contextmanager
def open_scene(folder: Path) -> Iterator[Scene]:
    """Targets in a folder of this test, closed and killed afterwards."""
    home = folder / "home"
    project = folder / "project"
    for place in (home, project):
        place.mkdir()
        (place / "secret").write_text(CANARY)
    canary = folder / "canary"
    canary.write_text(CANARY)
    canary.chmod(0o640)
    os.utime(canary, (1e9, 1e9))
    descriptor = os.open(canary, os.O_RDONLY)
    os.set_inheritable(descriptor, True)
    victim = subprocess.Popen(
        [sys.executable, "-S", "-c", "import time; time.sleep(600)", CANARY],
        stderr=subprocess.DEVNULL,
    )
    scene = Scene(folder, home, project, victim, descriptor)
    os.environ["SECRET_KEY"] = CANARY

    class Visit(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            scene.visitors.append("somebody")

    loopback, name = ("127.0.0.1", 0), f"\0ttsgraph-{os.getpid()}"
    servers = {
        "TCP": socketserver.TCPServer(loopback, Visit),
        "UDP": socketserver.UDPServer(loopback, Visit),
        "UNIX": socketserver.UnixStreamServer(str(folder / "s"), Visit),
        "ABSTRACT": socketserver.UnixStreamServer(name, Visit),
    }
    for what in ("TCP", "UDP"):
        scene.ports[what] = servers[what].server_address[1]
    scene.ports |= {"UNIX": str(folder / "s"), "ABSTRACT": name}
    try:
        for server in servers.values():
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield scene
    finally:
        for server in servers.values():
            server.shutdown()
            server.server_close()
        del os.environ["SECRET_KEY"]
        os.close(descriptor)
        victim.kill()
        victim.wait()
