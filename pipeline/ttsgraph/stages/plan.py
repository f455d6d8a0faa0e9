"""The stages: what each reads and writes, and the settings that it looks at. dvc.yaml is made from
this (`make dvc.yaml`). Paths have {profile}, {task} and {method} for what is run; a stage whose
paths name a task or a method is run for each of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

QUESTIONS = "data/{profile}/{task}/questions.parquet"
RESULTS = "results/{profile}/{task}"
FOUND = RESULTS + "/{method}"
CALLS = "calls/{profile}/{task}"
"""Where each stage that asks models writes the calls that it used."""
RECORDED = "published/coder/answers.json"
"""What recorded calls of other models came to, shown next to a profile's own results."""

IDENTITY = "identity/{profile}"
"""The folder of the files that say what results depend on; `ttsgraph_flows/identity.py` writes
them.
"""

MODELS = ("engine", "pool", "roles", "sandbox", "simulation", "tasks")
"""What any stage looks at that asks models."""

BRIEF = (*MODELS, "agent.roles", "budget", "objective")
"""What any stage looks at that tells an agent or a method what it may do."""


@dataclass(frozen=True, slots=True)
class StagePlan:
    """One stage. `settings` are sections of the profile, `params` keys of params.yaml; `plots` are
    outputs that DVC draws, by the name of their template, `metrics` outputs that it shows (`dvc
    metrics show`).
    """

    name: str
    settings: tuple[str, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    params: tuple[str, ...] = ()
    per: tuple[str, ...] = ("task",)
    plots: Mapping[str, str] = field(default_factory=dict)
    metrics: tuple[str, ...] = ()

    @property
    def module(self) -> str:
        """The flow's module."""
        return f"ttsgraph_flows.{self.name}"

    @property
    def identity(self) -> str:
        """Where its identity is written."""
        folder = f"{IDENTITY}/{{task}}" if "task" in self.per else IDENTITY
        return f"{folder}/{self.name}.json"

    def outputs(self, **names: str | None) -> list[str]:
        """The paths of all that it writes for this profile, task and method."""
        return [path.format(**names) for path in (*self.writes, *self.plots, *self.metrics)]


def _in(folder: str, names: str) -> tuple[str, ...]:
    """The paths of these files of a folder."""
    return tuple(f"{folder}/{name}" for name in names.split())


_SAMPLED = ("tasks.kind", "tasks.source", "tasks.splits")

STAGES = (
    StagePlan("sample", _SAMPLED, ("inputs",), (QUESTIONS,), ("seed",)),
    StagePlan(
        "profile",
        (*MODELS, "budget"),
        (QUESTIONS,),
        (f"{RESULTS}/profile.parquet", f"{CALLS}/profile.parquet"),
    ),
    StagePlan(
        "pilot",
        (*MODELS, "budget", "pilot"),
        (QUESTIONS, f"{RESULTS}/profile.parquet"),
        (f"{RESULTS}/pilot.parquet", f"{CALLS}/pilot.parquet"),
        ("seed",),
    ),
    StagePlan("pilot_plots", (), (f"{RESULTS}/pilot.parquet",), (f"{RESULTS}/pilot_plots",)),
    StagePlan(
        "init_family",
        (*BRIEF, "agent", "init", "search.loop_share"),
        (QUESTIONS, f"{RESULTS}/pilot.parquet", f"{RESULTS}/profile.parquet"),
        (*_in(RESULTS, "init_family.parquet preference.json"), f"{CALLS}/init_family.parquet"),
        ("seed",),
    ),
    StagePlan(
        "init_instances",
        (*BRIEF, "agent", "init", "search.loop_share", "search.way"),
        (QUESTIONS, *_in(RESULTS, "pilot.parquet preference.json profile.parquet")),
        (
            *_in(RESULTS, "evidence.parquet init_instances.parquet start.json"),
            f"{CALLS}/init_instances.parquet",
        ),
        ("seed",),
    ),
    StagePlan(
        "search",
        (*BRIEF, "agent", "init.contest", "search"),
        (
            QUESTIONS,
            *_in(RESULTS, "evidence.parquet init_instances.parquet pilot.parquet profile.parquet"),
            *_in(RESULTS, "start.json"),
        ),
        (
            *_in(FOUND, "archive.parquet edges.parquet evidence.parquet graph.json"),
            *_in(FOUND, "history.jsonl search.json"),
            f"{CALLS}/search-{{method}}.parquet",
        ),
        ("seed",),
        ("task", "method"),
        {f"{FOUND}/trajectory.csv": "trajectory"},
    ),
    StagePlan(
        "evaluate",
        (*BRIEF, "deploy", "evaluate"),
        (
            QUESTIONS,
            *_in(RESULTS, "evidence.parquet init_instances.parquet pilot.parquet profile.parquet"),
            *_in(RESULTS, "start.json"),
            *_in(FOUND, "archive.parquet evidence.parquet graph.json history.jsonl search.json"),
            *_in(FOUND, "trajectory.csv"),
        ),
        (
            *_in(FOUND, "answers.parquet nodes.parquet test.parquet verdict.json"),
            f"{CALLS}/evaluate-{{method}}.parquet",
        ),
        ("seed",),
        ("task", "method"),
        metrics=(f"{FOUND}/scores.json",),
    ),
    StagePlan(
        "report",
        ("agent", "budget", "deploy", "engine", "objective", "pool", "roles", "tasks"),
        ("data/{profile}", "results/{profile}", RECORDED),
        _in("reports/{profile}", "answers.json index.html plots"),
        ("methods", "tasks"),
        (),
        {"reports/{profile}/comparison.csv": "comparison"},
        ("reports/{profile}/metrics.json",),
    ),
)

STAGE = {plan.name: plan for plan in STAGES}
"""The plans by name."""
