"""A wrong key, path, proxy or scheme ends init, run and doctor with one line that names it."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli import PRICES, done
from tests.support.quirky import Quirky
from tests.support.stub_server import serve

ROWS = [{"question": f"What follows {k}?", "answer": f"It is {k + 1}"} for k in range(40)]
KEY = "sesame-sesame-sesame"
NO_RIGHTS = "sesame-street-sesame"


WRONG = {
    "key": ("", "", "refuses the key in SOME_API_KEY", "HTTP 401"),
    "key without rights": ("", "", "refuses the key in SOME_API_KEY", "HTTP 403"),
    "no /v1": ("/v1", "", "ends in /v1"),
    "the whole path": ("/v1", "/v1/chat/completions", "leave /chat/completions out"),
    "scheme": ("http:", "https:", "no https", "http://"),
    "proxy": ("127.0.0.1", "models.invalid", "127.0.0.1:9", "HTTP_PROXY"),
    "no scheme": ("http://", "", "https://"),
    "no server": ("127.0.0.1", "127.0.0.2", "no server at"),
    "password": ("://", "://me:secret-word@", "password", "://[key]@"),
}
"""What stands in place of what in the base URL, and the words that name it."""
KEYS = {"key": "other-other-other", "key without rights": NO_RIGHTS}
MOST_REQUESTS = {"key without rights": 100}


class Strict(Quirky):
    """A server that knows its own paths alone, and lists its models for a key without rights."""

    def lists(self, path, headers):
        if headers.get("authorization") == f"Bearer {NO_RIGHTS}":
            headers = {"authorization": f"Bearer {KEY}"}
        return super().lists(path, headers) if path == "/v1/models" else (404, {}, "{}")

    def misbehave(self, count, body):
        if self.paths[-1] != "/v1/chat/completions":
            return 404, {}, '{"detail": "Not Found"}'
        if self.headers[-1].get("authorization") == f"Bearer {NO_RIGHTS}":
            return 403, {}, '{"detail": "Forbidden"}'
        return super().misbehave(count, body)


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[Strict, str]]:
    known = {row["question"]: row["answer"] for row in ROWS}
    stub = Strict({"small": 0.5, "large": 0.8}, known=known, key=KEY)
    with serve(stub) as url:
        yield stub, url


def init(folder: str, url: str) -> list[str]:
    keyed = ["--url", url, "--key-env", "SOME_API_KEY"]
    return ["init", folder, "--questions", "qa.jsonl", *keyed, *PRICES]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, server: tuple[Strict, str]) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "qa.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("SOME_API_KEY", KEY)
        done(*init("made", server[1]))
    return folder


@pytest.mark.parametrize("command", ["init", "run", "doctor"])
@pytest.mark.parametrize("wrong", WRONG)
def test_one_line_names_it(made, server, tmp_path, monkeypatch, ttsgraph, command, wrong):
    stub, url = server
    old, new, *named = WRONG[wrong]
    key, other = KEYS.get(wrong, KEY), url.replace(old, new, 1)
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path if command == "init" else tmp_path / "made")
    monkeypatch.setenv("SOME_API_KEY", key)
    for name in ("HTTP_PROXY", "http_proxy") if wrong == "proxy" else ():
        monkeypatch.setenv(name, "http://me:secret-word@127.0.0.1:9")
    arguments = init("new", other)
    if command != "init":
        profile = Path("profiles/mine.yaml")
        profile.write_text(profile.read_text().replace(url, other))
        arguments = [command]
    before = len(stub.requests)
    ended = ttsgraph(*arguments)
    assert ended.code == 2, ended.stderr
    shown = ended.stdout + ended.stderr
    said = [line for line in shown.splitlines() if line.startswith(("MISSING", "error:"))]
    if wrong == "password" and command != "init":
        named = ["password"]  # which no profile may hold
    assert [word for word in named if word not in said[0]] == [], said[0]
    assert not any(secret in shown for secret in ("secret-word", key))
    assert len(stub.requests) - before <= MOST_REQUESTS.get(wrong, 4)
