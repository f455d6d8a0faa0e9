"""Re-search as a deployment, on real Prefect and MLflow servers that are restarted."""

import json
import sys
from contextlib import AbstractContextManager, ExitStack, chdir
from pathlib import Path

import httpx
import pytest

from tests.support.background import background, mlflow_server
from tests.support.processes import wait_until
from tests.support.simulated_project import SimulatedProject
from ttsgraph.serving.servers import free_ports
from ttsgraph_flows.lineage import lineage

pytestmark = pytest.mark.long
STRONG = "llama-3.1-8b"
USELESS = "gemma-1.1-2b"


def prefect_server(folder: Path, port: int) -> AbstractContextManager[None]:
    url = f"http://127.0.0.1:{port}/api"
    command = [sys.executable, "-m", "prefect", "server", "start", "--no-ui"]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    env = {"PREFECT_HOME": str(folder / "prefect"), "PREFECT_API_URL": url}
    return background(folder / "prefect.log", *command, health=f"{url}/health", **env)


def runs(url: str) -> list[dict]:
    begun = {"flow_runs": {"state": {"type": {"not_any_": ["SCHEDULED"]}}}}
    return httpx.post(f"{url}/flow_runs/filter", json=begun, timeout=20).json()


def test_a_model_that_joins_is_searched_with_once_and_both_servers_can_be_restarted(
    tmp_path, monkeypatch
):
    servers, folder = tmp_path / "servers", tmp_path / "project"
    servers.mkdir()
    mlflow, prefect = free_ports(2)
    api = f"http://127.0.0.1:{prefect}/api"

    def both(stack: ExitStack) -> str:
        stack.enter_context(prefect_server(servers, prefect))
        return stack.enter_context(mlflow_server(servers, mlflow))

    with ExitStack() as stack:
        running = stack.enter_context(ExitStack())
        uri = both(running)
        monkeypatch.setenv("PREFECT_API_URL", api)
        monkeypatch.setenv("PREFECT_HOME", str(servers / "client"))
        project = SimulatedProject(folder)
        project.uri = uri
        project.settings["deploy"] = {"promote": "better", "confidence": 0.6}
        project.build("agent_reinforce")
        outcome = folder / "research" / "simulated-small" / "math" / "outcome.json"

        def champion(number: str) -> bool:
            with project.registry() as registry:
                return registry.champion("math").number == number

        assert champion("1")
        code = (
            "from ttsgraph.settings.stages import ResearchSettings\n"
            "from ttsgraph_flows.deploy import deploy\n"
            "ResearchSettings.watch_s = 1\n"
            "deploy()"
        )
        program = f"cd {folder} && exec {sys.executable} -c '{code}'"
        log = servers / "deploy.log"
        stack.enter_context(background(log, "/bin/sh", "-c", program, **project.environment))
        # The first run finds nothing changed.
        wait_until(lambda: any(run["state_type"] == "COMPLETED" for run in runs(api)), 180)
        assert not outcome.exists()

        project.settings["pool"][USELESS] = project.whole_pool[USELESS]
        project.save()
        wait_until(outcome.exists, 240)
        assert champion("1")

        running.close()
        project.settings["pool"][STRONG] = project.whole_pool[STRONG]
        project.save()
        both(running)
        wait_until(lambda: json.loads(outcome.read_text())["promoted"], 240)
        assert champion("2")

        with chdir(folder):
            assert lineage("math@champion", uri).broken == ()
        before = len(runs(api))
        code = (
            "from ttsgraph.settings.profile import load_params\n"
            "from ttsgraph_flows.deploy import request\n"
            "for _ in range(2): request('math', 'one change', load_params())"
        )
        first, second = project.run(sys.executable, "-c", code).stderr.splitlines()[-2:]
        assert first == second  # the name of one run
        wait_until(lambda: all(run["state_type"] == "COMPLETED" for run in runs(api)[before:]), 180)
        assert [run["state_type"] for run in runs(api)].count("FAILED") == 0
