"""The supervisor on tiny server processes: it starts, shares and restarts, and leaves nothing."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from lab import python_path
from tests.support.processes import alive, all_below, wait_until
from tests.support.tiny_server import processes, served_models, tiny_spec
from ttsgraph.base.errors import EndpointError
from ttsgraph.base.files import keep
from ttsgraph.pool.engine import EngineSettings
from ttsgraph.serving.placement import HostedModel
from ttsgraph.serving.servers import ServerSpec, server_specs
from ttsgraph.serving.supervisor import in_use, shared_servers

ROOT = Path(__file__).resolve().parents[2]


def shared(folder, specs, timeout_s=30):
    models = {spec.model for spec in specs}
    return shared_servers(folder / "servers.json", models, lambda: specs, timeout_s)


# Another process: it uses these servers until its input ends, or ends in another way.
USER = """
import json, signal, sys, threading
from pathlib import Path
from ttsgraph.serving.servers import ServerSpec
from ttsgraph.serving.supervisor import shared_servers
# The signal is ignored where the tests run in the background.
signal.signal(signal.SIGINT, signal.default_int_handler)
record, described, ending = json.loads(sys.argv[1])
spec = ServerSpec(**described)
servers = shared_servers(Path(record), {spec.model}, lambda: [spec], 30)
if ending == "thread":  # the starting thread ends long before the process: the server must stay
    thread = threading.Thread(target=servers.__enter__)
    thread.start()
    thread.join()
else:
    servers.__enter__()
print(json.loads(Path(record).read_text())["value"]["urls"][spec.model][0], flush=True)
sys.stdin.read()
"""


def start_user(record, spec, ending="input"):
    described = json.dumps([record, asdict(spec), ending], default=str)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    more = {"text": True, "env": os.environ | {"PYTHONPATH": python_path(ROOT)}, "cwd": ROOT}
    return subprocess.Popen([sys.executable, "-c", USER, described], **pipes, **more)


def first_line(user):
    return user.stdout.readline().strip()


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, "thread"])
def test_no_process_outlives_its_users(make_spec, pids, tmp_path, ending):
    """A server that a process started, which then ends so."""
    spec = make_spec("tiny")
    user = start_user(tmp_path / "servers.json", spec, ending)
    assert first_line(user) == spec.base_url
    started = all_below(user.pid)
    if isinstance(ending, signal.Signals):
        assert len(started) >= 4  # the supervisor, the guard, the server and what that started
        user.send_signal(ending)
    elif ending == "thread":
        time.sleep(0.5)
        assert served_models(spec.base_url) == (spec.name,)
    user.communicate(timeout=60)
    wait_until(lambda: not any(map(alive, started)), 60)
    assert not any(map(alive, processes(pids)))


def test_servers_stay_until_their_last_user_ends(tmp_path, pids):
    record = tmp_path / "servers.json"
    users = [start_user(record, tiny_spec(tmp_path)) for _ in range(3)]
    (url,) = set(map(first_line, users))
    assert len(processes(pids)) == 2  # one server and its child, for all that began together
    starter = next(user for user in users if all_below(user.pid))
    starter.kill()
    for user in (starter, *(user for user in users if user is not starter)):
        assert served_models(url) == ("tiny",)
        user.communicate(timeout=30)
    assert len(processes(pids)) == 2
    wait_until(lambda: not any(map(alive, processes(pids))))
    with shared(tmp_path, [tiny_spec(tmp_path)]):  # and others can be started
        assert len(processes(pids)) == 4


def test_servers_in_use_start_when_one_asks_and_stay_for_the_next(tmp_path, pids):
    record = tmp_path / "servers.json"
    with in_use(record), in_use(record):
        assert not processes(pids)
        for _ in range(2):
            user = start_user(record, tiny_spec(tmp_path))
            url = first_line(user)
            user.communicate(timeout=30)
        assert len(processes(pids)) == 2
        assert served_models(url) == ("tiny",)
    assert not any(map(alive, processes(pids)))


FAILING = {
    # the program of a server that can't be used, and what is said of it
    "never answers": ("import time; time.sleep(600)", "wanted was not up after 10 s"),
    "ends": (
        "import os, sys; print('denied:', os.environ['HF_TOKEN']); sys.exit(3)",
        r"(?s)wanted ended with status 3 .*denied: \[key\].*make setup",
    ),
    "no environment": (None, r"(?s)status 127 .*can't start .*no-python.*make setup"),
}


@pytest.mark.parametrize("case", FAILING)
def test_why_servers_are_not_up_is_told_without_secrets_and_none_is_left(
    make_spec, pids, tmp_path, monkeypatch, case
):
    monkeypatch.setenv("HF_TOKEN", "sesame-sesame-sesame")
    program, why = FAILING[case]
    engine = EngineSettings(kind="vllm", python=str(tmp_path / "no-python"))
    (failing,) = server_specs(engine, {"wanted": HostedModel("folder")}, tmp_path)
    if program is not None:
        command = (sys.executable, "-c", program)
        failing = replace(make_spec("wanted"), command=command, secrets=("HF_TOKEN",))
    specs = [make_spec("tiny"), failing]
    with pytest.raises(EndpointError, match=why), shared(tmp_path, specs, timeout_s=10):
        pass
    assert not any(map(alive, processes(pids)))


def test_a_server_that_no_longer_answers_is_not_waited_for_forever(make_spec, pids, tmp_path):
    spec = make_spec("tiny")
    with shared(tmp_path, [spec]):
        os.kill(processes(pids)[0], signal.SIGSTOP)
        hung = shared(tmp_path, [spec], timeout_s=0.5)
        with pytest.raises(EndpointError, match=f"answer from {spec.base_url}"), hung:
            pass
        os.kill(processes(pids)[0], signal.SIGCONT)


@pytest.mark.parametrize("secrets", [(), ("HF_TOKEN",)])
def test_secrets_do_not_reach_the_server_but_those_that_it_needs(
    make_spec, tmp_path, monkeypatch, secrets
):
    hidden = ("OPENAI_API_KEY", "HF_TOKEN", "DB_PASSWORD")
    for name in (*hidden, "HARMLESS"):
        monkeypatch.setenv(name, "value")
    spec = replace(make_spec("tiny"), secrets=secrets)
    with shared(tmp_path, [spec]):
        environment = spec.log.read_text()
    assert "'ADDED'" in environment
    assert "'HARMLESS'" in environment
    assert tuple(name for name in hidden if name in environment) == secrets


def test_a_record_whose_supervisor_was_killed_is_no_pool(tmp_path):
    spec = tiny_spec(tmp_path)
    record = tmp_path / "servers.json"
    keep(record, {"urls": {"tiny": ["http://127.0.0.1:9/v1"]}, "failed": "long ago"})
    with shared(tmp_path, [spec]) as urls:
        assert urls == {"tiny": (spec.base_url,)}


SLOW = """
import pathlib, sys, time
pathlib.Path(sys.argv.pop(1)).open("a").write(sys.argv[2] + " ")
time.sleep(0.4)
exec(open(sys.argv.pop(1)).read())
"""


def test_servers_on_one_gpu_start_one_after_another(make_spec, tmp_path, said):
    started = tmp_path / "started"

    def on(gpu: int, name: str) -> ServerSpec:
        spec = make_spec(name)
        python, *rest = spec.command
        return replace(spec, command=(python, "-c", SLOW, str(started), *rest), gpus=(gpu,))

    specs = [on(0, "first"), on(0, "second"), on(1, "elsewhere")]
    with shared(tmp_path, specs) as urls:
        assert set(urls) == {"first", "second", "elsewhere"}
    lines = said().splitlines()
    up = {line.split()[0]: place for place, line in enumerate(lines) if " is up after " in line}
    assert up["first"] < up["second"]
    ports = started.read_text().split()
    # The second one waits until the first one answers.
    assert ports.index(str(specs[2].port)) < ports.index(str(specs[1].port))


def test_a_dead_server_is_started_again_at_its_address_three_times_and_others_wait_for_it(
    make_spec, pids, tmp_path
):
    spec = make_spec("tiny")
    with shared(tmp_path, [spec]) as urls:
        for time_ in range(4):
            before = processes(pids)[2 * time_ :]
            os.kill(before[0], signal.SIGKILL)
            wait_until(lambda: served_models(spec.base_url) is None)
            if time_ < 3:
                with shared(tmp_path, [spec]) as again:
                    assert again == urls == {"tiny": (spec.base_url,)}
                assert not any(map(alive, before))
        lines = tmp_path / "logs" / "servers.log"
        wait_until(lambda: "ended with status 137 and is not restarted" in lines.read_text())
    assert lines.read_text().count("tiny ended with status 137; restarting it") == 3
    assert not any(map(alive, processes(pids)))
