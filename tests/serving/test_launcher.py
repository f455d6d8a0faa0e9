"""The launcher on tiny server processes: it starts, reuses, fails, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lab import python_path
from tests.support.processes import alive, all_below, wait_until
from tests.support.tiny_server import MakeSpec, processes
from ttsgraph.base.errors import EndpointError
from ttsgraph.base.files import keep
from ttsgraph.pool.engine import ServeSettings
from ttsgraph.serving import launcher as launcher_module
from ttsgraph.serving.launcher import Launcher, read_pool, served_models, write_pool
from ttsgraph.serving.placement import servers_of
from ttsgraph.serving.servers import Hosted, ServerSpec, server_specs, threads_of_each

ROOT = Path(__file__).resolve().parents[2]


def test_start_serves_records_and_stop_leaves_no_process(
    make_spec: MakeSpec, pids: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state" / "pool.json"
    specs = [make_spec("tiny"), make_spec("small")]
    with Launcher(specs, state=state, grace_s=0.3) as launcher:
        assert launcher.endpoints == {spec.name: (spec.base_url,) for spec in specs}
        assert read_pool(state) == launcher.endpoints
        assert len(processes(pids)) == 4
        assert all(map(alive, processes(pids)))
    assert not any(map(alive, processes(pids)))
    assert not state.exists()
    assert read_pool(state) is None


def test_a_server_that_is_up_is_reused_and_left_up(
    make_spec: MakeSpec, pids: Path, tmp_path: Path
) -> None:
    spec = make_spec("tiny")
    state = tmp_path / "pool.json"
    with Launcher([spec], state=state, grace_s=0.3):
        with Launcher([spec], state=state) as second:
            assert second.endpoints == {"tiny": (spec.base_url,)}
            assert len(processes(pids)) == 2
        assert served_models(spec.base_url) == ("tiny",)
        assert read_pool(state) == {"tiny": (spec.base_url,)}


def test_a_port_that_serves_other_models_is_refused(make_spec: MakeSpec) -> None:
    first = make_spec("tiny")
    taken = r"port \d+ is taken: expected wanted .* serves tiny"
    with Launcher([first], grace_s=0.3):
        with pytest.raises(EndpointError, match=taken):
            Launcher([make_spec("wanted", port=first.port)]).start()
        assert served_models(first.base_url) == ("tiny",)


def test_a_server_that_lists_other_models_is_waited_for_and_never_up(
    make_spec: MakeSpec, pids: Path, monkeypatch: pytest.MonkeyPatch, said: Callable[[], str]
) -> None:
    monkeypatch.setattr(launcher_module, "TELL_S", 0.5)
    with pytest.raises(EndpointError, match="wanted was not up after 2 s"):
        Launcher([make_spec("wanted", serves="tiny")], timeout_s=2, grace_s=0.3).start()
    assert not any(map(alive, processes(pids)))
    assert re.search(r"waiting 1 s for wanted \(.*wanted.log\)", said())


def test_a_server_that_exits_shows_the_end_of_its_log_without_tokens(
    make_spec: MakeSpec, pids: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "sesame-sesame-sesame")
    script = "import os, sys; print('denied:', os.environ['HF_TOKEN']); sys.exit(3)"
    broken = replace(make_spec("broken"), command=(sys.executable, "-c", script))
    ended = r"(?s)broken ended with status 3 .*denied: \[key\].*make setup"
    with pytest.raises(EndpointError, match=ended):
        Launcher([make_spec("tiny"), replace(broken, secrets=("HF_TOKEN",))], grace_s=0.3).start()
    assert not any(map(alive, processes(pids)))


def test_a_missing_serve_environment_says_so(tmp_path: Path) -> None:
    hosted = {"tiny": Hosted("folder")}
    specs = server_specs("vllm", hosted, log_dir=tmp_path, python=str(tmp_path / "no-python"))
    missing = r"(?s)status 127 .*can't start .*no-python.*make setup"
    with pytest.raises(EndpointError, match=missing):
        Launcher(specs).start()


@pytest.mark.parametrize("secrets", [(), ("HF_TOKEN",)])
def test_secrets_do_not_reach_the_server_but_those_that_it_needs(
    make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch, secrets: tuple[str, ...]
) -> None:
    hidden = ("OPENAI_API_KEY", "HF_TOKEN", "DB_PASSWORD")
    for name in (*hidden, "HARMLESS"):
        monkeypatch.setenv(name, "value")
    spec = replace(make_spec("tiny"), secrets=secrets)
    with Launcher([spec], grace_s=0.3):
        environment = spec.log.read_text()
    assert "'ADDED'" in environment
    assert "'HARMLESS'" in environment
    assert tuple(name for name in hidden if name in environment) == secrets


PARENT = """
import json, signal, sys, threading
from pathlib import Path
from ttsgraph.serving.launcher import Launcher
from ttsgraph.serving.servers import ServerSpec
# The signal is ignored where the tests run in the background.
signal.signal(signal.SIGINT, signal.default_int_handler)
name, command, env, port, log, ending, timeout_s = json.loads(sys.argv[1])
spec = ServerSpec(name, name, tuple(command), env, port, Path(log))
launcher = Launcher([spec], timeout_s=timeout_s, grace_s=0.3)
if ending == "thread":  # the starting thread ends long before the process: the server must stay
    thread = threading.Thread(target=launcher.start)
    thread.start()
    thread.join()
else:
    launcher.start()
print("up", flush=True)
if ending == "exception":
    raise RuntimeError("on purpose")
if ending != "return":
    sys.stdin.read()
"""


def ends_with_its_parent(
    spec: ServerSpec, ending: signal.Signals | str, timeout_s: float = 30
) -> None:
    """Start a server from a process that then ends so; nothing of it may be left."""
    told = [spec.name, spec.command, dict(spec.env), spec.port, str(spec.log)]
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, json.dumps([*told, str(ending), timeout_s])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": python_path(ROOT)},
        cwd=ROOT,
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    assert parent.stdout.readline() == b"up\n"
    started = all_below(parent.pid)
    if isinstance(ending, signal.Signals):
        assert len(started) >= 3  # the guard, the server and what that started
        parent.send_signal(ending)
    elif ending == "thread":
        time.sleep(0.5)
        assert served_models(spec.base_url) == (spec.name,)
        parent.stdin.close()
    parent.wait(60)
    wait_until(lambda: not any(map(alive, started)), 60)
    parent.stdout.close()
    parent.stdin.close()


@pytest.mark.parametrize(
    "ending", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, "thread", "exception", "return"]
)
def test_no_process_outlives_its_parent(
    make_spec: MakeSpec, pids: Path, ending: signal.Signals | str
) -> None:
    ends_with_its_parent(make_spec("tiny"), ending)
    assert not any(map(alive, processes(pids)))


def test_a_stale_or_broken_state_file_is_no_pool(make_spec: MakeSpec, tmp_path: Path) -> None:
    state = tmp_path / "pool.json"
    assert read_pool(state) is None
    state.write_text("{")
    assert read_pool(state) is None
    # Its process has ended, or another one has its number: there is nothing to wait for.
    for pid, written in ((2**22 + 1, time.time()), (os.getpid(), 1e9)):
        write_pool(state, [make_spec("a")])
        record = json.loads(state.read_text())["value"]
        keep(state, record | {"pid": pid, "written": written})
        assert read_pool(state, wait_s=60) is None


def test_vllm_servers_have_ports_and_logs_and_stay_offline(tmp_path: Path) -> None:
    models = {"a": Hosted("models/a", ports=(4321,)), "b/c": Hosted("models/b")}
    specs = server_specs("vllm", models, log_dir=tmp_path)
    assert specs[0].port == 4321
    assert specs[1].port not in (0, 4321)
    assert specs[1].log == tmp_path / "b--c.log"
    for spec in specs:
        assert {"--enforce-eager", "--block-size", "--served-model-name"} <= set(spec.command)
        for name in ("HF_HUB_OFFLINE", "VLLM_NO_USAGE_STATS", "DO_NOT_TRACK"):
            assert spec.env[name] == "1"
    (gpu,) = server_specs(
        "vllm",
        {"a": Hosted("models/a", ServeSettings(extra_args=("--seed", "1")))},
        log_dir=tmp_path,
        gpus={0: 24.0},
    )
    assert "--enforce-eager" not in gpu.command
    assert gpu.command[-2:] == ("--seed", "1")
    assert not [key for key in gpu.env if key.startswith("VLLM_CPU")]
    assert server_specs("vllm", {}, log_dir=tmp_path) == ()


@pytest.mark.parametrize(
    ("servers", "cores", "threads"), [(2, 2, 1), (1, 2, 1), (2, 8, 3), (3, 2, 1), (1, 1, 1)]
)
def test_servers_share_the_cores(servers: int, cores: int, threads: int) -> None:
    assert threads_of_each(servers, cores) == threads


def test_replicas_and_gpus_have_servers_of_their_own(tmp_path: Path) -> None:
    models = {
        "big": Hosted("b", ServeSettings(tensor_parallel=2, extra_args=("--x",)), from_hub=True),
        "small": Hosted("s", ServeSettings(port=5000, replicas=2, gpu_memory=0.2), "rev1"),
    }
    big, *small = server_specs("vllm", models, log_dir=tmp_path, gpus=dict.fromkeys(range(4), 24.0))
    assert [spec.name for spec in (big, *small)] == ["big", "small-1", "small-2"]
    assert [spec.model for spec in small] == ["small", "small"]
    assert [spec.port for spec in small] == [5000, 5001]
    assert [spec.env["CUDA_VISIBLE_DEVICES"] for spec in (big, *small)] == ["0,1", "2", "3"]
    assert big.command[-1] == "--x"
    assert "--tensor-parallel-size 2 --gpu-memory-utilization 0.9 " in " ".join(big.command)
    assert " --gpu-memory-utilization 0.2 " in " ".join(small[0].command)
    assert "HF_HUB_OFFLINE" not in big.env
    assert {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"} <= set(small[0].env)
    assert ("HF_TOKEN" in big.secrets, small[0].secrets) == (True, ())
    assert small[0].command[small[0].command.index("--revision") + 1] == "rev1"


def test_servers_take_gpus_in_turn_where_nothing_is_known_of_them() -> None:
    models = {name: Hosted(name) for name in "abc"}
    assert [one.gpus for one in servers_of(models, {4: 24.0, 6: 24.0})] == [(4,), (6,), (4,)]
    spread = {"a": Hosted("a", ServeSettings(tensor_parallel=2))}
    assert servers_of(spread, {4: 24.0, 6: 24.0})[0].gpus == (4, 6)
    few = "expected at least 2 GPUs for a model with tensor_parallel 2, found 1"
    with pytest.raises(EndpointError, match=few):
        servers_of(spread, {0: 24.0})


SLOW = """
import pathlib, sys, time
pathlib.Path(sys.argv.pop(1)).open("a").write(sys.argv[2] + " ")
time.sleep(0.4)
exec(open(sys.argv.pop(1)).read())
"""


def test_servers_on_one_gpu_start_one_after_another(
    make_spec: MakeSpec, tmp_path: Path, said: Callable[[], str]
) -> None:
    started = tmp_path / "started"

    def on(gpu: int, name: str) -> ServerSpec:
        spec = make_spec(name)
        python, *rest = spec.command
        return replace(spec, command=(python, "-c", SLOW, str(started), *rest), gpus=(gpu,))

    specs = [on(0, "first"), on(0, "second"), on(1, "elsewhere")]
    with Launcher(specs, grace_s=0.3) as launcher:
        assert set(launcher.endpoints) == {"first", "second", "elsewhere"}
    lines = said().splitlines()
    up = {line.split()[0]: place for place, line in enumerate(lines) if " is up after " in line}
    assert up["first"] < up["second"]
    ports = started.read_text().split()
    # The second one waits for the first one's end.
    assert ports.index(str(specs[2].port)) < ports.index(str(specs[1].port))
    # A server that waits for its turn has all of the time limit from then on.
    with Launcher(specs[:2], timeout_s=1.5, grace_s=0.3):
        pass


def test_a_transformers_server_has_bounded_memory_and_is_taken_at_its_word(tmp_path: Path) -> None:
    models = {"a": Hosted("models/a"), "b": Hosted("models/b", ServeSettings(max_model_len=512))}
    spec, short = server_specs(
        "transformers", models, log_dir=tmp_path, python="env/bin/python", max_model_len=2048
    )
    assert spec.command[:2] == ("env/bin/python", "-P")
    assert spec.command[3:5] == ("2048", "models/a")
    assert spec.command[spec.command.index("--cb-num-blocks") + 1] == "1024"
    assert short.command[3:5] == ("512", "models/b")
    assert spec.env["OMP_WAIT_POLICY"] == "passive"
    assert not spec.lists_models


def test_a_server_that_dies_is_started_again_at_its_address_and_others_wait_for_it_in_vain_or_not(
    make_spec: MakeSpec, pids: Path, tmp_path: Path, said: Callable[[], str]
) -> None:
    spec = make_spec("tiny")
    state = tmp_path / "pool.json"
    with Launcher([spec], state=state, grace_s=0.3, max_restarts=1) as launcher:
        before = processes(pids)
        os.kill(before[0], signal.SIGKILL)
        wait_until(lambda: served_models(spec.base_url) is None)
        assert read_pool(state) is None
        assert read_pool(state, 30) == launcher.endpoints == {"tiny": (spec.base_url,)}
        assert not any(map(alive, before))
        assert "model server tiny ended with status 137; starting it again" in said()
        assert said().count("waiting for model servers that are being started again: tiny") == 1
        os.kill(processes(pids)[2], signal.SIGKILL)
        wait_until(lambda: served_models(spec.base_url) is None)
        with pytest.raises(
            EndpointError,
            match=rf"tiny is not started again, see .*tiny.log; stop .* \({os.getpid()}\)",
        ):
            read_pool(state, 30)
        assert "not started again after 1 times" in said()
    assert not state.exists()
    assert not any(map(alive, processes(pids)))
