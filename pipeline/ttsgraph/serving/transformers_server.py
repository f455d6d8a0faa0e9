"""Transformers' own OpenAI-compatible server, made to sample as each request asks. Runs in the
serve environment.

    python -P transformers_server.py MAX_MODEL_LEN MODEL [FLAG ...]

The flags are those of `transformers serve`. Left alone (as of 5.19) it takes the likeliest token
whatever temperature a request has, a batch shares its first request's settings, and no prompt is
refused for its length. Here each request's settings are handed on (`per_request_processors`), and
what does not fit is refused.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

_GREEDY = 1e-6
"""The temperature that stands for 0, and the nucleus that keeps one token of equals."""

_sampling: ContextVar[dict[str, float]] = ContextVar("sampling of the request under way")


def sampling_config(config: Any, body: dict[str, Any]) -> Any:
    """A request's configuration, sampling from all tokens, as OpenAI's API does, unless its
    temperature is 0; the model's own stands for what it leaves out.
    """
    config.do_sample = body.get("temperature") != 0
    if not config.do_sample:
        config.temperature = None
    elif config.temperature is None:
        config.temperature = 1.0
    config.top_p = config.top_p if config.top_p is not None else 1.0
    config.top_k = config.top_k or 0
    return config


def batch_config(config: Any) -> Any:
    """Settings of a batch: it samples, so that each request can have a temperature and nucleus."""
    shared = copy.deepcopy(config)
    shared.do_sample = True
    shared.temperature = 0.5
    shared.top_p = 0.5
    return shared


def too_long(tokens: Any, config: Any, longest: int) -> str | None:
    """The reason why a prompt (token ids, or a tensor of one row) doesn't fit; None if it does."""
    prompt = len(tokens) if isinstance(tokens, list) else int(tokens.shape[-1])
    if prompt + config.max_new_tokens <= longest:
        return None
    return (
        f"maximum context length is {longest} tokens, but the prompt has {prompt} and"
        f" {config.max_new_tokens} are to be generated"
    )


def request_sampling(config: Any) -> dict[str, float]:
    """Sampling of one request in a batch that shares `batch_config`."""
    if not config.do_sample:
        return {"temperature": _GREEDY, "top_p": _GREEDY}
    return {"temperature": config.temperature, "top_p": config.top_p}


def _refusing(generate: Callable[..., Any], longest: int) -> Callable[..., Any]:
    """A manager's `generate` for prompts that fit; tells the batch how the request samples."""
    from fastapi import HTTPException

    def checked(
        self: Any, model: Any, processor: Any, inputs: Any, config: Any, *rest: Any, **named: Any
    ) -> Any:
        if problem := too_long(inputs["input_ids"], config, longest):
            raise HTTPException(400, problem)
        _sampling.set(request_sampling(config))
        return generate(self, model, processor, inputs, config, *rest, **named)

    return checked


def main(arguments: Sequence[str]) -> None:
    """Serve until told to stop."""
    from transformers import ContinuousBatchingConfig
    from transformers.cli.serving import utils
    from transformers.cli.transformers import app
    from transformers.generation.continuous_batching.continuous_api import ContinuousBatchingManager

    longest = int(arguments[0])
    build = utils.BaseHandler._build_generation_config
    start = utils.CBGenerateManager.init_cb
    add = ContinuousBatchingManager.add_request

    def start_batch(self: Any, model: Any, config: Any) -> None:
        self._cb_config = self._cb_config or ContinuousBatchingConfig()
        self._cb_config.per_request_processors = True
        start(self, model, batch_config(config))

    utils.BaseHandler._build_generation_config = lambda self, body, *rest, **named: sampling_config(
        build(self, body, *rest, **named), body
    )
    utils.CBGenerateManager.init_cb = start_batch
    ContinuousBatchingManager.add_request = lambda self, *rest, **named: add(
        self, *rest, **named, **_sampling.get()
    )
    for manager in (utils.GenerateManager, utils.CBGenerateManager):
        manager.generate_streaming = _refusing(manager.generate_streaming, longest)
        manager.generate_non_streaming = _refusing(manager.generate_non_streaming, longest)
    app(["serve", *arguments[1:]])


if __name__ == "__main__":
    main(sys.argv[1:])
