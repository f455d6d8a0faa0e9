"""Recorded calls are read only where they are the file that was written down."""

from types import SimpleNamespace

import pytest

from ttsgraph.base.files import md5
from ttsgraph.models.client import Completion
from ttsgraph.models.recording import Call, write_calls
from ttsgraph_flows import verify

KEY = "ab" * 32


def calls(text):
    return {KEY: Call("small", Completion(text, 1, 1, 0.1))}


def test_published_calls_are_those_of_their_digest(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(verify, "PUBLISHED", tmp_path)
    path = tmp_path / "laptop" / "math.parquet"
    write_calls(calls("4"), path)
    assert verify.published_calls("laptop", "math")[KEY].outcome.text == "4"
    verify.digest_of(path).write_text(f"{md5(path)}  {path.name}\n")
    assert verify.published_calls("laptop", "math")[KEY].outcome.text == "4"
    write_calls(calls("5"), path)
    assert verify.published_calls("laptop", "math") is None
    assert "math.parquet.md5" in capsys.readouterr().err
    assert verify.published_calls("laptop", "mmlu") is None


@pytest.mark.parametrize("is_locked", [True, False])
def test_calls_that_were_pulled_are_those_of_dvc_lock(tmp_path, monkeypatch, capsys, is_locked):
    monkeypatch.chdir(tmp_path)
    remembered = {}
    monkeypatch.setattr(verify, "remember", lambda profile, found: remembered.update(found))
    path = tmp_path / "calls" / "laptop" / "math" / "profile.parquet"
    write_calls(calls("4"), path)
    outs = f"    outs:\n    - path: calls/laptop/math/profile.parquet\n      md5: {md5(path)}\n"
    if is_locked:
        (tmp_path / "dvc.lock").write_text(f"stages:\n  profile@math:\n{outs}")
    write_calls(calls("5"), path)
    verify.recall(SimpleNamespace(profile="laptop"), SimpleNamespace())
    assert bool(remembered) != is_locked
    assert ("dvc.lock" in capsys.readouterr().err) == is_locked
