"""Everything is rebuilt from recorded calls, in another folder, without any model."""

import asyncio
import shutil
from contextlib import chdir
from pathlib import Path

import pytest

from tests.support.simulated_project import SimulatedProject
from ttsgraph.base.errors import CallFailed, ContextOverflow, DataError
from ttsgraph.models.client import Client, Completion, Message, Request, Sampling
from ttsgraph.models.recording import (
    Call,
    Recorder,
    RecordingClient,
    ReplayClient,
    read_calls,
    write_calls,
)
from ttsgraph_flows.lineage import lineage
from ttsgraph_flows.verify import PUBLISHED, digest_of, publish, register, verify


def request(text: str, replica: int = 0) -> Request:
    return Request("m", "1", (Message("user", text),), Sampling(), replica)


class Answering(Client):
    """Answers with the question's length; fails where it is told to."""

    async def complete(self, asked: Request) -> Completion:
        text = asked.messages[0].content
        if text == "broken":
            raise CallFailed("m: gone")
        if text == "long":
            raise ContextOverflow("m: too long")
        return Completion(
            f"\ud83d{len(text)}" if text == "odd" else str(len(text)), 3, 1, 0.25, reasoning="so"
        )

    async def aclose(self) -> None:
        """Nothing is open."""


async def ask(client, texts) -> list[str]:
    found = []
    for text in texts:
        try:
            found.append((await client.complete(request(text))).text)
        except (CallFailed, ContextOverflow) as error:
            found.append(f"{type(error).__name__}: {error}")
    return found


CALLS = PUBLISHED / "simulated-small" / "math.parquet"
TEXTS = ("a", "bb", "broken", "long", "bb")


def recorded(*texts: str) -> tuple[list[str], Recorder]:
    """What is answered to these texts, and the calls that were recorded."""
    recorder = Recorder()
    return asyncio.run(ask(RecordingClient(Answering(), recorder), texts)), recorder


def test_what_was_recorded_is_answered_again_failures_too_and_nothing_else(tmp_path: Path) -> None:
    made, recorder = recorded(*TEXTS)
    assert made == ["1", "2", "CallFailed: m: gone", "ContextOverflow: m: too long", "2"]
    assert len(recorder.calls) == 4
    path = tmp_path / "calls.parquet"
    write_calls(recorder.calls, path)
    replay = ReplayClient(read_calls(path))
    assert asyncio.run(ask(replay, TEXTS)) == made
    again = replay.begin(request("a"))
    assert (again.latency_s, again.reasoning, again.cached) == (0.25, "so", True)
    said = r"expected call [0-9a-f]{16} of m \(replica 1, asked \.\.\.'a'\) among 4 recorded ones"
    with pytest.raises(DataError, match=said):
        replay.begin(request("a", 1))
    # The same calls are the same bytes in whatever order they were made.
    write_calls(recorded(*TEXTS[::-1])[1].calls, tmp_path / "other.parquet")
    assert (tmp_path / "other.parquet").read_bytes() == path.read_bytes()
    path.write_text("no")
    with pytest.raises(DataError, match=r"calls\.parquet: expected recorded calls"):
        read_calls(path)


def test_what_an_earlier_start_used_is_there_after_a_crash_but_not_under_another_identity(
    tmp_path: Path,
) -> None:
    path = tmp_path / "calls.jsonl"
    recorder = Recorder().on_disk(path, "one")
    asyncio.run(ask(RecordingClient(Answering(), recorder), TEXTS[:3]))
    with path.open("ab") as file:
        file.write(b'["half a li')
    again = Recorder().on_disk(path, "one")
    asyncio.run(ask(RecordingClient(Answering(), again), TEXTS[3:]))
    again.close()
    third = Recorder().on_disk(path, "one")
    assert third.calls.keys() == {request(text).key() for text in TEXTS}
    assert not Recorder().on_disk(path, "two").calls


def without_results(project: SimulatedProject, folder: Path) -> Path:
    """What a fresh clone has: no results, no DVC cache, no MLflow."""
    made = "data results reports calls mlruns mlflow.db* .dvc .ttsgraph"
    left_out = shutil.ignore_patterns(*made.split())
    shutil.copytree(project.folder, folder, ignore=left_out)
    return folder


@pytest.fixture
def clone(copied: SimulatedProject, tmp_path: Path) -> Path:
    with chdir(copied.folder):
        publish("math")
    return without_results(copied, tmp_path / "clone")


@pytest.mark.slow
class TestVerify:
    def test_every_hash_is_reproduced_twice_in_folders_of_other_names(
        self, copied: SimulatedProject, tmp_path: Path
    ) -> None:
        with chdir(copied.folder):
            published = publish("math")
        assert published == CALLS
        for name in ("clone", "a folder with another name"):
            folder = without_results(copied, tmp_path / name)
            before = sorted(folder.rglob("*"))
            with chdir(folder):
                found = verify()
            assert {task: verdict.wrong for task, verdict in found.items()} == {
                "math": [],
                "report": [],
            }
            assert found["math"].same > 30
            assert sorted(folder.rglob("*")) == before

    def test_a_missing_call_and_a_changed_answer_are_named(
        self, copied: SimulatedProject, clone: Path
    ) -> None:
        path = clone / CALLS
        digest_of(path).unlink()  # who changes calls may have changed their digest
        calls = read_calls(path)
        used_first = sorted(
            read_calls(copied.folder / "calls" / "simulated-small" / "math" / "profile.parquet")
        )
        write_calls({key: call for key, call in calls.items() if key != used_first[0]}, path)
        with chdir(clone):
            (wrong,) = verify()["math"].wrong
        assert f"profile@math can't be rebuilt: expected call {used_first[0][:16]}" in wrong
        changed = calls | {key: Call("m", Completion("no answer", 1, 1, 9.0)) for key in used_first}
        write_calls(changed, path)
        with chdir(clone):
            wrong = verify()["math"].wrong
        assert "profile@math: results/simulated-small/math/profile.parquet is" in "; ".join(wrong)


@pytest.mark.slow
def test_pulled_results_bring_a_champion_without_a_model(
    copied: SimulatedProject, tmp_path: Path
) -> None:
    folder = tmp_path / "pulled"
    own = "mlruns mlflow.db* .ttsgraph journal.jsonl calls.jsonl bookkeeping run.json"
    shutil.copytree(copied.folder, folder, ignore=shutil.ignore_patterns(*own.split()))
    uri = f"sqlite:///{folder}/mlflow.db"
    params = folder / "params.yaml"
    params.write_text(params.read_text().replace(copied.uri, uri))
    history = folder / "results" / "simulated-small" / "math" / "random" / "history.jsonl"
    before = history.read_bytes()
    with chdir(folder):
        assert register() == ["math/1 is the champion of math"]
        assert lineage("math@champion", uri).broken == ()
    assert history.read_bytes() == before
