"""params.yaml and a profile as frozen, closed settings. params.yaml says what to run (profile,
tasks, methods, seed); profiles/<name>.yaml says with what (pool, engine, tasks, budget, search,
agent). An unknown key, a wrong type or an impossible value raises SettingsError in one line that
names file, key and value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import date
from operator import not_
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from ttsgraph.base.errors import SettingsError
from ttsgraph.base.parsing import Closed, load
from ttsgraph.evaluation.objective import ACCURACY, Objective
from ttsgraph.graphs.budget import Budget, CostModel, Lengths, Metric, missing_facts
from ttsgraph.graphs.roles import ASSISTANT, get_role, role_names, unfit
from ttsgraph.models.dialect import AnswerForm, TokensKey
from ttsgraph.pool.engine import ENGINES, EngineSettings, Probability
from ttsgraph.pool.judge import JUDGE
from ttsgraph.pool.settings import ModelSettings, PriceSetting, price_of
from ttsgraph.pool.simulated import Simulation
from ttsgraph.pool.spec import FACTS, ModelPool, Price, Temperature, variant_name
from ttsgraph.settings import stages
from ttsgraph.settings.plugins import load_for
from ttsgraph.settings.service import ServiceSettings
from ttsgraph.settings.task import MeasuredLengths, TaskSettings
from ttsgraph.tasks.base import AskingTask, Question


class SandboxSettings(Closed):
    """Programs that models write."""

    accept_weaker: bool = False
    """run them with limits alone where they can't be isolated"""


class SearchSettings(Closed):
    """The search loop, the same for every method (paper, section 6: 30 iterations, patience 10)."""

    way: Literal["joint", "paper"] = Field(default="joint", exclude_if=lambda way: way == "joint")
    """joint: a contest of structured graphs, then the loop from its leaders; paper: algorithm 1
    of arXiv 2511.00086 and nothing else"""
    max_iterations: PositiveInt = 30
    """rounds of the search, at most"""
    patience: PositiveInt = 10
    """rounds without a better validation score after which it ends"""
    candidates: PositiveInt = 4
    """graphs per iteration"""
    batch: PositiveInt = 16
    """training questions per candidate"""
    edge_threshold: Probability = 0.5
    """probability from which an edge is in the graph that is read off the distribution"""
    alpha: Annotated[float, Field(ge=1.0, le=1.1)] = 1.05
    """how strongly nodes that read many answers lean to fusing them (1: not at all)"""

    @model_validator(mode="before")
    @classmethod
    def _of_earlier_bundles(cls, given: Any) -> Any:
        """Without keys that bundles of earlier versions hold: one where it was off as by default,
        and one that is read no longer.
        """
        if not isinstance(given, dict):
            return given
        left = {key: value for key, value in given.items() if key != "loop_share"}
        racing = left.get("racing")
        if isinstance(racing, dict) and racing.get("enabled") is False:
            del left["racing"]
        return left


LOOP_SHARE = 0.05
"""Of the calls of init.contest, what is kept for the candidates of the loop after it."""


def contest_share(contest: stages.ContestSettings) -> stages.ContestSettings:
    """A contest's settings without the calls that are kept for the loop."""
    return contest.model_copy(update={"calls": max(1, round(contest.calls * (1 - LOOP_SHARE)))})


def loop_calls(contest: stages.ContestSettings, spent: int) -> int:
    """The calls that the loop has: what the contest left of those that they share."""
    return max(0, contest.calls - spent)


class AgentSettings(Closed):
    """Who guides a search, and which of the paper's insights it may use (the ablations of table 2).
    `step` is the heuristic's; everything from `model` on is for `kind: llm`, a language model
    behind an OpenAI-compatible endpoint. Without a `base_url` its `model` is one of the pool, asked
    where the pool's calls go.
    """

    kind: Literal["heuristic", "llm"] = "heuristic"
    """the paper's insights as rules, or a language model"""
    insight_1: bool = True
    """whether it may use the first insight: which models go together"""
    insight_2: bool = True
    """whether it may use the second: how many of them"""
    insight_3: bool = True
    """whether it may use the third: how wide and how deep"""
    scaling_rules: bool = True
    """whether prompts have the rules of test-time scaling (A.12, R-3 and R-4); rivals never get
    them"""
    roles: bool = True
    """whether roles are learnt; without, all nodes are assistants"""
    evidence: bool = True
    """whether it is told what edges, nodes and roles repaired and spoilt"""
    proposes: bool = Field(default=True, exclude_if=lambda proposes: proposes)
    """whether it may propose a graph to try in addition to its changes of probabilities"""
    step: Annotated[float, Field(gt=0, le=1)] = 0.3
    """how far the heuristic moves a probability at once"""
    model: str | None = None
    """its name at the endpoint, or in the pool"""
    base_url: str | None = None
    """the endpoint of its model; a model of the pool is asked where the pool's calls go"""
    api_key_env: str | None = None
    """environment variable that holds the endpoint's key"""
    price: PriceSetting | None = None
    """$ per million tokens of its model"""
    as_of: date | None = Field(default=None, exclude_if=lambda day: day is None)
    """the day on which model and price were looked up"""
    revision: str = "unpinned"
    """which weights its model has"""
    response_format: AnswerForm = "schema"
    """how an answer's form is asked for; an endpoint that refuses gets the next weaker one"""
    temperature: Temperature | None = None
    """the endpoint's default if not given"""
    max_tokens: PositiveInt = 8192
    """of one answer, its reasoning included"""
    tokens_key: TokensKey = "max_tokens"
    """how requests bound an answer's tokens"""
    context_tokens: PositiveInt = 16384
    """of what is sent, as estimated; longer tables are summarised"""
    reasks: int = Field(default=2, ge=0, le=5)
    """times an invalid answer is sent back with the error"""
    timeout_s: PositiveFloat = 600
    """of one attempt"""
    max_retries: int = Field(default=4, ge=0)
    """attempts after the first"""

    @model_validator(mode="after")
    def _complete(self) -> AgentSettings:
        if self.kind == "llm" and self.model is None:
            raise ValueError("expected a model for kind llm, found none")
        if self.kind == "llm" and self.base_url is not None and self.price is None:
            raise ValueError(
                "expected a price for the agent's model (0 where nothing is paid), found none"
            )
        unused = sorted(self.model_fields_set & {"model", "base_url", "api_key_env", "price"})
        if self.kind == "heuristic" and unused:
            raise ValueError(f"{unused[0]} is for kind llm, found kind heuristic")
        return self


class Profile(Closed):
    """profiles/<name>.yaml. In a project with stages it has all sections that dvc.yaml names among
    their params, if only as {}.
    """

    description: str = ""
    """what the profile is for"""
    engine: EngineSettings
    """how models are served and asked"""
    pool: dict[str, ModelSettings]
    """the models that a graph may use, by name"""
    tasks: dict[str, TaskSettings]
    """the tasks, by name"""
    roles: tuple[str, ...]
    """what nodes may do; assistant is always among them"""
    budget: stages.BudgetSettings
    """what a question may cost"""
    pilot: stages.PilotSettings
    """the sweeps of plain graphs before the search"""
    init: stages.InitSettings
    """the trials that the search starts from"""
    search: SearchSettings
    """the search loop"""
    agent: AgentSettings
    """who guides the search"""
    objective: Objective = ACCURACY
    """what the search maximises"""
    limits: stages.LimitSettings = stages.LimitSettings()
    """what one search may spend"""
    workers: stages.WorkerSettings = stages.WorkerSettings()
    """where candidates are evaluated"""
    sandbox: SandboxSettings = SandboxSettings()
    """programs that models write"""
    evaluate: stages.EvaluateSettings = stages.EvaluateSettings()
    """the test of what was found"""
    deploy: stages.DeploySettings = stages.DeploySettings()
    """when a graph becomes the champion"""
    research: stages.ResearchSettings = stages.ResearchSettings()
    """searching again when the pool changes"""
    newcomers: dict[str, ModelSettings] = Field(default_factory=dict)
    """models that join the pool of a re-search once their endpoint lists them"""
    simulation: Simulation = Simulation()
    """for the simulated engine: what its models can do"""
    plugins: tuple[str, ...] = Field(default=(), exclude_if=not_)
    """modules with kinds, roles and methods (docs/extend.md)"""

    @model_validator(mode="before")
    @classmethod
    def _with_plugins(cls, data: Any) -> Any:
        try:
            load_for(data)
        except SettingsError as error:
            raise ValueError(str(error)) from None
        return data

    @model_validator(mode="before")
    @classmethod
    def _papers_way(cls, data: Any) -> Any:
        """Where the way is the paper's, what is not said otherwise is as it has it, and what it has
        not can't be switched on.
        """
        if not isinstance(data, dict) or (data.get("search") or {}).get("way") != "paper":
            return data
        wanted: dict[str, dict[str, Any]] = {
            "init": {"questions": 32, "topologies": 10},
            "agent": {"evidence": False, "proposes": False},
        }
        found = dict(data)
        for section, settings in wanted.items():
            found[section] = settings | dict(data.get(section) or {})
        contest = dict(found["init"].get("contest") or {})
        found["init"]["contest"] = {"enabled": False} | contest
        ours = {"init.contest.enabled": found["init"]["contest"]["enabled"]}
        ours |= {f"agent.{name}": found["agent"][name] for name in ("evidence", "proposes")}
        for name, on in ours.items():
            if on:
                raise ValueError(f"search.way is paper: expected no {name}, which it has not")
        return found

    @model_validator(mode="after")
    def _known_roles_and_models(self) -> Profile:
        for role in self.roles:
            if role not in role_names():
                raise ValueError(f"expected roles among {', '.join(role_names())}, found {role!r}")
        if ASSISTANT not in self.roles:
            raise ValueError(
                "expected assistant among the roles; a node without predecessors has to answer"
            )
        models = self.pool | self.newcomers
        for name, model in models.items():
            for variant in model.variants:
                if variant_name(name, variant) in models:
                    raise ValueError(
                        f"variant {variant!r} of {name!r}: expected a name of its own, but a model"
                        " has its name"
                    )
            missing = [fact for fact in FACTS if getattr(model, fact) is None]
            if missing and self.budget.metric == "flops":
                raise ValueError(missing_facts(name, missing))
        return self

    @model_validator(mode="after")
    def _reachable(self) -> Profile:
        for name, model in self.newcomers.items():
            if name in self.pool or not model.base_urls:
                raise ValueError(
                    f"newcomer {name!r}: expected a model with a base_url that is not in the"
                    " pool yet"
                )
        started = [*self.hosted, *self.elsewhere]
        if self.workers.kind != "local" and started:
            raise ValueError(
                "workers reach endpoints themselves: expected engine external or simulated, found"
                f" {self.engine.kind}, which starts {started[0]!r} here"
            )
        return self

    @model_validator(mode="after")
    def _simulable(self) -> Profile:
        if self.engine.kind != "simulated":
            return self
        for name, task in self.tasks.items():
            if task.lengths.given is None:
                raise ValueError(f"task {name!r}: expected lengths, to be simulated")
            if task.kind not in self.simulation.tasks:
                raise ValueError(
                    f"task {name!r}: expected its kind, {task.kind}, among simulation.tasks"
                )
            source = task.source
            own = source.kind == "synthetic" and source.task == task.kind
            if not own or task.prompt.style != "chat":
                raise ValueError(
                    f"task {name!r}: expected a synthetic source of its kind and chat prompts,"
                    " to be simulated"
                )
        for spec in self.model_pool().values():
            if spec.variant and spec.variant.style == "few_shot":
                raise ValueError(f"variant {spec.name!r}: expected chat prompts, to be simulated")
        return self

    @model_validator(mode="after")
    def _distinct_judges(self) -> Profile:
        for name, settings in self.tasks.items():
            task = settings.task
            for judge, model in task.options.models.items() if isinstance(task, AskingTask) else ():
                if self.judges[f"{JUDGE}{judge}"] != model:
                    raise ValueError(
                        f"task {name!r}: judge {judge!r}: expected a name of its own, another"
                        " task's judge has it"
                    )
        return self

    @model_validator(mode="after")
    def _known_agent(self) -> Profile:
        agent = self.agent
        served = () if self.engine.kind == "simulated" else tuple(self.pool)
        if agent.kind == "llm" and agent.base_url is None and agent.model not in served:
            known = ", as a simulated model can't be an agent"
            if served:
                known = f", or agent.model among {', '.join(served)}"
            raise ValueError(f"expected agent.base_url{known}, found model {agent.model!r}")
        return self

    @property
    def contest(self) -> stages.ContestSettings:
        """The contest's settings, with the calls that are not kept for the loop."""
        return contest_share(self.init.contest)

    def agent_price(self) -> Price:
        """What the agent's model costs: its own price, or that of the pool's model."""
        agent = self.agent
        return price_of(self.pool[agent.model or ""].price if agent.price is None else agent.price)

    @property
    def hosted(self) -> dict[str, ModelSettings]:
        """The models whose servers are started here: without a base_url, where the engine starts
        servers.
        """
        return self._without_url() if self.engine.kind in ("vllm", "transformers") else {}

    @property
    def elsewhere(self) -> dict[str, ModelSettings]:
        """The models whose servers an engine of a plug-in starts."""
        return self._without_url() if self.engine.kind in ENGINES else {}

    def _without_url(self) -> dict[str, ModelSettings]:
        return {name: model for name, model in self.pool.items() if not model.base_urls}

    @property
    def judges(self) -> dict[str, ModelSettings]:
        """The models that grade answers, of all tasks, by the names that calls have for them."""
        return {
            f"{JUDGE}{name}": model
            for settings in self.tasks.values()
            if isinstance(task := settings.task, AskingTask)
            for name, model in task.options.models.items()
        }

    def model_pool(self, task: str | None = None) -> ModelPool:
        """The pool as facts, in the profile's order, each model before its variants; with what is
        measured on a task.
        """
        known = {} if task is None else self.task(task).accuracies
        plain = [
            spec for name, model in self.pool.items() for spec in model.specs(name, self.engine)
        ]
        return ModelPool(
            tuple(replace(each, accuracy=known.get(each.name, each.accuracy)) for each in plain)
        )

    def task(self, name: str) -> TaskSettings:
        """One task's settings. Raises SettingsError that lists the profile's tasks."""
        if name not in self.tasks:
            known = ", ".join(self.tasks) or "none yet, `ttsgraph add --questions` adds one"
            raise SettingsError(f"unknown task {name!r}; the profile has {known}")
        return self.tasks[name]

    def roles_on(self, task: str, questions: Sequence[Question] = ()) -> tuple[str, ...]:
        """The roles that graphs for a task may have: a vote needs a kind that says what the same
        answer is, a verifier one that can check an answer, or questions that carry a check.
        """
        left_out = self.unfit_roles(task, questions)
        return tuple(role for role in self.roles if role not in left_out)

    def unfit_roles(self, task: str, questions: Sequence[Question] = ()) -> dict[str, str]:
        """The profile's roles that are of no use on a task's questions, each with the reason."""
        kind = self.task(task).task
        reasons = {role: unfit(get_role(role), kind, questions) for role in self.roles}
        return {role: why for role, why in reasons.items() if why}

    def no_checks(self, task: str, questions: Sequence[Question]) -> list[str]:
        """For people: which of the profile's roles no graph for a task has, as there is nothing to
        check.
        """
        return [
            f"{task}: no graph has a {role}: {why}"
            for role, why in self.unfit_roles(task, questions).items()
            if get_role(role).checks
        ]

    def cost_model(self, task: str, metric: Metric | None = None) -> CostModel:
        """Costs of graphs on this task, under the profile's metric unless another is given. Raises
        SettingsError when lengths are neither given nor measured, or a fact of a model is missing.
        """
        refused = self.task(task).refused
        members = self.model_pool().values()
        pool = ModelPool(tuple(spec for spec in members if spec.name not in refused))
        lengths = self.task(task).lengths
        known = (
            lengths.of(pool, task) if lengths.measured or lengths.given is None else lengths.value()
        )
        return CostModel(pool, known, metric or self.budget.metric)

    def budget_on(self, task: str) -> Budget:
        """What a question of this task may cost. Raises SettingsError as `cost_model` does."""
        budget = self.budget
        worst = math.inf if budget.worst is None else budget.worst
        cost = self.cost_model(task)
        return Budget(cost, budget.limit, budget.max_nodes, budget.limits, worst, self.roles)

    def with_measured(self, task: str, measured: Mapping[str, Lengths]) -> Profile:
        """The same, with these lengths of members of the pool in place of what it says itself."""
        plain = {name: MeasuredLengths(**asdict(lengths)) for name, lengths in measured.items()}
        lengths = self.task(task).lengths.model_copy(update={"measured": plain})
        return self._with_task(task, lengths=lengths)

    def with_accuracies(self, task: str, measured: Mapping[str, float]) -> Profile:
        """The same, with how often each member of the pool is right alone on a task."""
        return self._with_task(task, accuracies=dict(measured))

    def with_refused(self, task: str, members: Iterable[str]) -> Profile:
        """The same, with the members of the pool whose provider refuses every question."""
        return self._with_task(task, refused=tuple(members))

    def _with_task(self, task: str, **changes: Any) -> Profile:
        settings = self.task(task).model_copy(update=changes)
        return self.model_copy(update={"tasks": self.tasks | {task: settings}})


class TrackingSettings(Closed):
    """What MLflow has of a search."""

    candidates: Literal["steps", "runs"] = "steps"
    """each candidate as a step of its search's metrics, or as a run too, which takes 40 ms"""


class Params(Closed):
    """params.yaml."""

    profile: str
    """the profile that stages and commands use: profiles/<profile>.yaml"""
    tasks: tuple[str, ...] = Field(min_length=1)
    """which of the profile's tasks to run"""
    methods: tuple[str, ...] = Field(min_length=1)
    """which search methods to run"""
    seed: int = Field(default=0, ge=0)
    """of every random choice; the same seed gives the same results"""
    tracking_uri: str = "sqlite:///mlflow.db"
    """where MLflow keeps runs and versions"""
    tracking: TrackingSettings = TrackingSettings()
    """what MLflow has of a search"""
    service: ServiceSettings = ServiceSettings()
    """`ttsgraph serve`"""


def load_params(path: Path = Path("params.yaml")) -> Params:
    """Read params.yaml. Raises SettingsError."""
    return load(Params, path)


def load_profile(name: str, folder: Path = Path("profiles")) -> Profile:
    """Read profiles/<name>.yaml. Raises SettingsError; for an unknown name it lists the profiles
    there are. A simulated profile says so in its name, because results, reports and plots are named
    after it.
    """
    path = folder / f"{name}.yaml"
    if not path.is_file():
        known = sorted(p.stem for p in folder.glob("*.yaml"))
        raise SettingsError(f"unknown profile {name!r}; {folder} has {', '.join(known) or 'none'}")
    profile = load(Profile, path)
    if profile.engine.kind == "simulated" and "simulated" not in name:
        raise SettingsError(
            f"{path}: expected a name with simulated in it, as the engine is; files and plots are"
            " named after it"
        )
    return profile
