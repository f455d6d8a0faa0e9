"""Models and questions that are added to a project: looked at first, and all else in it stays."""

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.cli import PRICES, done, ended
from tests.support.stub_server import StubServer, serve
from ttsgraph.base.errors import DataError, EndpointError, InputError
from ttsgraph.scaffold.settings_text import SettingsText
from ttsgraph.settings.profile import load_params, load_profile

ROOT = Path(__file__).parents[2]
FACTS = {"total": 8.03e9, "non_embedding": 6.98e9, "layers": 32, "hidden": 4096}
SIZES = ("--set", json.dumps(FACTS))
PROFILE = Path(__file__).with_name("profile.yaml").read_text()
PARAMS = "# what is searched\nprofile: mine\ntasks: [sums]\nmethods: [random]\n"


ROUND = st.floats(0, 1e6).map(lambda value: float(f"{value:.6g}"))


def sums(count: int) -> str:
    rows = [{"question": f"{k} + {k + 1}", "answer": str(2 * k + 1)} for k in range(count)]
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def stub():
    return StubServer(("org/stub", "org/other"), skill=1.0)


@pytest.fixture
def url(stub):
    with serve(stub) as base_url:
        yield base_url


@pytest.fixture
def project(tmp_path, monkeypatch, url):
    (tmp_path / "profiles").mkdir()
    (tmp_path / "inputs").mkdir()
    (tmp_path / "inputs" / "sums.jsonl").write_text(sums(20))
    (tmp_path / "bills.jsonl").write_text(sums(40))
    (tmp_path / "profiles" / "mine.yaml").write_text(PROFILE.replace("URL", url))
    (tmp_path / "params.yaml").write_text(PARAMS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def comments(text: str) -> list[str]:
    return [line.partition("#")[2] for line in text.splitlines() if "#" in line]


def test_questions_become_a_task_whose_costs_are_known(project, stub):
    before = (project / "profiles" / "mine.yaml").read_text()
    output = done("add", "--questions", "bills.jsonl", "--name", "invoices")
    assert "16 for the search, 8 for validation, 16 for the test" in output
    assert "next: ttsgraph run --task invoices" in output
    task = load_profile("mine").task("invoices")
    assert (task.kind, task.source.path) == ("number", Path("inputs/invoices.jsonl"))
    assert (task.splits.train, task.splits.val, task.splits.test) == (16, 8, 16)
    assert len(stub.requests) == 1
    assert task.lengths.measured["only"].generated_tokens == 2
    assert load_params().tasks == ("sums", "invoices")
    after = (project / "profiles" / "mine.yaml").read_text()
    assert comments(after) == comments(before)
    old, new = yaml.safe_load(before), yaml.safe_load(after)
    del new["tasks"]["invoices"]
    assert new == old
    assert done("estimate", "--task", "invoices").count("\n") == 3


def test_a_model_joins_the_pool_and_all_tasks_know_its_costs(project, stub, url):
    url += "?debug="
    more = {"revision": "5f0b02c"}
    options = ("--model", "other", "--set", json.dumps(FACTS | more), *PRICES, "--key-env", "")
    output = done("add", "--url", url, *options, "--profile", "mine")
    assert "other: $1 and $2 per million tokens (as given)" in output
    assert [request["model"] for request in stub.requests] == ["org/other"]
    model = load_profile("mine").pool["other"]
    assert (model.total, model.layers, model.revision) == (8.03e9, 32, "5f0b02c")
    assert model.price == {"prompt": 1, "completion": 2}
    assert (model.base_url, model.served_as) == (url, "org/other")
    assert model.api_key_env is None
    assert stub.paths == ["/v1/chat/completions?debug="]
    assert done("estimate").startswith("sums: ttsgraph run is expected to cost $")


def test_a_folder_is_filled_in_any_order_and_what_is_asked_for_counts_as_spent(
    project, url, monkeypatch
):
    def spent() -> float:
        return json.loads(Path(".ttsgraph/spent.json").read_text())["dollars"]

    done("init", "new")
    monkeypatch.chdir(project / "new")
    assert "an endpoint" not in done("add", "--questions", "../bills.jsonl")
    assert load_params().tasks == ("bills",)
    assert "a question may cost $" in done("add", "--url", url, *PRICES)
    assert set(load_profile("mine").pool) == {"stub", "other"}
    assert load_profile("mine").budget.metric == "dollars"
    before = spent()
    tolerant = ("--name", "more", "--kind", "number", "--grading", '{"tolerance": 0.5}')
    done("add", "--questions", "../bills.jsonl", *tolerant)
    assert load_profile("mine").task("more").grading == {"tolerance": 0.5}
    assert spent() > before > 0


def test_a_model_whose_cost_is_not_known_or_that_does_not_answer_changes_nothing(
    project, url, stub
):
    before = (project / "profiles" / "mine.yaml").read_text()
    stub.misbehave = lambda count, body: (400, {}, "no") if "other" in body["model"] else None
    for model, more, named in (
        ("other", SIZES, "other didn't answer"),
        ("stub", SIZES, "org/stub is in the pool already, as only"),
    ):
        error = ended("add", "--url", url, "--model", model, *PRICES, *more).exception
        assert isinstance(error, InputError | EndpointError), error
        assert named in str(error)
    stub.misbehave = lambda count, body: None
    assert "total" in str(ended("add", "--url", url, "--model", "other", *PRICES).exception)
    assert (project / "profiles" / "mine.yaml").read_text() == before


class TestSettingsText:
    def test_a_file_that_changed_meanwhile_is_left_alone(self, tmp_path):
        (tmp_path / "p.yaml").write_text(PROFILE)
        text = SettingsText(tmp_path / "p.yaml")
        text.require_unchanged()
        (tmp_path / "p.yaml").write_text("other")
        with pytest.raises(DataError, match="nothing was written"):
            text.require_unchanged()

    @settings(deadline=None, max_examples=12)
    @given(
        st.dictionaries(
            st.text("abc_", min_size=1, max_size=20),
            st.recursive(
                st.none() | st.booleans() | st.integers() | ROUND | st.text(),
                lambda x: st.lists(x) | st.dictionaries(st.text(), x),
            ),
            min_size=1,
        )
    )
    @example({"_": {"-_": None, "._": "+.", "1_": "0x", "-.inf": ".nan"}})
    def test_what_is_added_is_what_is_read(self, entry):
        text = SettingsText(Path("none.yaml"), "a: {}  # of a\n# of b\nb: 1\n")
        text.add("a", "name", entry)
        assert text.plain == {"a": {"name": entry}, "b": 1}
        assert comments(text.text)[-2:] == [" of a", " of b"] or "#" in str(entry)

    @pytest.mark.parametrize("name", ["laptop", "coder"])
    def test_the_profiles_that_ship_keep_settings_and_comments(self, name):
        text = SettingsText(ROOT / "profiles" / f"{name}.yaml")
        before = text.plain
        for section in ("pool", "tasks"):
            text.add(section, "another", next(iter(before[section].values())))
            before[section]["another"] = next(iter(before[section].values()))
        assert text.plain == before
        assert set(comments(text.before)) <= set(comments(text.text))
