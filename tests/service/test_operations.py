"""What those who run the server rely on: keys, figures, streams that live, dollars."""

import hashlib
import json
import os

import httpx
import pytest
from starlette.responses import JSONResponse

from tests.support.processes import wait_until
from tests.support.routers import by_field
from tests.support.service import ALONE, FUSED, NAME, ask, chat, deployed, graph_of, post
from ttsgraph.base.errors import InputError
from ttsgraph.graphs.stopping import Gate
from ttsgraph.graphs.topologies import parallel, routed, single, with_sink
from ttsgraph.service import answering, app
from ttsgraph.service.server import ApiKeys


def line(key, name):
    return f"{hashlib.sha256(key.encode()).hexdigest()}  {name}\n"


def status(url, key):
    return post(url, chat(), authorization=f"Bearer {key}").status_code


def test_keys_come_and_go_while_the_server_runs(pool, tmp_path, caplog):
    caplog.set_level("INFO", "ttsgraph.service.app")
    file = tmp_path / "keys"
    file.write_text("# of the teams\n\n" + line("first", "team.a") + line("second", "team-b"))
    with deployed(pool, ALONE, key="own", keys_file=file) as url:
        tried = [status(url, key) for key in ("own", "first", "second", "third", "-")]
        assert tried == [200, 200, 200, 401, 401]
        before = file.stat()
        file.write_text(line("second", "team-b") + line("third", "team-c"))
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))  # changed at the same time
        assert [status(url, k) for k in ("own", "first", "third")] == [200, 401, 200]
        file.write_text("no hash of anything\n")
        assert [status(url, k) for k in ("third", "first")] == [200, 401]
        file.unlink()
        assert status(url, "third") == 200
        file.touch()
        assert [status(url, k) for k in ("third", "own")] == [401, 200]
        assert httpx.get(f"{url}/healthz").status_code == 200
    said = [record.getMessage() for record in caplog.records]
    assert any(" team.a 200 " in one for one in said)
    assert "third" not in "".join(said)


def test_a_file_of_keys_that_is_none_is_named_with_its_line(tmp_path):
    (tmp_path / "keys").write_text(line("a", "b") + "sesame\n")
    with pytest.raises(InputError, match=r"keys, line 2: expected the SHA-256 of a key"):
        ApiKeys("", tmp_path / "keys")
    with pytest.raises(InputError, match="can't read the keys file"):
        ApiKeys("", tmp_path / "none")
    (tmp_path / "none").touch()
    assert not ApiKeys("", tmp_path / "none").open


def test_a_stream_lives_before_there_is_any_text_and_ends_as_ever(pool, monkeypatch):
    monkeypatch.setattr(app, "HEAD_S", 0.02)
    monkeypatch.setattr(answering, "ALIVE_S", 0.02)
    items = {"model": NAME, "input": "3 + 4", "stream": True}
    for path, body in (("chat/completions", chat(stream=True)), ("responses", items)):
        with deployed(pool) as url:
            pool.holds = lambda body: True
            with httpx.stream("POST", f"{url}/v1/{path}", json=body, timeout=60) as stream:
                lines = stream.iter_lines()
                comments = 0
                while comments < 3:
                    comments += next(lines).startswith(":")
                pool.release()
                said = [text.removeprefix("data: ") for text in lines if text.startswith("data: ")]
                events = [json.loads(text) for text in said if text != "[DONE]"]
                assert "7" in str(events)


@pytest.mark.parametrize(
    ("asked", "why", "code"),
    [
        ({"stream": True}, "no memory", 502),
        ({"response_format": {"type": "json_object"}}, "AttributeError", 500),
    ],
)
def test_the_log_says_why_an_answer_failed(pool, monkeypatch, caplog, asked, why, code):
    monkeypatch.setattr(app, "HEAD_S", 0.0)  # a stream has begun before it fails
    caplog.set_level("INFO", "ttsgraph.service")
    with deployed(pool, ALONE) as url:
        if code == 500:
            monkeypatch.setattr(answering, "json", None)  # a defect of the server's own
        else:
            pool.reply = lambda body: JSONResponse({"error": {"message": why}}, 500)
        said = post(url, chat(**asked)).text
        figures = httpx.get(f"{url}/metrics").text
    assert '"error":{"message"' in said
    assert why not in said
    assert why in caplog.text
    assert f'ttsgraph_requests_total{{model="{NAME}",status="{code}"}} 1.0' in figures


def test_dollars_are_those_of_the_bill_also_of_calls_that_were_given_up(pool):
    """The stub's book has every call that it was asked for, whoever waited for its answer."""
    graph = graph_of("voter", *["small"] * 4, "large")
    with deployed(pool, graph) as url:
        asked = [ask(url, "3 + 4" + k * " ") for k in range(5)]
        pool.holds = lambda body: body["model"] == "large"
        asked += [ask(url, "3 + 4" + k * " and 5") for k in range(20)]
        wait_until(lambda: pool.left == 20)
        text = httpx.get(f"{url}/metrics").text
    origins = [answer.model_extra["ttsgraph"] for answer in asked]
    book = len(pool.bodies) * 11 * 0.1 / 1e6
    assert sum(one["dollars"] for one in origins) == pytest.approx(book, rel=1e-3)
    assert sum(one["billed"] for one in origins) == len(pool.bodies)
    assert sum(one["begun"] for one in origins) == len(pool.bodies)
    assert sum(one["calls"] for one in origins) <= len(pool.bodies) - 20
    counted = [row for row in text.splitlines() if row.startswith("ttsgraph_dollars_total")]
    assert sum(float(row.split()[1]) for row in counted) == pytest.approx(book, rel=1e-3)


GATED = with_sink(parallel(["small"] * 2, "large", "fuser"), gate=Gate(0))
RULE = by_field("topic", {"rows": 0}, [0.5, 0.5], default=1)
ROUTED = routed(RULE, [single("small"), single("large")])


LEFT_OUT = {
    "a closed gate": (GATED, {"calls": 2, "left_out": [2]}),
    "a route": (ROUTED, {"calls": 1, "branch": 1}),
    "a failed call": (FUSED, {"degraded": True, "fallback": [2], "billed": 2, "begun": 3}),
}


@pytest.mark.parametrize("what", LEFT_OUT)
def test_what_an_answer_did_without_stands_in_it_and_in_the_metrics(pool, what):
    """What was not begun, or failed, is not on the bill either."""
    graph, told = LEFT_OUT[what]
    failing = "large" if graph is FUSED else ""
    with deployed(pool, graph, fallback=True) as url:
        pool.reply = lambda body: JSONResponse({}, 500) if body["model"] == failing else "7"
        answer = ask(url)
        figures = httpx.get(f"{url}/metrics").text
    origin = answer.model_extra["ttsgraph"]
    assert answer.choices[0].message.content == "7"
    assert told.items() <= origin.items()
    assert ('outcome="left_out"' in figures) == ("left_out" in told)
    assert f'ttsgraph_degraded_total{{model="{NAME}"}} {float(origin["degraded"])}' in figures
    assert origin["dollars"] == pytest.approx(origin["billed"] * 11 * 0.1 / 1e6)
