"""What a run spends against its estimate, where the estimate's constants were not fitted to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import done
from tests.support.quirky import Quirky
from tests.support.stub_server import serve

TWO = {"a": 0.4, "b": 0.75}
THREE = {"a": 0.3, "b": 0.55, "c": 0.8}
FOUR = {"a": 0.35, "b": 0.45, "c": 0.6, "d": 0.9}
CONFIGURATIONS: tuple[tuple[dict[str, float], int, float | None, int, float, float, Any], ...] = (
    # models' skills, questions, calls that one may cost, its words, prices, the provider's ways
    ({"a": 0.6}, 45, None, 10, 1, 2, {}),
    ({"a": 0.6}, 130, 7, 60, 1, 2, {}),
    (TWO, 60, 2.5, 10, 1, 2, {}),
    (TWO, 90, None, 150, 0.2, 5, {}),
    (TWO, 150, 9, 10, 1, 2, {"thinks": 300}),
    (THREE, 50, None, 10, 3, 3, {}),
    (THREE, 110, 3, 10, 1, 2, {"refuses": ("temperature",)}),
    (THREE, 180, 6, 80, 1, 2, {}),
    (FOUR, 70, 5, 10, 1, 2, {}),
    (FOUR, 120, None, 30, 0.05, 0.4, {}),
)


def spent_and_expected(
    folder: Path, one: tuple[Any, ...], patch: pytest.MonkeyPatch
) -> tuple[float, Mapping[str, Any]]:
    """Dollars that a run spent, and what was expected of it."""
    skills, questions, calls, words, read, written, ways = one
    known = {f"{'word ' * words}What is {k}?": f"answer {k % 7}" for k in range(questions)}
    rows = [{"question": question, "answer": answer} for question, answer in known.items()]
    (folder / "qa.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    stub = Quirky(dict(skills), (read, written), known, **ways)
    prices = ["--price-prompt", str(read), "--price-completion", str(written)]
    with serve(stub) as url:
        given = ["--questions", str(folder / "qa.jsonl"), "--kind", "exact", "--url", url, *prices]
        if calls is not None:
            call = (words + 30) * read + (8 + ways.get("thinks", 0)) * written
            given += ["--budget", f"{calls * call / 1e6:.9f}"]
        done("init", str(folder / "mine"), *given)
        patch.chdir(folder / "mine")
        before = stub.dollars
        expected = json.loads(done("estimate", "--json"))["expected"]
        done("run")
    return stub.dollars - before, expected


@pytest.mark.slow
def test_what_a_run_spends_is_what_was_expected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares = []
    for number, one in enumerate(CONFIGURATIONS):
        folder = tmp_path / str(number)
        folder.mkdir()
        spent, expected = spent_and_expected(folder, one, monkeypatch)
        low, high = expected["dollars_between"]
        assert low <= spent <= high, (one, spent, expected)
        shares.append(spent / expected["dollars"])
    near = [share for share in shares if 1 / 1.5 <= share <= 1.5]
    assert len(near) >= 8, shares
