"""Three commands, no edit: from questions and URLs to a served graph, at providers with habits."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.cli import PRICES, done
from tests.support.quirky import Quirky
from tests.support.service import chat, client_of, serving
from tests.support.stub_server import Answer, serve
from ttsgraph.base.errors import EndpointError, InputError
from ttsgraph.deployment.bundle import DeployedVersion, FileLoader
from ttsgraph.scaffold.cells import json_lines
from ttsgraph.scaffold.providers import Provider, candidates
from ttsgraph.settings.profile import load_profile
from ttsgraph.tasks import get_task

CITIES = ("Paris", "Rome", "Oslo", "Lima", "Cairo", "Quito", "Delhi", "Seoul")


def capitals(count: int = 60) -> dict[str, str]:
    return {f"What is the capital of land number {k}?": CITIES[k % 8] for k in range(count)}


def init(folder: Path, known: dict[str, str], *more: str, name: str = "qa") -> str:
    """Make a project in a folder, with these questions and their answers."""
    file = folder.with_name(f"{name}.jsonl")
    rows = ({"prompt": question, "Correct Answer": known[question]} for question in known)
    file.write_text(json_lines(rows))
    return done("init", str(folder), "--questions", str(file), *more)


KEY = "key-of-a-newcomer-0123456789"


def profile(folder: Path) -> dict[str, Any]:
    return yaml.safe_load((folder / "profiles" / "mine.yaml").read_text())


def test_init_finds_out_how_models_want_to_be_asked_and_whether_they_reason(tmp_path):
    known = capitals()
    skills = {"org/a": 0.6, "org/text-embed": 0.1}
    stub = Quirky(skills, known=known, refuses=("temperature",), thinks=900)
    with serve(stub) as url:
        init(tmp_path / "mine", known, "--url", url, *PRICES)
    made = profile(tmp_path / "mine")
    assert list(made["pool"]) == ["a"]
    assert made["pool"]["a"]["left_out"] == ["temperature"]
    assert made["tasks"]["qa"]["sampling"]["max_tokens"] > 900
    assert made["tasks"]["qa"]["kind"] in ("exact", "choice")
    assert made["budget"]["metric"] == "dollars"


def test_two_providers_have_their_own_keys_and_prices(tmp_path, monkeypatch):
    known = capitals()
    keys = {"FIRST_KEY": "key-of-first-0123456789", "SECOND_KEY": "key-of-second-0123456789"}
    stubs = []
    for (name, key), prices in zip(keys.items(), ((1, 2), (5, 9)), strict=True):
        monkeypatch.setenv(name, key)
        stubs.append(Quirky({"same": 0.5}, prices, known, key=key, lists_prices=True))
    with serve(stubs[0]) as one, serve(stubs[1]) as two:
        init(tmp_path / "mine", known, "--url", one, "--key-env", "FIRST_KEY", "--budget", ".002")
        monkeypatch.chdir(tmp_path / "mine")
        done("add", "--url", two, "--key-env", "SECOND_KEY", "--price", "same=7,8")
    mine = list(profile(tmp_path / "mine")["pool"].values())
    assert [model["price"]["prompt"] for model in mine] == [1, 7]  # as listed, and as given
    assert [model["api_key_env"] for model in mine] == list(keys)
    heard = [{headers["authorization"] for headers in stub.headers} for stub in stubs]
    assert heard == [{f"Bearer {key}"} for key in keys.values()]


def test_a_judge_is_one_of_the_models_and_part_of_the_estimate(tmp_path, monkeypatch):
    known = capitals()
    expected = []
    with serve(Quirky({"a": 0.6, "x/llama 3@v1:free": 0.6}, known=known)) as url:
        prices = ("--price", "a=3,9", "--price", "llama-3-v1-free=1,2")
        for name, kind in (("judged", "judge"), ("plain", "exact")):
            init(tmp_path / name, known, "--url", url, *prices, "--kind", kind)
            monkeypatch.chdir(tmp_path / name)
            expected.append(json.loads(done("estimate", "--json"))["expected"]["dollars"])
        init(tmp_path / "free", known, "--url", url, "--price", "0")
    made = profile(tmp_path / "judged")
    assert list(made["pool"]) == ["a", "llama-3-v1-free"]
    assert list(made["tasks"]["qa"]["grading"]["models"]) == ["a"]
    assert expected[0] > 1.2 * expected[1]
    # Models that cost nothing have a budget in seconds, and so a speed.
    assert profile(tmp_path / "free")["budget"]["metric"] == "runtime"
    assert profile(tmp_path / "free")["pool"]["a"]["speed"][1] > 0


@pytest.mark.slow
@pytest.mark.parametrize("habit", ["reasons", "tells no usage", "refuses"])
def test_three_commands_lead_to_a_graph(tmp_path, monkeypatch, habit):
    habits: dict[str, dict[str, Any]] = {
        "reasons": {"thinks": 700},
        "tells no usage": {"usage": False},
        "refuses": {"refuses": ("temperature", "top_p", "max_tokens")},
    }
    known = capitals(100)
    monkeypatch.setenv("MY_KEY", KEY)
    stub = Quirky({"small": 0.5, "large": 0.8}, known=known, key=KEY, **habits[habit])
    with serve(stub) as url:
        init(tmp_path / "mine", known, "--url", url, "--key-env", "MY_KEY", *PRICES, name="my")
        before, asked = stub.refused, stub.dollars
        monkeypatch.chdir(tmp_path / "mine")
        expected = json.loads(done("estimate", "--json"))["expected"]
        assert "next: ttsgraph serve results/mine/my/found" in done("run", "--limit", "5")
        assert stub.refused - before <= 2
        spent = stub.dollars - asked
        noted = json.loads(Path(".ttsgraph/spent.json").read_text())["dollars"]
        over = 2 if habit == "tells no usage" else 1.01  # tokens are estimated from above
        assert 0.99 * stub.dollars <= noted <= over * stub.dollars
        assert served_answer(stub) in map(str.lower, CITIES)
    found = DeployedVersion.read(Path("results/mine/my/found/bundle.json"))
    assert found.graph.nodes
    low, high = expected["dollars_between"]
    if habit != "tells no usage":
        assert low <= spent <= high


def served_answer(stub: Quirky) -> str:
    """What the found graph says over HTTP to a question that it was asked, in lower case."""
    loader = FileLoader((Path("results/mine/my/found"),))
    text = stub.requests[0]["messages"][-1]["content"]
    question = text[text.index("What is the capital") :]
    with serving(loader, loader.names) as service:
        body = chat(question, model=loader.names[0])
        said = client_of(service.url).chat.completions.create(**body)
    return get_task("exact").extract(said.choices[0].message.content) or "nothing"


def listed(*models: dict[str, Any]) -> Callable[[str, dict[str, str]], Answer]:
    body = json.dumps({"object": "list", "data": [{"object": "model"} | each for each in models]})
    return lambda path, headers: (200, {}, body) if path.endswith("/models") else (404, {}, "{}")


@contextmanager
def provider(*models: dict[str, Any]) -> Iterator[str]:
    """The URL of a provider that lists these models."""
    stub = Quirky({})
    stub.lists = listed(*models)
    with serve(stub) as url:
        yield url


PRICE = {"prompt": 1.0, "completion": 2.0}
A_TOKEN = {"prompt": "0.000001", "completion": "0.000002"}
PROVIDERS: dict[str, tuple[Callable[[str, dict[str, str]], Answer], tuple[str, ...]]] = {
    "no prices": (listed({"id": "small"}, {"id": "large"}, {"id": "text-embedding-3"}), PRICES),
    "a token's": (listed(*({"id": n, "pricing": A_TOKEN} for n in ("small", "large"))), ()),
    "no list": (lambda path, headers: (404, {}, "{}"), ("--model", "small,large", *PRICES)),
}


@pytest.mark.parametrize("name", PROVIDERS)
def test_init_reads_what_a_provider_lists(name, tmp_path, monkeypatch):
    stub = Quirky({"small": 0.5, "large": 0.9}, known=capitals(40))
    stub.lists, more = PROVIDERS[name]
    with serve(stub) as url:
        init(tmp_path / "mine", stub.known, "--url", url, *more)
    monkeypatch.chdir(tmp_path / "mine")
    pool = load_profile("mine").pool
    assert set(pool) == {"small", "large"}
    assert all(model.price == PRICE for model in pool.values())


def test_a_model_without_a_price_that_nobody_asked_for_stops_nothing():
    with provider({"id": "org/known", "pricing": A_TOKEN}, {"id": "org/other"}) as url:
        pool, lines = candidates(Provider(url), {})
        assert set(pool) == {"known"}
        assert "--price other=" in lines[0]
        with pytest.raises(InputError, match="--price other="):
            candidates(Provider(url, models=("other",)), {})


def test_a_server_that_is_down_is_named_before_a_model_is_called():
    stub = Quirky({})
    stub.lists = lambda path, headers: (502, {}, "Bad Gateway")
    with serve(stub) as url, pytest.raises(EndpointError, match="502"):
        candidates(Provider(url, models=("small",), prices={"": PRICE}), {})
    assert not stub.requests


def test_a_model_of_the_pool_is_not_added_again():
    with serve(Quirky({"small": 0.5}, lists_prices=True)) as url:
        held = {"small": {"base_url": url, "served_as": "small"}}
        pool, lines = candidates(Provider(url), held)
        assert not pool
        assert "as small" in lines[0]
        (name,) = candidates(Provider(url), {"small": {"base_url": "http://other/v1"}})[0]
        assert name != "small"


def test_of_many_questions_it_is_said_how_many_are_used(tmp_path):
    rows = "".join(f"What is {k} + {k}?,{2 * k}\n" for k in range(5000))
    (tmp_path / "many.csv").write_text(f"question,answer\n{rows}")
    said = done("init", str(tmp_path / "mine"), "--questions", str(tmp_path / "many.csv"))
    assert "1,100 of 5,000 questions are used: 750 for the search, 150 for validation, 200" in said


def test_of_many_models_some_are_chosen_by_a_pattern():
    with provider(*({"id": f"org/m{k}", "pricing": A_TOKEN} for k in range(30))) as url:
        with pytest.raises(InputError, match="--model 'org/m0,org/m1'"):
            candidates(Provider(url), {})
        pool, _ = candidates(Provider(url, models=("*/m1*", "m7")), {})
    assert set(pool) == {"m7", "m1", *(f"m1{k}" for k in range(10))}
