"""What a laptop search gets out of two real vLLM servers on the CPU: their throughput against a
saturating load, prefix-cache hits.

Each repetition searches with an empty call cache and other questions, then sends the calls that the
search made to the same servers again, all at once. Prefix caches are emptied before either. Needs
`make setup` and minutes, so it runs only when it is named:

    python -m lab.benchmarks vllm
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lab.benchmarks.measured import Ratio
from ttsgraph.endpoints.endpoints import FailurePolicy
from ttsgraph.endpoints.openai_client import Retries
from ttsgraph.evaluation.archive import Archive
from ttsgraph.evaluation.environment import Environment
from ttsgraph.models.cache import CachedClient, CallCache
from ttsgraph.models.client import Client, Completion, Request
from ttsgraph.runtime.clients import connect
from ttsgraph.searching.agent.base import Brief
from ttsgraph.searching.methods import Problem, make_searcher
from ttsgraph.serving.running import hosted
from ttsgraph.serving.servers import server_specs
from ttsgraph.serving.supervisor import LOCAL, Urls, shared_servers
from ttsgraph.settings.profile import Profile, load_profile
from ttsgraph.stages.steps import loop
from ttsgraph.tasks import get_task
from ttsgraph.tasks.base import Question
from ttsgraph.tasks.sources import load_questions, split_questions

ROOT = Path(__file__).parents[2]
TASKS = ("math", "mmlu")
REPETITIONS = 3
SATURATING = 256
LEAST_RATE = 0.85
LEAST_HITS = 0.6
# What the init stages came to in a run of the profile, for MMLU; with it both servers are used all
# the time.
START = {"smollm2-135m": 3, "gemma3-270m": 2}
ALONE = {"smollm2-135m": 0.4, "gemma3-270m": 0.35}


class Noting(Client):
    """A client that notes the calls it makes."""

    def __init__(self, inner: Client) -> None:
        self.inner = inner
        self.made: list[tuple[Request, Completion]] = []

    async def complete(self, request: Request) -> Completion:
        completion = await self.inner.complete(request)
        self.made.append((request, completion))
        return completion

    async def aclose(self) -> None:
        await self.inner.aclose()


@dataclass(frozen=True, slots=True)
class Load:
    """Calls made in some time."""

    calls: int
    tokens: int
    seconds: float

    @property
    def rate(self) -> float:
        """Generated tokens a second."""
        return self.tokens / self.seconds

    @classmethod
    def of(cls, completions: Sequence[Completion], seconds: float) -> Load:
        return cls(
            len(completions),
            sum(completion.completion_tokens for completion in completions),
            seconds,
        )


@contextmanager
def servers(profile: Profile) -> Iterator[Urls]:
    """The profile's servers, as a search starts them; their prefix caches can be emptied."""
    models = {name: hosted(name, model) for name, model in profile.pool.items()}
    with tempfile.TemporaryDirectory() as folder:
        logs = Path(folder)
        specs = server_specs(
            "vllm", models, log_dir=logs, max_model_len=profile.engine.max_model_len
        )
        specs = tuple(
            replace(spec, env={**spec.env, "VLLM_SERVER_DEV_MODE": "1"}) for spec in specs
        )
        startup_s = 2 * profile.engine.startup_s
        with shared_servers(logs / "servers.json", models, lambda: specs, startup_s) as urls:
            yield urls


def empty_prefix_caches(urls: Urls) -> None:
    for url in (url for replicas in urls.values() for url in replicas):
        LOCAL.open(
            urllib.request.Request(f"{url.removesuffix('/v1')}/reset_prefix_cache", method="POST"),
            timeout=60,
        ).close()


def prefix_tokens(urls: Urls) -> tuple[float, float]:
    """Prompt tokens that were looked up in the prefix caches until now, and those found there."""
    found = {"queries": 0.0, "hits": 0.0}
    for url in (url for replicas in urls.values() for url in replicas):
        with LOCAL.open(f"{url.removesuffix('/v1')}/metrics", timeout=60) as response:
            for line in response.read().decode().splitlines():
                for name in found:
                    if line.startswith(f"vllm:prefix_cache_{name}_total"):
                        found[name] += float(line.rsplit(" ", 1)[1])
    return found["queries"], found["hits"]


def drawn(profile: Profile, task: str, seed: int) -> dict[str, list[Question]]:
    settings = profile.task(task)
    return split_questions(
        load_questions(get_task(settings.kind), settings.source, seed),
        settings.splits.sizes(),
        seed,
    )


async def search(
    profile: Profile, task: str, urls: Urls, seed: int
) -> tuple[list[tuple[Request, Completion]], Load]:
    """One search by the default method: the calls it made, and their load."""
    questions = drawn(profile, task, seed)
    settings = profile.task(task)
    cost = profile.cost_model(task)
    brief = Brief(task, profile.budget_on(task), ALONE, profile.roles)
    searcher = make_searcher(
        "agent_reinforce", Problem(brief, profile.search, profile.agent, START, seed)
    )
    kind = get_task(settings.kind)
    prompt = settings.prompt.prompt(kind, questions["shots"])
    policy = FailurePolicy(profile.engine.concurrency)
    with tempfile.TemporaryDirectory() as folder:
        async with connect(profile, urls, Retries(timeout_s=600), policy) as client:
            noting = Noting(client)
            cache = CallCache(Path(folder))
            environment = Environment(
                kind, prompt, settings.sampling.sampling(), cost.pool, CachedClient(noting, cache)
            )
            started = time.perf_counter()
            await loop(searcher, profile.search, environment, questions, Archive())
            seconds = time.perf_counter() - started
            cache.close()
    return noting.made, Load.of([completion for _, completion in noting.made], seconds)


async def saturate(profile: Profile, urls: Urls, requests: Sequence[Request]) -> Load:
    """All requests at once."""
    async with connect(profile, urls, Retries(timeout_s=600), FailurePolicy(SATURATING)) as client:
        started = time.perf_counter()
        completions = await asyncio.gather(*(client.complete(request) for request in requests))
        return Load.of(completions, time.perf_counter() - started)


def repetition(profile: Profile, task: str, urls: Urls, seed: int) -> dict[str, Any]:
    """One search, and the saturating load of what it asked."""
    empty_prefix_caches(urls)
    queried, hit = prefix_tokens(urls)
    made, searched = asyncio.run(search(profile, task, urls, seed))
    queries, hits = prefix_tokens(urls)
    empty_prefix_caches(urls)
    saturated = asyncio.run(saturate(profile, urls, [request for request, _ in made]))
    return {
        "calls": {model: sum(request.model == model for request, _ in made) for model in urls},
        "search, s": round(searched.seconds, 1),
        "search, tokens/s": round(searched.rate, 1),
        "saturating load, s": round(saturated.seconds, 1),
        "saturating load, tokens/s": round(saturated.rate, 1),
        "share": round(searched.rate / saturated.rate, 3),
        "prompt tokens found in the prefix cache": round((hits - hit) / (queries - queried), 3),
    }


def measure() -> list[Ratio]:
    """Two ratios a task, medians over the repetitions."""
    profile = load_profile("laptop", ROOT / "profiles")
    found = []
    with servers(profile) as urls:
        for task in TASKS:
            rows = [repetition(profile, task, urls, seed) for seed in range(REPETITIONS)]
            details = {"start": START, "runs": rows}
            share, hits = (
                statistics.median(row[key] for row in rows)
                for key in ("share", "prompt tokens found in the prefix cache")
            )
            found.append(
                Ratio(
                    f"{task}: tokens/s of a search over the servers' most",
                    share,
                    "at least",
                    LEAST_RATE,
                    details,
                )
            )
            found.append(
                Ratio(
                    f"{task}: prompt tokens found in the prefix cache",
                    hits,
                    "at least",
                    LEAST_HITS,
                    details,
                )
            )
    return found
