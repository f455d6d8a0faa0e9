"""What every engine promises, reached as a stage reaches it, through the profile."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.pool.test_simulated import questions_of
from tests.support.habits import refusing
from tests.support.project import MODEL
from tests.support.real import SMOLLM, SUMS, laptop, link_serve_environment, require_models
from tests.support.stub_server import StubServer, serve
from ttsgraph.base.errors import ContextOverflow
from ttsgraph.base.parsing import parse
from ttsgraph.evaluation.environment import Environment
from ttsgraph.graphs.topologies import parallel, single
from ttsgraph.models.client import Client, Message, Request, Sampling
from ttsgraph.runtime.clients import open_client
from ttsgraph.runtime.workers import environment_for
from ttsgraph.settings.profile import Profile
from ttsgraph.tasks import get_task
from ttsgraph.tasks.base import Question

T = TypeVar("T")
CONTEXT_WORDS = 1500


@dataclass(frozen=True)
class Engine:
    """A profile, the folder that it runs in, a model of it, and questions that it can answer."""

    profile: Profile
    folder: Path
    model: str
    questions: list[Question]

    def run(self, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        async def opened() -> T:
            async with open_client(self.profile, self.folder / ".ttsgraph") as client:
                return await work(client)

        with chdir(self.folder):
            return asyncio.run(opened())

    def request(self, text: str, replica: int = 0, **sampling: Any) -> Request:
        wanted = Sampling(**{"temperature": 0.9, "max_tokens": 8} | sampling)
        return Request(self.model, "r1", (Message("user", text),), wanted, replica)

    def environment(self, client: Client) -> Environment:
        return environment_for(self.profile, "math", client, self.questions[:4])


def _external(folder: Path) -> Iterator[Engine]:
    """An engine of one model at a stub that takes no long prompts and few parameters."""
    overflow = '{"error": {"message": "This model\'s maximum context length is 2048 tokens"}}'
    refuse = refusing(("temperature", "top_p", "stop", "max_tokens"), system=True)
    stub = StubServer(("tiny",))
    stub.misbehave = lambda count, body: (
        (400, {}, overflow) if len(str(body).split()) > CONTEXT_WORDS else refuse(count, body)
    )
    with serve(stub) as url:
        data = laptop().model_dump(mode="json", exclude_none=True)
        data["engine"] = {"kind": "external", "seeds": True}
        data["pool"] = {"tiny": MODEL | {"base_url": url}}
        data["tasks"]["math"]["prompt"] = {"style": "few_shot"}
        yield Engine(parse(Profile, data, "profile"), folder, "tiny", SUMS)


REAL = [
    pytest.param("vllm", marks=[pytest.mark.models, pytest.mark.vllm]),
    pytest.param("transformers", marks=[pytest.mark.models, pytest.mark.slow]),
]


@pytest.fixture(params=["simulated", "external", *REAL])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    match request.param:
        case "simulated":
            profile = request.getfixturevalue("profile")
            yield Engine(profile, tmp_path, "llama-3.2-1b", questions_of(profile, "math", 40))
        case "external":
            yield from _external(tmp_path)
        case "vllm":
            yield Engine(laptop(), request.getfixturevalue("real_pool").folder, SMOLLM, SUMS)
        case "transformers":
            require_models()
            link_serve_environment(tmp_path)
            kind = {"kind": "transformers", "concurrency": 8}
            yield Engine(laptop((SMOLLM,), engine=kind), tmp_path, SMOLLM, SUMS)


def test_an_engine_keeps_its_promises(engine: Engine) -> None:
    """One run for all of it, as a server takes long to start."""

    async def work(client: Client) -> None:
        def plain(k: int) -> str:
            return get_task("math").render(engine.questions[k])

        answer = await client.complete(engine.request(plain(0), max_tokens=6))
        assert isinstance(answer.text, str)
        assert answer.prompt_tokens >= 1
        assert 0 <= answer.completion_tokens <= 6
        assert answer.latency_s > 0

        # The same call again is the same answer, whoever keeps it.
        assert await client.complete(engine.request(plain(0), max_tokens=6)) == answer

        # Draws of one prompt differ, and end where they are told to.
        for stop in ((), ("e", "1", "\n")):
            bounds = {"max_tokens": 12, "stop": stop}
            calls = [engine.request(plain(k // 4), k % 4, **bounds) for k in range(24)]
            texts = [draw.text for draw in await asyncio.gather(*map(client.complete, calls))]
            assert stop or any(len(set(texts[at : at + 4])) > 1 for at in range(0, 24, 4))
            assert not any(end in text for text in texts for end in stop)

        # A batch of questions has each its own result, in their order, and none is lost.
        graph = parallel([engine.model] * 3, engine.model, "voter")
        batch = engine.questions[4:20]
        feedback = await engine.environment(client).evaluate(graph, batch)
        assert [each.question_id for each in feedback.results] == [each.id for each in batch]
        assert (feedback.n_unscored, feedback.usage.calls) == (0, 3 * len(batch))
        assert feedback.latency_s > 0

    engine.run(work)


# Neither simulated models nor the endpoint elsewhere, a stub, go by the temperature.
@pytest.mark.parametrize("engine", REAL, indirect=True)
def test_each_request_is_sampled_as_it_asks_whatever_was_asked_before(engine: Engine) -> None:
    async def work(client: Client) -> None:
        async def draws(temperature: float, replicas: range, top_p: float = 1.0) -> set[str]:
            how = {"temperature": temperature, "top_p": top_p}
            calls = (engine.request("A poem:", replica, **how) for replica in replicas)
            return {(await client.complete(call)).text for call in calls}

        likeliest = await draws(0.0, range(3))
        assert len(likeliest) == 1
        assert len(await draws(1.5, range(3))) > 1
        assert await draws(0.0, range(3, 6)) == likeliest
        # Of a nucleus as small as this one, only the likeliest token is left.
        assert await draws(1.5, range(3, 6), top_p=1e-6) == likeliest

    engine.run(work)


# Simulated models have no context that could overflow.
@pytest.mark.parametrize("engine", ["external", *REAL], indirect=True)
def test_a_prompt_that_does_not_fit_is_told_from_a_failure(engine: Engine) -> None:
    async def work(client: Client) -> None:
        with pytest.raises(ContextOverflow):
            await client.complete(engine.request("word " * 3 * CONTEXT_WORDS))
        evaluate = engine.environment(client).evaluate
        feedback = await evaluate(single(engine.model), engine.questions[4:6])
        assert feedback.n_unscored == 0

    engine.run(work)
