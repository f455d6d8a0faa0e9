"""The language model that guides a search, behind an OpenAI-compatible endpoint.

Apart from the pool's client, because it is asked otherwise (one request at a time, an answer in a
given form) and fails otherwise: a refused key or an unknown model is the user's to mend, and
without an agent there is no search to go on with.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import httpx2
import openai
import tenacity

from ttsgraph.agent.base import AgentReply, Chat
from ttsgraph.base.errors import CallFailed, EndpointError, RunStopped, TTSGraphError
from ttsgraph.base.secrets import redact
from ttsgraph.endpoints.answers import read_answer
from ttsgraph.endpoints.endpoints import Fault
from ttsgraph.endpoints.openai_client import Endpoint
from ttsgraph.endpoints.transport import backoff, connect, fault_of
from ttsgraph.models.client import Client, Completion, Message, Request, Sampling, whole_text
from ttsgraph.pool.spec import Price
from ttsgraph.settings.profile import AgentSettings

REFUSED_KEY = (401, 403)
UNKNOWN_MODEL = (404,)
REFUSED_REQUEST = (400, 413, 422)
FIRST_WAIT_S = 0.5
FORMS = ("schema", "object", "text")
"""Ways to ask for an answer's form, from strict to none: a JSON schema, any JSON object, the prompt
alone.
"""


class AgentClient(Client):
    """One model behind one endpoint.

    Requests that carry a schema are sent with the strictest `response_format` the endpoint takes: a
    refused one (HTTP 400 or 422) is tried weaker, and what was taken is kept to. What may go better
    is attempted again, `max_retries` times, each attempt no longer than `timeout_s`; what still
    fails raises CallFailed, a refused key and an unknown model EndpointError.
    """

    def __init__(self, endpoint: Endpoint, settings: AgentSettings) -> None:
        self._endpoint = endpoint
        self._settings = settings
        self._url = endpoint.base_urls[0]
        self._form = FORMS.index(settings.response_format)
        self._client = connect(self._url, endpoint.api_key(), settings.timeout_s)

    async def complete(self, request: Request) -> Completion:
        """Answer one request; the key is taken out of an answer that repeats it. Raises
        CallFailed, and EndpointError for what the user has to mend.
        """
        where = f"agent {request.model} at {self._url}"
        try:
            async for attempt in tenacity.AsyncRetrying(
                retry=tenacity.retry_if_exception(
                    lambda error: isinstance(error, Fault) and error.retry
                ),
                stop=tenacity.stop_after_attempt(self._settings.max_retries + 1),
                wait=backoff(FIRST_WAIT_S),
                reraise=True,
            ):
                with attempt:
                    found = await self._attempt(request, where)
        except Fault as fault:
            raise CallFailed(f"{where}: {fault.kind}") from None
        return replace(found, text=redact(found.text))

    async def _attempt(self, request: Request, where: str) -> Completion:
        started = time.perf_counter()
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                body = await self._ask(request)
            return read_answer(body, time.perf_counter() - started, request.sampling)
        except Exception as error:  # whatever an answer makes of those who read it
            if isinstance(error, openai.APIStatusError) and error.status_code in (
                *REFUSED_KEY,
                *UNKNOWN_MODEL,
                *REFUSED_REQUEST,
            ):
                raise self._explained(error.status_code, where) from None
            raise fault_of(error, where) from None

    async def _ask(self, request: Request) -> bytes:
        while True:
            try:
                return await self._send(request)
            except (openai.BadRequestError, openai.UnprocessableEntityError):
                if request.schema is None or self._form == len(FORMS) - 1:
                    raise
                self._form += 1

    async def _send(self, request: Request) -> bytes:
        body: dict[str, Any] = {
            "model": self._endpoint.served_as,
            "messages": [
                {"role": message.role, "content": whole_text(message.content)}
                for message in request.messages
            ],
            # Reasoning models of OpenAI itself know only the newer name, most other endpoints only
            # the older one.
            self._settings.tokens_key: request.sampling.max_tokens,
        }
        if request.sampling.temperature is not None:
            body["temperature"] = request.sampling.temperature
        if (form := self._response_format(request)) is not None:
            body["response_format"] = form
        response = await self._client.post("/chat/completions", cast_to=httpx2.Response, body=body)
        return response.content

    def _response_format(self, request: Request) -> dict[str, Any] | None:
        if request.schema is None or FORMS[self._form] == "text":
            return None
        if FORMS[self._form] == "object":
            return {"type": "json_object"}
        name, schema = request.schema
        return {
            "type": "json_schema",
            "json_schema": {"name": name, "schema": json.loads(schema), "strict": True},
        }

    def _explained(self, status: int, where: str) -> EndpointError:
        if status in REFUSED_KEY:
            named = self._endpoint.api_key_env
            key = (
                f"the key in {named}"
                if named
                else "a request without a key (agent.api_key_env names its variable)"
            )
            return EndpointError(f"{where}: the endpoint refuses {key} (HTTP {status})")
        if status in UNKNOWN_MODEL:
            return EndpointError(
                f"{where}: the endpoint has no such model or no /chat/completions (HTTP {status})"
            )
        return EndpointError(
            f"{where}: the endpoint refuses the request (HTTP {status}); the agent's model,"
            " context_tokens, max_tokens, tokens_key or temperature may not suit it"
        )

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()


def speaker(client: Client, settings: AgentSettings, revision: str, price: Price) -> Chat:
    """How an agent reaches its model, for use in worker threads of the running event loop.

    An agent thinks in plain, synchronous steps; its searcher runs in a thread (`asyncio.to_thread`)
    while its request runs here, on the loop, which so stays free and can cancel it. The function
    raises EndpointError for what the user has to mend, RunStopped for an endpoint that failed for
    good.
    """
    loop = asyncio.get_running_loop()
    sampling = Sampling(settings.temperature, 1.0, settings.max_tokens)

    def speak(messages: Sequence[Message], name: str, schema: str) -> AgentReply:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise TTSGraphError(
                "expected the agent in a worker thread (asyncio.to_thread), found it on the event"
                " loop"
            )
        request = Request(
            settings.model or "", revision, tuple(messages), sampling, schema=(name, schema)
        )
        try:
            completion = asyncio.run_coroutine_threadsafe(client.complete(request), loop).result()
        except CallFailed as failure:
            raise RunStopped(
                f"{failure}; what was computed is kept, start again to continue"
            ) from None
        return AgentReply(completion, price.of(completion))

    return speak
