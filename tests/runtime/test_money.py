"""A limit in dollars on the books of who is paid, with processes that are killed."""

import json
import math
import os
import subprocess
import sys
import time
from typing import Any

import pytest

from lab import python_path
from tests.support.cli import done
from tests.support.project import ROOT
from tests.support.stub_server import StubServer, serve

LIMIT = 0.05
WORDS = "First take the tens, then the ones, and carry what is over; so the sum of all of these is"


class Paid(StubServer):
    """Charges for each answer that it begins, by letters, as it tells or keeps for itself."""

    def __init__(self, tells: bool) -> None:
        super().__init__(("org/small", "org/large"), skill=0.7, delay_s=0.05)
        self.tells = tells
        self.dollars = 0.0

    def completion(self, body: dict[str, Any], count: int) -> dict[str, Any]:
        told = super().completion(body, count)
        message = told["choices"][0]["message"]
        message["content"] = f"{WORDS[: 20 + 4 * count % 90]}\n{message['content']}"
        asked = "\n".join(each["content"] for each in body["messages"])
        used = told["usage"] if self.tells else told.pop("usage")
        used["prompt_tokens"] = 4 + math.ceil(len(asked) / 4)
        used["completion_tokens"] = 1 + math.ceil(len(message["content"]) / 4)
        with self.lock:
            self.dollars += (used["prompt_tokens"] * 10 + used["completion_tokens"] * 40) / 1e6
        return told


@pytest.mark.slow
@pytest.mark.parametrize("tells", [True, False])
def test_no_more_is_spent_than_the_limit_however_often_it_is_killed(tmp_path, tells):
    stub = Paid(tells)
    project = tmp_path / "mine"
    command = [sys.executable, "-m", "ttsgraph", "run", "--limit", str(LIMIT)]
    more = {"cwd": project, "env": os.environ | {"PYTHONPATH": python_path(ROOT)}}
    with serve(stub) as url:
        done("init", str(project), "--url", url, "--price", "10,40")
        profile = project / "profiles" / "mine.yaml"
        text = profile.read_text().replace("max_tokens: 512", "max_tokens: 50")
        profile.write_text(text.replace("{kind: external}", "{kind: external, concurrency: 64}"))
        stub.dollars = 0.0
        for share in (0.2, 0.4):
            process = subprocess.Popen(command, **more)
            while stub.dollars < share * LIMIT and process.poll() is None:
                time.sleep(0.01)
            process.kill()
            process.wait()
        for _ in range(2):
            ended = subprocess.run(command, **more, capture_output=True, text=True, check=False)
            assert ended.returncode == 4, ended.stderr
            assert "limits.dollars of 0.05 reached" in ended.stderr
    assert 0.4 * LIMIT < stub.dollars <= 1.01 * LIMIT
    noted = json.loads((project / ".ttsgraph" / "spent.json").read_text())
    assert stub.dollars <= noted["dollars"] + 1e-9
