"""params.yaml and a profile as frozen, closed settings. params.yaml selects the run (profile,
tasks, methods, seed); profiles/<name>.yaml defines its parts (pool, engine, tasks, budget, search,
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
from ttsgraph.base.parsing import ClosedModel, load
from ttsgraph.evaluation.objective import ACCURACY, Objective
from ttsgraph.graphs.budget import Budget, CostModel, Lengths, Metric, missing_facts
from ttsgraph.graphs.roles import ASSISTANT, get_role, role_names, unfit
from ttsgraph.models.dialect import AnswerForm, TokensKey
from ttsgraph.pool.engine import ENGINES, EngineSettings, Probability
from ttsgraph.pool.judge import JUDGE
from ttsgraph.pool.settings import ModelSettings, PriceSetting, Readable, price_of
from ttsgraph.pool.simulated import Simulation
from ttsgraph.pool.spec import FACTS, ModelPool, Price, Temperature, variant_name
from ttsgraph.settings import stages
from ttsgraph.settings.plugins import load_for
from ttsgraph.settings.service import ServiceSettings
from ttsgraph.settings.task import MeasuredLengths, TaskSettings
from ttsgraph.tasks.base import AskingTask, Question


class SandboxSettings(ClosedModel):
    """Settings of programs written by models."""

    accept_weaker: bool = False
    """run them with resource limits only if they can't be isolated"""


class SearchSettings(ClosedModel):
    """The search loop, the same for every method (paper, section 6: 30 iterations, patience 10)."""

    way: Literal["joint", "paper"] = Field(default="joint", exclude_if=lambda way: way == "joint")
    """joint: a contest of structured graphs, then the loop from its leaders; paper: algorithm 1 of
    arXiv 2511.00086 without additions
    """
    max_iterations: PositiveInt = 30
    """maximum rounds of the search"""
    patience: PositiveInt = 10
    """rounds without a better validation score until the search ends"""
    candidates: PositiveInt = 4
    """graphs per iteration"""
    batch: PositiveInt = 16
    """training questions per candidate"""
    edge_threshold: Probability = 0.5
    """probability from which the decoded graph contains an edge"""
    alpha: Annotated[float, Field(ge=1.0, le=1.1)] = 1.05
    """preference for fusing of nodes that read many answers (1: none)"""

    @model_validator(mode="before")
    @classmethod
    def _of_earlier_bundles(cls, given: Any) -> Any:
        """Drop keys of earlier bundles: `racing` if it is disabled, and `loop_share`, which is no
        longer read.
        """
        if not isinstance(given, dict):
            return given
        left = {key: value for key, value in given.items() if key != "loop_share"}
        racing = left.get("racing")
        if isinstance(racing, dict) and racing.get("enabled") is False:
            del left["racing"]
        return left


LOOP_SHARE = 0.05
"""Share of the calls of init.contest reserved for the candidates of the loop after it."""


def contest_share(contest: stages.ContestSettings) -> stages.ContestSettings:
    """Return the settings of a contest without the calls reserved for the loop."""
    return contest.model_copy(update={"calls": max(1, round(contest.calls * (1 - LOOP_SHARE)))})


def loop_calls(contest: stages.ContestSettings, spent: int) -> int:
    """Return the number of calls for the loop: those that the contest left."""
    return max(0, contest.calls - spent)


class AgentSettings(ClosedModel):
    """Agent that guides a search, and the paper's insights that it may use (the ablations of table
    2). `step` belongs to the heuristic; the keys from `model` on belong to `kind: llm`, a language
    model behind an OpenAI-compatible endpoint. Without a `base_url`, `model` is a model of the
    pool.
    """

    kind: Literal["heuristic", "llm"] = "heuristic"
    """the paper's insights as rules, or a language model"""
    insight_1: bool = True
    """use the first insight: which models go together"""
    insight_2: bool = True
    """use the second insight: how many of them"""
    insight_3: bool = True
    """use the third insight: how wide and how deep"""
    scaling_rules: bool = True
    """include the rules of test-time scaling in prompts (A.12, R-3 and R-4); rivals
    never get them
    """
    roles: bool = True
    """learn roles; without, all nodes are assistants"""
    evidence: bool = True
    """show the agent what edges, nodes and roles repaired and broke"""
    proposes: bool = Field(default=True, exclude_if=lambda proposes: proposes)
    """let the agent propose a graph to try, in addition to its changes of probabilities"""
    step: Annotated[float, Field(gt=0, le=1)] = 0.3
    """largest change of a probability in one step of the heuristic"""
    model: str | None = None
    """name of its model at the endpoint, or in the pool"""
    base_url: Annotated[str | None, Readable] = None
    """endpoint of its model; not needed for a model of the pool"""
    api_key_env: str | None = None
    """environment variable that holds the endpoint's key"""
    price: PriceSetting | None = None
    """$ per million tokens of its model"""
    as_of: date | None = Field(default=None, exclude_if=lambda day: day is None)
    """day on which model and price were looked up"""
    revision: str = "unpinned"
    """version of its model's weights"""
    response_format: AnswerForm = "schema"
    """way to request an answer's form; an endpoint that refuses gets the next weaker one"""
    temperature: Temperature | None = None
    """sampling temperature; the endpoint's default if not given"""
    max_tokens: PositiveInt = 8192
    """maximum tokens of one answer, its reasoning included"""
    tokens_key: TokensKey = "max_tokens"
    """request parameter that limits an answer's tokens"""
    context_tokens: PositiveInt = 16384
    """maximum tokens of a prompt, as estimated; longer tables are summarised"""
    timeout_s: PositiveFloat = 600
    """timeout of one attempt"""
    max_retries: int = Field(default=4, ge=0)
    """attempts after the first"""

    @model_validator(mode="before")
    @classmethod
    def _of_earlier_bundles(cls, given: Any) -> Any:
        """Drop the key `reasks` of earlier bundles if it has the value that is fixed now."""
        if not isinstance(given, dict) or given.get("reasks") != 2:
            return given
        return {key: value for key, value in given.items() if key != "reasks"}

    @model_validator(mode="after")
    def _complete(self) -> AgentSettings:
        if self.kind == "llm" and self.model is None:
            raise ValueError("expected a model for kind llm, found none")
        if self.kind == "llm" and self.base_url is not None and self.price is None:
            raise ValueError("expected a price for the agent's model (0 if it is free), found none")
        unused = sorted(self.model_fields_set & {"model", "base_url", "api_key_env", "price"})
        if self.kind == "heuristic" and unused:
            raise ValueError(f"{unused[0]} is for kind llm, found kind heuristic")
        return self


class Profile(ClosedModel):
    """Content of profiles/<name>.yaml. In a project with stages it has all sections that dvc.yaml
    names among its params, even if empty ({}).
    """

    description: str = ""
    """purpose of the profile"""
    engine: EngineSettings
    """serving and calling of models"""
    pool: dict[str, ModelSettings]
    """models that a graph may use, by name"""
    tasks: dict[str, TaskSettings]
    """tasks, by name"""
    roles: tuple[str, ...]
    """roles of nodes; assistant is always among them"""
    budget: stages.BudgetSettings
    """limit on the cost of a question"""
    pilot: stages.PilotSettings
    """sweeps of plain graphs before the search"""
    init: stages.InitSettings
    """trials before the search"""
    search: SearchSettings
    """search loop"""
    agent: AgentSettings
    """agent that guides the search"""
    objective: Objective = ACCURACY
    """objective of the search"""
    limits: stages.LimitSettings = stages.LimitSettings()
    """spending limits of one search"""
    workers: stages.WorkerSettings = stages.WorkerSettings()
    """place where candidates are evaluated"""
    sandbox: SandboxSettings = SandboxSettings()
    """programs written by models"""
    evaluate: stages.EvaluateSettings = stages.EvaluateSettings()
    """test of the found graph"""
    deploy: stages.DeploySettings = stages.DeploySettings()
    """promotion of a graph to champion"""
    research: stages.ResearchSettings = stages.ResearchSettings()
    """re-search after changes of the pool"""
    newcomers: dict[str, ModelSettings] = Field(default_factory=dict)
    """models that join the pool of a re-search once their endpoint lists them"""
    simulation: Simulation = Simulation()
    """abilities of models, for the simulated engine"""
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
        """Apply the paper's defaults if `search.way` is paper. Raises ValueError if a part is
        enabled that the paper lacks.
        """
        if not isinstance(data, dict) or (data.get("search") or {}).get("way") != "paper":
            return data
        defaults: dict[str, dict[str, Any]] = {
            "init": {"questions": 32, "topologies": 10},
            "agent": {"evidence": False, "proposes": False},
        }
        found = dict(data)
        for section, settings in defaults.items():
            found[section] = settings | dict(data.get(section) or {})
        contest = dict(found["init"].get("contest") or {})
        found["init"]["contest"] = {"enabled": False} | contest
        ours = {"init.contest.enabled": found["init"]["contest"]["enabled"]}
        ours |= {f"agent.{name}": found["agent"][name] for name in ("evidence", "proposes")}
        for name, on in ours.items():
            if on:
                raise ValueError(f"search.way is paper: expected no {name}, which the paper lacks")
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
                        f"variant {variant!r} of {name!r}: expected another name, but a model"
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
                raise ValueError(f"task {name!r}: expected lengths for the simulation")
            if task.kind not in self.simulation.tasks:
                raise ValueError(
                    f"task {name!r}: expected its kind, {task.kind}, among simulation.tasks"
                )
            source = task.source
            own = source.kind == "synthetic" and source.task == task.kind
            if not own or task.prompt.style != "chat":
                raise ValueError(
                    f"task {name!r}: expected a synthetic source of its kind and chat prompts,"
                    " for the simulation"
                )
        for spec in self.model_pool().values():
            if spec.variant and spec.variant.style == "few_shot":
                raise ValueError(f"variant {spec.name!r}: expected chat prompts for the simulation")
        return self

    @model_validator(mode="after")
    def _distinct_judges(self) -> Profile:
        for name, settings in self.tasks.items():
            task = settings.task
            for judge, model in task.options.models.items() if isinstance(task, AskingTask) else ():
                if self.judges[f"{JUDGE}{judge}"] != model:
                    raise ValueError(
                        f"task {name!r}: judge {judge!r}: expected another name, but another"
                        " task's judge has it"
                    )
        return self

    @model_validator(mode="after")
    def _known_agent(self) -> Profile:
        agent = self.agent
        served = () if self.engine.kind == "simulated" else tuple(self.pool)
        if agent.kind == "llm" and agent.base_url is None and agent.model not in served:
            remedy = ", as a simulated model can't be an agent"
            if served:
                remedy = f", or agent.model among {', '.join(served)}"
            raise ValueError(f"expected agent.base_url{remedy}, found model {agent.model!r}")
        return self

    @property
    def contest(self) -> stages.ContestSettings:
        """Settings of the contest, without the calls reserved for the loop."""
        return contest_share(self.init.contest)

    def agent_price(self) -> Price:
        """Return the price of the agent's model: the agent's own price, or the price of the
        pool's model.
        """
        agent = self.agent
        return price_of(self.pool[agent.model or ""].price if agent.price is None else agent.price)

    @property
    def hosted(self) -> dict[str, ModelSettings]:
        """Models whose servers are started here: those without a base_url, if the engine starts
        servers.
        """
        return self._without_url() if self.engine.kind in ("vllm", "transformers") else {}

    @property
    def elsewhere(self) -> dict[str, ModelSettings]:
        """Models whose servers are started by a plug-in's engine."""
        return self._without_url() if self.engine.kind in ENGINES else {}

    def _without_url(self) -> dict[str, ModelSettings]:
        return {name: model for name, model in self.pool.items() if not model.base_urls}

    @property
    def judges(self) -> dict[str, ModelSettings]:
        """Judges of all tasks, by their names in calls."""
        return {
            f"{JUDGE}{name}": model
            for settings in self.tasks.values()
            if isinstance(task := settings.task, AskingTask)
            for name, model in task.options.models.items()
        }

    def model_pool(self, task: str | None = None) -> ModelPool:
        """Return the facts of the pool's members in the profile's order, each model before its
        variants; with the accuracies measured on a task, if one is given.
        """
        accuracies = {} if task is None else self.task(task).accuracies
        plain = [
            spec for name, model in self.pool.items() for spec in model.specs(name, self.engine)
        ]
        return ModelPool(
            tuple(
                replace(each, accuracy=accuracies.get(each.name, each.accuracy)) for each in plain
            )
        )

    def task(self, name: str) -> TaskSettings:
        """Return the settings of one task. Raises SettingsError, listing the profile's tasks, for
        an unknown name.
        """
        if name not in self.tasks:
            names = ", ".join(self.tasks) or "none yet, `ttsgraph add --questions` adds one"
            raise SettingsError(f"unknown task {name!r}; the profile has {names}")
        return self.tasks[name]

    def roles_on(self, task: str, questions: Sequence[Question] = ()) -> tuple[str, ...]:
        """Return the roles that graphs for a task may have: a vote needs a kind that defines equal
        answers, a verifier a kind that can check an answer, or questions that carry a check.
        """
        left_out = self.unfit_roles(task, questions)
        return tuple(role for role in self.roles if role not in left_out)

    def unfit_roles(self, task: str, questions: Sequence[Question] = ()) -> dict[str, str]:
        """Return the roles of the profile that are of no use on a task's questions, each with the
        reason.
        """
        kind = self.task(task).task
        reasons = {role: unfit(get_role(role), kind, questions) for role in self.roles}
        return {role: why for role, why in reasons.items() if why}

    def no_checks(self, task: str, questions: Sequence[Question]) -> list[str]:
        """Return lines for people that name the roles of the profile that no graph for a task has,
        because there is nothing to check.
        """
        return [
            f"{task}: no graph has a {role}: {why}"
            for role, why in self.unfit_roles(task, questions).items()
            if get_role(role).checks
        ]

    def cost_model(self, task: str, metric: Metric | None = None) -> CostModel:
        """Return the cost model of graphs on this task, under the profile's metric unless another
        is given. Raises SettingsError if lengths are neither given nor measured, or if a model
        lacks a fact.
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
        """Return the budget of a question of this task. Raises SettingsError if lengths are neither
        given nor measured, or if a model lacks a fact.
        """
        budget = self.budget
        worst = math.inf if budget.worst is None else budget.worst
        cost = self.cost_model(task)
        return Budget(cost, budget.limit, budget.max_nodes, budget.limits, worst, self.roles)

    def with_measured(self, task: str, measured: Mapping[str, Lengths]) -> Profile:
        """Return a copy with these measured lengths of pool members, which take precedence over
        given lengths.
        """
        plain = {name: MeasuredLengths(**asdict(lengths)) for name, lengths in measured.items()}
        lengths = self.task(task).lengths.model_copy(update={"measured": plain})
        return self._with_task(task, lengths=lengths)

    def with_accuracies(self, task: str, measured: Mapping[str, float]) -> Profile:
        """Return a copy with the accuracy of each pool member in single calls on a task."""
        return self._with_task(task, accuracies=dict(measured))

    def with_refused(self, task: str, members: Iterable[str]) -> Profile:
        """Return a copy that names the pool members whose provider refuses every question of a
        task.
        """
        return self._with_task(task, refused=tuple(members))

    def _with_task(self, task: str, **changes: Any) -> Profile:
        settings = self.task(task).model_copy(update=changes)
        return self.model_copy(update={"tasks": self.tasks | {task: settings}})


class TrackingSettings(ClosedModel):
    """Tracking of a search in MLflow."""

    candidates: Literal["steps", "runs"] = "steps"
    """record each candidate as a step of its search's metrics, or as a run too, which
    takes 40 ms
    """


class Params(ClosedModel):
    """Content of params.yaml."""

    profile: str
    """profile of stages and commands: profiles/<profile>.yaml"""
    tasks: tuple[str, ...] = Field(min_length=1)
    """tasks of the profile to run"""
    methods: tuple[str, ...] = Field(min_length=1)
    """search methods to run"""
    seed: int = Field(default=0, ge=0)
    """seed of every random choice; the same seed gives the same results"""
    tracking_uri: str = "sqlite:///mlflow.db"
    """location of MLflow's runs and versions"""
    tracking: TrackingSettings = TrackingSettings()
    """tracking of a search in MLflow"""
    service: ServiceSettings = ServiceSettings()
    """settings of `ttsgraph serve`"""


def load_params(path: Path = Path("params.yaml")) -> Params:
    """Read params.yaml. Raises SettingsError if the file can't be read or is invalid."""
    return load(Params, path)


def load_profile(name: str, folder: Path = Path("profiles")) -> Profile:
    """Read profiles/<name>.yaml. Raises SettingsError if the profile is invalid or, listing the
    existing profiles, if the name is unknown. A simulated profile needs "simulated" in its name,
    because results, reports and plots are named after it.
    """
    path = folder / f"{name}.yaml"
    if not path.is_file():
        names = sorted(p.stem for p in folder.glob("*.yaml"))
        raise SettingsError(f"unknown profile {name!r}; {folder} has {', '.join(names) or 'none'}")
    profile = load(Profile, path)
    if profile.engine.kind == "simulated" and "simulated" not in name:
        raise SettingsError(
            f"{path}: expected a name with simulated in it, as the engine is; files and plots are"
            " named after it"
        )
    return profile
