"""A scripted search agent behind an endpoint on a real socket, and searches that it guides."""

import asyncio
import json
import re
from collections.abc import Callable
from contextlib import aclosing, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.arithmetic import COST, adders, arithmetic, environment_of
from tests.support.fakes import ArithmeticClient
from tests.support.stub_server import StubServer, answered
from ttsgraph.endpoints.openai_client import Endpoint
from ttsgraph.evaluation.archive import Archive
from ttsgraph.graphs.budget import Budget
from ttsgraph.models.cache import CachedClient, CallCache
from ttsgraph.models.client import Chat, Client, Completion, Request
from ttsgraph.pool.spec import Price
from ttsgraph.runtime.clients import agent_client, speaker
from ttsgraph.searching.agent.base import Brief, Exchange
from ttsgraph.searching.loop import Bench, find
from ttsgraph.searching.methods import Problem, searcher_class
from ttsgraph.searching.methods.summary import SearchOutcome
from ttsgraph.settings.profile import AgentSettings, SearchSettings

BRIEF = Brief(
    "math", Budget(COST, 7.0, 12), {"small": 0.35, "large": 0.45}, ("assistant", "fuser", "voter")
)
PRICE = Price(1.0, 4.0)
NOTHING = '{"edge_changes": [], "role_changes": [], "graph": null, "reason": "wait"}'


def agent_server(script: Callable[[dict[str, Any]], str]) -> StubServer:
    """A server of the model `guide` whose answers are `script(request body)`."""

    class Guide(StubServer):
        def completion(self, body: dict[str, Any], count: int) -> dict[str, Any]:
            return answered(script(body), body["model"], count, 100, 10)

    return Guide(("guide",))


def settings(**changes: Any) -> AgentSettings:
    usual = {"model": "guide", "base_url": "http://unused", "price": 1}
    return AgentSettings(**(usual | changes))


def scripted(*answers: str) -> tuple[Chat, list[tuple[Any, ...]]]:
    """Speaks with these answers, the last for good; and what it is sent: messages, name, schema."""
    sent: list[tuple[Any, ...]] = []

    def speak(messages: Any, name: str, schema: str) -> tuple[Completion, float]:
        sent.append((messages, name, json.loads(schema)))
        said = answers[min(len(sent), len(answers)) - 1]
        return Completion(said, 100, 10, 0.5), 0.001

    return speak, sent


class SpoiledByFusing(ArithmeticClient):
    """Models that hardly ever answer rightly once they are asked to fuse answers."""

    def _answer(self, request: Request) -> str:
        fuses = "Candidate: " in request.messages[-1].content.rsplit("Q: ", 1)[1]
        return "nothing" if fuses else super()._answer(request)


@dataclass(frozen=True)
class Guided:
    found: SearchOutcome
    archive: Archive
    exchanges: list[Exchange]


def guided_search(
    folder: Path,
    url: str,
    agent: AgentSettings,
    key_env: str | None = None,
    client: Client | None = None,
    archive: Archive | None = None,
    **search: Any,
) -> Guided:
    """Search with agent_reinforce, its agent behind `url`; only the language models are fakes."""
    wanted = SearchSettings(**({"max_iterations": 8, "patience": 8, "batch": 12} | search))
    archive = Archive() if archive is None else archive
    bench, asked = Bench(environment_of(client or adders()), archive), arithmetic(54)

    async def run(cache: CallCache) -> Guided:
        endpoint = agent_client(Endpoint((url,), "guide", key_env), agent)
        async with aclosing(endpoint):
            speak = speaker(CachedClient(endpoint, cache), agent, "r1", PRICE)
            problem = Problem(BRIEF, wanted, agent, {"small": 6}, 0, speak)
            searcher = searcher_class("agent_reinforce").of(problem)
            found, _ = await find(searcher, wanted, bench, asked[:24], asked[24:])
            return Guided(found, archive, [*searcher.exchanges])

    with closing(CallCache(folder / "calls")) as cache:
        return asyncio.run(run(cache))


def follows_the_best(body: dict[str, Any]) -> str:
    """A sensible agent: makes the roles in the last round's best graph likely."""
    section = body["messages"][0]["content"].split("## Last round, best first\n\n")[1]
    best = section.splitlines()[0]
    changes = [
        {"node": node, "role": role, "probability": 0.8, "reason": "last round"}
        for numbers, role in re.findall(r"; ([\d, -]+): (assistant|fuser|voter)", best)
        for first, last in re.findall(r"(\d+)(?:-(\d+))?", numbers)
        for node in range(int(first), int(last or first) + 1)
    ]
    answer = {"edge_changes": [], "role_changes": changes, "graph": None, "reason": "as the best"}
    said = json.dumps(answer, indent=1)
    return f"<think>The best one was {best} {{hm}}</think>\n```json\n{said}\n```\nGood luck!"
