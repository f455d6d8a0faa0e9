"""Published results can be checked by anybody: everything rebuilt from recorded calls, in another
folder, without any model.
"""

from __future__ import annotations

import asyncio
import shutil
from contextlib import chdir
from pathlib import Path

import pytest

from tests.support.simulated_project import SimulatedProject
from ttsgraph.base.errors import CallFailed, ContextOverflow, DataError, InputError
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
from ttsgraph_flows.registry import Registry
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


class TestCalls:
    def test_what_was_recorded_is_answered_again_failures_too_and_nothing_else(
        self, tmp_path: Path
    ) -> None:
        recorder = Recorder()
        made = asyncio.run(ask(RecordingClient(Answering(), recorder), TEXTS))
        assert len(recorder.calls) == 4
        write_calls(recorder.calls, tmp_path / "calls.parquet")
        replay = ReplayClient(read_calls(tmp_path / "calls.parquet"))
        assert (
            asyncio.run(ask(replay, TEXTS))
            == made
            == ["1", "2", "CallFailed: m: gone", "ContextOverflow: m: too long", "2"]
        )
        again = replay.begin(request("a"))
        assert (again.latency_s, again.reasoning, again.cached) == (0.25, "so", True)
        with pytest.raises(
            DataError,
            match=(
                r"expected call [0-9a-f]{16} of m \(replica 1, asked \.\.\.'a'\) among 4 recorded"
                r" ones"
            ),
        ):
            replay.begin(request("a", 1))

    def test_the_same_calls_are_the_same_bytes_in_whatever_order_they_were_made(
        self, tmp_path: Path
    ) -> None:
        for name, texts in (("one", TEXTS), ("two", TEXTS[::-1])):
            recorder = Recorder()
            asyncio.run(ask(RecordingClient(Answering(), recorder), texts))
            write_calls(recorder.calls, tmp_path / name)
        assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()

    def test_what_an_earlier_start_used_is_there_after_a_crash_but_not_under_another_identity(
        self, tmp_path: Path
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

    def test_a_file_that_is_none_of_calls_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "x.parquet").write_text("no")
        with pytest.raises(DataError, match=r"x\.parquet: expected recorded calls"):
            read_calls(tmp_path / "x.parquet")


@pytest.fixture(scope="module")
def built(searched: SimulatedProject, tmp_path_factory: pytest.TempPathFactory) -> SimulatedProject:
    return searched.copy(tmp_path_factory.mktemp("published") / "project")


def without_results(project: SimulatedProject, folder: Path) -> Path:
    """What a fresh clone has: no results, no DVC cache, no MLflow."""
    left_out = shutil.ignore_patterns(
        "data",
        "results",
        "reports",
        "calls",
        "identity",
        "mlruns",
        "mlflow.db*",
        ".dvc",
        ".ttsgraph",
    )
    shutil.copytree(project.folder, folder, ignore=left_out)
    return folder


@pytest.fixture
def clone(built: SimulatedProject, tmp_path: Path) -> Path:
    """A fresh clone of what was built, with the calls that were published."""
    with chdir(built.folder):
        publish("math")
    return without_results(built, tmp_path / "clone")


@pytest.mark.slow
class TestVerify:
    def test_every_hash_is_reproduced_twice_in_folders_of_other_names(
        self, built: SimulatedProject, tmp_path: Path
    ) -> None:
        with chdir(built.folder):
            published = publish("math")
        assert published == CALLS
        for name in ("clone", "a folder with another name"):
            folder = without_results(built, tmp_path / name)
            before = sorted(folder.rglob("*"))
            with chdir(folder):
                found = verify()
            assert {task: verdict.wrong for task, verdict in found.items()} == {
                "math": [],
                "report": [],
            }
            assert found["math"].same > 30
            assert sorted(folder.rglob("*")) == before

    def test_calls_that_cant_be_had_leave_what_was_published(self, clone: Path) -> None:
        published = clone / CALLS
        before = published.read_bytes()
        with chdir(clone), pytest.raises(InputError, match="make repro"):
            publish("math")
        assert published.read_bytes() == before

    def test_a_missing_call_and_a_changed_answer_are_named(
        self, built: SimulatedProject, clone: Path
    ) -> None:
        path = clone / CALLS
        digest_of(path).unlink()  # who changes calls may have changed their digest
        calls = read_calls(path)
        used_first = sorted(
            read_calls(built.folder / "calls" / "simulated-small" / "math" / "profile.parquet")
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

    def test_nothing_to_verify_is_said(self, built: SimulatedProject, tmp_path: Path) -> None:
        folder = without_results(built, tmp_path / "clone")
        shutil.rmtree(folder / PUBLISHED, ignore_errors=True)
        with (
            chdir(folder),
            pytest.raises(InputError, match="expected recorded calls of at least one task"),
        ):
            verify()
        (folder / "dvc.lock").unlink()
        with chdir(folder), pytest.raises(InputError, match="`make repro` makes it"):
            verify()


@pytest.mark.slow
class TestRegister:
    def test_a_moved_folder_has_a_usable_champion(
        self, built: SimulatedProject, tmp_path: Path
    ) -> None:
        folder = tmp_path / "moved"
        shutil.copytree(built.folder, folder)
        uri = f"sqlite:///{folder}/mlflow.db"
        params = (folder / "params.yaml").read_text().replace(built.uri, uri)
        (folder / "params.yaml").write_text(params)
        with chdir(folder):
            assert register() == ["math/1 is the champion of math"]
            registry = Registry(uri)
            kept = registry._client.get_model_version_download_uri("ttsgraph-math", "1")
            assert str(built.folder) not in kept
            assert lineage("math@champion", uri).broken == ()

    def test_pulled_results_bring_a_champion_without_a_model(
        self, built: SimulatedProject, tmp_path: Path
    ) -> None:
        folder = tmp_path / "pulled"
        own = (
            "mlruns",
            "mlflow.db*",
            ".ttsgraph",
            "journal.jsonl",
            "calls.jsonl",
            "bookkeeping",
            "run.json",
        )
        shutil.copytree(built.folder, folder, ignore=shutil.ignore_patterns(*own))
        uri = f"sqlite:///{folder}/mlflow.db"
        (folder / "params.yaml").write_text(
            (folder / "params.yaml").read_text().replace(built.uri, uri)
        )
        before = (
            folder / "results" / "simulated-small" / "math" / "random" / "history.jsonl"
        ).read_bytes()
        with chdir(folder):
            assert register() == ["math/1 is the champion of math"]
            assert lineage("math@champion", uri).broken == ()
        assert (
            folder / "results" / "simulated-small" / "math" / "random" / "history.jsonl"
        ).read_bytes() == before


@pytest.mark.slow
def test_dvc_shows_the_test_scores(built: SimulatedProject) -> None:
    assert "scores.json" in (shown := built.dvc("metrics", "show"))
    assert all(arm in shown for arm in ("found", "single", "fixed_topology"))
