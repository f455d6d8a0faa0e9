"""The language model that guides a search, behind an OpenAI-compatible endpoint.

It is asked as the pool's models are, but fails otherwise: a refused key or an unknown model is the
user's to mend, and without an agent there is no search to go on with.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ttsgraph.base.errors import (
    CallFailed,
    ContextOverflow,
    EndpointError,
    PromptRefused,
    RunStopped,
    TTSGraphError,
)
from ttsgraph.endpoints.endpoint import Endpoint
from ttsgraph.endpoints.endpoints import FailurePolicy, Fault
from ttsgraph.endpoints.openai_client import OpenAIClient, Retries
from ttsgraph.models.client import AgentReply, Chat, Client, Completion, Message, Request, Sampling
from ttsgraph.pool.spec import Price
from ttsgraph.settings.profile import AgentSettings

REFUSED_FORM = (400, 422)
FIRST_WAIT_S = 0.5
FORMS = ("schema", "object", "text")
"""Ways to ask for an answer's form: a JSON schema, any JSON object, the prompt alone."""


class AgentClient(Client):
    """One model behind one endpoint. A schema is sent as the strictest `response_format` the
    endpoint takes: one refused (HTTP 400, 422) is tried weaker. An attempt takes `timeout_s` at
    most, and is repeated `max_retries` times. Raises CallFailed for what still fails, EndpointError
    for a refused key or an unknown model.
    """

    def __init__(self, endpoint: Endpoint, settings: AgentSettings) -> None:
        self._form = FORMS.index(settings.response_format)
        dialect = replace(endpoint.dialect, tokens_key=settings.tokens_key)
        self._client = OpenAIClient(
            {settings.model or "": replace(endpoint, dialect=dialect, seeds=False)},
            Retries(settings.max_retries, FIRST_WAIT_S, settings.timeout_s),
            FailurePolicy(waits=False),
        )

    async def complete(self, request: Request) -> Completion:
        """Answer one request. Raises CallFailed, or EndpointError for what the user has to mend."""
        while True:
            try:
                return await self._client.complete(self._sent(request))
            except ContextOverflow as overflow:
                raise EndpointError(
                    f"agent {overflow}; agent.context_tokens may be too much"
                ) from None
            except (EndpointError, CallFailed) as failure:
                fault = failure.__cause__
                refused = isinstance(fault, Fault) and fault.status in REFUSED_FORM
                if refused and request.schema and FORMS[self._form] != "text":
                    self._form += 1
                elif refused or isinstance(failure, EndpointError):
                    raise EndpointError(f"agent {failure}") from None
                else:
                    raise CallFailed(f"agent {failure}") from None

    def _sent(self, request: Request) -> Request:
        """The request with the form that its answer is to have, without what few agents take."""
        form: dict[str, Any] | None = None
        if request.schema is not None and FORMS[self._form] == "object":
            form = {"type": "json_object"}
        elif request.schema is not None and FORMS[self._form] == "schema":
            name, schema = request.schema
            described = {"name": name, "schema": json.loads(schema), "strict": True}
            form = {"type": "json_schema", "json_schema": described}
        extra = None if form is None else json.dumps({"response_format": form})
        sampling = replace(request.sampling, extra_body=extra, left_out=("top_p",))
        return replace(request, sampling=sampling)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()


def speaker(client: Client, settings: AgentSettings, revision: str, price: Price) -> Chat:
    """How an agent reaches its model, for worker threads of the running event loop. Its searcher
    thinks in plain steps in a thread (`asyncio.to_thread`), its request runs on the loop, which so
    stays free and can cancel it. Raises EndpointError for what the user has to mend, RunStopped for
    an endpoint that failed for good. A prompt that its provider refuses has an empty answer.
    """
    loop = asyncio.get_running_loop()
    loops_thread = threading.get_ident()
    sampling = Sampling(settings.temperature, 1.0, settings.max_tokens)

    def speak(messages: Sequence[Message], name: str, schema: str) -> AgentReply:
        if threading.get_ident() == loops_thread:
            raise TTSGraphError(
                "expected the agent in a worker thread (asyncio.to_thread), found it on the event"
                " loop"
            )
        model = settings.model or ""
        request = Request(model, revision, tuple(messages), sampling, schema=(name, schema))
        try:
            completion = asyncio.run_coroutine_threadsafe(client.complete(request), loop).result()
        except PromptRefused:
            completion = Completion("", 0, 0, 0.0)
        except CallFailed as failure:
            raise RunStopped(
                f"{failure}; what was computed is kept, start again to continue"
            ) from None
        return AgentReply(completion, price.of(completion))

    return speak
