"""New tasks and models: checked on five questions; every other byte of a profile stays."""

import json
import shutil
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from tests.support.stub_server import StubServer, serve
from ttsgraph.base.errors import DataError, InputError, SettingsError
from ttsgraph.cli import app
from ttsgraph.scaffold.profile_text import ProfileText, entry_lines, flow
from ttsgraph.settings.profile import load_profile

ROOT = Path(__file__).parents[2]
FACTS = ["--total", "8.03e9", "--non-embedding", "6.98e9", "--layers", "32", "--hidden", "4096"]
PRICES = ["--price-prompt", "0.1", "--price-completion", "0.3"]
STUB = ["--served-as", "org/stub"]
MODEL = [*STUB, *FACTS, *PRICES]
FILE = "inputs/sums.jsonl"
PROFILE = """\
# A profile as people write them.   Trailing blanks and comments stay.
engine: {kind: external, max_retries: 0}   # endpoints that run already

pool:
    # The one we have.
    only:
        {family: f, total: 1.0e+8, non_embedding: 1.0e+8, layers: 2, hidden: 8, price: 0.1,
         base_url: "URL"}   # local

    # nothing more yet
tasks:
  sums:
    kind: math
    source: {kind: jsonl, path: inputs/sums.jsonl}
    splits: {train: 8, val: 4, test: 8}
    prompt:
      style: chat
      instruction: |
        Add them.
    sampling: {temperature: 0.9, max_tokens: 8}
    lengths: {prompt_tokens: 20, generated_tokens: 3}
    # the end of sums
roles: [assistant, fuser]
budget: {metric: flops, limit: 8}
pilot: {questions: 4, widths: [1], depths: [1]}
init: {questions: 4, candidates: 2, topologies: 1}
search: {}
agent: {}
objective: {kind: accuracy}
"""


def sums(count: int, **fields: str) -> str:
    name = fields.get("question", "question")
    rows = [{name: f"{k} + {k + 1}", "answer": str(2 * k + 1)} for k in range(count)]
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
    text = PROFILE.replace("URL", url).replace('"}', '", served_as: org/stub}')
    (tmp_path / "profiles" / "mine.yaml").write_text(text)
    (tmp_path / "params.yaml").write_text("{profile: mine, tasks: [sums], methods: [random]}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def profile_text(project: Path) -> str:
    return (project / "profiles" / "mine.yaml").read_text()


def done(*arguments: str) -> str:
    ended = run(*arguments)
    assert ended.exit_code == 0, (ended.output, ended.exception)
    return ended.output


def questions(project: Path, name: str, rows: list[dict]) -> str:
    (project / "inputs" / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"inputs/{name}"


def refused(project: Path, *arguments: str) -> str:
    """The one line with which a command is refused, after which the project is as it was."""

    def content() -> dict[Path, bytes]:
        files = (path for path in project.rglob("*") if path.is_file())
        return {path: path.read_bytes() for path in files if ".ttsgraph" not in path.parts}

    before = content()
    error = run(*arguments).exception
    assert isinstance(error, InputError), error
    assert before == content()
    (line,) = str(error).splitlines()
    return line


def added(before: str, after: str) -> str:
    """What was added in one place; every other byte is as it was."""
    size = len(after) - len(before)
    for start in range(len(before), -1, -1):  # what is added may begin as what follows does
        if after.startswith(before[:start]) and after[start + size :] == before[start:]:
            return after[start : start + size]
    raise AssertionError("something else was changed")


class TestNewTask:
    def test_writes_a_commented_task_that_answers(self, project, stub, tmp_path_factory):
        elsewhere = tmp_path_factory.mktemp("elsewhere") / "bills.jsonl"
        elsewhere.write_text(sums(40))
        before = profile_text(project)
        output = done("new-task", "invoices", str(elsewhere), "--profile", "mine")
        assert "only answered 5 of 5 questions right" in output
        assert "add invoices to `tasks` in params.yaml" in output
        assert len(stub.requests) == 5
        entry = added(before, profile_text(project))
        assert entry.count("# ") == 7
        task = load_profile("mine").task("invoices")
        assert (task.kind, task.source.path) == ("math", Path("inputs/invoices.jsonl"))
        assert (task.splits.train, task.splits.val, task.splits.test) == (16, 8, 16)
        assert (project / "inputs" / "invoices.jsonl").read_text() == elsewhere.read_text()
        # The lengths are those of the five calls.
        sizes = [len(request["messages"][-1]["content"].split()) for request in stub.requests]
        assert task.lengths.prompt_tokens == -(-sum(sizes) // 5)
        assert task.lengths.generated_tokens == 2

    def test_few_shot_tasks_get_worked_examples(self, project, stub):
        done("new-task", "more", "inputs/sums.jsonl", "--few-shot")
        task = load_profile("mine").task("more")
        assert (task.prompt.style, task.splits.shots) == ("few_shot", 4)
        assert task.source.path == Path("inputs/sums.jsonl")
        assert stub.requests[0]["messages"][-1]["content"].count("A:") == 5

    def test_the_kind_follows_from_the_fields(self, project, stub):
        rows = [{"question": f"{k} + 1", "choices": ["1", "2"], "answer": "B"} for k in range(12)]
        output = done("new-task", "quiz", questions(project, "choices.jsonl", rows))
        assert load_profile("mine").task("quiz").kind == "mmlu"
        # The stub answers sums, not letters: the task is written, and what is odd about it is said.
        assert "only answered 0 of 5 questions right" in output
        assert "none was right" in output

    def test_a_kind_for_texts_is_asked_for_not_guessed(self, project):
        rows = [{"question": f"Return order {k}?", "answer": f"In {k} days."} for k in range(12)]
        file = questions(project, "support.jsonl", rows)
        message = refused(project, "new-task", "support", file)
        assert message.startswith("support.jsonl:1: answers like 'In 0 days.' can be graded in")
        assert "with --kind (exact: the same words; " in message

    def test_free_text_is_scored_by_similarity(self, project):
        rows = [{"question": f"{k} + {k + 1}", "answer": f"{2 * k + 1} exactly"} for k in range(20)]
        file = questions(project, "support.jsonl", rows)
        # one of the answer's two words
        said = done("new-task", "support", file, "--kind", "similarity")
        assert "only scores 0.667 on 5 questions" in said
        assert load_profile("mine").task("support").kind == "similarity"

    def test_settings_of_a_kind_are_given_as_json(self, project):
        rows = [{"question": f"{k} + {k + 1}", "answer": 2 * k + 1} for k in range(20)]
        file = questions(project, "nearly.jsonl", rows)
        done("new-task", "nearly", file, "--kind", "number", "--grading", '{"tolerance": 0.5}')
        assert load_profile("mine").task("nearly").grading == {"tolerance": 0.5}

    def test_few_different_answers_are_labels(self, project):
        rows = [{"text": f"mail {k}", "label": ["billing", "bug"][k % 2]} for k in range(12)]
        done("new-task", "mails", questions(project, "mails.jsonl", rows), "--kind", "choice")
        assert load_profile("mine").task("mails").grading == {"choices": ["billing", "bug"]}

    @pytest.mark.parametrize(
        ("content", "arguments", "expected"),
        [
            (sums(20), "--kind number --grading {", "--grading: expected a JSON object, but"),
            (sums(20), "--kind chess", "unknown task kind 'chess'; known kinds:"),
            (sums(20), "--profile simulated", "simulated models answer made-up questions only"),
            (sums(20, question="prompt_text"), "", "found fields prompt_text, answer"),
            (sums(20) + '{"question": "1 + 1"}\n', "", "new.jsonl:21: expected an answer in field"),
            (sums(5), "", "expected at least 10 different questions, found 5; add some"),
            (sums(12), "--few-shot", "10 different questions and 4 worked examples, found 12"),
        ],
    )
    def test_bad_input_changes_nothing(self, project, content, arguments, expected):
        shutil.copy(ROOT / "profiles" / "simulated.yaml", project / "profiles")
        (project / "new.jsonl").write_text(content)
        assert expected in refused(project, "new-task", "new", "new.jsonl", *arguments.split())

    @pytest.mark.parametrize(
        ("name", "expected"),
        [("sums", "tasks has 'sums' already"), ("../sums", "expected a task named with letters")],
    )
    def test_a_name_that_can_be_no_tasks_is_said(self, project, name, expected):
        assert expected in refused(project, "new-task", name, "inputs/sums.jsonl")

    def test_calls_that_fail(self, project, stub):
        stub.misbehave = lambda count, body: (500, {}, "no") if count > 3 else None
        message = refused(project, "new-task", "new", "inputs/sums.jsonl")
        assert "2 calls failed" in message


class TestNewModel:
    def test_writes_a_commented_model_that_answers(self, project, stub, url):
        before = profile_text(project)
        options = ("--served-as", "org/other", *FACTS, *PRICES, "--revision", "5f0b02c")
        output = done("new-model", "new-8b", url, *options)
        assert "new-8b answered 5 of 5 questions right" in output
        assert [request["model"] for request in stub.requests] == ["org/other"] * 5
        entry = added(before, profile_text(project))
        assert entry.startswith("    # Made by")  # in the file's own indentation
        model = load_profile("mine").pool["new-8b"]
        assert (model.family, model.total, model.layers) == ("new", 8.03e9, 32)
        assert model.price == {"prompt": 0.1, "completion": 0.3}
        assert (model.base_url, model.served_as, model.revision) == (url, "org/other", "5f0b02c")

    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            (("URL", *STUB, *PRICES), "expected --total, --non-embedding, --layers, --hidden"),
            (("URL", *FACTS, *PRICES), "has org/stub, org/other; choose with --served-as"),
            (
                ("http://127.0.0.1:9/v1", *FACTS, *PRICES),
                "no server at http://127.0.0.1:9/v1: the connection",
            ),
            (("URL", *FACTS, *PRICES, "--query", "2024"), "--query: expected name=value, found"),
        ],
    )
    def test_what_can_be_no_model_is_said(self, project, url, arguments, expected):
        given = (url if part == "URL" else part for part in arguments)
        assert expected in refused(project, "new-model", "new", *given)

    def test_a_key_does_not_belong_into_a_profile(self, project, url, monkeypatch):
        key = "sk-0123456789abcdefghij"
        monkeypatch.setenv(key, "x")  # else the variable is missed before the profile is looked at
        options = (*STUB, *FACTS, *PRICES, "--api-key-env", key)
        message = refused(project, "new-model", "new", url, *options)
        assert "expected the name of an environment variable" in message
        assert key not in message

    def test_a_missing_key_is_told_and_the_model_written_untried(
        self, project, stub, url, monkeypatch
    ):
        monkeypatch.delenv("NEW_API_KEY", raising=False)
        options = (*STUB, "--api-key-env", "NEW_API_KEY")
        output = done("new-model", "new", url, *options, *FACTS, *PRICES)
        assert "new was not tried: NEW_API_KEY is not set; export it" in output
        assert stub.requests == []
        assert load_profile("mine").pool["new"].api_key_env == "NEW_API_KEY"


class TestAnEmptyProfile:
    @pytest.fixture
    def empty(self, project):
        path = project / "profiles" / "mine.yaml"
        data = yaml.safe_load(path.read_text())
        text = "".join(
            f"{key}: {flow(value)}\n" for key, value in data.items() if key not in ("pool", "tasks")
        )
        path.write_text(text + "pool: {}  # none yet\ntasks: {}\n")
        return project

    @pytest.mark.parametrize("model_first", [False, True])
    def test_it_is_filled_in_either_order(self, empty, url, model_first):
        steps = {
            "sums was not tried, as the pool has no model yet": ("new-task", "sums", FILE),
            "only was not tried: the profile has no task yet": ("new-model", "only", url, *MODEL),
        }
        (untried, first), (_, then) = sorted(steps.items(), reverse=not model_first)
        assert untried in done(*first)
        assert "only answered 5 of 5 questions right" in done(*then)
        assert (load_profile("mine").task("sums").lengths.given is None) is not model_first
        assert "pool:  # none yet\n" in profile_text(empty)

    def test_a_task_is_tried_on_a_model_whose_key_is_there(self, project, monkeypatch):
        monkeypatch.delenv("NEW_API_KEY", raising=False)
        path = project / "profiles" / "mine.yaml"
        named = "served_as: org/stub, api_key_env: NEW_API_KEY"
        path.write_text(path.read_text().replace("served_as: org/stub", named))
        output = done("new-task", "more", FILE)
        assert "more was not tried, as the pool has no model yet whose key is there" in output


class TestProfileText:
    def write(self, folder: Path, text: str) -> ProfileText:
        (folder / "p.yaml").write_bytes(text.encode())
        return ProfileText("p", folder)

    def test_windows_line_ends_stay(self, tmp_path):
        text = PROFILE.replace("URL", "http://x/v1").replace("\n", "\r\n")
        made, _ = self.write(tmp_path, text).with_entry("pool", "b", load_entry(), {})
        assert "\n" not in added(text, made).replace("\r\n", "")

    def test_a_section_in_braces_is_not_touched(self, tmp_path):
        text = "".join(f"{key}: {flow(value)}\n" for key, value in yaml.safe_load(PROFILE).items())
        said = "expected pool as a block, one entry below the other; found it in braces"
        with pytest.raises(SettingsError, match=said):
            self.write(tmp_path, text).with_entry("pool", "b", load_entry(), {})

    def test_a_file_that_changed_meanwhile_is_left_alone(self, tmp_path):
        held = self.write(tmp_path, PROFILE.replace("URL", "http://x/v1"))
        made, _ = held.with_entry("pool", "b", load_entry(), {})
        (tmp_path / "p.yaml").write_text("other")
        with pytest.raises(DataError, match="changed while this ran; nothing was written"):
            held.write(made)
        assert (tmp_path / "p.yaml").read_text() == "other"

    @settings(deadline=None, max_examples=50)
    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(),
            lambda x: st.lists(x) | st.dictionaries(st.text(), x),
        )
    )
    def test_what_is_written_is_what_is_read(self, value):
        text = "\n".join(entry_lines("name", {"key": value}, {"": "a comment", "key": "another"}))
        assert yaml.safe_load(text) == {"name": {"key": value}}

    @pytest.mark.parametrize("name", ["laptop", "paper", "simulated"])
    def test_the_profiles_that_ship_keep_every_byte(self, name):
        text = ProfileText(name, ROOT / "profiles")
        for section in ("pool", "tasks"):
            first = next(iter(text.data[section].values()))
            made, _ = text.with_entry(section, "another", first, {"": "a comment"})
            assert "# a comment" in added(text.text, made)


def load_entry() -> dict:
    sizes = {"total": 2e8, "non_embedding": 2e8, "layers": 2, "hidden": 8}
    return {"family": "g", **sizes, "price": 0.2, "base_url": "http://x/v1"}
