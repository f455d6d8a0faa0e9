"""A newcomer's commands on stubs: init, run and serve, at five kinds of providers, then add."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import PRICES, done
from tests.support.quirky import Quirky
from tests.support.stub_server import Answer, serve
from ttsgraph.base.errors import InputError
from ttsgraph.scaffold.providers import Provider, candidates
from ttsgraph.settings.profile import load_profile

KNOWN = {f"What is the capital of land number {k}?": f"Town {k}" for k in range(40)}


def listed(*models: dict[str, Any]) -> Callable[[str, dict[str, str]], Answer]:
    body = json.dumps({"object": "list", "data": [{"object": "model"} | each for each in models]})
    return lambda path, headers: (200, {}, body) if path.endswith("/models") else (404, {}, "{}")


def of_litellm(path: str, headers: dict[str, str]) -> Answer:
    if path.endswith("/models"):
        return 200, {}, json.dumps({"data": [{"id": "small"}, {"id": "large"}]})
    costs = {"input_cost_per_token": 1e-6, "output_cost_per_token": 2e-6}
    rows = [{"model_name": name, "model_info": costs} for name in ("small", "large")]
    return 200, {}, json.dumps({"data": rows})


def nothing_listed(path: str, headers: dict[str, str]) -> Answer:
    return 404, {}, json.dumps({"error": {"message": "not found"}})


A_TOKEN = {"prompt": "0.000001", "completion": "0.000002"}
A_MILLION = {"input": 1, "output": 2}
NESTED = {"pricing": {"input_tokens": 1, "output_tokens": 2}}
PROVIDERS: dict[str, tuple[Callable[[str, dict[str, str]], Answer], tuple[str, ...]]] = {
    "no prices": (listed({"id": "small"}, {"id": "large"}, {"id": "text-embedding-3"}), PRICES),
    "a token's": (listed(*({"id": n, "pricing": A_TOKEN} for n in ("small", "large"))), ()),
    "a million's": (listed(*({"id": n, "pricing": A_MILLION} for n in ("small", "large"))), ()),
    "nested": (listed(*({"id": n, "metadata": NESTED} for n in ("small", "large"))), ()),
    "beside the list": (of_litellm, ()),
    "no list": (nothing_listed, ("--model", "small,large", "--price", "1,2")),
}


def questions(folder: Path) -> str:
    rows = "".join(f"{question};{answer}\n" for question, answer in KNOWN.items())
    (folder / "my.csv").write_text(f"sep=;\nquestion;answer\n{rows}")
    return str(folder / "my.csv")


def stub_of(name: str) -> Quirky:
    stub = Quirky({"small": 0.5, "large": 0.9}, known=KNOWN)
    stub.lists = PROVIDERS[name][0]
    return stub


@pytest.mark.parametrize("name", PROVIDERS)
def test_init_reads_what_a_provider_lists(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve(stub_of(name)) as url:
        given = ("--questions", questions(tmp_path), "--url", url, *PROVIDERS[name][1])
        said = done("init", str(tmp_path / "mine"), *given)
    assert "40 questions: 16 for the search, 8 for validation, 16 for the test" in said
    monkeypatch.chdir(tmp_path / "mine")
    pool = load_profile("mine").pool
    assert set(pool) == {"small", "large"}
    assert all(model.price == {"prompt": 1.0, "completion": 2.0} for model in pool.values())
    lines = done("estimate").splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("my: ttsgraph run is expected to cost $")


def test_a_model_without_a_price_that_nobody_asked_for_stops_nothing() -> None:
    stub = Quirky({})
    stub.lists = listed({"id": "org/known", "pricing": A_TOKEN}, {"id": "org/other"})
    with serve(stub) as url:
        pool, lines = candidates([Provider(url)])
        assert set(pool) == {"known"}
        assert "--price other=" in lines[0]
        with pytest.raises(InputError, match="--price other="):
            candidates([Provider(url, models=("other",))])


def test_of_many_questions_it_is_said_how_many_are_used(tmp_path: Path) -> None:
    rows = "".join(f"What is {k} + {k}?,{2 * k}\n" for k in range(5000))
    (tmp_path / "many.csv").write_text(f"question,answer\n{rows}")
    said = done("init", str(tmp_path / "mine"), "--questions", str(tmp_path / "many.csv"))
    assert "1,100 of 5,000 questions are used: 750 for the search, 150 for validation, 200" in said


def test_of_many_models_some_are_chosen_by_a_pattern() -> None:
    stub = Quirky({})
    stub.lists = listed(*({"id": f"org/m{k}", "pricing": A_TOKEN} for k in range(30)))
    with serve(stub) as url:
        with pytest.raises(InputError, match="--model 'org/m0,org/m1'"):
            candidates([Provider(url)])
        pool, _ = candidates([Provider(url, models=("*/m1*", "m7"))])
    assert set(pool) == {"m7", "m1", *(f"m1{k}" for k in range(10))}
