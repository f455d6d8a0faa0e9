"""Transformers' OpenAI-compatible server, patched to respect each request's sampling settings.

    python -P transformers_server.py MAX_MODEL_LEN MODEL [FLAG ...]

This script runs in the serve environment and takes the flags of `transformers serve`. The unpatched
server (as of 5.19) takes the most likely token at any temperature, applies the settings of a
batch's first request to the whole batch, and rejects no prompt for its length. The patches apply
each request's own settings (`per_request_processors`) and reject prompts that don't fit.
"""

import copy
import sys
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

_GREEDY = 1e-6
"""Temperature in place of 0; also the top_p that keeps one of several equally likely tokens."""

_sampling: ContextVar[dict[str, float]] = ContextVar("sampling of the request under way")


def sampling_config(config: Any, body: dict[str, Any]) -> Any:
    """Return a request's configuration, which samples unless the temperature is 0.

    A setting that the request omits gets the model's value or, if the model has none, the default
    of OpenAI's API: temperature 1, sampling from all tokens.
    """
    config.do_sample = body.get("temperature") != 0
    if not config.do_sample:
        config.temperature = None
    elif config.temperature is None:
        config.temperature = 1.0
    config.top_p = config.top_p if config.top_p is not None else 1.0
    config.top_k = config.top_k or 0
    return config


def too_long(tokens: Any, config: Any, longest: int) -> str | None:
    """Return the reason why a prompt doesn't fit, or None if it does.

    `tokens` is a list or a tensor with one row.
    """
    prompt = len(tokens) if isinstance(tokens, list) else int(tokens.shape[-1])
    if prompt + config.max_new_tokens <= longest:
        return None
    return (
        f"maximum context length is {longest} tokens, but the prompt has {prompt} and"
        f" {config.max_new_tokens} are to be generated"
    )


def request_sampling(config: Any) -> dict[str, float]:
    """Return the sampling settings of one request in a batch."""
    if not config.do_sample:
        return {"temperature": _GREEDY, "top_p": _GREEDY}
    return {"temperature": config.temperature, "top_p": config.top_p}


def _refusing(generate: Callable[..., Any], longest: int) -> Callable[..., Any]:
    """Return a wrapper for a manager's `generate`, which rejects prompts that don't fit.

    The wrapper also stores the request's sampling settings for the batch.
    """
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
    """Patch the server, and run it until it is stopped."""
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
        shared = copy.deepcopy(config)  # sampling is on, and each request sets its own values
        shared.do_sample, shared.temperature, shared.top_p = True, 0.5, 0.5
        start(self, model, shared)

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
