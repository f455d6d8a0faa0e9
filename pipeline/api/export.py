"""A found graph as one Python file of its own: the openai package is all that it needs, and a
person can read it.

It asks the same models the same prompts as the executor does, so that with the same replies it
gives the same answer. Roles whose prompts are not those of chat, and votes on answers that only a
kind's own code can read, can't be written so.
"""

from __future__ import annotations

import inspect
import pprint
from typing import Any

from ttsgraph.base.errors import InputError
from ttsgraph.deployment.bundle import Deployed
from ttsgraph.evaluation.executor import manner_of
from ttsgraph.models.client import Sampling
from ttsgraph.pool.settings import ModelSettings
from ttsgraph.tasks import plain
from ttsgraph.tasks.prompts import QUOTED, REQUESTS, mark_for

PURPOSES = {"assistant": "refine", "fuser": "fuse"}
READABLE_VOTES = ("exact",)
"""Kinds whose way to read an answer is written into the file where a graph votes."""


def to_python(deployed: Deployed) -> str:
    """The file. Raises InputError that names what can't be written."""
    graph = deployed.graph
    prompt = deployed.prompt
    roles = {node.role for node in graph.nodes}
    if odd := sorted(roles - {*PURPOSES, "voter"}):
        raise InputError(
            f"expected roles among assistant, fuser and voter to export, found {odd[0]}"
        )
    votes = "voter" in roles
    if votes and prompt.task.name not in READABLE_VOTES:
        raise InputError(
            f"expected a graph without votes, or of kind {', '.join(READABLE_VOTES)}, to export:"
            f" how answers of kind {prompt.task.name} are read is more than one readable file"
            " holds; serve it with `ttsgraph serve` instead"
        )
    nodes = {}
    for i in graph.order:
        node = graph.node(i)
        entry: dict[str, Any] = {"role": node.role, "reads": list(graph.predecessors[i])}
        if node.role != "voter":
            entry |= _asking(deployed, node.model)
        if node.top_k is not None:
            raise InputError(f"node {i}: expected no top_k to export, found {node.top_k}")
        if node.gate or node.stop.confident:  # waves alone change no answer
            raise InputError(
                f"node {i}: expected no gate and no stop that changes answers to export; use"
                " `ttsgraph serve`"
            )
        nodes[i] = entry
    parts = [
        _HEAD.format(
            task=deployed.task, sink=graph.sink, requests=pprint.pformat(REQUESTS, width=110)
        ),
        f"NODES = {pprint.pformat(nodes, width=110, sort_dicts=False)}",
        f"QUOTED = {QUOTED!r}\nINSTRUCTION = {prompt.instruction!r}\nSINK = {graph.sink}\n",
        inspect.getsource(mark_for),
        (
            _VOTE.format(
                stated=plain._STATED.pattern,
                edges=plain._EDGES,
                articles=sorted(plain._ARTICLES),
                code="\n\n".join(
                    inspect.getsource(each)
                    for each in (plain.words_of, plain.normalised, plain.stated)
                ),
            )
            if votes
            else ""
        ),
        _TAIL if votes else _TAIL.replace(_VOTING, ""),
    ]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def _asking(deployed: Deployed, member: str) -> dict[str, Any]:
    """How a node asks its model. Raises InputError for what is no chat prompt."""
    pool = deployed.profile.model_pool()
    settings = deployed.profile.task(deployed.task)
    manner = manner_of(pool[member], settings.sampling.sampling(), deployed.prompt)
    if manner.prompt.style != "chat" or manner.prompt.instruction != deployed.prompt.instruction:
        raise InputError(f"{member}: expected chat prompts with the task's instruction to export")
    model = deployed.profile.pool[manner.model]
    if not model.base_urls:
        raise InputError(
            f"{member}: expected a model with a base_url to export, found one that is served here"
        )
    return {
        "model": model.served_as or manner.model,
        "base_url": model.base_urls[0],
        "api_key_env": model.api_key_env,
        "sampling": _body(manner.sampling, model),
    }


def _body(sampling: Sampling, model: ModelSettings) -> dict[str, Any]:
    body: dict[str, Any] = {model.tokens_key: sampling.max_tokens, "top_p": sampling.top_p}
    if sampling.temperature is not None:
        body["temperature"] = sampling.temperature
    if sampling.stop:
        body["stop"] = list(sampling.stop)
    body |= model.extra_body
    return {
        key: value
        for key, value in body.items()
        if key not in (*model.left_out, *sampling.left_out)
    }


_HEAD = '''"""Answers questions of the task {task} with a graph; made by `ttsgraph export`.

    python this_file.py "a question"
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Sequence

from openai import AsyncOpenAI

REQUESTS = {requests}'''

_VOTE = '''_STATED = re.compile({stated!r})
_EDGES = {edges!r}
_ARTICLES = set({articles!r})


{code}


def majority(answers):
    """The most frequent answer in normal form, the earliest on a tie; as it came."""
    forms = [normalised(stated(answer)) or None for answer in answers]
    votes = Counter(form for form in forms if form is not None)
    if not votes:
        return answers[0]
    return answers[forms.index(max(votes, key=lambda form: votes[form]))]'''

_VOTING = """    if node["role"] == "voter":
        return majority(answers)
"""

_TAIL = '''def messages(role, question, answers):
    """What a node is asked: the question, and what the nodes that it reads have answered."""
    parts = [question]
    if answers:
        texts = [answer.strip() for answer in answers]
        mark = mark_for(parts + texts)
        parts.append(QUOTED.format(mark=mark))
        parts += [
            f"Solution {number}: {mark}\\n{text}\\n{mark}" for number, text in enumerate(texts, 1)
        ]
        parts.append(REQUESTS["fuse" if role == "fuser" else "refine"])
    system = [{"role": "system", "content": INSTRUCTION}] if INSTRUCTION else []
    return [*system, {"role": "user", "content": "\\n\\n".join(parts)}]


async def ask(node, question, answers):
    """One node's answer."""
    if node["role"] == "voter":
        return majority(answers)
    key = os.environ[node["api_key_env"]] if node["api_key_env"] else "none"
    async with AsyncOpenAI(base_url=node["base_url"], api_key=key) as client:
        told = messages(node["role"], question, answers)
        reply = await client.chat.completions.create(
            model=node["model"], messages=told, **node["sampling"]
        )
    return reply.choices[0].message.content or ""


async def answer(question):
    """The graph's answer: each node starts once those that it reads have answered."""
    running = {}

    async def run(number):
        answers = [await running[before] for before in NODES[number]["reads"]]
        return await ask(NODES[number], question, answers)

    for number in NODES:
        running[number] = asyncio.ensure_future(run(number))
    await asyncio.gather(*running.values())
    return running[SINK].result()


if __name__ == "__main__":
    print(asyncio.run(answer(" ".join(sys.argv[1:]))))'''
