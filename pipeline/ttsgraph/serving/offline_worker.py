"""Answer a file of requests with one model, through vLLM's offline engine. Runs in the serve
environment.

    python offline_worker.py REQUESTS COMPLETIONS FLAG [...]

The flags are those of vLLM's server; what only a server knows is ignored. A line of REQUESTS is
{"messages": [...], "sampling": {...}}, the same line of COMPLETIONS its answer: [text, prompt
tokens, generated tokens, seconds], or null for a prompt that does not fit the model's context.
Seconds run from when vLLM begins with a request: a server's do so too, for a client that holds
calls back while it is full.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def main(arguments: Sequence[str]) -> int:
    """Answer all; returns the exit status."""
    from vllm import LLM, EngineArgs, SamplingParams
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    lines = Path(arguments[0]).read_text(encoding="utf-8").splitlines()
    requests = [json.loads(line) for line in lines]
    parser = EngineArgs.add_cli_args(FlexibleArgumentParser())
    known, _ = parser.parse_known_args(list(arguments[2:]))
    llm = LLM.from_engine_args(EngineArgs.from_cli_args(known))
    tokenizer = llm.get_tokenizer()
    longest = llm.model_config.max_model_len
    # What the model's own configuration adds to sampling, a server adds too.
    defaults = llm.model_config.get_diff_sampling_param()
    prompts = []
    sampling = []
    places = []
    for place, request in enumerate(requests):
        said = request["sampling"].items()
        wanted: dict[str, Any] = {name: value for name, value in said if value is not None}
        effort = wanted.pop("reasoning_effort", None)
        thinking = {}
        if effort is not None:  # as a server hands it to the model's template
            thinking = {"reasoning_effort": effort, "enable_thinking": effort != "none"}
        tokens = tokenizer.apply_chat_template(
            request["messages"], add_generation_prompt=True, return_dict=False, **thinking
        )
        if len(tokens) + wanted["max_tokens"] <= longest:
            prompts.append({"prompt_token_ids": list(tokens)})
            sampling.append(SamplingParams(**{**defaults, **wanted}))
            places.append(place)
    answers: list[list[Any] | None] = [None] * len(requests)
    outputs = llm.generate(prompts, sampling, use_tqdm=False) if prompts else []
    for place, output in zip(places, outputs, strict=True):
        answer = output.outputs[0]
        times = output.metrics
        seconds = times.last_token_ts - times.scheduled_ts
        answers[place] = [answer.text, len(output.prompt_token_ids), len(answer.token_ids), seconds]
    Path(arguments[1]).write_text(
        "".join(json.dumps(answer) + "\n" for answer in answers), encoding="utf-8"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
