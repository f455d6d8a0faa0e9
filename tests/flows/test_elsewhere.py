"""Results on other people's servers: pulled from S3 into a fresh clone, and a run whose MLflow is a
server with a PostgreSQL database.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import chdir
from pathlib import Path

import pytest

from lab import python_path
from tests.support.background import background, mlflow_server
from tests.support.processes import said_by, wait_until
from tests.support.project import ROOT
from tests.support.simulated_project import SimulatedProject
from ttsgraph.serving.servers import free_ports
from ttsgraph_flows import report
from ttsgraph_flows.lineage import lineage

pytestmark = pytest.mark.slow
BUCKET = "store"


@pytest.fixture
def s3(monkeypatch):
    """The URL of an S3 server with an empty bucket."""
    pytest.importorskip("dvc_s3", reason="needs dvc-s3, which `make setup` installs")
    moto = pytest.importorskip("moto.server", reason="needs moto, which `make setup` installs")
    import boto3

    for name, value in (("ACCESS_KEY_ID", "me"), ("SECRET_ACCESS_KEY", "x")):
        monkeypatch.setenv(f"AWS_{name}", value)
    server = moto.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    boto3.client("s3", endpoint_url=url, region_name="us-east-1").create_bucket(Bucket=BUCKET)
    yield url
    server.stop()


def test_a_fresh_clone_has_all_that_was_pushed_to_s3(searched, s3, tmp_path):
    project = searched.copy(tmp_path / "project")
    project.uri = "sqlite:///mlflow.db"
    project.save()
    shutil.copy(ROOT / ".gitignore", project.folder)
    (project.folder / "promotions" / ".gitignore").write_text("/math.jsonl\n")  # as DVC does in git
    said_by(["git", "init", "-q"], project.folder)
    for command in (
        "config core.no_scm false",
        f"remote add -d storage s3://{BUCKET}",
        f"remote modify storage endpointurl {s3}",
        "push -q",
    ):
        project.dvc(*command.split())
    clone = tmp_path / "clone"
    identity = "-c user.name=a -c user.email=a@example.org"
    for command in ("add -A", f"{identity} commit -qm one", f"clone -q . {clone}"):
        said_by(["git", *command.split()], project.folder)
    shutil.rmtree(project.folder)
    environment = os.environ | {"PYTHONPATH": python_path(clone)}
    ours = ("ttsgraph_flows.verify", "ttsgraph register", "ttsgraph lineage --check math")
    for command in ("dvc pull -q", *ours):
        said_by([sys.executable, "-m", *command.split()], clone, environment)


@pytest.fixture
def postgres():
    """The URI of an empty PostgreSQL database, which is reached by a socket in a folder."""
    pytest.importorskip("psycopg", reason="needs psycopg, which `make setup` installs")
    places = [*map(str, Path("/usr/lib/postgresql").glob("*/bin")), os.environ["PATH"]]
    initdb = shutil.which("initdb", path=os.pathsep.join(places))
    is_root = os.geteuid() == 0  # as which PostgreSQL refuses to run
    if initdb is None or (is_root and subprocess.run(["id", "-u", "postgres"]).returncode != 0):
        pytest.skip("needs PostgreSQL and its user, as by `apt-get install postgresql`")
    acting = ["runuser", "-u", "postgres", "--"] if is_root else []
    with tempfile.TemporaryDirectory(prefix="postgres-") as name:
        folder = Path(name)
        log = folder / "log"
        data = str(folder / "data")
        if is_root:
            shutil.chown(folder, "postgres")
        said_by([*acting, initdb, "-D", data, "-U", "ttsgraph", "-A", "trust", "-N"], Path("/"))
        server = str(Path(initdb).with_name("postgres"))
        with background(
            log, *acting, server, "-D", data, "-k", name, "-F", "-c", "listen_addresses="
        ):
            wait_until((folder / ".s.PGSQL.5432").exists)
            yield f"postgresql+psycopg://ttsgraph@/postgres?host={folder}"


def test_a_whole_run_on_postgresql_behind_a_server_of_mlflow(postgres, tmp_path):
    project = SimulatedProject(tmp_path / "project")
    project.settings["init"]["contest"] = {"enabled": False}
    with mlflow_server(tmp_path, free_ports(1)[0], postgres) as project.uri:
        project.build()
        with chdir(project.folder):
            report.report.fn()
            assert lineage("math@champion", project.uri).broken == ()
        assert project.ttsgraph("lineage", "--check", "math").returncode == 0
    assert not (project.folder / "mlruns").exists()
