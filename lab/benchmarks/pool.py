"""Setup of the benchmarks: one model behind a stub server, made-up sums, and the whole stack from
environment to socket.
"""

import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from lab import ROOT
from lab.benchmarks.stub import MODEL, stub_server
from ttsgraph.base.parsing import parse
from ttsgraph.endpoints.endpoints import FailurePolicy
from ttsgraph.endpoints.openai_client import Endpoint, OpenAIClient
from ttsgraph.evaluation.environment import Environment
from ttsgraph.models.cache import CachedClient, CallCache
from ttsgraph.models.client import Sampling, rare_collections
from ttsgraph.pool.spec import ModelPool, ModelSpec, Price
from ttsgraph.settings.profile import Profile, load_profile
from ttsgraph.tasks import get_task
from ttsgraph.tasks.base import Question
from ttsgraph.tasks.prompts import Prompt

POOL = ModelPool((ModelSpec(MODEL, "stub", 1e9, 1e9, 16, 2048, Price(0.1, 0.2)),))

FACTS = {
    "family": "stub",
    "total": 1e9,
    "non_embedding": 1e9,
    "layers": 16,
    "hidden": 2048,
    "price": 0.1,
    "served_as": MODEL,
}


def profile_on(pool: Mapping[str, str], concurrency: int) -> Profile:
    """Return the profile `laptop` with only its math task, on a pool of stubs: `pool` maps each
    model to its base URL.
    """
    data = load_profile("laptop", ROOT / "profiles").model_dump(mode="json", exclude_none=True)
    data["engine"] = {"kind": "external", "concurrency": concurrency}
    data["pool"] = {name: FACTS | {"base_url": url} for name, url in pool.items()}
    data["tasks"] = {"math": data["tasks"]["math"] | {"prompt": {"style": "chat"}}}
    return parse(Profile, data, "benchmark")


def questions(count: int, first: int = 0) -> list[Question]:
    """Return `count` sums numbered from `first`; no two of them share a call."""
    return [
        Question(f"q{k}", f"{k} + {k + 1}", str(2 * k + 1)) for k in range(first, first + count)
    ]


@asynccontextmanager
async def stubbed(delay_s: float, concurrency: int = 128) -> AsyncIterator[tuple[str, Environment]]:
    """Yield the base URL of a stub server with this latency, and a search's environment over it,
    with a new cache.
    """
    with rare_collections(), stub_server(delay_s) as url, tempfile.TemporaryDirectory() as folder:
        client = OpenAIClient({MODEL: Endpoint((url,), MODEL)}, policy=FailurePolicy(concurrency))
        cache = CallCache(Path(folder))
        try:
            yield (
                url,
                Environment(
                    get_task("math"),
                    Prompt("Answer."),
                    Sampling(),
                    POOL,
                    CachedClient(client, cache),
                ),
            )
        finally:
            await client.aclose()
            cache.close()
