"""`ttsgraph new-task` and `new-model`: a file of questions becomes a profile's task, an endpoint's
URL a model of its pool; tried on five questions.

Texts can be graded in many ways, and a wrong guess shows only as a score of 0: so they need a kind.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from finalanswer import fraction_of
from ttsgraph.base.errors import DataError, EndpointError, InputError, SettingsError
from ttsgraph.evaluation.environment import Environment, Feedback, binary
from ttsgraph.evaluation.judging import checked
from ttsgraph.graphs import topologies
from ttsgraph.runtime.clients import open_client
from ttsgraph.scaffold.profile_text import ProfileText, require_name
from ttsgraph.scaffold.question_file import labels_of
from ttsgraph.settings.profile import Profile, load_profile
from ttsgraph.stages.project import questions_by_split
from ttsgraph.tasks import TASKS, get_grader, get_task
from ttsgraph.tasks.base import ANSWER_FIELDS, Question
from ttsgraph.tasks.prompts import Style
from ttsgraph.tasks.sources import TABLES, JsonlSource, load_questions, load_rows, split_questions

if TYPE_CHECKING:
    from ttsgraph.scaffold.providers import ListPrice

INPUTS = Path("inputs")
SHARES = {"train": 0.4, "val": 0.2}
"""Of the questions, up to the sizes below; the rest is for the test."""

MOST = {"train": 750, "val": 150, "test": 200}
SHOTS = 4
LEAST = 10
"""Questions, without worked examples: fewer can't be split into parts that say anything."""

TEMPERATURE = 0.9
TRIED = 5
"""Questions on which a new task or model is tried."""

TEXTS: Mapping[str, Mapping[str, str]] = yaml.safe_load(
    Path(__file__).with_name("texts.yaml").read_text(encoding="utf-8")
)
"""How `kinds` for texts grade answers, and comments on the keys of a `task` and of a `model`."""

COUNTED = ("total", "non_embedding", "layers", "hidden")
"""What a FLOPs budget has to know of a model."""


async def new_task(
    name: str,
    file: Path,
    profile_name: str,
    kind: str | None = None,
    style: Style = "chat",
    max_tokens: int = 512,
    grading: Mapping[str, Any] | None = None,
) -> list[str]:
    """Add a task to a profile, once its cheapest model has been asked five of the questions;
    returns lines for people. A file from elsewhere is copied to inputs/<name>.jsonl. Raises
    InputError, and writes nothing, when file or profile can't be used, the rows leave a choice of
    kinds, or questions could not be asked.
    """
    require_name(name, "a task")
    profile, text = _opened(profile_name)
    chosen, options = kind_of(file, kind, grading)
    questions = load_questions(get_task(chosen, options), JsonlSource(kind="jsonl", path=file), 0)
    source = _place_of(name, file)
    sizes = split_sizes(len(questions), SHOTS if style == "few_shot" else 0)
    entry = task_entry(chosen, options, source, sizes, style, max_tokens)
    _, with_task = text.with_entry("tasks", name, entry, TEXTS["task"])
    splits = split_questions(questions, with_task.task(name).splits.sizes(), 0)
    lines = [
        f"{name} was not tried, as the pool has no model yet whose key is there: `ttsgraph"
        " new-model` adds one"
    ]
    keys = {each: settings.api_key_env for each, settings in profile.pool.items()}
    specs = profile.model_pool().by_size if profile.pool else ()
    if model := next((spec.name for spec in specs if has_key(keys[spec.model])), None):
        asked = [*splits["train"], *splits["val"]]
        feedback, lines = await try_out(with_task, name, model, splits["shots"], asked)
        usage = feedback.usage
        entry["lengths"] = {
            "prompt_tokens": math.ceil(usage.prompt_tokens / usage.calls),
            "generated_tokens": max(1, math.ceil(usage.completion_tokens / usage.calls)),
        }
    written, _ = text.with_entry("tasks", name, entry, TEXTS["task"])
    if source != file:
        source.parent.mkdir(exist_ok=True)
        shutil.copyfile(file, source)
    text.write(written)
    return [
        *lines,
        f"profiles/{profile_name}.yaml has the task {name} now, its questions are in {source}",
    ]


def task_entry(
    kind: str,
    grading: Mapping[str, Any],
    path: Path,
    sizes: Mapping[str, int],
    style: Style = "chat",
    max_tokens: int = 512,
) -> dict[str, Any]:
    """A task as a profile has it."""
    return {
        "kind": kind,
        **({"grading": dict(grading)} if grading else {}),
        "source": {"kind": "jsonl", "path": path.as_posix()},
        "splits": dict(sizes),
        "prompt": {"style": style},
        "sampling": {"temperature": TEMPERATURE, "max_tokens": max_tokens},
    }


def split_sizes(count: int, shots: int = 0) -> dict[str, int]:
    """How many questions go to each split. Raises DataError when there are too few."""
    left = count - shots
    if left < LEAST:
        examples = f" and {shots} worked examples" if shots else ""
        raise DataError(
            f"expected at least {LEAST} different questions{examples}, found {count}; add some"
        )
    sizes = {split: min(MOST[split], int(share * left)) for split, share in SHARES.items()}
    return {"shots": shots, **sizes, "test": min(MOST["test"], left - sum(sizes.values()))}


def _place_of(name: str, file: Path) -> Path:
    """Where questions belong: below inputs/, those from elsewhere under the task's name."""
    if file.resolve().is_relative_to(INPUTS.resolve()):
        return INPUTS / file.resolve().relative_to(INPUTS.resolve())
    kept = file.suffix if file.suffix.lower() in TABLES else ".jsonl"
    place = INPUTS / f"{name}{kept}{'.gz' if file.suffix == '.gz' else ''}"
    if place.exists() and place.read_bytes() != file.read_bytes():
        raise InputError(
            f"{place}: expected no other file there, to copy {file} to; remove it, or choose"
            " another name"
        )
    return place


async def try_out(
    profile: Profile,
    task: str,
    model: str,
    shots: Sequence[Question],
    questions: Sequence[Question],
) -> tuple[Feedback, list[str]]:
    """One model on the first few questions, also in lines. Raises InputError if calls failed."""
    settings = profile.task(task)
    grader = get_grader(settings.kind, profile.sandbox.accept_weaker, settings.grading)
    prompt = settings.prompt.prompt(grader, shots)
    asked = tuple(questions[:TRIED])
    alone = profile.model_copy(update={"pool": {model: profile.pool[model]}})
    async with open_client(alone) as client:
        checks = await checked(grader, client)
        environment = Environment(
            grader, prompt, settings.sampling.sampling(), profile.model_pool(), client
        )
        feedback = await environment.evaluate(topologies.single(model), asked)
    if feedback.n_unscored:
        raise InputError(
            f"expected {len(asked)} answers of {model}, but {feedback.n_unscored} calls failed"
            f" ({feedback.error}); nothing was written, see that the endpoint works and start again"
        )
    return feedback, [*checks, *_in_words(model, asked, feedback)]


def _in_words(model: str, questions: Sequence[Question], found: Feedback) -> Iterator[str]:
    """The score and, if something was answered wrong, one example of it."""
    score = f"scores {found.accuracy:.3f} on {found.n_scored} questions"
    if binary(found.grades):
        score = f"answered {found.n_correct:.4g} of {found.n_scored} questions right"
    yield f"{model} {score} ({found.latency_s:.2f} s each)"
    for question, result in zip(questions, found.results, strict=True):
        if result.correct is not None and result.correct < 0.5:
            said = " ".join(result.answer.split())[:80]
            yield (
                f"for example: {question.text[:60]!r} expects {question.answer[:40]!r}, and it said"
                f" {said!r}"
            )
            break
    if found.n_correct == 0:
        yield (
            "none was right: see whether the prompt's style and the kind suit the model and the"
            " questions"
        )


def kind_of(
    file: Path, kind: str | None, grading: Mapping[str, Any] | None = None
) -> tuple[str, dict[str, Any]]:
    """How a file's answers are graded, a kind and its settings: as given, else the only one the
    rows leave. Raises DataError where none reads the first row, InputError that lists kinds to
    choose.
    """
    rows = load_rows(JsonlSource(kind="jsonl", path=file), 0)
    chosen = kind or _kind_left(rows)
    get_task(chosen)  # names an unknown one
    if grading or chosen != "choice":
        return chosen, dict(grading or {})
    if any("choices" in row or "options" in row for _, row in rows):
        return chosen, {}
    answers = [answer for _, row in rows if (answer := _answer(row))]
    return chosen, {"choices": labels_of(file.name, answers)}


def _kind_left(rows: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """The kind whose fields the rows have (mmlu, humaneval), or math where all are numbers."""
    where, row = rows[0]
    read: dict[str, Question] = {}
    problems = []
    for name, task in TASKS.items():
        try:
            read[name] = task.parse(row, where)
        except InputError as error:
            problems.append(f"{name} {str(error).removeprefix(where).lstrip(': ')}")
    if not read:
        raise DataError(
            f"{where}: no kind of task can read this ({'; '.join(problems)}); rename the fields, or"
            " add a kind of your own (CONTRIBUTING.md)"
        )
    best = max(read, key=lambda name: len(read[name].meta))
    if best in ("mmlu", "humaneval"):
        return best
    if "math" in read:
        answers = [TASKS["math"].parse(each, place).answer for place, each in rows]
        if all(fraction_of(answer) is not None for answer in answers):
            return "math"
    listed = "; ".join(f"{each}: {how}" for each, how in TEXTS["kinds"].items() if each in TASKS)
    raise InputError(
        f"{where}: answers like {_answer(row)[:40]!r} can be graded in several ways; choose one"
        f" with --kind ({listed})"
    )


def _answer(row: Mapping[str, Any]) -> str:
    given = (row.get(name) for name in ANSWER_FIELDS)
    return next((str(each).strip() for each in given if each not in (None, "")), "")


def has_key(variable: str | None) -> bool:
    """Whether an endpoint's key is there, if it wants one."""
    return variable is None or bool(os.environ.get(variable, "").strip())


def _opened(name: str) -> tuple[Profile, ProfileText]:
    """A profile of language models, and its text. Raises SettingsError."""
    profile = load_profile(name)
    if profile.engine.kind == "simulated":
        raise SettingsError(
            f"profile {name!r}: simulated models answer made-up questions only; choose one with"
            " language models"
        )
    return profile, ProfileText(name)


async def new_model(
    name: str, known: Mapping[str, Any], profile_name: str, task: str | None = None
) -> list[str]:
    """Add a model to a profile's pool, once it has been asked five questions of a task (by default
    the first); returns lines for people. `known` are keys of its entry. Without its key it is not
    asked. Raises InputError, and writes nothing, when the endpoint does not answer or lacks the
    model, a fact is missing, or the profile can't be used.
    """
    require_name(name, "a model")
    profile, text = _opened(profile_name)
    chosen = task or next(iter(profile.tasks), None)
    if chosen is not None:
        profile.task(chosen)
    entry = _entry(name, known, profile.budget.metric == "flops")
    written, with_model = text.with_entry("pool", name, entry, TEXTS["model"])
    key = known.get("api_key_env")
    not_tried = f"{name} was not tried:"
    if not has_key(key):
        lines = [f"{not_tried} {key} is not set; export it, `ttsgraph doctor` tries it then"]
    elif chosen is None:
        lines = [f"{not_tried} the profile has no task yet: `ttsgraph new-task` adds one"]
    else:
        splits = questions_by_split(with_model, chosen, 0)
        asked = [*splits["train"], *splits["val"]]
        _, lines = await try_out(with_model, chosen, name, splits["shots"], asked)
    text.write(written)
    return [*lines, f"profiles/{profile_name}.yaml has the model {name} now"]


def _entry(name: str, known: Mapping[str, Any], counted: bool) -> dict[str, Any]:
    """The pool's entry, with sizes where FLOPs are `counted`. Raises InputError."""
    served_as, listed, price = _served(name, known)
    price = dict(price or {}) | known["price"]
    facts = {key: known[key] for key in ("family", *COUNTED) if key in known}
    missing = [key for key in COUNTED if counted and key not in facts]
    missing += [f"price_{part}" for part in ("prompt", "completion") if part not in price]
    if missing:
        shown = ", ".join(f"--{option.replace('_', '-')}" for option in missing)
        raise InputError(
            f"{name}: expected {shown}, which its endpoint does not tell; its model card has them"
        )
    if counted:
        facts = {"family": name.split("-")[0]} | facts
    address = {"base_url": known["base_url"], "served_as": served_as}
    more = ("api_key_env", "api_key_header", "query", "revision")
    address |= {key: known[key] for key in more if key in known}
    return facts | {"price": price} | address | ({} if listed else {"listed": False})


def _served(name: str, known: Mapping[str, Any]) -> tuple[str, bool, ListPrice | None]:
    """Name at the endpoint, whether it is listed, the listed price. Raises EndpointError."""
    from ttsgraph.endpoints.endpoint import Endpoint  # slow to import
    from ttsgraph.scaffold.providers import SHOWN, models_at

    url = known["base_url"]
    key_env = known.get("api_key_env")
    query = tuple(known.get("query", {}).items())
    endpoint = Endpoint((url,), "", key_env, key_header=known.get("api_key_header"), query=query)
    there = models_at(endpoint, has_key(key_env))
    names = [known["served_as"], name] if "served_as" in known else [name]
    if there is None:
        return names[0], False, None
    known_as = (each for name in names for each in (name, f"{name}:latest"))
    found = next((each for each in known_as if each in there), None)
    if found is None and "served_as" not in known and len(there) == 1:
        found = next(iter(there))
    if found is None:
        shown = ", ".join(list(there)[:SHOWN]) or "none"
        more = f" and {len(there) - SHOWN} more" if len(there) > SHOWN else ""
        raise EndpointError(
            f"{url}: expected model {names[0]!r}, but the server has {shown}{more}; choose"
            " with --served-as"
        )
    return found, True, there[found]
