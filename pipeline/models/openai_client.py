"""Models behind OpenAI-compatible endpoints, through the `openai` package."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import openai
from openai.types.chat import ChatCompletion, ChatCompletionMessageParam

from pipeline.errors import CallFailed, EndpointError
from pipeline.models.client import Completion, Request


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where one model is served, and under which name. `api_key_env` names the environment variable with the key.

    Several base URLs are replicas that share the model's load. `seeds` says whether requests may carry a seed, `lists_models`
    whether /models can be asked what is served.
    """

    base_urls: tuple[str, ...]
    served_as: str
    api_key_env: str | None = None
    seeds: bool = False
    lists_models: bool = True

    def api_key(self) -> str:
        """The key, or a placeholder for servers that want none. Raises EndpointError when the variable is not set."""
        if self.api_key_env is None:
            return "none"
        key = os.environ.get(self.api_key_env)
        if not key:
            raise EndpointError(
                f"{self.base_urls[0]}: expected a key in the environment variable {self.api_key_env}, which is not set"
            )
        return key


class OpenAIClient:
    """Chat completions for a pool of models, with a limit on concurrent requests per base URL.

    A call goes to the model's least busy replica. Connections are reused; the `openai` package retries 408, 409, 429 and 5xx
    answers and broken connections with backoff and obeys retry-after. What still fails raises CallFailed.
    """

    def __init__(
        self, endpoints: Mapping[str, Endpoint], concurrency: int = 32, timeout_s: float = 120, max_retries: int = 3
    ) -> None:
        self._endpoints = dict(endpoints)
        self._clients: dict[str, openai.AsyncOpenAI] = {}
        self._limits: dict[str, asyncio.Semaphore] = {}
        self._under_way: Counter[str] = Counter()
        for endpoint in self._endpoints.values():
            for url in endpoint.base_urls:
                if url not in self._clients:
                    self._clients[url] = openai.AsyncOpenAI(
                        base_url=url, api_key=endpoint.api_key(), timeout=timeout_s, max_retries=max_retries
                    )
                    self._limits[url] = asyncio.Semaphore(concurrency)

    async def check(self) -> None:
        """Ask every endpoint for its models. Raises EndpointError when one refuses or lacks a model of the pool."""
        for base_url, client in self._clients.items():
            here = {name: endpoint for name, endpoint in self._endpoints.items() if base_url in endpoint.base_urls}
            if not any(endpoint.lists_models for endpoint in here.values()):
                continue
            try:
                served = {model.id async for model in client.models.list()}
            except openai.APIStatusError as error:
                raise EndpointError(f"{base_url}: expected a list of models from /models, found HTTP {error.status_code}") from None
            except openai.APIError as error:
                raise EndpointError(f"{base_url}: expected an OpenAI-compatible server, but {reason_of(error)}") from None
            except (AttributeError, TypeError, ValueError):
                raise EndpointError(f"{base_url}: expected a list of models from /models, found something else") from None
            for name, endpoint in here.items():
                if endpoint.lists_models and endpoint.served_as not in served:
                    raise EndpointError(
                        f"{base_url}: expected model {endpoint.served_as!r} (pool name {name!r}), "
                        f"but the server has {', '.join(sorted(served)) or 'none'}"
                    )

    async def complete(self, request: Request) -> Completion:
        """Answer one request; `latency_s` is the time the server took, without waiting for a free slot here."""
        endpoint = self._endpoints[request.model]
        url = min(endpoint.base_urls, key=self._under_way.__getitem__)
        where = f"{request.model} at {url}"
        self._under_way[url] += 1
        try:
            async with self._limits[url]:
                started = time.perf_counter()
                answer = await self._ask(self._clients[url], endpoint, request)
                latency = time.perf_counter() - started
        except openai.APIError as error:
            raise CallFailed(f"{where}: {reason_of(error)}") from error
        except ValueError as error:
            raise CallFailed(f"{where}: expected JSON, found something else") from error
        finally:
            self._under_way[url] -= 1
        return completion_of(answer, latency, request.sampling.stop, where)

    async def _ask(self, client: openai.AsyncOpenAI, endpoint: Endpoint, request: Request) -> ChatCompletion:
        messages: list[ChatCompletionMessageParam] = [
            {"role": message.role, "content": message.content}  # type: ignore[misc, list-item]
            for message in request.messages
        ]
        sampling = request.sampling
        return await client.chat.completions.create(
            model=endpoint.served_as,
            messages=messages,
            temperature=openai.omit if sampling.temperature is None else sampling.temperature,
            top_p=sampling.top_p,
            max_tokens=sampling.max_tokens,
            stop=list(sampling.stop) or openai.omit,
            # From the content key, so that a lost cache comes back the same where the server can repeat itself.
            seed=int(request.key()[:8], 16) if endpoint.seeds else openai.omit,
        )

    async def aclose(self) -> None:
        """Close all connections."""
        for client in self._clients.values():
            await client.close()


def completion_of(answer: ChatCompletion, latency: float, stop: tuple[str, ...], where: str) -> Completion:
    """Read an answer, cut at the first stop sequence, as some servers ignore those.

    One without a choice or usage is a failed call, as neither a grade nor a price can be had from it.
    """
    if not getattr(answer, "choices", None) or answer.choices[0].message is None:
        raise CallFailed(f"{where}: expected an answer with choices, found none")
    if answer.usage is None:
        raise CallFailed(f"{where}: expected the answer's token usage, found none")
    text = answer.choices[0].message.content or ""
    text = text[: min((at for at in map(text.find, stop) if at >= 0), default=len(text))]
    return Completion(text, answer.usage.prompt_tokens, answer.usage.completion_tokens, latency)


def reason_of(error: openai.APIError) -> str:
    """One line without request headers or bodies (a key could be in them)."""
    if isinstance(error, openai.APIStatusError):
        return f"HTTP {error.status_code}"
    cause = f" ({error.__cause__})" if error.__cause__ else ""
    return f"{error.message.rstrip('.')}{cause}"
