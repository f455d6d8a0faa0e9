"""params.yaml and a profile as frozen, closed settings. params.yaml selects the run (profile,
tasks, methods, seed); profiles/<name>.yaml defines its parts (pool, engine, tasks, budget, search,
agent). An unknown key, a wrong type or an impossible value raises SettingsError with one line that
names the file, the key and the value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import not_
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field, PositiveInt, model_validator

from ttsgraph.base.errors import SettingsError
from ttsgraph.base.parsing import ClosedModel, load
from ttsgraph.evaluation.objective import ACCURACY, Objective
from ttsgraph.graphs.budget import Budget, CostModel, Lengths, Metric, missing_facts
from ttsgraph.graphs.roles import ASSISTANT, get_role, role_names, unfit
from ttsgraph.models.dialect import AnswerForm
from ttsgraph.pool.engine import ENGINES, EngineSettings
from ttsgraph.pool.judge import JUDGE
from ttsgraph.pool.settings import ModelSettings, PriceSetting, Readable, price_of
from ttsgraph.pool.simulated import Simulation
from ttsgraph.pool.spec import FACTS, ModelPool, Price, variant_name
from ttsgraph.settings import stages
from ttsgraph.settings.plugins import load_modules
from ttsgraph.settings.service import ServiceSettings
from ttsgraph.settings.task import TaskSettings
from ttsgraph.tasks.base import AskingTask, Question


class SandboxSettings(ClosedModel):
    """Settings for running programs that models write."""

    accept_weaker: bool = False
    """if programs can't be isolated, run them anyway, with resource limits only"""


class SearchSettings(ClosedModel):
    """Settings of the search loop, the same for every method (paper, section 6: 30 iterations,
    patience 10).
    """

    way: Literal["joint", "paper"] = Field(default="joint", exclude_if=lambda way: way == "joint")
    """joint: a contest of structured graphs, then the loop, starting from the contest's leaders;
    paper: algorithm 1 of arXiv 2511.00086 without additions
    """
    max_iterations: PositiveInt = 30
    """maximum rounds of the search"""
    patience: PositiveInt = 10
    """rounds without a better validation score after which the search ends"""
    candidates: PositiveInt = 4
    """graphs per iteration"""
    batch: PositiveInt = 16
    """training questions per candidate"""
    edge_threshold: ClassVar = 0.5
    """minimum probability of an edge in the decoded graph"""
    alpha: ClassVar = 1.05
    """preference for the fuser's role at nodes that read many answers (1: none)"""


LOOP_SHARE = 0.05
"""Share of init.contest's calls that is reserved for the candidates of the loop after the contest.
"""


def contest_share(contest: stages.ContestSettings) -> stages.ContestSettings:
    """Return a contest's settings, with `calls` reduced by the calls reserved for the loop."""
    return contest.model_copy(update={"calls": max(1, round(contest.calls * (1 - LOOP_SHARE)))})


def loop_calls(contest: stages.ContestSettings, spent: int) -> int:
    """Return the number of calls that the contest left for the loop."""
    return max(0, contest.calls - spent)


AgentPart = Literal[
    "insight_1", "insight_2", "insight_3", "scaling_rules", "roles", "evidence", "proposes"
]


class AgentSettings(ClosedModel):
    """Agent that guides a search, and the paper's insights that it may use (the ablations of table
    2). It is a language model behind an OpenAI-compatible endpoint if there is a `model`, or else
    the paper's insights as rules. Without a `base_url`, `model` names a model of the pool.
    """

    without: tuple[AgentPart, ...] = Field(default=(), exclude_if=not_)
    """parts to switch off, for ablations. insight_1: which models go together; insight_2: how many
    models; insight_3: how wide and how deep a graph should be; scaling_rules: the rules of
    test-time scaling in prompts (A.12, R-3 and R-4); roles: without them, all nodes are assistants;
    evidence: whether edges and roles repaired or broke answers, for a language model; proposes: a
    graph to try, in addition to changes of probabilities
    """
    step: ClassVar = 0.3
    """largest change of a probability in one step of the heuristic, a key in earlier versions"""
    model: str | None = None
    """name of the agent's language model, at the endpoint or in the pool; without one, the agent is
    the paper's insights as rules
    """
    base_url: Annotated[str | None, Readable] = None
    """endpoint of the agent's model; not needed for a model of the pool"""
    api_key_env: str | None = None
    """environment variable that holds the endpoint's key"""
    price: PriceSetting | None = None
    """price of the agent's model, in $ per million tokens"""
    revision: ClassVar = "unpinned"
    """version of the agent's model in the identity of its calls: unknown, as endpoints don't tell
    it; a model of the pool has its own
    """
    response_format: ClassVar[AnswerForm] = "schema"
    """way to request the form of answers: if an endpoint refuses it, the next weaker one is used"""
    temperature: ClassVar = None
    """sampling temperature: the endpoint's default, as some reasoning models accept no other"""
    tokens_key: ClassVar = "max_tokens"
    """request parameter that limits an answer's tokens, until the endpoint refuses it"""
    context_tokens: PositiveInt = 16384
    """maximum estimated tokens of a prompt; tables that would exceed it are summarised. Half of
    them are the maximum of an answer, its reasoning included
    """
    timeout_s: ClassVar = 600.0
    """timeout of one attempt, in seconds: longer than a model takes to reason in `max_tokens`"""
    max_retries: ClassVar = 4
    """maximum attempts after the first; after 8 s of waits a search stops, and can be resumed"""
    reasks: ClassVar = 2

    @classmethod
    def constants(cls) -> dict[str, Any]:
        """Return the constants, the parts (`proposes` was dumped only if false), and the properties
        that were keys.
        """
        parts = (part for part in get_args(AgentPart) if part != "proposes")
        former = dict.fromkeys(("kind", "max_tokens"), ...)
        return super().constants() | dict.fromkeys(parts, True) | former

    @model_validator(mode="before")
    @classmethod
    def _of_kind(cls, data: Any) -> Any:
        """Check the key `kind` of earlier versions."""
        if isinstance(data, dict) and "kind" in data:
            kind = "heuristic" if data.get("model") is None else "llm"
            if data["kind"] != kind:
                with_model = "no model" if kind == "heuristic" else "a model"
                raise ValueError(f"expected kind {kind} with {with_model}, found {data['kind']!r}")
        return data

    @property
    def kind(self) -> Literal["heuristic", "llm"]:
        """Kind of agent: rules, or a language model."""
        return "heuristic" if self.model is None else "llm"

    @property
    def max_tokens(self) -> int:
        """Maximum tokens of one answer."""
        return max(1, self.context_tokens // 2)

    def uses(self, part: AgentPart) -> bool:
        """Return True if a part isn't switched off."""
        return part not in self.without

    @model_validator(mode="after")
    def _complete(self) -> AgentSettings:
        unused = sorted(self.model_fields_set & {"base_url", "api_key_env", "price"})
        if self.model is None and unused:
            raise ValueError(f"expected {unused[0]!r} only with a model, found no model")
        if self.base_url is not None and self.price is None:
            raise ValueError("expected a price for the agent's model (0 if it is free), found none")
        return self


class Profile(ClosedModel):
    """Content of profiles/<name>.yaml. In a project with stages, a profile needs every section that
    dvc.yaml lists among its params, even if the section is empty ({}).
    """

    description: ClassVar = ...  # now a comment at the top of the file
    engine: EngineSettings
    """engine that serves the models, and its settings"""
    pool: dict[str, ModelSettings]
    """models that a graph may use, by name"""
    tasks: dict[str, TaskSettings]
    """tasks, by name"""
    roles: tuple[str, ...]
    """roles that nodes may have; assistant must be among them"""
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
    """spending limits of one stage, such as a search"""
    workers: stages.Workers = 0
    """place where candidates are evaluated: 0 for this process, a number of Dask workers to start
    here, or the address of a Dask cluster's scheduler
    """
    sandbox: SandboxSettings = SandboxSettings()
    """running of programs that models write"""
    evaluate: stages.EvaluateSettings = stages.EvaluateSettings()
    """parts of the evaluate stage besides the test"""
    deploy: stages.DeploySettings = stages.DeploySettings()
    """promotion of a graph to champion"""
    research: stages.ResearchSettings = stages.ResearchSettings()
    """re-search after changes to the pool"""
    newcomers: dict[str, ModelSettings] = Field(default_factory=dict)
    """models that join the pool of a re-search once their endpoint lists them"""
    simulation: Simulation = Simulation()
    """world of the simulated engine"""
    plugins: tuple[str, ...] = Field(default=(), exclude_if=not_)
    """modules with task kinds, roles, methods and engines (docs/extend.md)"""

    @model_validator(mode="before")
    @classmethod
    def _with_plugins(cls, data: Any) -> Any:
        """Import the plug-ins before kinds and roles are looked up."""
        names = data.get("plugins") if isinstance(data, Mapping) else None
        if isinstance(names, list | tuple):
            try:
                load_modules(name for name in names if isinstance(name, str))
            except SettingsError as error:
                raise ValueError(str(error)) from None
        return data

    @model_validator(mode="before")
    @classmethod
    def _papers_way(cls, data: Any) -> Any:
        """Apply the paper's defaults if `search.way` is paper, and switch off the agent's parts
        that the paper lacks. Raises ValueError if the contest is enabled.
        """
        if not isinstance(data, dict) or (data.get("search") or {}).get("way") != "paper":
            return data
        init: dict[str, Any] = {"questions": 32, "topologies": 10}
        init |= dict(data.get("init") or {})
        init["contest"] = {"enabled": False} | dict(init.get("contest") or {})
        if init["contest"]["enabled"]:
            raise ValueError(
                "expected init.contest.enabled to be false if search.way is paper, found true; the"
                " paper has no contest"
            )
        agent = dict(data.get("agent") or {})
        off = agent.setdefault("without", [])
        if isinstance(off, list | tuple):
            ours = (part for part in ("evidence", "proposes") if part not in off)
            agent["without"] = [*off, *ours]
        return data | {"init": init, "agent": agent}

    @model_validator(mode="after")
    def _known_roles_and_models(self) -> Profile:
        for role in self.roles:
            if role not in role_names():
                raise ValueError(f"expected roles among {', '.join(role_names())}, found {role!r}")
        if ASSISTANT not in self.roles:
            raise ValueError(
                "expected 'assistant' among the roles, found none: a node without predecessors"
                " has to answer"
            )
        models = self.pool | self.newcomers
        for name, model in models.items():
            for variant in model.variants:
                if variant_name(name, variant) in models:
                    raise ValueError(
                        f"variant {variant!r} of {name!r}: expected a different name: a model"
                        " already has this one"
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
                    f"newcomer {name!r}: expected a model that has a base_url and is not in the"
                    " pool yet"
                )
        started = [*self.hosted, *self.elsewhere]
        if self.workers and started:
            raise ValueError(
                "expected the engine to be external or simulated, found"
                f" {self.engine.kind}, which starts {started[0]!r} here; workers call the models'"
                " endpoints themselves"
            )
        return self

    @model_validator(mode="after")
    def _simulable(self) -> Profile:
        if self.engine.kind != "simulated":
            return self
        for name, task in self.tasks.items():
            source = task.source
            own = source.kind == "synthetic" and source.task == task.kind
            known = task.kind in self.simulation.tasks and task.lengths.given is not None
            if not (own and known and task.prompt.style == "chat"):
                raise ValueError(
                    f"task {name!r}: for the simulation, expected chat prompts, lengths, a"
                    f" synthetic source of its kind, and {task.kind} in the world"
                )
        variants = [spec.variant for spec in self.model_pool().values() if spec.variant]
        if any(variant.style == "few_shot" for variant in variants):
            raise ValueError("for the simulation, expected chat prompts of variants")
        return self

    @model_validator(mode="after")
    def _distinct_judges(self) -> Profile:
        for name, settings in self.tasks.items():
            task = settings.task
            for judge, model in task.options.models.items() if isinstance(task, AskingTask) else ():
                if self.judges[f"{JUDGE}{judge}"] != model:
                    raise ValueError(
                        f"task {name!r}: judge {judge!r}: expected a different name: another"
                        " task's judge, with other settings, already has this one"
                    )
        return self

    @model_validator(mode="after")
    def _known_agent(self) -> Profile:
        agent = self.agent
        served = () if self.engine.kind == "simulated" else tuple(self.pool)
        if agent.kind == "llm" and agent.base_url is None and agent.model not in served:
            remedy = " (a simulated model can't be an agent)"
            if served:
                remedy = f", or agent.model among {', '.join(served)}"
            raise ValueError(f"expected agent.base_url{remedy}, found only model {agent.model!r}")
        return self

    @property
    def contest(self) -> stages.ContestSettings:
        """Settings of the contest, without the calls reserved for the loop."""
        return contest_share(self.init.contest)

    def agent_price(self) -> Price:
        """Return the price of the agent's model: `agent.price` if given, else the price of that
        model in the pool.
        """
        agent = self.agent
        return price_of(self.pool[agent.model or ""].price if agent.price is None else agent.price)

    @property
    def hosted(self) -> dict[str, ModelSettings]:
        """Models whose servers are started here: those without a base_url, if the engine starts
        servers.
        """
        return self._without_url("vllm", "transformers")

    @property
    def elsewhere(self) -> dict[str, ModelSettings]:
        """Models whose servers are started by a plug-in's engine."""
        return self._without_url(*ENGINES)

    def _without_url(self, *engines: str) -> dict[str, ModelSettings]:
        if self.engine.kind not in engines:
            return {}
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
        variants. If a task is given, the accuracies measured on it take precedence.
        """
        accuracies = {} if task is None else self.task(task).accuracies
        members = [each for name, model in self.pool.items() for each in model.specs(name)]
        known = (replace(m, accuracy=accuracies.get(m.name, m.accuracy)) for m in members)
        return ModelPool(tuple(known))

    def task(self, name: str) -> TaskSettings:
        """Return the settings of one task. Raises SettingsError, listing the profile's tasks, for
        an unknown name.
        """
        if name not in self.tasks:
            names = ", ".join(self.tasks) or "none yet; `ttsgraph add --questions` adds one"
            raise SettingsError(f"unknown task {name!r}; the profile has {names}")
        return self.tasks[name]

    def roles_on(self, task: str, questions: Sequence[Question] = ()) -> tuple[str, ...]:
        """Return the roles that graphs for a task may have. A vote needs a kind that defines which
        answers are equal; a verifier needs a kind that can check an answer, or questions that
        carry a check.
        """
        kind = self.task(task).task
        return tuple(role for role in self.roles if not unfit(get_role(role), kind, questions))

    def no_checks(self, task: str, questions: Sequence[Question]) -> list[str]:
        """Return a message for each checking role of the profile that no graph for a task has,
        because there is nothing to check.
        """
        kind = self.task(task).task
        reasons = {name: unfit(get_role(name), kind, questions) for name in self.roles}
        return [
            f"{task}: no graph has a {name}: {why}"
            for name, why in reasons.items()
            if why and get_role(name).checks
        ]

    def cost_model(self, task: str, metric: Metric | None = None) -> CostModel:
        """Return the cost model for graphs on this task, under the profile's metric unless another
        is given. Raises SettingsError if lengths are neither given nor measured, or if a model
        lacks a fact.
        """
        refused = self.task(task).refused
        members = self.model_pool().values()
        pool = ModelPool(tuple(spec for spec in members if spec.name not in refused))
        lengths = self.task(task).lengths
        known = None if lengths.measured else lengths.given
        return CostModel(pool, known or lengths.of(pool, task), metric or self.budget.metric)

    def budget_on(self, task: str) -> Budget:
        """Return the budget for a question of this task. Raises SettingsError if lengths are
        neither given nor measured, or if a model lacks a fact.
        """
        budget = self.budget
        worst = math.inf if budget.worst is None else budget.worst
        cost = self.cost_model(task)
        return Budget(cost, budget.limit, budget.max_nodes, budget.limits, worst, self.roles)

    def with_measured(self, task: str, measured: Mapping[str, Lengths]) -> Profile:
        """Return a copy with these measured lengths of pool members. They take precedence over
        given lengths.
        """
        lengths = self.task(task).lengths.model_copy(update={"measured": dict(measured)})
        return self.with_task(task, lengths=lengths)

    def with_task(self, task: str, **changes: Any) -> Profile:
        """Return a copy in which some settings of a task are changed."""
        settings = self.task(task).model_copy(update=changes)
        return self.model_copy(update={"tasks": self.tasks | {task: settings}})


class TrackingSettings(ClosedModel):
    """Tracking of a search in MLflow."""

    candidates: Literal["steps", "runs"] = "steps"
    """steps: record each candidate as a step of its search's metrics; runs: also record it as a
    run, which takes 40 ms
    """


class Params(ClosedModel):
    """Content of params.yaml."""

    profile: str
    """profile that stages and commands use: profiles/<profile>.yaml"""
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


def load_params(path: Path = Path("params.yaml"), profile: str | None = None) -> Params:
    """Read params.yaml; a `profile` replaces the one in it. Raises SettingsError if the file can't
    be read or is invalid.
    """
    params = load(Params, path)
    return params.model_copy(update={"profile": profile or params.profile})


def load_profile(name: str, folder: Path = Path("profiles")) -> Profile:
    """Read profiles/<name>.yaml. Raises SettingsError if the profile is invalid, or if the name
    is unknown; the message then lists the existing profiles. A simulated profile needs "simulated"
    in its name, because results, reports and plots are named after it.
    """
    path = folder / f"{name}.yaml"
    if not path.is_file():
        names = sorted(p.stem for p in folder.glob("*.yaml"))
        raise SettingsError(f"unknown profile {name!r}; {folder} has {', '.join(names) or 'none'}")
    profile = load(Profile, path)
    if profile.engine.kind == "simulated" and "simulated" not in name:
        raise SettingsError(
            f"{path}: expected a name that contains 'simulated', because the engine is simulated;"
            " files and plots are named after the profile"
        )
    return profile
