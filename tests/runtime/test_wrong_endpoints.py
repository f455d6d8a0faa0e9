"""A wrong key, path, proxy or scheme ends init, run and doctor with one line that names it."""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from tests.support.quirky import Quirky
from tests.support.stub_server import serve
from ttsgraph.cli import app

ROWS = [{"question": f"What follows {k}?", "answer": f"It is {k + 1}"} for k in range(40)]
PRICE = ("--price", "1,2")
KEY = "sesame-sesame-sesame"
NO_RIGHTS = "sesame-street-sesame"


@dataclass(frozen=True)
class Wrong:
    """How an endpoint is wrong, and the words that name it."""

    url: Callable[[str], str] = lambda url: url
    key: str = KEY
    proxy: str | None = None
    named: tuple[str, ...] = ()
    requests: int = 4


WRONG = {
    "key": Wrong(key="other-other-other", named=("refuses the key in SOME_API_KEY", "HTTP 401")),
    "key without rights": Wrong(
        key=NO_RIGHTS, named=("refuses the key in SOME_API_KEY", "HTTP 403"), requests=100
    ),
    "no /v1": Wrong(lambda url: url.removesuffix("/v1"), named=("ends in /v1",)),
    "the whole path": Wrong(
        lambda url: f"{url}/chat/completions", named=("leave /chat/completions out",)
    ),
    "scheme": Wrong(lambda url: url.replace("http:", "https:"), named=("no https", "http://")),
    "proxy": Wrong(
        lambda url: url.replace("127.0.0.1", "models.invalid"),
        proxy="http://me:secret-word@127.0.0.1:9",
        named=("127.0.0.1:9", "HTTP_PROXY"),
    ),
    "no scheme": Wrong(lambda url: url.removeprefix("http://"), named=("https://",)),
    "no server": Wrong(lambda url: "http://127.0.0.1:9/v1", named=("no server at",)),
    "password": Wrong(
        lambda url: url.replace("://", "://me:secret-word@"), named=("password", "://[key]@")
    ),
}


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
    return ["init", folder, "--questions", "qa.jsonl", *keyed, *PRICE]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, server: tuple[Strict, str]) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "qa.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("SOME_API_KEY", KEY)
        done = CliRunner().invoke(app, init("made", server[1]))
    assert done.exit_code == 0, done.output
    return folder


@pytest.mark.parametrize("command", ["init", "run", "doctor"])
@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_is_one_line_after_a_few_requests(
    made: Path,
    server: tuple[Strict, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ttsgraph: Callable[..., SimpleNamespace],
    command: str,
    wrong: str,
) -> None:
    stub, url = server
    how = WRONG[wrong]
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path if command == "init" else tmp_path / "made")
    monkeypatch.setenv("SOME_API_KEY", how.key)
    if how.proxy is not None:
        monkeypatch.setenv("HTTP_PROXY", how.proxy)
        monkeypatch.setenv("http_proxy", how.proxy)
    arguments = init("new", how.url(url))
    if command != "init":
        profile = Path("profiles/mine.yaml")
        profile.write_text(profile.read_text().replace(url, how.url(url)))
        arguments = [command]
    before = len(stub.requests)
    done = ttsgraph(*arguments)
    assert done.code == 2, done.stderr
    said = [line for line in done.stdout.splitlines() if line.startswith("MISSING")]
    said += [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert said
    if wrong == "password" and command != "init":
        assert "password" in said[0]  # which no profile may hold
    else:
        for word in how.named:
            assert word in said[0], said[0]
    assert "secret-word" not in done.stdout + done.stderr
    assert how.key not in done.stdout + done.stderr
    assert len(stub.requests) - before <= how.requests
