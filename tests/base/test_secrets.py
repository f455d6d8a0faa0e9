"""Nothing that a run writes or says holds a key, and settings that do are refused."""

import base64
import json
import logging
import os
import shutil
import sys

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from lab import python_path
from tests.support.agent_server import agent_server, follows_the_best
from tests.support.processes import ran
from tests.support.project import ROOT, Project
from tests.support.stub_server import StubServer, serve
from ttsgraph.base.errors import SettingsError
from ttsgraph.base.secrets import redact
from ttsgraph.endpoints.faults import redact_pieces
from ttsgraph.settings.profile import load_params, load_profile

POOL_KEY = "sk-canary-pool-12345678"
AGENT_KEY = "canary.agent/87654321+x"
FORMS = {
    "whole": lambda key: key,
    "first half": lambda key: key[: len(key) // 2],
    "last half": lambda key: key[len(key) // 2 :],
    "spaced": " ".join,
    "in lines": lambda key: "\n".join(key[k : k + 5] for k in range(0, len(key), 5)),
    "upper case": str.upper,
    "base64": lambda key: base64.b64encode(key.encode()).decode(),
    "base64 of a header": lambda key: base64.b64encode(f"user:{key}".encode()).decode(),
    "base64 for URLs": lambda key: base64.urlsafe_b64encode(f"k={key}".encode()).decode(),
    "hex": lambda key: key.encode().hex(),
}


class TestSettings:
    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("served_as", "sk-proj-abcdefghijkl1234"),
            ("base_url", "https://me:hunter2@models.example/v1"),
            ("base_url", ["https://a.example/v1", "https://b.example/v1?api_key=abcdef"]),
            ("base_url", "https://b.example/v1?api-version=1&Password=hunter2"),
            ("api_key_env", "sk-abcdefghijklmnop"),
            ("api_key_env", "a1b2c3d4e5f6a7b8"),
            ("api_key", "anything"),
            ("password", "hunter2"),
        ],
    )
    def test_a_profile_with_a_key_in_it_is_refused_without_repeating_it(self, tmp_path, key, value):
        data = yaml.safe_load((ROOT / "profiles" / "laptop.yaml").read_text())
        next(iter(data["pool"].values()))[key] = value
        (tmp_path / "mine.yaml").write_text(yaml.safe_dump(data))
        said = rf"mine\.yaml: key 'pool\..*\.{key}': .*(key|password)"
        with pytest.raises(SettingsError, match=said) as caught:
            load_profile("mine", tmp_path)
        assert "\n" not in str(caught.value)
        values = [value] if isinstance(value, str) else value
        assert not any(part in str(caught.value) for part in values)

    def test_a_password_in_the_tracking_uri_is_refused(self, tmp_path):
        text, uri = (ROOT / "params.yaml").read_text(), "postgresql://me:hunter2@db/mlflow"
        (tmp_path / "params.yaml").write_text(text.replace("sqlite:///mlflow.db", uri))
        said = r"params\.yaml: key 'tracking_uri': found what may be a key or password"
        with pytest.raises(SettingsError, match=said):
            load_params(tmp_path / "params.yaml")


class TestTexts:
    def test_a_key_that_begins_another_leaves_nothing_of_it(self, monkeypatch):
        monkeypatch.setenv("A_KEY", "canary-one")
        monkeypatch.setenv("B_TOKEN", "canary-one-and-more\n")
        monkeypatch.setenv("C_KEY", "EMPTY")
        assert redact("canary-one, canary-one-and-more, EMPTY") == "[key], [key], EMPTY"
        url = "https://me:hunter2@a.example/v1?v=1&key=short&x=2"
        assert redact(url) == "https://[key]@a.example/v1?v=1&key=[key]&x=2"

    @given(st.binary(min_size=9, max_size=40), st.sampled_from(sorted(FORMS)), st.text(max_size=20))
    def test_no_form_of_a_key_is_left_in_what_a_server_says(self, drawn, form, around):
        key = f"sk-{drawn.hex()}+/x"
        said = redact_pieces(f"{around} {FORMS[form](key)} {around}", [key])
        rest = "".join(filter(str.isalnum, said)).lower()
        shown = "".join(filter(str.isalnum, FORMS[form](key))).lower()
        assert not any(shown[k : k + 10] in rest for k in range(len(shown) - 9))

    def test_what_a_server_says_beside_a_key_stays(self):
        said = "no key ABCDEF-123 456 for llama-3.2-1b of 131072 tokens"
        hidden = said.replace("ABCDEF-123 456", "[key]")
        assert redact_pieces(said, ["abcdef-123456"]) == hidden
        assert redact_pieces(said, ["another-key-of-mine"]) == said

    def test_logs_and_tracebacks_of_a_process_do_not_show_it(self):
        program = """
import logging, os
from ttsgraph.base.secrets import hide_secrets_in_output
hide_secrets_in_output()
key = os.environ["SOME_KEY"]
logging.basicConfig()
logging.warning("sent %s", key)
try:
    raise ValueError(f"no {key}")
except ValueError:
    logging.exception("it failed")
raise RuntimeError(f"the key is {key}")
"""
        env = os.environ | {"SOME_KEY": POOL_KEY, "PYTHONPATH": python_path(ROOT)}
        done = ran([sys.executable, "-c", program], environment=env)
        assert POOL_KEY not in done.stdout + done.stderr
        for part in ("sent [key]", "no [key]", "the key is [key]"):
            assert done.stderr.count(part) == 1
        assert logging.getLogRecordFactory() is logging.LogRecord


# One process, so one Prefect server; then runs that fail, which is when keys get into messages.
RUN = """
import os
from ttsgraph_flows import evaluate, init_family, init_instances, pilot, profile, sample, search
from ttsgraph_flows.ending import guarded
def whole():
    for stage in (sample.sample, profile.profile_models, pilot.pilot):
        stage("math")
    for stage in (init_family.init_family, init_instances.init_instances):
        stage("math")
    for method in ("agent_reinforce", "random"):
        search.search("math", method)
        evaluate.evaluate("math", method)
guarded(whole)
os.environ["POOL_KEY"] += "\\n x"
try:
    guarded(lambda: search.search("math", "textgrad"))
except SystemExit as end:
    print("exit code", end.code)
raise RuntimeError(f"a defect that shows {os.environ['AGENT_KEY']}")
"""


@pytest.mark.slow
def test_a_canary_key_is_in_nothing_that_a_whole_run_wrote_or_said(tmp_path, monkeypatch):
    home = tmp_path / "home"
    for folder in (home, tmp_path / "project"):
        folder.mkdir()
    variables = {"POOL_KEY": POOL_KEY, "AGENT_KEY": AGENT_KEY, "OPENAI_LOG": "debug"}
    variables |= {"HOME": str(home), "TMPDIR": str(home), "PREFECT_HOME": str(home / "prefect")}
    variables |= {"PREFECT_LOGGING_LEVEL": "DEBUG"}
    variables |= {"PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    stub = StubServer(("small", "large", POOL_KEY), skill=0.6)

    def repeats_the_key(count, body):
        told = stub.headers[-1]["authorization"]
        if count % 11 == 0:
            return 500, {"x-key": told}, json.dumps({"error": {"message": f"bad key {told}"}})
        if count % 5 == 0:
            answer = stub.completion(body, count)
            message = answer["choices"][0]["message"]
            message["content"] = f"You sent {told}. {message['content']}"
            return 200, {"x-key": told}, json.dumps(answer)
        return None

    stub.misbehave = repeats_the_key
    guide = agent_server(
        lambda body: f"{AGENT_KEY}?" if len(guide.requests) % 3 == 1 else follows(body)
    )

    def follows(body):
        name = body["response_format"]["json_schema"]["name"]
        if name == "family_size":
            return json.dumps({"ranking": ["large", "small"], "reason": f"I know {AGENT_KEY}"})
        if name == "instances":
            chosen = {"instances": [{"model": "small", "count": 3}], "reason": "three"}
            return json.dumps({"combinations": [chosen]})
        return follows_the_best(body)

    with serve(stub) as url, serve(guide) as agent_url:
        project = Project(tmp_path / "project", url)
        for model in project.profile["pool"].values():
            model["api_key_env"] = "POOL_KEY"
        project.profile["engine"] |= {"max_retries": 3}
        project.guided_by(agent_url)
        done = project.run(sys.executable, "-c", RUN)
    sent = {header["authorization"] for header in stub.headers}
    assert sent == {f"Bearer {POOL_KEY}"}, done.stderr[-3000:]
    assert guide.headers[0]["authorization"] == f"Bearer {AGENT_KEY}"
    assert done.stdout.splitlines()[-1] == "exit code 2"
    assert "RuntimeError: a defect that shows [key]" in done.stderr
    assert "POOL_KEY: expected printable ASCII" in done.stderr
    written = [path for path in tmp_path.rglob("*") if path.is_file() and not path.is_symlink()]
    expected = {"mlflow.db", "calls.db", "history.jsonl", "archive.parquet"}
    assert expected | {"prefect.db"} <= {path.name for path in written}
    for key in (POOL_KEY, AGENT_KEY):
        assert key not in done.stdout + done.stderr
        assert [path for path in written if key.encode() in path.read_bytes()] == []
    calls = b"".join(path.read_bytes() for path in written if path.name.startswith("calls.db"))
    assert b"You sent Bearer [key]." in calls
    shutil.rmtree(home)
