"""The commands `ttsgraph new-task` and `ttsgraph new-model`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from pipeline.errors import InputError
from pipeline.secrets import redact

ProfileName = Annotated[str | None, typer.Option("--profile", help="a profile of profiles/ (default: that of params.yaml)")]


def new_task(
    name: Annotated[str, typer.Argument(help="what the task is to be called")],
    questions: Annotated[Path, typer.Argument(help='a file with one JSON object a line, such as {"question": ..., "answer": ...}')],
    profile: ProfileName = None,
    kind: Annotated[
        str | None, typer.Option(help="how answers are graded: math, mmlu, humaneval or your own (default: by the fields)")
    ] = None,
    few_shot: Annotated[
        bool, typer.Option("--few-shot", help="worked examples instead of an instruction, for base models")
    ] = False,
    max_tokens: Annotated[int, typer.Option(help="of one answer", min=1)] = 512,
) -> None:
    """Add a task to a profile from a file of questions; the cheapest model is asked five of them first.

    Example: ttsgraph new-task invoices inputs/invoices.jsonl --profile mine
    """
    from pipeline.scaffold.task import new_task as add
    from pipeline.settings import load_params

    used = profile or load_params().profile
    made = asyncio.run(add(name, questions, used, kind, "few_shot" if few_shot else "chat", max_tokens))
    _echo(*made.lines(), f"profiles/{used}.yaml has the task {name} now, its questions are in {made.source}")
    _echo(f"next: ttsgraph estimate --profile {used} --task {name}, then add {name} to `tasks` in params.yaml and `make repro`")


def new_model(
    name: Annotated[str, typer.Argument(help="what the model is to be called")],
    url: Annotated[str, typer.Argument(help="its OpenAI-compatible endpoint, mostly ending in /v1")],
    profile: ProfileName = None,
    task: Annotated[str | None, typer.Option(help="a task of the profile to try it on (default: the first)")] = None,
    served_as: Annotated[str | None, typer.Option(help="its name at the endpoint, if it differs")] = None,
    family: Annotated[
        str | None, typer.Option(help="which models it is compared with by size (default: the name's first part)")
    ] = None,
    total: Annotated[float | None, typer.Option(help="parameters in all", min=1)] = None,
    non_embedding: Annotated[float | None, typer.Option(help="parameters without embeddings", min=1)] = None,
    layers: Annotated[int | None, typer.Option(help="layers", min=1)] = None,
    hidden: Annotated[int | None, typer.Option(help="hidden size", min=1)] = None,
    price_prompt: Annotated[float | None, typer.Option(help="dollars per million tokens of a prompt", min=0)] = None,
    price_completion: Annotated[float | None, typer.Option(help="dollars per million tokens of an answer", min=0)] = None,
    api_key_env: Annotated[str | None, typer.Option(help="the environment variable with the endpoint's key")] = None,
    api_key_header: Annotated[
        str | None, typer.Option(help="the header with the key, if not Authorization: Bearer (Azure: api-key)")
    ] = None,
    query: Annotated[list[str] | None, typer.Option(help="name=value, added to each URL (Azure: api-version=2024-10-21)")] = None,
    hub: Annotated[str | None, typer.Option(help="its repository on the Hugging Face hub, to read its sizes from")] = None,
    revision: Annotated[str | None, typer.Option(help="which version of the model is served")] = None,
) -> None:
    """Add a model to a profile's pool from its endpoint; it is asked five questions first.

    Its name and price come from the endpoint's list where that has them, sizes (for a FLOPs budget alone) from its configuration on
    the hub; what is still missing is asked for on a terminal.

    Example: ttsgraph new-model my-model https://models.example/v1 --profile mine --price-prompt 0.1 --price-completion 0.3
    """
    from pipeline.scaffold.model import FACTS, Wanted
    from pipeline.scaffold.model import new_model as add
    from pipeline.settings import load_params

    used = profile or load_params().profile
    values = (total, non_embedding, layers, hidden, price_prompt, price_completion)
    facts = {fact: float(value) for fact, value in zip(FACTS, values, strict=True) if value is not None}
    ask = (lambda fact, words: str(typer.prompt(f"{name}: {words}"))) if sys.stdin.isatty() else None
    pairs = [pair.partition("=") for pair in query or []]
    if any(not (key and equals) for key, equals, _ in pairs):
        raise InputError(f"--query: expected name=value, found {', '.join(query or [])}")
    added = {key: value for key, _, value in pairs}
    address = url.rstrip("/")
    wanted = Wanted(name, address, facts, served_as, family, api_key_env, hub, revision, ask, api_key_header, added)
    made = asyncio.run(add(wanted, used, task))
    _echo(*made.lines(), f"profiles/{used}.yaml has the model {name} now")
    _echo(f"next: ttsgraph doctor --profile {used}; `make repro` searches with it, or for a champion `python -m flows.research`")


def _echo(*lines: str) -> None:
    for line in lines:
        typer.echo(redact(line))
