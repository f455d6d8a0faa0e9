"""Client of the language model that guides a search, behind an OpenAI-compatible endpoint.

The client sends requests like the clients of the pool, but its failures end the search: only the
user can fix a refused key or an unknown model, and a search can't continue without its agent.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import replace

from ttsgraph.base.ending import GO_ON
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


def agent_client(endpoint: Endpoint, settings: AgentSettings) -> OpenAIClient:
    """Return the client of an agent's model. Each attempt takes at most `timeout_s`, and a failed
    call is retried up to `max_retries` times.
    """
    dialect = replace(
        endpoint.dialect,
        tokens_key=settings.tokens_key,
        left_out=endpoint.dialect.left_out | {"top_p"},  # few agent models accept it
        form=settings.response_format,
    )
    return OpenAIClient(
        {settings.model or "": replace(endpoint, dialect=dialect, seeds=False)},
        Retries(settings.max_retries, timeout_s=settings.timeout_s),
        FailurePolicy(waits=False),
    )


def speaker(client: Client, settings: AgentSettings, revision: str, price: Price) -> Chat:
    """Return the function with which an agent calls its model from a worker thread.

    The searcher runs as plain code in a thread (`asyncio.to_thread`), while its requests run on the
    running event loop, which stays free and can cancel them. A refused prompt gives an empty
    answer. The function raises EndpointError if only the user can fix the failure, and RunStopped
    if the endpoint failed permanently.
    """
    loop = asyncio.get_running_loop()
    loops_thread = threading.get_ident()
    sampling = Sampling(settings.temperature, 1.0, settings.max_tokens)

    def speak(messages: Sequence[Message], name: str, schema: str) -> AgentReply:
        if threading.get_ident() == loops_thread:
            raise TTSGraphError(
                "expected a call from a worker thread (asyncio.to_thread), found one from the event"
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
    """Return the error with which a failed agent call ends the search."""
    if isinstance(failure, ContextOverflow):
        return EndpointError(f"agent {failure}; lower agent.context_tokens")
    fault = failure.__cause__
    refused = isinstance(fault, Fault) and fault.status in REFUSED_FORM
    if refused or isinstance(failure, EndpointError):
        return EndpointError(f"agent {failure}")
    return RunStopped(f"agent {failure}; {GO_ON}")
