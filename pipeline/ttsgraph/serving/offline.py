"""Calls answered in batches by vLLM's offline engine, without a server: for a stage that asks each
model alone and all at once.

What is asked until nothing more is asked makes a batch: one process a model, under the same guard
as a server. A graph whose nodes wait for each other would make a batch, and load its models, for
each level.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from ttsgraph.base.errors import ContextOverflow, EndpointError
from ttsgraph.models.client import Client, Completion, Request, cut_at_stop
from ttsgraph.models.reasoning import without_thoughts
from ttsgraph.serving.guard import end
from ttsgraph.serving.launcher import failure, spawn
from ttsgraph.serving.servers import ServerSpec

QUIET_S = 0.05
"""Seconds without a new request after which a batch is whole."""

Waiting = tuple[Request, asyncio.Future[Completion]]


class OfflineClient(Client):
    """A client without servers; a model works on `at_once` calls together at most."""

    def __init__(self, specs: Sequence[ServerSpec], at_once: int) -> None:
        self._specs = {spec.model: spec for spec in specs}
        self._at_once = at_once
        self._waiting: list[Waiting] = []
        self._batch: asyncio.Task[None] | None = None

    async def complete(self, request: Request) -> Completion:
        """The answer, once its batch is. Raises ContextOverflow, EndpointError of the engine."""
        answer: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, answer))
        if self._batch is None or self._batch.done():
            self._batch = asyncio.create_task(self._answer_all())
        return await answer

    async def _answer_all(self) -> None:
        """Batches until nobody waits."""
        while self._waiting:
            count = 0
            while count != len(self._waiting):
                count = len(self._waiting)
                await asyncio.sleep(QUIET_S)
            batch = self._waiting
            self._waiting = []
            by_model: dict[str, list[Waiting]] = {}
            for call in batch:
                by_model.setdefault(call[0].model, []).append(call)
            await asyncio.gather(*(self._answer(*one) for one in by_model.items()))

    async def _answer(self, model: str, calls: Sequence[Waiting]) -> None:
        """The calls of one model; a failure is every caller's."""
        try:
            found = await self._run(self._specs[model], [request for request, _ in calls])
        except EndpointError as error:
            for _, answer in calls:
                answer.set_exception(error)
            return
        for (request, answer), completion in zip(calls, found, strict=True):
            if answer.done():
                continue
            if completion is None:
                why = f"{model}: the prompt does not fit the model's context"
                answer.set_exception(ContextOverflow(why))
            else:
                text, reasoning = without_thoughts(completion.text)
                text = cut_at_stop(text, request.sampling.stop)
                answer.set_result(replace(completion, text=text, reasoning=reasoning))

    async def _run(self, spec: ServerSpec, requests: Sequence[Request]) -> list[Completion | None]:
        """One process answers all. Raises EndpointError with the end of its log when it fails."""
        with tempfile.TemporaryDirectory() as folder:
            asked = Path(folder) / "requests.jsonl"
            answered = Path(folder) / "completions.jsonl"
            with asked.open("w", encoding="utf-8") as file:
                for request in requests:
                    messages = [asdict(message) for message in request.messages]
                    sampling = request.sampling.to_dict()
                    print(json.dumps({"messages": messages, "sampling": sampling}), file=file)
            worker = str(Path(__file__).with_name("offline_worker.py"))
            python, _, _, *flags = spec.command  # python -m <the server's module> flags
            command = (python, "-P", worker, str(asked), str(answered), *flags)
            spec = replace(spec, command=(*command, "--max-num-seqs", str(self._at_once)))
            guard = spawn(spec)
            try:
                while guard.poll() is None:
                    await asyncio.sleep(0.1)
            finally:
                end([guard])
            if guard.returncode != 0:
                raise EndpointError(
                    failure(spec, f"ended with status {guard.returncode} while it answered a batch")
                )
            lines = [json.loads(line) for line in answered.read_text(encoding="utf-8").splitlines()]
            return [None if line is None else Completion(*line) for line in lines]

    async def aclose(self) -> None:
        """Give up the batch under way."""
        if self._batch is not None:
            self._batch.cancel()
            await asyncio.gather(self._batch, return_exceptions=True)
