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
from typing import Any, TypeAlias

from cases import SQUARES, cases

CANARY = "canary-5d41"


@dataclass
class Scene:
    """What there is to attack: a canary that nobody may change, a file `new` that nobody may make,
    folders with secrets, a process, servers, a secret in the environment and in an open descriptor.
    """

    folder: Path
    victim: subprocess.Popen[bytes]
    visitors: list[str] = field(default_factory=list)
    ports: dict[str, int | str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.canary, self.new, self.home, self.project = (
            self.folder / name for name in ("canary", "new", "home", "project")
        )

    def names(self, scale: int) -> str:
        """The start of every attack."""
        targets = ("canary", "new", "home", "project")
        values: dict[str, Any] = {name.upper(): str(getattr(self, name)) for name in targets}
        values |= {"SCALE": scale, "VICTIM": self.victim.pid, "WORD": CANARY[:6]} | self.ports
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
        start = scene.names(scale)
        return f"{start}{self.source}\nif 'f' not in globals():\n    def f(x): return None\n"


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


class _Visit(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.server.visitors.append("somebody")  # type: ignore[attr-defined]


@contextmanager
def open_scene(folder: Path) -> Iterator[Scene]:
    """Targets in a folder of this test, closed and killed afterwards."""
    command = [sys.executable, "-S", "-c", "import time; time.sleep(600)", CANARY]
    victim = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    scene = Scene(folder, victim)
    for place in (scene.home, scene.project):
        place.mkdir()
        (place / "secret").write_text(CANARY)
    scene.canary.write_text(CANARY)
    scene.canary.chmod(0o640)
    os.utime(scene.canary, (1e9, 1e9))
    descriptor = os.open(scene.canary, os.O_RDONLY)
    os.set_inheritable(descriptor, True)
    os.environ["SECRET_KEY"] = CANARY
    loopback, unix, abstract = ("127.0.0.1", 0), str(folder / "s"), f"\0ttsgraph-{os.getpid()}"
    servers = [
        *(kind(loopback, _Visit) for kind in (socketserver.TCPServer, socketserver.UDPServer)),
        *(socketserver.UnixStreamServer(place, _Visit) for place in (unix, abstract)),
    ]
    tcp, udp = (server.server_address[1] for server in servers[:2])
    scene.ports = {"TCP": tcp, "UDP": udp, "UNIX": unix, "ABSTRACT": abstract}
    try:
        for server in servers:
            server.visitors = scene.visitors  # type: ignore[attr-defined]
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield scene
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()
        del os.environ["SECRET_KEY"]
        os.close(descriptor)
        victim.kill()
        victim.wait()
