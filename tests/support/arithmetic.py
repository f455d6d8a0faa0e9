"""Searches whose models add two numbers: everything but the language model is real."""

from tests.support.fakes import ArithmeticClient
from ttsgraph.evaluation.environment import Environment
from ttsgraph.graphs.budget import Budget, CostModel, Lengths
from ttsgraph.models.client import Client, Sampling
from ttsgraph.pool.spec import ModelPool, ModelSpec, Price
from ttsgraph.searching.agent.base import Brief
from ttsgraph.searching.methods import Problem, Searcher, searcher_class
from ttsgraph.settings.profile import AgentSettings, SearchSettings
from ttsgraph.tasks import get_task
from ttsgraph.tasks.base import Question
from ttsgraph.tasks.prompts import Prompt

LAPTOP_POOL = ModelPool(
    (
        ModelSpec("small", "a", 1e8, 1e8, 10, 500, Price(0.01, 0.01)),
        ModelSpec("large", "b", 3e8, 3e8, 20, 800, Price(0.03, 0.03)),
    )
)
COST = CostModel(LAPTOP_POOL, Lengths(60, 5))
BRIEF = Brief("math", Budget(COST, 8.0, 12), {"small": 0.35, "large": 0.45}, ("assistant", "voter"))


def arithmetic(count: int, start: int = 0) -> list[Question]:
    return [
        Question(f"q{k}", f"{k} + {k % 7}", str(k + k % 7)) for k in range(start, start + count)
    ]


def adders(**skill: float) -> ArithmeticClient:
    return ArithmeticClient({"small": 0.35, "large": 0.45} | skill)


def environment_of(client: Client, sampling: Sampling | None = None) -> Environment:
    prompt = Prompt("", "few_shot")
    return Environment(get_task("math"), prompt, sampling or Sampling(), LAPTOP_POOL, client)


def searcher_of(method: str, settings: SearchSettings, small: int = 6) -> Searcher:
    problem = Problem(BRIEF, settings, AgentSettings(), {"small": small}, seed=0)
    return searcher_class(method).of(problem)
