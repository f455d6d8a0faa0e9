"""What a run spends against its estimate, where the estimate's constants were not fitted to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.support.quirky import Quirky
from tests.support.stub_server import serve
from ttsgraph.cli import app


@dataclass(frozen=True)
class Configuration:
    """Models with their skills, questions, what one may cost in calls, and the provider's ways."""

    skills: Mapping[str, float]
    questions: int
    calls: float | None = None
    words: int = 10
    prices: tuple[float, float] = (1.0, 2.0)
    ways: Mapping[str, Any] = field(default_factory=dict)


ONE = {"a": 0.6}
TWO = {"a": 0.4, "b": 0.75}
THREE = {"a": 0.3, "b": 0.55, "c": 0.8}
FOUR = {"a": 0.35, "b": 0.45, "c": 0.6, "d": 0.9}
CONFIGURATIONS = (
    Configuration(ONE, 45),
    Configuration(ONE, 130, calls=7, words=60),
    Configuration(TWO, 60, calls=2.5),
    Configuration(TWO, 90, words=150, prices=(0.2, 5.0)),
    Configuration(TWO, 150, calls=9, ways={"thinks": 300}),
    Configuration(THREE, 50, prices=(3.0, 3.0)),
    Configuration(THREE, 110, calls=3, ways={"refuses": ("temperature",)}),
    Configuration(THREE, 180, calls=6, words=80),
    Configuration(FOUR, 70, calls=5),
    Configuration(FOUR, 120, words=30, prices=(0.05, 0.4)),
)


def spent_and_expected(
    folder: Path, one: Configuration, patch: pytest.MonkeyPatch
) -> tuple[float, Mapping[str, Any]]:
    """Dollars that a run spent, and what was expected of it."""
    answers = [f"answer {k % 7}" for k in range(one.questions)]
    known = {f"{'word ' * one.words}What is {k}?": answer for k, answer in enumerate(answers)}
    rows = [{"question": question, "answer": answer} for question, answer in known.items()]
    (folder / "qa.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    stub = Quirky(dict(one.skills), one.prices, known, **one.ways)
    prices = ["--price-prompt", str(one.prices[0]), "--price-completion", str(one.prices[1])]
    with serve(stub) as url:
        given = ["--questions", str(folder / "qa.jsonl"), "--kind", "exact", "--url", url, *prices]
        if one.calls is not None:
            written = 8 + one.ways.get("thinks", 0)
            call = (one.words + 30) * one.prices[0] + written * one.prices[1]
            given += ["--budget", f"{one.calls * call / 1e6:.9f}"]
        said("init", str(folder / "mine"), *given)
        patch.chdir(folder / "mine")
        before = stub.dollars
        expected = json.loads(said("estimate", "--json"))["expected"]
        said("run")
    return stub.dollars - before, expected


def said(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == 0, (done.output, done.exception)
    return done.output


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
