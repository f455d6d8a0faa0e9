"""What deploy/ starts exists: linters where there are any, and each command's options."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer
import yaml

from ttsgraph.base.parsing import parse
from ttsgraph.cli import app
from ttsgraph.settings.profile import Params

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
BIN = Path(sys.executable).parent
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
KUBERNETES = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
UNIT = (DEPLOY / "ttsgraph.service").read_text()
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()


def of_kind(kind):
    return next(one for one in KUBERNETES if one["kind"] == kind)


def pod():
    return of_kind("Deployment")["spec"]["template"]["spec"]


def arguments():
    """How each file starts `ttsgraph`."""
    unit = re.search(r"^ExecStart=\S+/ttsgraph (.+)$", UNIT, re.MULTILINE).group(1).split()
    image = re.search(r"^CMD (\[.+\])$", DOCKERFILE, re.MULTILINE).group(1)
    return {
        "systemd": unit,
        "image": yaml.safe_load(image),
        "compose": COMPOSE["services"]["server"]["command"],
        "kubernetes": pod()["containers"][0]["args"],
    }


@pytest.mark.parametrize("where", ["systemd", "image", "compose", "kubernetes"])
def test_the_server_takes_the_arguments_that_it_is_started_with(where):
    name, *rest = arguments()[where]
    command = typer.main.get_command(app).commands[name]
    made = command.make_context(name, list(rest))
    assert made.params["models"] == ["math@champion"]
    assert made.params["host"] == "0.0.0.0"


@pytest.mark.parametrize("name", ["mlflow", "prefect"])
def test_the_servers_beside_it_know_their_options(name):
    command = COMPOSE["services"][name]["command"]
    words = [word for word in command if not word.startswith("-")]
    until = 2 if name == "mlflow" else 3
    helped = subprocess.run(
        [BIN / words[0], *words[1:until], "--help"], capture_output=True, text=True, check=True
    ).stdout
    for option in (word.partition("=")[0] for word in command if word.startswith("-")):
        assert option in helped, option


def test_the_image_has_what_it_copies_and_leaves_no_root():
    for line in re.findall(r"^COPY (?:--\S+ )?(.+)$", DOCKERFILE, re.MULTILINE):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists(), source
    assert re.search(r"^USER \d+$", DOCKERFILE, re.MULTILINE)


def test_the_image_passes_its_linter():
    if not (linter := shutil.which("hadolint", path=BIN)):
        pytest.skip("no hadolint")
    done = subprocess.run([linter, DEPLOY / "Dockerfile"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_systemd_takes_the_unit(tmp_path):
    if not (verifier := shutil.which("systemd-analyze")):
        pytest.skip("no systemd-analyze")
    # What it starts is not on this machine; a command that is takes its place.
    text = UNIT.replace("/srv/ttsgraph/.venv/bin/ttsgraph", "/bin/true")
    unit = tmp_path / "ttsgraph.service"
    unit.write_text(text)
    done = subprocess.run([verifier, "verify", unit], capture_output=True, text=True)
    complaints = [line for line in done.stderr.splitlines() if "ttsgraph.service" in line]
    assert complaints == []


def test_settings_of_the_containers_are_settings():
    for data in (
        yaml.safe_load((DEPLOY / "params.yaml").read_text()),
        yaml.safe_load(of_kind("ConfigMap")["data"]["params.yaml"]),
    ):
        params = parse(Params, data, "params.yaml")
        assert (ROOT / "profiles" / f"{params.profile}.yaml").exists()
        assert params.tracking_uri == "http://mlflow:5000"


def test_compose_names_what_it_has():
    services = COMPOSE["services"]
    assert set(services) == {"server", "mlflow", "prefect", "vllm"}
    for service in services.values():
        assert ("image" in service) != ("build" in service)
        assert not str(service.get("image", "")).endswith(":latest")
        assert set(service.get("depends_on", {})) <= set(services)
        for volume in service.get("volumes", []):
            assert volume.split(":")[0] in COMPOSE["volumes"]
    for name in services["server"]["depends_on"]:
        assert "healthcheck" in services[name]
    assert (ROOT / "deploy" / services["server"]["build"]["context"]).resolve() == ROOT
    pinned = (ROOT / "requirements" / "constraints.txt").read_text()
    for name in ("mlflow", "prefect"):
        version = re.search(rf"^{name}==(.+)$", pinned, re.MULTILINE).group(1)
        assert version in services[name]["image"]


def test_the_manifest_probes_what_the_server_answers():
    server = pod()["containers"][0]
    (port,) = server["ports"]
    assert port["containerPort"] == 8080
    assert server["args"][-1] == str(port["containerPort"])
    for probe in ("startupProbe", "readinessProbe"):
        assert server[probe]["httpGet"] == {"path": "/healthz", "port": port["name"]}
    assert server["livenessProbe"]["tcpSocket"] == {"port": port["name"]}
    assert of_kind("Service")["spec"]["ports"][0]["targetPort"] == port["name"]
    labels = of_kind("Deployment")["spec"]["template"]["metadata"]["labels"]
    for selector in (
        of_kind("Deployment")["spec"]["selector"]["matchLabels"],
        of_kind("Service")["spec"]["selector"],
        of_kind("PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
    ):
        assert selector.items() <= labels.items()
    mounted = {mount["name"] for mount in server["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod()["volumes"]}
