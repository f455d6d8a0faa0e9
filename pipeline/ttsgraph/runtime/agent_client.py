"""The language model that guides a search, behind an OpenAI-compatible endpoint.

It is asked as the pool's models are, but fails otherwise: a refused key or an unknown model is the
user's to mend, and without an agent there is no search to go on with.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import replace

from ttsgraph.base.errors import (
    CallFailed,
    ContextOverflow,
    EndpointError,
    PromptRefused,
    RunStopped,
    TTSGraphError,
)
from ttsgraph.endpoints.endpoint import Endpoint
from ttsgraph.endpoints.endpoints import KEPT, FailurePolicy, Fault
from ttsgraph.endpoints.openai_client import OpenAIClient, Retries
from ttsgraph.models.client import AgentReply, Chat, Client, Completion, Message, Request, Sampling
from ttsgraph.pool.spec import Price
from ttsgraph.settings.profile import AgentSettings

REFUSED_FORM = (400, 422)
FIRST_WAIT_S = 0.5


def agent_client(endpoint: Endpoint, settings: AgentSettings) -> OpenAIClient:
    """Return the client of an agent's model behind its endpoint. An attempt takes `timeout_s` at
    most, and is repeated `max_retries` times.
    """
    dialect = replace(
        endpoint.dialect,
        tokens_key=settings.tokens_key,
        left_out=endpoint.dialect.left_out | {"top_p"},  # which few agents take
        form=settings.response_format,
    )
    return OpenAIClient(
        {settings.model or "": replace(endpoint, dialect=dialect, seeds=False)},
        Retries(settings.max_retries, FIRST_WAIT_S, settings.timeout_s),
        FailurePolicy(waits=False),
    )


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
        call = asyncio.run_coroutine_threadsafe(client.complete(request), loop)
        try:
            completion = call.result()
        except PromptRefused:
            completion = Completion("", 0, 0, 0.0)
        except (CallFailed, ContextOverflow, EndpointError) as failure:
            raise _agents(failure) from None
        return AgentReply(completion, price.of(completion))

    return speak


def _agents(failure: TTSGraphError) -> TTSGraphError:
    """Return a failure of the agent's call as what ends the search."""
    if isinstance(failure, ContextOverflow):
        return EndpointError(f"agent {failure}; agent.context_tokens may be too much")
    fault = failure.__cause__
    refused = isinstance(fault, Fault) and fault.status in REFUSED_FORM
    if refused or isinstance(failure, EndpointError):
        return EndpointError(f"agent {failure}")
    return RunStopped(f"agent {failure}; {KEPT}")
