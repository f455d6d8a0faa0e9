"""A model's endpoint as its requests see it: where they go, and what they carry."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import openai
from openai import RequestOptions

from ttsgraph.base.errors import EndpointError
from ttsgraph.base.secrets import key_problem
from ttsgraph.models.client import Message, Request, Sampling
from ttsgraph.models.dialect import ANY, Dialect

_NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where one model is served, and under which name. `api_key_env` names the environment variable
    with the key.

    Several base URLs are replicas that share the model's load. `seeds` says whether requests may
    carry a seed, `lists_models` whether /models can be asked what is served. `key_header` is the
    header with the key where that is not the usual one, `query` and `extra_body` (JSON) what is
    added to URLs and bodies. What a `local` server takes is not kept: its port is another's next.
    """

    base_urls: tuple[str, ...]
    served_as: str
    api_key_env: str | None = None
    seeds: bool = False
    lists_models: bool = True
    dialect: Dialect = ANY
    key_header: str | None = None
    query: tuple[tuple[str, str], ...] = ()
    extra_body: str | None = None
    local: bool = False

    def options(self) -> RequestOptions:
        """What each request of this model adds to the client of its URL: its key and its query.
        Raises as `api_key`.
        """
        key = self.api_key()
        headers: dict[str, str | openai.Omit] = {"Authorization": f"Bearer {key}"}
        if self.key_header is not None:
            headers = {"Authorization": openai.Omit(), self.key_header: key}
        return {"headers": headers, "params": dict(self.query)}

    def api_key(self) -> str:
        """The key, or a placeholder for servers that want none. Raises EndpointError when the
        variable is not set.
        """
        if self.api_key_env is None:
            return "none"
        key = os.environ.get(self.api_key_env, "").strip()
        if not key:
            raise EndpointError(
                f"{self.base_urls[0]}: expected a key in the environment variable"
                f" {self.api_key_env}, which is not set"
            )
        if problem := key_problem(key):
            raise EndpointError(
                f"{self.base_urls[0]}: the key in the environment variable {self.api_key_env}:"
                f" {problem}"
            )
        return key


def probe(model: str) -> Request:
    """A short question to a model, with nothing that a server might refuse."""
    return Request(
        model,
        "probe",
        (Message("user", "Say OK."),),
        Sampling(None, max_tokens=16, left_out=("top_p", "seed")),
    )


def body_of(
    endpoint: Endpoint, request: Request, dialect: Dialect, more: Mapping[str, Any] = _NOTHING
) -> dict[str, Any]:
    """The body of a request to this endpoint, as far as it is known what it takes; `more` are
    further parameters.
    """
    sampling = request.sampling
    parameters = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "stop": list(sampling.stop) or None,
        "reasoning_effort": sampling.reasoning_effort,
        # From the content key, so that a lost cache comes back the same where the server can repeat
        # itself.
        "seed": int(request.key()[:8], 16) if endpoint.seeds else None,
        **more,
    }
    sent = {
        name: value
        for name, value in parameters.items()
        if value is not None and name not in sampling.left_out
    }
    body = {
        "model": endpoint.served_as,
        **dialect.body(request.messages, sampling.max_tokens, sent),
    }
    # The form is somebody's wish: what the endpoint does not take of it is refused, not left out.
    for extra in (endpoint.extra_body, sampling.extra_body, request.form):
        body |= json.loads(extra) if extra else {}
    return body
