"""Names that come to stand for another version; the server's start and end."""

import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import httpx
import openai
import pytest

from lab import python_path
from tests.support.background import answers
from tests.support.processes import wait_until
from tests.support.project import HANGS_S, ROOT
from tests.support.service import NAME, Shelf, ask, chat, graph_of, post, profile_of, serving
from ttsgraph.base.errors import DeploymentError, EndpointError, InputError
from ttsgraph.deployment.bundle import DeployedVersion, Rung
from ttsgraph.graphs import topologies
from ttsgraph.service.server import KEY_VARIABLE, keys_of, serve
from ttsgraph.settings.service import ServiceSettings

OLD = graph_of("assistant")
NEW = topologies.chain(["small", "small"])  # two calls of the one model that OLD does not ask


@pytest.fixture
def shelf(pool):
    return Shelf(math_champion=DeployedVersion("math", OLD, profile_of(pool.url), (), "1"))


def version_of(answer):
    return answer.model_extra["ttsgraph"]["model_version"]


def figures_of(service):
    return httpx.get(f"{service.url}/metrics").text


def test_a_name_is_followed_and_kept_while_its_registry_or_new_version_cant_be_had(shelf, pool):
    new = DeployedVersion("math", NEW, profile_of(pool.url), (), "2")
    unreachable = DeployedVersion("math", NEW, profile_of("http://127.0.0.1:9/v1"))
    with serving(shelf, REFRESH_S=0.02) as service:
        for trouble in (InputError("registry away"), OSError("disk"), unreachable):
            shelf.versions[NAME] = trouble
            service.refresh()
            assert version_of(ask(service.url)) == "1"
        shelf.versions[NAME] = new
        wait_until(lambda: version_of(ask(service.url)) == "2")  # it looks by itself
        assert ask(service.url).model_extra["ttsgraph"]["calls"] == 2
        assert f'graph_hash="{NEW.content_hash}",model="{NAME}",version="2"' in figures_of(service)
        assert 'version="1"' not in figures_of(service)
        del shelf.versions[NAME]
        service.refresh()
        with pytest.raises(openai.NotFoundError, match="served: none"):
            ask(service.url)
        assert httpx.get(f"{service.url}/healthz").status_code == 503
        shelf.versions[NAME] = new
        service.refresh()
        assert version_of(ask(service.url)) == "2"


def test_requests_under_way_end_on_the_version_they_began_with(shelf, pool):
    with serving(shelf) as service:
        pool.holds = lambda body: body["model"] == "large"
        with ThreadPoolExecutor() as threads:
            waiting = threads.submit(ask, service.url)
            wait_until(lambda: pool.holding == 1)
            shelf.versions[NAME] = DeployedVersion("math", NEW, profile_of(pool.url), (), "2")
            service.refresh()
            assert version_of(ask(service.url)) == "2"
            assert not waiting.done()
            pool.release()
            assert version_of(waiting.result()) == "1"


def test_a_server_that_could_not_answer_does_not_start(shelf):
    nobody = pytest.raises(DeploymentError, match="nothing is deployed as math@nobody")
    with nobody, serving(shelf, ("math@nobody",)):
        pass
    shelf.versions[NAME] = DeployedVersion("math", NEW, profile_of("http://127.0.0.1:9/v1"))
    with pytest.raises(EndpointError, match="no server at http"), serving(shelf):
        pass


def test_only_loopback_needs_no_key(monkeypatch):
    loopback, public = (ServiceSettings(host=host) for host in ("::1", "::"))
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    assert keys_of(loopback, no_key=False).open
    with pytest.raises(InputError, match=KEY_VARIABLE):
        keys_of(public, no_key=False)
    assert keys_of(public, no_key=True).open
    monkeypatch.setenv(KEY_VARIABLE, "sesame")
    assert not any(keys_of(each, no_key=False).open for each in (loopback, public))


def test_a_port_that_is_taken_is_named(shelf):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"127.0.0.1 port {port}"):
            serve(shelf, (NAME,), ServiceSettings(port=port))


@pytest.mark.slow
def test_the_command_serves_a_folder_and_lets_requests_finish_when_told_to_stop(tmp_path, pool):
    """A folder with a bundle, and without params.yaml."""
    DeployedVersion("math", OLD, profile_of(pool.url)).write(tmp_path / "blue")
    env = os.environ | {"PYTHONPATH": python_path(ROOT), "TTSGRAPH_API_KEY": ""}
    full = [sys.executable, "-m", "ttsgraph", "serve", "blue", "--port", "0"]
    more = {"cwd": tmp_path, "env": env, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(full, **more) as process:
        try:
            said = process.stdout.readline().split()
            assert said[:3] == ["serving", "math@blue", "at"]
            url = said[3].rstrip(",").removesuffix("/v1")
            pool.holds = lambda body: True
            with ThreadPoolExecutor() as threads:
                asked = threads.submit(post, url, chat(model="math@blue"))
                wait_until(lambda: pool.holding == 1)
                process.send_signal(signal.SIGTERM)
                wait_until(lambda: not answers(f"{url}/healthz"))
                pool.release()
            assert asked.result().json()["choices"][0]["message"]["content"] == "7"
            assert process.wait(HANGS_S) == 0
        finally:
            process.kill()


GRAPHS = {count: graph_of("voter", *["small"] * count) for count in (1, 2, 3, 4, 5, 6)}


def test_reasoning_effort_picks_one_of_the_rungs(pool):
    ahead = {1: -0.3, 2: -0.1, 4: 0.1}
    front = tuple(Rung(GRAPHS[n], float(n), more, "test") for n, more in ahead.items())
    version = DeployedVersion("math", GRAPHS[3], profile_of(pool.url), (), "3", front=front)
    with serving(Shelf(math_champion=version)) as service:
        listed = [one["id"] for one in httpx.get(f"{service.url}/v1/models").json()["data"]]
        assert listed == [NAME]
        for count, asked in (
            (3, {}),
            (1, {"reasoning_effort": "minimal"}),
            (2, {"reasoning_effort": "medium"}),
            (4, {"reasoning_effort": "high"}),
            (4, {"reasoning_effort": "max"}),
        ):
            found = post(service.url, chat(**asked)).json()
            assert found["ttsgraph"]["graph_hash"] == GRAPHS[count].content_hash
            assert found["choices"][0]["message"]["content"] == "7"
            assert (found["model"], found["ttsgraph"]["ignored"]) == (NAME, [])
        assert post(service.url, chat(reasoning_effort="huge")).status_code == 400
