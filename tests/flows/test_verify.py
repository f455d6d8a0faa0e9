"""Everything is rebuilt from recorded calls, in another folder, without any model, and under
whichever processor's linear algebra.
"""

import asyncio
import shutil
import subprocess
import sys
from contextlib import chdir
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from tests.support.simulated_project import SimulatedProject
from ttsgraph.base.ending import EXIT_UNVERIFIED
from ttsgraph.base.errors import (
    CallFailed,
    ContextOverflow,
    DataError,
    EndpointError,
    InputError,
    PromptRefused,
    SettingsError,
)
from ttsgraph.base.files import md5
from ttsgraph.models.cache import CachedClient
from ttsgraph.models.client import Client, Completion, Message, Request, Sampling
from ttsgraph.models.recording import (
    Call,
    Calls,
    ReplayClient,
    read_calls,
    write_calls,
)
from ttsgraph.settings.profile import load_params
from ttsgraph_flows import verify as verifying
from ttsgraph_flows.compare_records import Equality
from ttsgraph_flows.dvc_stages import dvc, runs_of, stages
from ttsgraph_flows.lineage import lineage
from ttsgraph_flows.registry import Registry
from ttsgraph_flows.verify import (
    PUBLISHED,
    digest_of,
    exit_code,
    publish,
    read_lock,
    register,
    set_aside_if_moved,
    verify,
)


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
        if text == "refused":
            raise PromptRefused("m: refused by its provider: no")
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
        except (CallFailed, ContextOverflow, PromptRefused) as error:
            found.append(f"{type(error).__name__}: {error}")
    return found


CALLS = PUBLISHED / "simulated-small" / "math.parquet"
TEXTS = ("a", "bb", "broken", "long", "refused", "bb")


def recorded(*texts: str) -> tuple[list[str], Calls]:
    """What is answered to these texts, and the calls that were recorded."""
    calls: dict[str, Call] = {}
    return asyncio.run(ask(CachedClient(Answering(), calls=calls), texts)), calls


def test_what_was_recorded_is_answered_again_failures_too_and_nothing_else(tmp_path: Path) -> None:
    made, calls = recorded(*TEXTS)
    assert made[:4] == ["1", "2", "CallFailed: m: gone", "ContextOverflow: m: too long"]
    assert made[4:] == ["PromptRefused: m: refused by its provider: no", "2"]
    assert len(calls) == 5
    path = tmp_path / "calls.parquet"
    write_calls(calls, path)
    replay = ReplayClient(read_calls(path))
    assert asyncio.run(ask(replay, TEXTS)) == made
    again = replay.begin(request("a"))
    assert (again.latency_s, again.reasoning, again.cached) == (0.25, "so", True)
    said = r"expected call [0-9a-f]{16} of m \(replica 1, prompt ending 'a'\) among the 5 recorded"
    with pytest.raises(DataError, match=said):
        replay.begin(request("a", 1))
    # The same calls are the same bytes in whatever order they were made.
    write_calls(recorded(*TEXTS[::-1])[1], tmp_path / "other.parquet")
    assert (tmp_path / "other.parquet").read_bytes() == path.read_bytes()
    path.write_text("no")
    with pytest.raises(DataError, match=r"calls\.parquet: expected recorded calls"):
        read_calls(path)


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
                written = [out for run in runs_of(load_params(), "math") for out in run.outputs]
            assert {task: verdict.wrong for task, verdict in found.items()} == {
                "math": [],
                "report": [],
            }
            assert found["math"].equal[Equality.BYTES] == len(written)
            assert not found["math"].equal[Equality.DIGITS]
            assert exit_code(found) == 0
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
            found = verify()
        assert exit_code(found) == EXIT_UNVERIFIED
        assert found["math"].wrong == []
        why = found["math"].unverified
        assert f"profile@math can't be rebuilt: expected call {used_first[0][:16]}" in why
        assert "record again with `make repro`" in why
        changed = calls | {key: Call("m", Completion("no answer", 1, 1, 9.0)) for key in used_first}
        write_calls(changed, path)
        with chdir(clone):
            wrong = verify()["math"].wrong
        assert "profile@math: results/simulated-small/math/profile.parquet: " in "; ".join(wrong)

    def test_a_published_result_is_the_recorded_one_and_says_what_the_calls_give(
        self, clone: Path
    ) -> None:
        answers = clone / CALLS.with_suffix("") / "random" / "answers.parquet"
        before = md5(answers)
        table = pd.read_parquet(answers)
        table.loc[3, "correct"] = not table.loc[3, "correct"]
        table.to_parquet(answers)
        with chdir(clone):
            found = verify()
        assert exit_code(found) == 2
        (wrong,) = found["math"].wrong
        assert "answers.parquet differs from the recorded file" in wrong
        assert "all tasks" in found["report"].unverified
        lock = clone / "dvc.lock"  # who changes a result may have changed its digest
        lock.write_text(lock.read_text().replace(before, md5(answers)))
        with chdir(clone):
            (wrong,) = verify()["math"].wrong
        assert "answers.parquet: correct[3] is" in wrong


KERNELS = {"Haswell": "avx2", "Zen": "avx2", "Prescott": "pni", "SkylakeX": "avx512bw"}
"""OpenBLAS's kernels that differ, and what a processor needs for each."""

NEWER = [
    name
    for name in np.show_config("dicts")["SIMD Extensions"]["found"]
    if name.startswith(("X86_V4", "AVX512"))
]
"""What numpy's own loops use of AVX-512 here."""


@pytest.mark.parametrize(
    "kernel", ["Haswell", *(pytest.param(name, marks=pytest.mark.slow) for name in [*KERNELS][1:])]
)
def test_what_counts_is_the_same_under_every_kernel_of_linear_algebra(
    copied: SimulatedProject, clone: Path, kernel: str
) -> None:
    cpu = Path("/proc/cpuinfo").read_text()
    if KERNELS[kernel] not in cpu.split():
        pytest.skip(f"needs a processor with {KERNELS[kernel]}")
    older = {} if kernel == "SkylakeX" else {"NPY_DISABLE_CPU_FEATURES": " ".join(NEWER)}
    done = subprocess.run(
        [sys.executable, "-m", "ttsgraph_flows.verify"],
        cwd=clone,
        env=copied.environment | older | {"OPENBLAS_CORETYPE": kernel},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(" 0 different") == 2, done.stderr


def test_a_task_whose_calls_are_not_here_is_not_verified_nor_is_the_report(
    clone: Path, ttsgraph, monkeypatch
) -> None:
    (clone / CALLS).unlink()
    monkeypatch.chdir(clone)
    done = ttsgraph("verify")
    assert done.code == 6
    assert "math: not verified: its recorded calls aren't here" in done.stderr
    assert "report: not verified" in done.stderr


NOT_PULLED = "mlruns mlflow.db* .ttsgraph bookkeeping"


@pytest.mark.slow
@pytest.mark.parametrize("left_out", [NOT_PULLED, ""], ids=["pulled", "moved"])
def test_results_of_another_folder_bring_a_champion_without_a_model(
    copied: SimulatedProject, tmp_path: Path, left_out: str
) -> None:
    folder = tmp_path / "here"
    shutil.copytree(copied.folder, folder, ignore=shutil.ignore_patterns(*left_out.split()))
    uri = f"sqlite:///{folder}/mlflow.db"
    params = folder / "params.yaml"
    params.write_text(params.read_text().replace(copied.uri, uri))
    history = folder / "results" / "simulated-small" / "math" / "random" / "history.jsonl"
    before = history.read_bytes()
    with chdir(folder):
        assert register() == ["math/1 is the champion of math"]
        assert lineage("math@champion", uri).broken == ()
    assert history.read_bytes() == before
    assert (folder / "mlflow.db.moved").exists() == (not left_out)


def test_a_champion_that_cannot_be_read_here_is_made_again(
    copied: SimulatedProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(*_: object) -> None:
        raise SettingsError("unknown key 'later'")

    monkeypatch.setattr(Registry, "deployed", unreadable)
    monkeypatch.setattr(verifying, "recorded_calls", lambda *_: None)
    with chdir(copied.folder), pytest.raises(InputError, match="expected its recorded calls"):
        register()


def test_a_task_is_published_before_there_is_a_report(
    copied: SimulatedProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    with chdir(copied.folder):
        tested = {name: entry for name, entry in read_lock().items() if name != "report"}
        monkeypatch.setattr(verifying, "read_lock", lambda: tested)
        assert publish("math") == CALLS


KEY = "ab" * 32


def calls(text):
    return {KEY: Call("small", Completion(text, 1, 1, 0.1))}


def test_published_calls_are_those_of_their_digest(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(verifying, "PUBLISHED", tmp_path)
    path = tmp_path / "laptop" / "math.parquet"
    write_calls(calls("4"), path)
    assert verifying.published_calls("laptop", "math")[KEY].outcome.text == "4"
    digest_of(path).write_text(f"{md5(path)}  {path.name}\n")
    assert verifying.published_calls("laptop", "math")[KEY].outcome.text == "4"
    write_calls(calls("5"), path)
    assert verifying.published_calls("laptop", "math") is None
    assert "math.parquet.md5" in capsys.readouterr().err
    assert verifying.published_calls("laptop", "mmlu") is None


@pytest.mark.parametrize("is_locked", [True, False])
def test_calls_that_were_pulled_are_those_of_dvc_lock(tmp_path, monkeypatch, capsys, is_locked):
    monkeypatch.chdir(tmp_path)
    remembered = {}
    monkeypatch.setattr(verifying, "remember", lambda profile, found: remembered.update(found))
    path = tmp_path / "calls" / "laptop" / "math" / "profile.parquet"
    write_calls(calls("4"), path)
    outs = f"    outs:\n    - path: calls/laptop/math/profile.parquet\n      md5: {md5(path)}\n"
    if is_locked:
        (tmp_path / "dvc.lock").write_text(f"stages:\n  profile@math:\n{outs}")
    write_calls(calls("5"), path)
    verifying.recall(SimpleNamespace(profile="laptop"), SimpleNamespace())
    assert bool(remembered) != is_locked
    assert ("dvc.lock" in capsys.readouterr().err) == is_locked


@pytest.mark.parametrize("text", ["", "- 1\n", "<<<<<<< HEAD\nstages:\n"])
def test_a_lock_that_a_merge_left_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "dvc.lock"
    file.write_text(text)
    with pytest.raises(DataError, match="git checkout"):
        read_lock(file)


@pytest.mark.parametrize("text", ["", "stages: [\n", "stages: 3\n", "stages: {}\n"])
def test_a_damaged_dvc_yaml_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("dvc.yaml").write_text(text)
    with pytest.raises(InputError, match=r"dvc\.yaml"):
        stages()


def test_a_damaged_database_is_named_before_anything_is_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mlflow.db").write_bytes(b"no database" * 400)
    with pytest.raises(InputError, match="move it away"):
        set_aside_if_moved("sqlite:///mlflow.db")


def test_what_dvc_cannot_read_is_told_as_dvc_says_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    dvc("init", "--no-scm", "-q")
    Path("dvc.yaml").write_text("stages: {one: {cmd: echo}}\n")
    Path("dvc.lock").write_text("")
    with pytest.raises(EndpointError, match=r"dvc\.lock"):
        dvc("status")
