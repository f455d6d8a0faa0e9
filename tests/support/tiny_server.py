"""A model server that is a real, tiny HTTP server process; fixtures are in conftest."""

import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import httpx

from ttsgraph.serving.servers import ServerSpec, free_ports

# A model server with what makes vLLM hard to stop: a child in a session of its own that ignores
# SIGTERM.
SERVER = """
import http.server, json, os, pathlib, subprocess, sys, time
port, models, pids = int(sys.argv[1]), sys.argv[2].split(","), pathlib.Path(sys.argv[3])
code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", code], start_new_session=True, stdout=subprocess.PIPE)
child.stdout.readline()
with pids.open("a") as file:
    file.write(f"{os.getpid()} {child.pid} ")
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"data": [{"id": name} for name in models]}).encode()
        self.send_response(200 if self.path in ("/health", "/v1/models") else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args):
        pass
print("environment", sorted(os.environ), flush=True)
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""
MakeSpec = Callable[..., ServerSpec]


def tiny_spec(
    folder: Path, model: str = "tiny", port: int | None = None, serves: str | None = None
) -> ServerSpec:
    """A server that should serve this model; what it starts is in the folder's `pids`."""
    script = folder / "server.py"
    script.write_text(SERVER)
    port = port if port is not None else free_ports(1)[0]
    given = (script, port, model if serves is None else serves, folder / "pids")
    command, log = (sys.executable, *map(str, given)), folder / f"{model}.log"
    return ServerSpec(model, model, command, {"ADDED": "1"}, port, log, grace_s=0.3)


def processes(pids: Path) -> list[int]:
    return [int(pid) for pid in pids.read_text().split()] if pids.exists() else []


def served_models(base_url: str) -> tuple[str, ...] | None:
    """The names of the models that a server lists, or None if no server answers."""
    with suppress(httpx.HTTPError):
        listed = httpx.get(f"{base_url}/models", timeout=2.0).json()
        return tuple(model["id"] for model in listed["data"])
    return None
