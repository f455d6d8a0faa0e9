"""Three commands, no edit: from questions and URLs to a served graph, at providers with habits."""

from __future__ import annotations

import csv
import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from tests.support.quirky import Quirky
from tests.support.service import chat, client_of, serving
from tests.support.stub_server import serve
from ttsgraph.base.errors import InputError, SettingsError
from ttsgraph.cli import app
from ttsgraph.deployment.bundle import DeployedVersion, FileLoader
from ttsgraph.scaffold.providers import Provider, candidates
from ttsgraph.scaffold.questions import QuestionSource, look_at
from ttsgraph.tasks import get_task

CITIES = ("Paris", "Rome", "Oslo", "Lima", "Cairo", "Quito", "Delhi", "Seoul")


def capitals(count: int = 60) -> dict[str, str]:
    return {f"What is the capital of land number {k}?": CITIES[k % 8] for k in range(count)}


def jsonl(path: Path, known: dict[str, str]) -> Path:
    rows = [{"prompt": q, "Correct Answer": a} for q, a in known.items()]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def with_choices(path: Path, known: dict[str, str]) -> dict[str, str]:
    """A table with all choices in one cell; returns the letters that are right."""
    letters = {}
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["Question", "Options", "Answer"])
        for k, (question, answer) in enumerate(known.items()):
            options = [city for city in CITIES if city != answer][:3]
            options.insert(k % 4, answer)
            letters[question] = "ABCD"[k % 4]
            table.writerow([question, " | ".join(options), letters[question]])
    return letters


def ttsgraph(*args: str) -> Result:
    return CliRunner().invoke(app, list(args))


def init(folder: Path, file: Path, *more: str) -> Result:
    return ttsgraph("init", str(folder), "--questions", str(file), *more)


PRICE = ("--price-prompt", "1", "--price-completion", "2")


def profile(folder: Path) -> dict[str, Any]:
    return yaml.safe_load((folder / "profiles" / "mine.yaml").read_text())


def made_at(
    stub: Quirky, folder: Path, file: Path, prices: tuple[str, ...] = PRICE
) -> dict[str, Any]:
    """The profile that `init` makes at this stub."""
    with serve(stub) as url:
        done = init(folder / "mine", file, "--url", url, *prices)
    assert done.exit_code == 0, done.output
    return profile(folder / "mine")


def test_init_finds_out_how_models_want_to_be_asked(tmp_path: Path) -> None:
    known = capitals()
    skills = {"org/a": 0.6, "org/text-embed": 0.1}
    stub = Quirky(skills, known=known, refuses=("temperature",))
    made = made_at(stub, tmp_path, jsonl(tmp_path / "qa.jsonl", known))
    assert list(made["pool"]) == ["a"]
    assert made["pool"]["a"]["left_out"] == ["temperature"]
    assert made["tasks"]["qa"]["kind"] in ("exact", "choice")
    assert made["budget"]["metric"] == "dollars"
    assert stub.refused == 1


def test_init_sees_that_models_reason_and_gives_them_room(tmp_path: Path) -> None:
    known = capitals()
    stub = Quirky({"thinker": 0.8}, known=known, thinks=900)
    made = made_at(stub, tmp_path, jsonl(tmp_path / "qa.jsonl", known))
    assert made["tasks"]["qa"]["sampling"]["max_tokens"] > 900
    assert made["pool"]["thinker"]["variants"] == {"low": {"reasoning_effort": "low"}}


def test_two_providers_have_their_own_keys_and_prices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = capitals()
    file = jsonl(tmp_path / "qa.jsonl", known)
    keys = {"FIRST_KEY": "key-of-first-0123456789", "SECOND_KEY": "key-of-second-0123456789"}
    stubs = []
    for (name, key), prices in zip(keys.items(), ((1, 2), (5, 9)), strict=True):
        monkeypatch.setenv(name, key)
        stubs.append(Quirky({"same": 0.5}, prices, known, key=key, lists_prices=True))
    with serve(stubs[0]) as one, serve(stubs[1]) as two:
        both = ("--url", one, "--key-env", "FIRST_KEY", "--url", two, "--key-env", "SECOND_KEY")
        done = init(tmp_path / "mine", file, *both)
        assert done.exit_code == 0, done.output
        dear = ("--price", "same=7,8", "--budget", ".002")
        assert init(tmp_path / "dear", file, *both, *dear).exit_code == 0
    mine, dearer = (list(profile(tmp_path / name)["pool"].values()) for name in ("mine", "dear"))
    assert [model["price"]["prompt"] for model in mine] == [1, 5]
    # An option behind a --url is about that.
    assert [model["price"]["prompt"] for model in dearer] == [1, 7]
    assert [model["api_key_env"] for model in mine] == list(keys)
    heard = [{headers["authorization"] for headers in stub.headers} for stub in stubs]
    assert heard == [{f"Bearer {key}"} for key in keys.values()]


def test_a_variable_that_no_run_would_take_a_key_from_is_refused_at_once(tmp_path: Path) -> None:
    done = init(tmp_path / "mine", Path("my.csv"), "--url", "http://x/v1", "--key-env", "FIRST")
    assert isinstance(done.exception, SettingsError)
    assert "--key-env" in str(done.exception)
    assert not (tmp_path / "mine").exists()


def test_choices_in_one_cell_reach_the_prompt(tmp_path: Path) -> None:
    stub = Quirky({"a": 0.6}, known=with_choices(tmp_path / "my.csv", capitals()))
    made = made_at(stub, tmp_path, tmp_path / "my.csv")
    assert made["tasks"]["my"]["kind"] == "choice"
    assert "A. Paris" in stub.requests[0]["messages"][-1]["content"]


ROWS = [(f"Which is the seat of guild {k}?", list(CITIES[k % 3 :][:4]), k % 4) for k in range(12)]


def as_table(names: str, rows: list[tuple[object, ...]], separator: str = ",") -> str:
    text = StringIO()
    csv.writer(text, delimiter=separator, lineterminator="\r\n").writerows(
        [tuple(names.split()), *rows]
    )
    return text.getvalue()


def as_lines(*rows: object) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def labelled(choices: list[str], form: str, between: str = " ") -> str:
    pairs = zip("ABCD", choices, strict=True)
    return between.join(form.format(L=label, n="ABCD".index(label) + 1, c=c) for label, c in pairs)


NESTED = [
    {
        "question": {
            "stem": q,
            "choices": [{"label": x, "text": y} for x, y in zip("ABCD", c, strict=True)],
        },
        "answerKey": f"({'abcd'[i]})",
    }
    for q, c, i in ROWS
]
LETTERED = [(q, labelled(c, "{L}) {c}"), f"{'ABCD'[i]}) {c[i]}") for q, c, i in ROWS]
NUMBERED = [(q, labelled(c, "{n}. {c}", "; "), i + 1) for q, c, i in ROWS]
OPTIONS = [(q, *c, f"Option {'ABCD'[i]}") for q, c, i in ROWS]
WRONG = [(q, c[i], *(each for each in c if each != c[i])) for q, c, i in ROWS]
CHOICES = {
    "JSON": as_table("question options answer", [(q, json.dumps(c), c[i]) for q, c, i in ROWS]),
    "lettered": as_table("question options answer", LETTERED),
    "numbered": as_table("question options answer", NUMBERED),
    "slashes": as_table("Question Options Label", [(q, " / ".join(c), i) for q, c, i in ROWS]),
    "columns": as_table("prompt option_a option_b option_c option_d correct_option", OPTIONS, ";"),
    "wrong ones": as_table("question correct_answer wrong1 wrong2 wrong3", WRONG),
    "nested": as_lines(*NESTED),
}


@pytest.mark.parametrize("form", CHOICES)
def test_choices_in_every_form_reach_the_prompt_with_the_right_one(
    tmp_path: Path, form: str
) -> None:
    file = tmp_path / ("q.jsonl" if CHOICES[form].startswith("{") else "q.csv")
    file.write_text(CHOICES[form])
    looked = look_at(QuestionSource(file))
    assert (looked.kind, len(looked.rows)) == ("choice", len(ROWS))
    task = get_task("choice")
    for row, (text, choices, right) in zip(looked.rows, ROWS, strict=True):
        question = task.parse(row, "row")
        shown = task.render(question).splitlines()
        assert shown[0] == text
        assert {line[3:] for line in shown[1:]} == set(choices)
        assert f"{question.answer}. {choices[right]}" in shown


PLAIN = [(q, f"{c[i]} {k}") for k, (q, c, i) in enumerate(ROWS)]


def test_what_nothing_tells_is_asked_for_or_an_option_says_it(tmp_path: Path) -> None:
    rows = [(k, q, f"{a} {k}", "today") for k, (q, a) in enumerate(PLAIN)]
    (tmp_path / "q.csv").write_text(as_table("Ticket Said Code Seen", rows))
    asked: list[str] = []
    given = iter(("Said", "Code", "org/a", "1,2"))

    def ask(words: str) -> str:
        asked.append(words)
        return next(given)

    looked = look_at(QuestionSource(tmp_path / "q.csv"), ask)
    assert (
        looked.rows
        == look_at(QuestionSource(tmp_path / "q.csv", question="Said", answer="Code")).rows
    )
    with pytest.raises(InputError, match=r"found columns .*, not 'Text'; .*--question-column"):
        look_at(QuestionSource(tmp_path / "q.csv", question="Text"))
    with serve(Quirky({}, known={})) as url:
        with pytest.raises(InputError, match="--model"):
            candidates([Provider(url)])
        (one,) = candidates([Provider(url)], ask)[0].values()
    assert (one.entry["served_as"], one.entry["listed"]) == ("org/a", False)
    assert one.price == {"prompt": 1, "completion": 2}
    assert len(asked) == 4


def test_a_question_keeps_its_context_and_a_few_odd_rows_are_left_out(tmp_path: Path) -> None:
    rows = [(f"Passage {k}.", q, "|".join(c), c[i], k) for k, (q, c, i) in enumerate(ROWS)]
    rows.append(("Passage.", "Which is it?", "Rome|Oslo", "Lima", 99))
    (tmp_path / "q.csv").write_text(as_table("context question options answer seen", rows))
    looked = look_at(QuestionSource(tmp_path / "q.csv"))
    assert looked.rows[1]["question"] == f"Passage 1.\n\n{ROWS[1][0]}"
    assert len(looked.rows) == len(ROWS)
    assert "not used: 'seen'" in looked.lines[0]
    assert any("1 questions can't be graded" in line for line in looked.lines)


def test_a_judge_is_one_of_the_models_and_part_of_the_estimate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = capitals()
    file = jsonl(tmp_path / "qa.jsonl", known)
    with serve(Quirky({"a": 0.6, "b": 0.6}, known=known)) as url:
        prices = ("--price", "a=1,2", "--price", "b=3,9")
        expected = []
        for name, kind in (("judged", "judge"), ("plain", "exact")):
            done = init(tmp_path / name, file, "--url", url, *prices, "--kind", kind)
            assert done.exit_code == 0, done.output
            monkeypatch.chdir(tmp_path / name)
            expected.append(
                json.loads(ttsgraph("estimate", "--json").output)["expected"]["dollars"]
            )
    made = profile(tmp_path / "judged")["tasks"]["qa"]
    assert list(made["grading"]["models"]) == ["b"]
    assert expected[0] > 1.2 * expected[1]


def test_models_that_cost_nothing_get_a_speed_and_odd_names_a_plain_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = capitals()
    stub = Quirky({"x/llama 3@v1:free": 0.6}, known=known)
    free = ("--price-prompt", "0", "--price-completion", "0")
    made = made_at(stub, tmp_path, jsonl(tmp_path / "qa.jsonl", known), free)
    monkeypatch.chdir(tmp_path / "mine")
    assert ttsgraph("estimate").exit_code == 0
    assert made["budget"]["metric"] == "runtime"
    assert list(made["pool"]) == ["llama-3-v1-free"]
    assert made["pool"]["llama-3-v1-free"]["speed"][1] > 0


@pytest.mark.slow
@pytest.mark.parametrize("habit", ["reasons", "tells no usage", "refuses"])
def test_three_commands_lead_to_a_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, habit: str
) -> None:
    habits: dict[str, dict[str, Any]] = {
        "reasons": {"thinks": 700},
        "tells no usage": {"usage": False},
        "refuses": {"refuses": ("temperature", "top_p", "max_tokens")},
    }
    letters = with_choices(tmp_path / "my.csv", capitals(100))
    stub = Quirky({"small": 0.5, "large": 0.8}, known=letters, **habits[habit])
    with serve(stub) as url:
        done = init(tmp_path / "mine", tmp_path / "my.csv", "--url", url, *PRICE)
        assert done.exit_code == 0, done.output
        before = stub.refused
        asked = stub.dollars
        monkeypatch.chdir(tmp_path / "mine")
        expected = json.loads(ttsgraph("estimate", "--json").output)["expected"]
        done = ttsgraph("run")
        assert done.exit_code == 0, (done.output, done.exception)
        assert stub.refused - before <= 2
        spent = stub.dollars - asked
        noted = json.loads(Path(".ttsgraph/spent.json").read_text())["dollars"]
        near = 0.5 if habit == "tells no usage" else 0.01
        assert noted == pytest.approx(stub.dollars, rel=near)
        assert served_answer(stub) in "ABCD"
    found = DeployedVersion.read(Path("results/mine/my/found/bundle.json"))
    assert found.graph.nodes
    low, high = expected["dollars_between"]
    if habit != "tells no usage":
        assert low <= spent <= high


def served_answer(stub: Quirky) -> str:
    """The letter that the found graph gives over HTTP to a question with choices."""
    folder = Path("results/mine/my/found")
    loader = FileLoader((folder,))
    text = stub.requests[0]["messages"][-1]["content"]
    question = text[text.index("What is the capital") :]
    with serving(loader, loader.names) as service:
        body = chat(question, model=loader.names[0])
        said = client_of(service.url).chat.completions.create(**body)
    return get_task("choice").extract(said.choices[0].message.content) or "nothing"
