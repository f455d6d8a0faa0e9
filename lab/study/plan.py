"""Plan of the study: its settings (lab/study.yaml) and the searches of each table."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import PositiveInt

import lab.rivals  # noqa: F401 (registers the rivals)
from lab.study.paper import OURS, RIVALS
from ttsgraph.base.errors import SettingsError
from ttsgraph.base.parsing import ClosedModel, load
from ttsgraph.evaluation.objective import Objective
from ttsgraph.graphs.budget import Metric
from ttsgraph.searching.methods import searcher_class
from ttsgraph.settings.profile import Profile, SearchSettings
from ttsgraph.settings.stages import ContestSettings, InitSettings
from ttsgraph.stages.identity import code_digest, settings_identity

STUDY = Path("lab/study.yaml")
ABLATIONS = ("insight_1", "insight_2", "insight_3", "roles")
CONTEST_ABLATIONS = ("mixes", "response_model")
LOOP_ABLATIONS = ("insight_2", "insight_3")
BASELINES = ("single", "majority", "fan", "chain", "grid", "mixed vote")
DECIDED = {"pilot", "init", "search", "objective", "evaluate", "deploy", "research"}
"""Sections of the profile that the study ignores, or replaces with its own settings."""


class StudyQuestions(ClosedModel):
    """Numbers of questions for one task: the study uses the first `pool` questions of the task's
    source, and the last `test` of these are the test questions of every search.

    `train` and `val` questions are drawn from the others with a search's seed, and `pilot`
    questions from the whole pool.
    """

    pool: PositiveInt
    train: PositiveInt
    val: PositiveInt
    test: PositiveInt
    pilot: PositiveInt


class StudyBudget(ClosedModel):
    """Budget of one column of table 3."""

    metric: Metric
    limit: float


class StudySettings(ClosedModel):
    """Content of lab/study.yaml."""

    profile: str
    questions: dict[str, StudyQuestions]
    search: SearchSettings
    init: InitSettings
    contest: ContestSettings
    budgets: dict[str, StudyBudget]
    joint: Objective


Way = Literal["contest", "paper", "none"]
"""Start of a search: the contest's contenders; the paper's init stages, if the method uses them; or
nothing, for a baseline.
"""


@dataclass(frozen=True, slots=True)
class Cell:
    """One search: its task, method, start, disabled part, budget, objective and seed.

    `without` names the agent's or the contest's switch that is off. If `loop` is set,
    Agent-REINFORCE continues after the contest. For a baseline, which is a plain graph, `method` is
    the baseline's name.
    """

    task: str
    method: str
    metric: Metric
    budget: float
    seed: int
    without: str = ""
    objective: Objective = field(default_factory=Objective)
    way: Way = "paper"
    loop: bool = False

    @property
    def name(self) -> str:
        """Human-readable name of the search."""
        without = f"without {self.without} " if self.without else ""
        name = f"{self.task} {self.method} {without}{self.metric} {self.budget:g}"
        name += " joint" if self.objective.joint else ""
        name += " with contenders" if self.way == "contest" else ""
        name += " loop" if self.loop else ""
        return f"{name} seed {self.seed}"


def load_study(path: Path = STUDY) -> StudySettings:
    """Read lab/study.yaml. Raises SettingsError if it is missing or invalid."""
    return load(StudySettings, path)


def table_1(settings: StudySettings, profile: Profile, seed: int) -> list[Cell]:
    """Return the searches of table 1, on every task and at the profile's budget: every method with
    the contest's contenders and without them, and the baselines.
    """
    where = profile.budget.metric, profile.budget.limit, seed
    found = []
    for task in settings.questions:
        found += [Cell(task, method, *where, way="contest") for method in (OURS, *RIVALS)]
        found += [Cell(task, method, *where) for method in (OURS, *RIVALS)]
        found += [Cell(task, baseline, *where, way="none") for baseline in BASELINES]
    return found


def table_2(settings: StudySettings, profile: Profile, seed: int) -> list[Cell]:
    """Return the searches of table 2: Agent-REINFORCE as in the paper, complete, without one
    insight, or without roles.
    """
    tasks = [task for task in settings.questions if task in ("math", "mmlu")]
    budget = profile.budget
    return [
        Cell(task, OURS, budget.metric, budget.limit, seed, without)
        for task in tasks
        for without in ("", *ABLATIONS)
    ]


def contest_table(settings: StudySettings, profile: Profile, seed: int) -> list[Cell]:
    """Return the searches of the contest's table: the contest, complete or without one of its
    parts; the contest with the loop after it, complete or without one insight; and, for comparison,
    Agent-REINFORCE as in the paper.
    """
    where = profile.budget.metric, profile.budget.limit, seed
    found = []
    for task in settings.questions:
        found += [
            Cell(task, OURS, *where, without, way="contest") for without in ("", *CONTEST_ABLATIONS)
        ]
        found += [
            Cell(task, OURS, *where, without, way="contest", loop=True)
            for without in ("", *LOOP_ABLATIONS)
        ]
        found.append(Cell(task, OURS, *where))
    return found


def table_3(settings: StudySettings, seed: int) -> dict[str, list[Cell]]:
    """Return the searches of table 3, on MATH under other budgets, by the budget's name: the
    methods, the contest, and the contest for accuracy and latency.
    """
    return {
        name: [Cell("math", method, b.metric, b.limit, seed) for method in (*RIVALS, OURS)]
        + [Cell("math", OURS, b.metric, b.limit, seed, way="contest")]
        + [Cell("math", OURS, b.metric, b.limit, seed, objective=settings.joint, way="contest")]
        for name, b in settings.budgets.items()
        if "math" in settings.questions
    }


def all_cells(settings: StudySettings, profile: Profile, seeds: range) -> list[Cell]:
    """Return every search of the study once, grouped by seed and task. Raises SettingsError if a
    method is unknown.
    """
    found: dict[str, Cell] = {}
    for seed in seeds:
        cells = (
            table_1(settings, profile, seed)
            + table_2(settings, profile, seed)
            + contest_table(settings, profile, seed)
        )
        cells += [cell for column in table_3(settings, seed).values() for cell in column]
        found |= {cell.name: cell for cell in cells}
    for cell in found.values():
        if cell.way != "none":
            searcher_class(cell.method)
    return sorted(found.values(), key=lambda cell: (cell.seed, cell.task))


def digest(settings: StudySettings, profile: Profile, what: Mapping[str, Any]) -> str:
    """Return the key of a stored result. The key changes with the settings, the simulated pool and
    the code.
    """
    data = {
        "study": settings.model_dump(mode="json", exclude={"budgets", "joint"}),
        "profile": {
            name: value for name, value in settings_identity(profile).items() if name not in DECIDED
        },
        "code": code_digest(__package__ or ""),
        "what": what,
    }
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:24]


def cell_digest(settings: StudySettings, profile: Profile, cell: Cell) -> str:
    """Return the key of one search's stored result."""
    return digest(settings, profile, asdict(cell) | {"objective": cell.objective.model_dump()})


def require_simulated(profile: Profile, settings: StudySettings) -> None:
    """Raise SettingsError if the profile's pool is not simulated, or the profile lacks a task of
    the study.
    """
    if profile.engine.kind != "simulated":
        raise SettingsError(
            "expected a profile with a simulated engine for the study, found an engine of kind"
            f" {profile.engine.kind}"
        )
    for task in settings.questions:
        profile.task(task)
