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
    """A client over the servers' settings; none of them is started. `at_once` bounds how many
    calls a model works on.
    """

    def __init__(self, specs: Sequence[ServerSpec], at_once: int) -> None:
        self._specs = {spec.model: spec for spec in specs}
        self._at_once = at_once
        self._waiting: list[Waiting] = []
        self._batch: asyncio.Task[None] | None = None

    async def complete(self, request: Request) -> Completion:
        """The answer, once its batch is made. Raises ContextOverflow, and EndpointError when the
        engine fails.
        """
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
            models = sorted({request.model for request, _ in batch})
            await asyncio.gather(
                *(
                    self._answer(model, [call for call in batch if call[0].model == model])
                    for model in models
                )
            )

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
                answer.set_exception(
                    ContextOverflow(f"{model}: the prompt does not fit the model's context")
                )
            else:
                text, reasoning = without_thoughts(completion.text)
                answer.set_result(
                    replace(
                        completion,
                        text=cut_at_stop(text, request.sampling.stop),
                        reasoning=reasoning,
                    )
                )

    async def _run(self, spec: ServerSpec, requests: Sequence[Request]) -> list[Completion | None]:
        """One process answers all. Raises EndpointError with the end of its log when it fails."""
        with tempfile.TemporaryDirectory() as folder:
            asked = Path(folder) / "requests.jsonl"
            answered = Path(folder) / "completions.jsonl"
            asked.write_text(
                "".join(f"{_line(request)}\n" for request in requests), encoding="utf-8"
            )
            python = spec.command[0]  # python -m <the server's module> flags
            flags = spec.command[3:]
            worker = (
                python,
                "-P",
                str(Path(__file__).with_name("offline_worker.py")),
                str(asked),
                str(answered),
            )
            spec = replace(spec, command=(*worker, *flags, "--max-num-seqs", str(self._at_once)))
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


def _line(request: Request) -> str:
    return json.dumps(
        {
            "messages": [asdict(message) for message in request.messages],
            "sampling": request.sampling.to_dict(),
        }
    )
