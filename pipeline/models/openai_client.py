"""Models behind OpenAI-compatible endpoints, through the `openai` package."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass

import openai
from openai.types.chat import ChatCompletion, ChatCompletionMessageParam

from pipeline.errors import CallFailed, EndpointError
from pipeline.models.client import Completion, Request


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where one model is served, and under which name. `api_key_env` names the environment variable with the key."""

    base_url: str
    served_as: str
    api_key_env: str | None = None

    def api_key(self) -> str:
        """The key, or a placeholder for servers that want none. Raises EndpointError when the variable is not set."""
        if self.api_key_env is None:
            return "none"
        key = os.environ.get(self.api_key_env)
        if not key:
            raise EndpointError(f"{self.base_url}: expected a key in the environment variable {self.api_key_env}, which is not set")
        return key


class OpenAIClient:
    """Chat completions for a pool of models, with a limit on concurrent requests per base URL.

    Connections are reused; the `openai` package retries 408, 409, 429 and 5xx answers and broken connections with backoff and
    obeys retry-after. What still fails raises CallFailed.
    """

    def __init__(
        self, endpoints: Mapping[str, Endpoint], concurrency: int = 32, timeout_s: float = 120, max_retries: int = 3
    ) -> None:
        self._endpoints = dict(endpoints)
        self._clients: dict[str, openai.AsyncOpenAI] = {}
        self._limits: dict[str, asyncio.Semaphore] = {}
        for endpoint in self._endpoints.values():
            if endpoint.base_url not in self._clients:
                self._clients[endpoint.base_url] = openai.AsyncOpenAI(
                    base_url=endpoint.base_url, api_key=endpoint.api_key(), timeout=timeout_s, max_retries=max_retries
                )
                self._limits[endpoint.base_url] = asyncio.Semaphore(concurrency)

    async def check(self) -> None:
        """Ask every endpoint for its models. Raises EndpointError when one refuses or lacks a model of the pool."""
        for base_url, client in self._clients.items():
            try:
                served = {model.id async for model in client.models.list()}
            except openai.APIStatusError as error:
                raise EndpointError(f"{base_url}: expected a list of models from /models, found HTTP {error.status_code}") from None
            except openai.APIError as error:
                raise EndpointError(f"{base_url}: expected an OpenAI-compatible server, but {_reason(error)}") from None
            except (AttributeError, TypeError, ValueError):
                raise EndpointError(f"{base_url}: expected a list of models from /models, found something else") from None
            for name, endpoint in self._endpoints.items():
                if endpoint.base_url == base_url and endpoint.served_as not in served:
                    raise EndpointError(
                        f"{base_url}: expected model {endpoint.served_as!r} (pool name {name!r}), "
                        f"but the server has {', '.join(sorted(served)) or 'none'}"
                    )

    async def complete(self, request: Request) -> Completion:
        """Answer one request; `latency_s` is the time the server took, without waiting for a free slot here."""
        endpoint = self._endpoints[request.model]
        async with self._limits[endpoint.base_url]:
            started = time.perf_counter()
            try:
                answer = await self._ask(endpoint, request)
            except openai.APIError as error:
                raise CallFailed(f"{request.model} at {endpoint.base_url}: {_reason(error)}") from error
            except ValueError as error:
                raise CallFailed(f"{request.model} at {endpoint.base_url}: expected JSON, found something else") from error
            latency = time.perf_counter() - started
        return _completion(answer, latency, f"{request.model} at {endpoint.base_url}")

    async def _ask(self, endpoint: Endpoint, request: Request) -> ChatCompletion:
        messages: list[ChatCompletionMessageParam] = [
            {"role": message.role, "content": message.content}  # type: ignore[misc, list-item]
            for message in request.messages
        ]
        sampling = request.sampling
        # No seed: vLLM's CPU build dies on one, and the call cache already makes a run repeatable.
        return await self._clients[endpoint.base_url].chat.completions.create(
            model=endpoint.served_as,
            messages=messages,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            max_tokens=sampling.max_tokens,
            stop=list(sampling.stop) or openai.omit,
        )

    async def aclose(self) -> None:
        """Close all connections."""
        for client in self._clients.values():
            await client.close()


def _completion(answer: ChatCompletion, latency: float, where: str) -> Completion:
    """Read an answer; one without a choice or usage is a failed call, as neither a grade nor a price can be had from it."""
    if not getattr(answer, "choices", None) or answer.choices[0].message is None:
        raise CallFailed(f"{where}: expected an answer with choices, found none")
    if answer.usage is None:
        raise CallFailed(f"{where}: expected the answer's token usage, found none")
    text = answer.choices[0].message.content or ""
    return Completion(text, answer.usage.prompt_tokens, answer.usage.completion_tokens, latency)


def _reason(error: openai.APIError) -> str:
    """One line without request headers or bodies (a key could be in them)."""
    if isinstance(error, openai.APIStatusError):
        return f"HTTP {error.status_code}"
    cause = f" ({error.__cause__})" if error.__cause__ else ""
    return f"{error.message.rstrip('.')}{cause}"
