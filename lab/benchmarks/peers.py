"""Benchmark of calls through the whole stack (environment, executor, cache, client, socket) in one
thread, against peers that make the same calls by other means: by hand over aiohttp, which is the
physical bound; by hand over the openai package; and with LangGraph, if it is installed. They
alternate, so that other work on the machine disturbs all alike.

For each of QUESTIONS questions, each peer runs three chains of four calls and a vote, against a
stub server. The hand-written peers make at most AT_ONCE parallel calls, like our client.
"""

import asyncio
import importlib.util
import json
import operator
import statistics
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import aiohttp
import openai

from lab.benchmarks.measured import Ratio
from lab.benchmarks.pool import questions, stubbed
from lab.benchmarks.stub import MODEL
from ttsgraph.evaluation.environment import Environment
from ttsgraph.graphs.topologies import grid
from ttsgraph.tasks.base import Question

WIDTH = 3
DEPTH = 4
QUESTIONS = 64
DELAY_S = 0.05
AT_ONCE = 128
TURNS = 9
LEAST_RATE = 2200.0
MOST_CORE = 4.0
MOST_WALL_BY_HAND = 1.0

Ask = Callable[[str], Awaitable[str]]
Peer = Callable[[list[Question]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class PeerTimes:
    """Seconds that a peer took by the clock, and seconds of this process's core time."""

    wall: float
    core: float


async def vote_of_chains(ask: Ask, question: Question) -> str:
    """Run WIDTH chains of DEPTH calls in parallel, and return their most frequent answer."""

    async def chain(number: int) -> str:
        answer = ""
        for _ in range(DEPTH):
            answer = await ask(f"{question.text} ({number}) {answer}")
        return answer

    answers = await asyncio.gather(*(chain(number) for number in range(WIDTH)))
    return Counter(answers).most_common(1)[0][0]


def body_of(text: str) -> dict[str, Any]:
    return {
        "model": MODEL,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": 512,
        "temperature": 0.9,
    }


def by_hand(ask: Ask) -> Peer:
    """Return a peer that runs all questions in parallel, with at most AT_ONCE parallel calls."""
    room = asyncio.Semaphore(AT_ONCE)

    async def bounded(text: str) -> str:
        async with room:
            return await ask(text)

    async def run(asked: list[Question]) -> None:
        await asyncio.gather(*(vote_of_chains(bounded, question) for question in asked))

    return run


def over_aiohttp(session: aiohttp.ClientSession, url: str) -> Peer:
    """Return the peer over bare aiohttp, without retries, limits, redaction or cache. Its core time
    is the bound.
    """

    async def ask(text: str) -> str:
        headers = {"content-type": "application/json"}
        async with session.post(
            f"{url}/chat/completions", data=json.dumps(body_of(text)).encode(), headers=headers
        ) as response:
            return str(json.loads(await response.read())["choices"][0]["message"]["content"])

    return by_hand(ask)


def over_openai(client: openai.AsyncOpenAI) -> Peer:
    """Return the peer over the openai package, used as its documentation shows."""

    async def ask(text: str) -> str:
        answer = await client.chat.completions.create(**body_of(text))
        return answer.choices[0].message.content or ""

    return by_hand(ask)


class State(TypedDict):
    """State of a LangGraph run, at module level because LangGraph looks up its types there."""

    question: str
    answers: Annotated[list[str], operator.add]


def over_langgraph(client: openai.AsyncOpenAI) -> Peer:
    """Return the peer with LangGraph: a StateGraph with a node for each call and one for the vote.
    The package langgraph has to be installed.
    """
    from langgraph.graph import END, START, StateGraph  # type: ignore[import-not-found]

    async def call(state: State) -> dict[str, Any]:
        found = await client.chat.completions.create(**body_of(state["question"]))
        return {"answers": [found.choices[0].message.content or ""]}

    builder = StateGraph(State)
    builder.add_node(
        "vote", lambda state: {"answers": [Counter(state["answers"]).most_common(1)[0][0]]}
    )
    for row in range(WIDTH):
        for column in range(DEPTH):
            builder.add_node(f"{row}.{column}", call)
            builder.add_edge(START if column == 0 else f"{row}.{column - 1}", f"{row}.{column}")
    builder.add_edge([f"{row}.{DEPTH - 1}" for row in range(WIDTH)], "vote")
    builder.add_edge("vote", END)
    graph = builder.compile()

    async def run(asked: list[Question]) -> None:
        await asyncio.gather(
            *(graph.ainvoke({"question": question.text, "answers": []}) for question in asked)
        )

    return run


def ours(environment: Environment) -> Peer:
    """Return ttsgraph as a peer, with its executor, cache, retries, limits and grading."""
    graph = grid(WIDTH, DEPTH, MODEL, "voter")

    async def run(asked: list[Question]) -> None:
        feedback = await environment.evaluate(graph, asked)
        assert feedback.n_unscored == 0, feedback.error
        assert feedback.usage.cached_calls == 0

    return run


async def spent_on(peer: Peer, asked: list[Question]) -> PeerTimes:
    wall = time.perf_counter()
    core = time.process_time()
    await peer(asked)
    return PeerTimes(time.perf_counter() - wall, time.process_time() - core)


def installed() -> bool:
    """Return whether LangGraph, which nothing else uses, is installed."""
    return importlib.util.find_spec("langgraph") is not None


async def compare() -> dict[str, list[PeerTimes]]:
    """Return the times of each peer, turn by turn."""
    async with (
        stubbed(DELAY_S, AT_ONCE) as (url, environment),
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session,
        openai.AsyncOpenAI(
            base_url=url, api_key="none", http_client=openai.DefaultAioHttpClient()
        ) as client,
    ):
        peers = {
            "aiohttp by hand": over_aiohttp(session, url),
            "ours": ours(environment),
            "openai by hand": over_openai(client),
        }
        if installed():
            peers["langgraph"] = over_langgraph(client)
        return await in_turns(peers)


async def in_turns(peers: Mapping[str, Peer]) -> dict[str, list[PeerTimes]]:
    """Return the time of each peer in each turn; no question is repeated, and an additional first
    turn is a warm-up.
    """
    found: dict[str, list[PeerTimes]] = {}
    for turn in range(TURNS + 1):
        for place, (name, peer) in enumerate(peers.items()):
            batch = questions(QUESTIONS, (turn * len(peers) + place) * QUESTIONS)
            spent = await spent_on(peer, batch)
            if turn:
                found.setdefault(name, []).append(spent)
    return found


def ratios_of(found: dict[str, list[PeerTimes]]) -> list[Ratio]:
    """Return our calls per second of core time, our core time relative to bare aiohttp, and our
    time by the clock relative to the openai package by hand, computed from medians over the turns.
    """
    core = {name: statistics.median(spent.core for spent in turns) for name, turns in found.items()}
    wall = {name: statistics.median(spent.wall for spent in turns) for name, turns in found.items()}
    calls = WIDTH * DEPTH * QUESTIONS
    details = {
        "calls": calls,
        "a call of the stub, s": DELAY_S,
        "core ms a call": {
            name: round(1000 * seconds / calls, 3) for name, seconds in core.items()
        },
        "wall, s": {name: round(seconds, 3) for name, seconds in wall.items()},
    }
    by_core = round(core["ours"] / core["aiohttp by hand"], 2)
    by_wall = round(wall["ours"] / wall["openai by hand"], 2)
    rate = round(calls / core["ours"])
    what = "calls through the client per second of one core"
    return [
        Ratio(what, rate, "at least", LEAST_RATE, details),
        Ratio(
            "core time of a call over that of bare aiohttp, which is the bound",
            by_core,
            "at most",
            MOST_CORE,
            details,
        ),
        Ratio(
            "wall time of a graph over that of the openai package by hand",
            by_wall,
            "at most",
            MOST_WALL_BY_HAND,
            details,
        ),
    ]


def measure() -> list[Ratio]:
    """Print which peer is left out, and return the three ratios."""
    if not installed():
        print("not compared with LangGraph: run `pip install 'ttsgraph[peers]'`")
    return ratios_of(asyncio.run(compare()))
