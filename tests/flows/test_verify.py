"""Everything is rebuilt from recorded calls, in another folder, without any model, and under
whichever processor's linear algebra.
"""

import asyncio
import shutil
import sys
from contextlib import chdir
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from tests.support.processes import ran
from ttsgraph.base import errors
from ttsgraph.base.ending import EXIT_UNVERIFIED
from ttsgraph.base.files import md5
from ttsgraph.models.cache import CachedClient
from ttsgraph.models.client import Client, Completion, Message, Request, Sampling
from ttsgraph.models.recording import Call, ReplayClient, read_calls, write_calls
from ttsgraph.settings.profile import load_params
from ttsgraph_flows import verify as verifying
from ttsgraph_flows.compare_records import Equality
from ttsgraph_flows.dvc_stages import dvc, read_lock, runs_of, stages
from ttsgraph_flows.lineage import lineage
from ttsgraph_flows.registry import Registry
from ttsgraph_flows.tracking import require_own_database
from ttsgraph_flows.verify import PUBLISHED, exit_code, publish, register, verify


def request(text: str, replica: int = 0) -> Request:
    return Request("m", "1", (Message("user", text),), Sampling(), replica)


OUTCOMES = {
    "a": Completion("1", 3, 1, 0.25, reasoning="so"),
    "bb": Completion("2", 3, 1, 0.25),
    "broken": errors.CallFailed("m: gone"),
    "long": errors.ContextOverflow("m: too long"),
    "refused": errors.PromptRefused("m: refused by its provider: no"),
}


class Answering(Client):
    """Answers each text with its outcome."""

    async def complete(self, asked: Request) -> Completion:
        outcome = OUTCOMES[asked.messages[0].content]
        if isinstance(outcome, Completion):
            return outcome
        raise outcome


async def ask(client: Client) -> list[str]:
    """What comes of each call: a text, or what its error says."""
    asked = (client.complete(request(text)) for text in OUTCOMES)
    found = await asyncio.gather(*asked, return_exceptions=True)
    return [str(each) if isinstance(each, Exception) else each.text for each in found]


CALLS = PUBLISHED / "simulated-small" / "math.parquet"


def test_what_was_recorded_is_answered_again_failures_too_and_nothing_else(tmp_path):
    calls: dict[str, Call] = {}
    made = asyncio.run(ask(CachedClient(Answering(), calls=calls)))
    assert made[2:] == [str(OUTCOMES[text]) for text in ("broken", "long", "refused")]
    path = tmp_path / "calls.parquet"
    write_calls(calls, path)
    replay = ReplayClient(read_calls(path))
    assert asyncio.run(ask(replay)) == made
    again = replay.begin(request("a"))
    assert (again.latency_s, again.reasoning, again.cached) == (0.25, "so", True)
    said = r"expected call [0-9a-f]{16} of m \(replica 1, prompt ending 'a'\) among the 5 recorded"
    with pytest.raises(errors.DataError, match=said):
        replay.begin(request("a", 1))
    # The same calls are the same bytes in whatever order they were made.
    write_calls(dict(reversed(calls.items())), tmp_path / "other.parquet")
    assert (tmp_path / "other.parquet").read_bytes() == path.read_bytes()
    path.write_text("no")
    with pytest.raises(errors.DataError, match=r"calls\.parquet: expected recorded calls"):
        read_calls(path)


@pytest.fixture
def clone(copied, tmp_path):
    """What a fresh clone has, once calls are published: no results, no DVC cache, no MLflow."""
    with chdir(copied.folder):
        assert publish("math") == CALLS
    made = "data results reports calls mlruns mlflow.db* .dvc .ttsgraph"
    left_out = shutil.ignore_patterns(*made.split())
    return shutil.copytree(copied.folder, tmp_path / "a folder with another name", ignore=left_out)


def verified(clone):
    with chdir(clone):
        return verify()


@pytest.mark.slow
class TestVerify:
    def test_every_hash_is_reproduced_in_a_folder_of_another_name(self, clone):
        before = sorted(clone.rglob("*"))
        with chdir(clone):
            found = verify()
            written = [out for run in runs_of(load_params(), "math") for out in run.outputs]
        assert [*found] == ["math", "report"]
        assert not any(verdict.wrong for verdict in found.values())
        assert found["math"].equal[Equality.BYTES] == len(written)
        assert not found["math"].equal[Equality.DIGITS]
        assert exit_code(found) == 0
        assert sorted(clone.rglob("*")) == before

    def test_a_missing_call_and_a_changed_answer_are_named(self, copied, clone):
        path = clone / CALLS
        calls = read_calls(path)
        used_first = sorted(
            read_calls(copied.folder / "calls" / "simulated-small" / "math" / "profile.parquet")
        )
        write_calls({key: calls[key] for key in calls if key != used_first[0]}, path)
        found = verified(clone)
        assert exit_code(found) == EXIT_UNVERIFIED
        assert found["math"].wrong == []
        why = found["math"].unverified
        assert f"profile@math can't be rebuilt: expected call {used_first[0][:16]}" in why
        assert "record again with `make repro`" in why
        changed = calls | {key: Call("m", Completion("no answer", 1, 1, 9.0)) for key in used_first}
        write_calls(changed, path)
        wrong = verified(clone)["math"].wrong
        assert "profile@math: results/simulated-small/math/profile.parquet: " in "; ".join(wrong)

    def test_a_published_result_is_the_recorded_one_and_says_what_the_calls_give(self, clone):
        answers = clone / CALLS.with_suffix("") / "random" / "answers.parquet"
        before = md5(answers)
        table = pd.read_parquet(answers)
        table.loc[3, "correct"] = not table.loc[3, "correct"]
        table.to_parquet(answers)
        found = verified(clone)
        assert exit_code(found) == 2
        (wrong,) = found["math"].wrong
        assert "answers.parquet differs from the recorded file" in wrong
        assert "all tasks" in found["report"].unverified
        lock = clone / "dvc.lock"  # who changes a result may have changed its digest
        lock.write_text(lock.read_text().replace(before, md5(answers)))
        (wrong,) = verified(clone)["math"].wrong
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
def test_what_counts_is_the_same_under_every_kernel_of_linear_algebra(copied, clone, kernel):
    cpu = Path("/proc/cpuinfo").read_text()
    if KERNELS[kernel] not in cpu.split():
        pytest.skip(f"needs a processor with {KERNELS[kernel]}")
    older = {} if kernel == "SkylakeX" else {"NPY_DISABLE_CPU_FEATURES": " ".join(NEWER)}
    here = copied.environment | older | {"OPENBLAS_CORETYPE": kernel}
    done = ran([sys.executable, "-m", "ttsgraph_flows.verify"], clone, here)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(" 0 different") == 2, done.stderr


def test_a_task_whose_calls_are_not_here_is_not_verified_nor_is_the_report(
    clone, ttsgraph, monkeypatch
):
    (clone / CALLS).unlink()
    monkeypatch.chdir(clone)
    done = ttsgraph("verify")
    assert done.code == 6
    assert "math: not verified: its recorded calls aren't here" in done.stderr
    assert "report: not verified" in done.stderr


@pytest.mark.slow
def test_results_of_another_folder_bring_a_champion_without_a_model(copied, tmp_path):
    folder = tmp_path / "here"
    left_out = shutil.ignore_patterns("mlruns", ".ttsgraph", "bookkeeping")
    shutil.copytree(copied.folder, folder, ignore=left_out)
    uri = f"sqlite:///{folder}/mlflow.db"
    params = (copied.folder / "params.yaml").read_text()
    (folder / "params.yaml").write_text(params.replace(copied.uri, uri))
    history = folder / "results/simulated-small/math/random/history.jsonl"
    before = history.read_bytes()
    with chdir(folder):
        shutil.move("mlflow.db", "moved.db")
        with pytest.raises(errors.InputError, match="away"):  # it is the other folder's
            require_own_database(f"sqlite:///{folder}/moved.db")
        assert register() == ["math/1 is the champion of math"]
        assert lineage("math@champion", uri).broken == ()
    assert history.read_bytes() == before


def test_a_champion_that_cannot_be_read_here_is_made_again(copied, monkeypatch):
    def unreadable(*_: object) -> None:
        raise errors.SettingsError("unknown key 'later'")

    monkeypatch.setattr(Registry, "deployed", unreadable)
    monkeypatch.setattr(verifying, "recorded_calls", lambda *_: None)
    with (
        chdir(copied.folder),
        pytest.raises(errors.InputError, match="expected its recorded calls"),
    ):
        register()


def test_a_task_is_published_before_there_is_a_report(copied, monkeypatch):
    with chdir(copied.folder):
        tested = {name: entry for name, entry in read_lock().items() if name != "report"}
        monkeypatch.setattr(verifying, "read_lock", lambda: tested)
        assert publish("math") == CALLS


KEY = "ab" * 32


def calls(text):
    return {KEY: Call("small", Completion(text, 1, 1, 0.1))}


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


@pytest.mark.parametrize(
    ("name", "text"),
    [("dvc.lock", ""), ("dvc.lock", "<<<<<<< HEAD\nstages:\n"), ("dvc.yaml", "stages: 3\n")],
)
def test_what_a_merge_left_of_dvcs_files_is_named(tmp_path, monkeypatch, name, text):
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(text)
    with pytest.raises(errors.InputError, match=f"{name}.*git checkout"):
        read_lock() if name == "dvc.lock" else stages()


def test_what_dvc_cannot_read_is_told_as_dvc_says_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dvc("init", "--no-scm", "-q")
    Path("dvc.yaml").write_text("stages: {one: {cmd: echo}}\n")
    Path("dvc.lock").write_text("")
    with pytest.raises(errors.EndpointError, match=r"dvc\.lock"):
        dvc("status")
