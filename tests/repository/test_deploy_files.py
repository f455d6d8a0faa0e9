"""What deploy/ starts exists: linters where there are any, and each command's options."""

import re
import shutil
import sys
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import yaml

from lab import python_path
from tests.support.background import background
from tests.support.processes import ran, said_by
from tests.support.project import ROOT
from tests.support.service import ALONE, PoolStub, chat, pooled, post, profile_of
from ttsgraph.deployment.bundle import DeployedVersion
from ttsgraph.serving.servers import free_ports

DEPLOY = ROOT / "deploy"
BIN = Path(sys.executable).parent
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
KUBERNETES = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
UNIT = (DEPLOY / "ttsgraph.service").read_text()
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
PARAMS = yaml.safe_load((DEPLOY / "params.yaml").read_text())


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


def test_the_image_has_what_it_copies_and_leaves_no_root():
    for line in re.findall(r"^COPY (?:--\S+ )?(.+)$", DOCKERFILE, re.MULTILINE):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists(), source
    assert re.search(r"^USER \d+$", DOCKERFILE, re.MULTILINE)


def test_linters_take_the_image_and_the_unit(tmp_path):
    if linter := shutil.which("hadolint", path=BIN):
        assert said_by([linter, str(DEPLOY / "Dockerfile")]) == ""
    if verifier := shutil.which("systemd-analyze"):
        # What it starts is not on this machine; a command that is takes its place.
        unit = tmp_path / "ttsgraph.service"
        unit.write_text(UNIT.replace("/srv/ttsgraph/.venv/bin/ttsgraph", "/bin/true"))
        assert "ttsgraph.service" not in ran([verifier, "verify", str(unit)]).stderr


def test_the_manifest_probes_what_the_server_answers():
    deployment = of_kind("Deployment")["spec"]
    server = pod()["containers"][0]
    (port,) = server["ports"]
    assert server["args"][-1] == str(port["containerPort"]) == "8080"
    for probe in ("startupProbe", "readinessProbe"):
        assert server[probe]["httpGet"] == {"path": "/healthz", "port": port["name"]}
    assert server["livenessProbe"]["tcpSocket"] == {"port": port["name"]}
    assert of_kind("Service")["spec"]["ports"][0]["targetPort"] == port["name"]
    labels = deployment["template"]["metadata"]["labels"].items()
    assert deployment["selector"]["matchLabels"].items() <= labels
    assert of_kind("Service")["spec"]["selector"].items() <= labels
    assert of_kind("PodDisruptionBudget")["spec"]["selector"]["matchLabels"].items() <= labels
    mounted = {mount["name"] for mount in server["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod()["volumes"]}


@contextmanager
def started(where, folder):
    """The server as a stack starts it; yields its address."""
    (port,) = free_ports(1)
    url, bundle = f"http://127.0.0.1:{port}", str(folder / "bundle")
    (folder / "params.yaml").write_text(yaml.safe_dump(PARAMS))
    places = {"/bundle": bundle, "${TTSGRAPH_MODEL:-/bundle}": bundle}
    given = [places.get(word, word) for word in arguments()[where]]
    if "--port" in given:
        given = given[: given.index("--port")]
    command = ["env", "-C", str(folder), sys.executable, "-m", "ttsgraph", *given]
    command += ["--port", str(port)]
    known = {"PYTHONPATH": python_path(ROOT), "TTSGRAPH_API_KEY": "sesame"}
    with pooled(PoolStub()) as pool:
        DeployedVersion("math", ALONE, profile_of(pool.url)).write(folder / "bundle")
        with background(folder / "log", *command, health=f"{url}/healthz", **known):
            yield url


@pytest.mark.slow
@pytest.mark.parametrize("where", ["systemd", "image", "compose", "kubernetes"])
def test_what_a_stack_starts_answers_and_tells_its_figures(where, tmp_path):
    key = {"authorization": "Bearer sesame"}
    with started(where, tmp_path) as url:
        asked = chat(model="math@bundle")
        assert post(url, asked).status_code == 401
        answer = post(url, asked, **key).json()
        assert answer["choices"][0]["message"]["content"] == "7"
        assert httpx.get(f"{url}/metrics").status_code == 401
        assert httpx.get(f"{url}/healthz").status_code == 200
        figures = httpx.get(f"{url}/metrics", headers=key).text
    assert 'ttsgraph_requests_total{model="math@bundle",status="200"} 1.0' in figures
