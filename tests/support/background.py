"""Servers of other people's that run beside a test."""

import os
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.processes import wait_until
from ttsgraph.serving.guard import end, start


def answers(url: str) -> bool:
    with suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:
        return answer.status == 200
    return False


@contextmanager
def background(log: Path, *command: str, health: str = "", **more: str) -> Iterator[None]:
    """A command, with these environment variables, once it answers; nothing of it is left then."""
    server = start(command, log, os.environ | more)

    def is_up() -> bool:
        assert server.poll() is None, log.read_text()[-2000:]
        return answers(health)

    try:
        if health:
            wait_until(is_up)
        yield
    finally:
        end([server])


@contextmanager
def mlflow_server(folder: Path, port: int, store: str = "") -> Iterator[str]:
    """A real MLflow server with this database, one of the folder if none is given; yields its
    address.
    """
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--workers", "1", "--artifacts-destination", str(folder / "artifacts")]
    command += ["--backend-store-uri", store or f"sqlite:///{folder}/server.db"]
    no_jobs = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with background(folder / "mlflow.log", *command, health=f"{url}/health", **no_jobs):
        yield url
