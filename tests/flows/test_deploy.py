"""Re-search as a deployment, on real Prefect and MLflow servers that are restarted."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.request
from contextlib import ExitStack, chdir
from pathlib import Path

import pytest

from lab import python_path
from tests.support.processes import wait_until
from tests.support.simulated_project import SimulatedProject
from ttsgraph.serving.servers import free_ports
from ttsgraph_flows.lineage import lineage

pytestmark = pytest.mark.long
BIN = Path(sys.executable).parent
STRONG = "llama-3.1-8b"
USELESS = "gemma-1.1-2b"


class Service:
    """A server process that keeps its state in a folder and can be restarted."""

    def __init__(self, command: list[str], health: str, log: Path, **env: str) -> None:
        self.command = command
        self.health = health
        self.log = log
        self.env = os.environ | env
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdout=log, stderr=log, env=self.env, start_new_session=True
            )
        wait_until(self.answers, 180)

    def answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()[-2000:]
        try:
            with urllib.request.urlopen(self.health, timeout=2):
                return True
        except OSError:
            return False

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(20)
                return
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def mlflow_server(folder: Path) -> tuple[Service, str]:
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    store = ["--backend-store-uri", f"sqlite:///{folder}/server.db"]
    store += ["--artifacts-destination", str(folder / "artifacts"), "--workers", "1"]
    command = [str(BIN / "mlflow"), "server", "--host", "127.0.0.1", "--port", str(port), *store]
    return Service(command, f"{url}/health", folder / "mlflow.log"), url


def prefect_server(folder: Path) -> tuple[Service, str]:
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}/api"
    command = [sys.executable, "-m", "prefect", "server", "start", "--no-ui"]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    home = str(folder / "prefect")
    log = folder / "prefect.log"
    return Service(command, f"{url}/health", log, PREFECT_HOME=home, PREFECT_API_URL=url), url


def runs(url: str) -> list[dict]:
    request = urllib.request.Request(
        f"{url}/flow_runs/filter",
        b'{"flow_runs": {"state": {"type": {"not_any_": ["SCHEDULED"]}}}}',
        method="POST",
    )
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)


def test_a_model_that_joins_is_searched_with_once_and_both_servers_can_be_restarted(
    tmp_path, monkeypatch
):
    servers = tmp_path / "servers"
    folder = tmp_path / "project"
    servers.mkdir()
    folder.mkdir()
    (mlflow, uri) = mlflow_server(servers)
    (prefect, api) = prefect_server(servers)
    with ExitStack() as stack:
        for service in (mlflow, prefect):
            stack.callback(service.stop)
            service.start()
        monkeypatch.setenv("PREFECT_API_URL", api)
        monkeypatch.setenv("PREFECT_HOME", str(servers / "client"))
        project = SimulatedProject(folder)
        project.uri = uri
        project.settings["deploy"] = {"promote": "better", "confidence": 0.6}
        project.settings["research"] = {"watch_s": 1}
        project.build("agent_reinforce")
        outcome = folder / "research" / "simulated-small" / "math" / "outcome.json"

        def champion(number: str) -> bool:
            with project.registry() as registry:
                return registry.champion("math").number == number

        assert champion("1")
        path = {
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": python_path(folder),
            "PREFECT_API_URL": api,
        }
        program = f"cd {folder} && exec {sys.executable} -m ttsgraph_flows.deploy"
        deploy = Service(
            ["/bin/sh", "-c", program], f"{api}/health", servers / "deploy.log", **path
        )
        stack.callback(deploy.stop)
        deploy.start()
        # The first run finds nothing changed.
        wait_until(lambda: any(run["state_type"] == "COMPLETED" for run in runs(api)), 180)
        assert not outcome.exists()

        project.settings["pool"][USELESS] = project.whole_pool[USELESS]
        project.save()
        wait_until(outcome.exists, 240)
        assert champion("1")

        mlflow.stop()
        prefect.stop()
        project.settings["pool"][STRONG] = project.whole_pool[STRONG]
        project.save()
        mlflow.start()
        prefect.start()
        wait_until(lambda: json.loads(outcome.read_text())["promoted"], 240)
        assert champion("2")

        before = len(runs(api))
        with chdir(folder):
            assert lineage("math@champion", uri).broken == ()
        code = (
            "from ttsgraph_flows.deploy import trigger; print(trigger('math', 'one change').id,"
            " trigger('math', 'one change').id)"
        )
        first, second = project.run(sys.executable, "-c", code).stdout.split()
        assert first == second
        wait_until(lambda: all(run["state_type"] == "COMPLETED" for run in runs(api)[before:]), 180)
        assert [run["state_type"] for run in runs(api)].count("FAILED") == 0
