"""Feedback on answers: the table of served questions, a challenger, and drift."""

import hashlib
import itertools
import re
import sqlite3
import stat

import httpx
import pytest

from tests.support.project import HANGS_S
from tests.support.service import (
    ALONE,
    CERTIFICATES,
    NAME,
    VOTED,
    Shelf,
    ask,
    chat,
    graph_of,
    post,
    profile_of,
    serving,
)
from ttsgraph.base.errors import DataError, InputError
from ttsgraph.deployment.bundle import DeployedVersion, Figures
from ttsgraph.service.book import AnswerLog
from ttsgraph.service.outcomes import drifted
from ttsgraph.settings.service import DriftSettings, FeedbackSettings


class Told(Shelf):
    """A loader that remembers what it is told, but for the first `deaf` times."""

    deaf = 0

    def __init__(self, **versions):
        super().__init__(**versions)
        self.decisions = []

    def settled(self, task, version, decision):
        if self.deaf:
            self.deaf -= 1
            raise InputError("the registry is away")
        self.decisions.append((task, version, decision))


NO_FIGURES = Figures()


def version(pool, graph=VOTED, number="3", tested=NO_FIGURES):
    return DeployedVersion("math", graph, profile_of(pool.url), (), number, tested)


def kept(path, keep="texts", **more):
    """Settings of a server that one client alone may judge."""
    return {"feedback": {"keep": keep, "clients": 1} | more, "TABLE": path / "served.db"}


def say(url, headers=None, **body):
    more = {"headers": headers, "verify": CERTIFICATES, "timeout": HANGS_S}
    return httpx.post(f"{url}/v1/feedback", json=body, **more)


def rows(path, columns):
    """These columns of all served answers."""
    with sqlite3.connect(path / "served.db") as table:
        return table.execute(f"select {columns} from served").fetchall()


def test_feedback_joins_the_answer_and_makes_it_a_question_for_the_next_search(pool, tmp_path):
    shelf = Told(math_champion=version(pool))
    with serving(shelf, **kept(tmp_path)) as service:
        right = ask(service.url, "3 + 4")
        wrong = ask(service.url, "3 + 5")
        scored = ask(service.url, "1 + 6")
        stream = list(ask(service.url, "2 + 5", stream=True))[-1]
        conversation = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hm"}]
        long = post(service.url, {"model": NAME, "messages": [*conversation, *chat()["messages"]]})
        trace = wrong.model_extra["ttsgraph"]["trace_id"]
        for score in (1, 0, 0.25):  # the last word counts, once
            assert say(service.url, id=right.id, score=score).json()["score"] == score
        assert say(service.url, id=right.id, answer="7").json()["score"] == 1.0
        assert say(service.url, id=trace, answer="8").json()["score"] == 0.0
        assert say(service.url, id=scored.id, score=0.5).json()["score"] == 0.5
        assert say(service.url, id=stream.id, score=1).status_code == 200
        assert say(service.url, id=long.json()["id"], answer="7").status_code == 400  # no question
        assert say(service.url, id=long.json()["id"], score=1).status_code == 200
        figures = httpx.get(f"{service.url}/metrics").text
    assert f'ttsgraph_feedback_total{{model="{NAME}"}} 5.0' in figures
    book = tmp_path / "served.db"
    assert stat.S_IMODE(book.stat().st_mode) == 0o600
    known = {row["question"]: row["answer"] for row in AnswerLog(book).questions("math")}
    assert known == {"3 + 4": "7", "3 + 5": "8", "2 + 5": "7"}


def test_what_is_no_feedback_is_an_error_and_changes_nothing(pool, tmp_path):
    with serving(Told(math_champion=version(pool)), **kept(tmp_path, "figures")) as service:
        answer = ask(service.url)
        for body, status in (
            ({"score": 1}, 400),
            ({"id": answer.id, "score": 1, "answer": "7"}, 400),
            ({"id": answer.id, "score": 1.5}, 400),
            ({"id": answer.id, "answer": "7"}, 400),  # no texts are kept
            ({"id": "chatcmpl-" + "0" * 32, "score": 1}, 404),
            ({"id": answer.id, "score": 1}, 200),
        ):
            found = say(service.url, **body)
            assert found.status_code == status, (body, found.text)
    assert rows(tmp_path, "question, answer, score") == [(None, None, 1.0)]


def test_only_the_key_that_asked_judges_an_answer(pool, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("".join(f"{hashlib.sha256(k.encode()).hexdigest()}  {k}\n" for k in "ab"))
    settings = kept(tmp_path) | {"keys_file": keys}
    with serving(Told(math_champion=version(pool)), **settings) as service:
        sent = {key: {"authorization": f"Bearer {key}"} for key in "ab"}
        answer = post(service.url, chat(), **sent["a"]).json()["id"]
        for key, score, status in (("b", 0, 403), ("a", 1, 200), ("b", 0, 403)):
            assert say(service.url, sent[key], id=answer, score=score).status_code == status
    assert rows(tmp_path, "score") == [(1.0,)]


@pytest.mark.parametrize("kind", ["other", "older", "folder"])
def test_a_file_that_is_no_table_is_named_before_anything_is_served(pool, tmp_path, kind):
    file = tmp_path / "served.db"
    if kind == "folder":
        file.mkdir()
    elif kind == "older":  # by an earlier version
        AnswerLog(file).close()
        with sqlite3.connect(file) as table:
            table.execute("alter table served drop column asker")
    else:
        file.write_bytes(b"no table at all" * 99)
    with (
        pytest.raises(DataError, match="expected a table of served answers"),
        serving(Told(math_champion=version(pool)), **kept(tmp_path)),
    ):
        pass
    assert file.exists()


def test_nothing_is_kept_unless_one_asks_for_it(pool, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with serving(Told(math_champion=version(pool))) as service:
        refused = say(service.url, id=ask(service.url).id, score=1)
    assert refused.status_code == 404
    assert refused.json()["error"]["code"] == "feedback_is_off"
    assert list(tmp_path.iterdir()) == []


CLIENTS = {
    # who asks, how many it takes to decide, and whether it is, by how many scores of each version
    "a flood beside two": (["a", "a", "b", "b", *["flood"] * 200], 3, False, [4, 4]),
    "many clients": ([f"client {k // 2}" for k in range(40)], 3, True, [20, 20]),
    "one, where one is enough": (["one"] * 100, 1, True, [50, 50]),
}


@pytest.mark.parametrize("case", CLIENTS)
def test_enough_clients_decide_a_trial_and_a_flood_by_one_changes_nothing(tmp_path, case):
    """The challenger is always right and the champion never."""
    clients, least, promoted, counted = CLIENTS[case]
    book = AnswerLog(tmp_path / "served.db")
    for k, client in enumerate(clients):
        version = "3" if k % 2 else "4"
        row = {"trace": f"{k:032x}", "model": NAME, "task": "math", "version": version, "cost": 0.1}
        book.add(**row, champion="3", asker=client)
        book.judge(f"{k:032x}", float(k % 2 == 0), None, least)
    found = [len(book.last("math", version, "score", 10_000)) for version in ("3", "4")]
    assert found == counted
    decision = book.decision(("math", "3", "4"), 0.95, 100)
    assert (decision is not None and decision.promote) == promoted


def test_the_table_keeps_the_last_answers_alone(tmp_path, monkeypatch):
    monkeypatch.setattr("ttsgraph.service.book.ROWS", 3)
    book = AnswerLog(tmp_path / "served.db")
    for k in range(5):
        book.add(trace=f"{k:032x}", model=NAME, task="math", version="1", cost=0.1)
    assert [k for k in range(5) if book.find(f"{k:032x}") is not None] == [2, 3, 4]


@pytest.mark.parametrize("better", [True, False])
def test_a_challenger_is_promoted_if_it_is_better_in_service(pool, tmp_path, monkeypatch, better):
    """Both are asked and judged until the loader is told of a decision."""
    if not better:
        monkeypatch.setattr(Told, "deaf", 1)  # a registry that is away is told later
    scores = {"3": float(not better), "4": float(better)}
    challenger = version(pool, graph_of("fuser", "small"), "4")
    shelf = Told(math_champion=version(pool, ALONE), math_challenger=challenger)
    with serving(shelf, **kept(tmp_path, "figures", trial={"share": 0.5})) as service:
        listed = httpx.get(f"{service.url}/v1/models").json()["data"]
        assert [model["id"] for model in listed] == [NAME]
        assert post(service.url, chat(model="math@challenger")).status_code == 404
        for k in range(300):
            found = post(service.url, chat()).json()
            say(service.url, id=found["id"], score=scores[found["ttsgraph"]["model_version"]])
            if k % 10 == 9:
                service.refresh()
            if shelf.decisions:
                break
        after = {post(service.url, chat()).json()["ttsgraph"]["model_version"] for _ in range(12)}
    ((task, number, decision),) = shelf.decisions
    assert (task, number, decision.promote) == ("math", "4", better)
    assert decision.reason.startswith("better: 100.0 % of " if better else "worse: ")
    assert after == {"3"}  # the trial is over; who moves the alias is the loader's registry


def test_service_that_is_not_what_was_tested_is_an_alert_told_once(
    pool, tmp_path, monkeypatch, caplog
):
    """Another model behind the same name: it is worse, says more, and never the same."""
    numbers = itertools.count()
    tested = Figures(accuracy=0.9, cost=3 * 11 * 0.1 / 1e6, agreement=0.95)
    shelf = Told(math_champion=version(pool, tested=tested))
    monkeypatch.setattr(FeedbackSettings, "drift", DriftSettings(least=30, window=30))

    def alerts(reply, score):
        pool.reply = reply
        for k in range(30):
            found = post(service.url, chat()).json()
            if score is not None:
                say(service.url, id=found["id"], score=score(k))
        service.refresh()
        service.refresh()
        figures = httpx.get(f"{service.url}/metrics").text.splitlines()
        return {row.split('"')[1] for row in figures if re.match(r"ttsgraph_drifted{.* 1.0$", row)}

    with serving(shelf, **kept(tmp_path, "figures")) as service:
        assert alerts(lambda body: "7", lambda k: float(k % 10 > 0)) == set()

        def other(body):
            return f"let me see: {next(numbers)}"

        assert alerts(other, None) == {"cost", "agreement"}  # which need no feedback
        found = alerts(other, lambda k: float(k % 2))
    assert found == {"accuracy", "cost", "agreement"}
    told = [line for line in caplog.messages if line.startswith("drift: ")]
    assert len(told) == 3
    assert any("math/3: accuracy of the last 30 answers is 0.5;" in line for line in told)


def test_chance_alone_is_no_drift():
    import numpy as np

    rng = np.random.default_rng(0)
    settings = DriftSettings()
    quiet = (rng.random((500, 500)) < 0.8).astype(float)
    assert not any(drifted("accuracy", list(row), 0.8, settings) for row in quiet)
    at_the_edge = (rng.random((500, 500)) < 0.75).astype(float)
    assert sum(drifted("accuracy", list(row), 0.8, settings) for row in at_the_edge) <= 3
    worse = (rng.random((50, 500)) < 0.6).astype(float)
    assert all(drifted("accuracy", list(row), 0.8, settings) for row in worse)
    assert not drifted("accuracy", [0.0] * 99, 0.8, settings)
