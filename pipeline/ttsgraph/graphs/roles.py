"""Roles: how a node combines its predecessors' answers, and the messages it sends to a model.

assistant  refines its predecessors' answers; with none, it answers         (paper, section 3)
fuser      weighs several answers and gives one; with none, it answers      (paper, section 3)
voter      takes the most frequent extracted answer, without a model call   (ours)
verifier   votes among the answers that pass the check of their kind        (ours)
weighted   votes, each answer weighted by how often its model is right      (ours)
judge      has its model choose one of the answers, returned verbatim       (ours)
router     asks one of several branches, based on the question's text       (ours)

To add a role, write one function and register it, as described in CONTRIBUTING.md: `speak` builds a
model's messages, `decide` picks an answer without a model, and `pick` does the same but also gets
the question and the models' accuracies. Other modules refer to ASSISTANT, FUSER, VOTER and ROUTER
by name, as the building blocks of graphs; otherwise they rely on the attributes of a Role.
"""

import inspect
import math
import re
from collections.abc import Callable, Collection, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from finalanswer.formulas import NUMERALS
from finalanswer.letters import LETTERS, letter_in
from ttsgraph.base.errors import GraphError
from ttsgraph.graphs.graph import CollaborationGraph, Node
from ttsgraph.graphs.stopping import LOSSLESS, PASSED, Gate, Stop, most_frequent
from ttsgraph.models.client import Message
from ttsgraph.tasks.base import Question, Task, can_vote, lacks_check, passes, read_answer
from ttsgraph.tasks.prompts import REQUESTS, Prompt, compose

Compose = Callable[[Task, Prompt, Question, Sequence[str]], tuple[Message, ...]]
Decide = Callable[[Task, Sequence[str]], str]
Read = Callable[[Task, str, Sequence[str]], str]


@dataclass(frozen=True, slots=True)
class Ballot:
    """The question, and the candidate answers with the accuracy of each answer's model, if
    measured.
    """

    task: Task
    question: Question
    answers: Sequence[str]
    accuracies: Sequence[float | None]


Pick = Callable[[Ballot], str]
Outline = Literal["rounded", "hexagon", "slanted"]

ASSISTANT = "assistant"
FUSER = "fuser"
VOTER = "voter"
ROUTER = "router"
"""Names of the roles that other modules refer to; a node that has lost its predecessors becomes an
assistant.
"""


@dataclass(frozen=True, slots=True)
class Role:
    """A node's role: exactly one of `speak` (calls a model), `decide` and `pick` (call none), and
    the minimum number of predecessors.

    `does` describes what the role makes of the answers that it reads. A role that `votes` counts
    equal answers, so it needs a task kind that defines equality. `read` extracts the answer from a
    model's reply about other answers. `weighs`: the role uses the accuracies of models; `checks`:
    it uses the checks of the kind or question; `routes`: it picks a branch with a router; `joins`:
    it is tried wherever several answers meet, while other roles that need predecessors are tried
    only at the end of plain graphs. `ends` names a graph that ends in the role, with `{}` for the
    role's model; `asks` is the request that follows the answers in an exported file; `outline` is
    the role's shape in pictures. Raises GraphError unless exactly one of `speak`, `decide` and
    `pick` is given and `speak`, if given, takes the parameters GIVEN.
    """

    name: str
    speak: Compose | None = None
    decide: Decide | None = None
    min_in_degree: int = 0
    does: str = ""
    votes: bool = False
    read: Read | None = None
    pick: Pick | None = None
    weighs: bool = False
    checks: bool = False
    routes: bool = False
    joins: bool = False
    ends: str = ""
    asks: str = ""
    outline: Outline = "slanted"

    def __post_init__(self) -> None:
        if [self.speak, self.decide, self.pick].count(None) != 2:
            raise GraphError(f"role {self.name!r}: expected exactly one of speak, decide and pick")
        if self.speak is None:
            return
        signature = inspect.signature(self.speak)
        try:
            signature.bind(*GIVEN)
        except TypeError:
            raise GraphError(
                f"role {self.name!r}: expected speak({', '.join(GIVEN)}), found speak{signature}"
            ) from None

    def choose(self, ballot: Ballot) -> str:
        """Return the answer picked by a role that calls no model."""
        if self.pick is not None:
            return self.pick(ballot)
        assert self.decide is not None
        return self.decide(ballot.task, ballot.answers)

    @property
    def calls_model(self) -> bool:
        """True if a node of this role makes a model call."""
        return self.speak is not None

    def ending(self, model: str) -> str:
        """Return the name of a graph that ends in this role, such as "fused by a" or "majority"."""
        ends = self.ends or (f"{self.name} by {{}}" if self.calls_model else self.name)
        return ends.format(model)

    @property
    def by_majority(self) -> bool:
        """True if the role takes the most frequent answer, so its vote may stop early."""
        return self.decide is majority

    def may_stop(self, stop: Stop) -> bool:
        """Return True if nodes of this role may ask in waves under this stop rule: under `passed`
        if the role checks answers, and under the other rules if it takes the most frequent answer.
        """
        return self.checks if stop == PASSED else self.by_majority


GIVEN = ("task", "prompt", "question", "answers")
"""Parameters of `speak`."""


def majority(task: Task, answers: Sequence[str]) -> str:
    """Return the most frequent answer, verbatim; on a tie, the earliest. Answers without a form
    count only if no answer has one.
    """
    forms = [read_answer(task, answer) for answer in answers]
    return answers[forms.index(most_frequent(forms))]


def passing(ballot: Ballot) -> str:
    """Return the most frequent of the answers that pass the check (a schema, or the question's
    tests), or of all answers if none passes. Raises CallFailed if a check could not be run.
    """
    kept = [answer for answer in ballot.answers if passes(ballot.task, ballot.question, answer)]
    return majority(ballot.task, kept or list(ballot.answers))


def by_weight(ballot: Ballot) -> str:
    """Return the answer with the largest weight; on a tie, the earliest. Answers without a form
    count only if no answer has one. An answer of a model with accuracy p (1/2 if unmeasured) weighs
    -log(1 - p), so the sum measures how unlikely it is that all agreeing models are wrong.
    """
    weights: dict[str | None, float] = {}
    forms = [read_answer(ballot.task, answer) for answer in ballot.answers]
    for form, accuracy in zip(forms, ballot.accuracies, strict=True):
        if form is not None:
            probability = 0.5 if accuracy is None else min(max(accuracy, SURE), 1 - SURE)
            weights[form] = weights.get(form, 0.0) - math.log(1 - probability)
    # Rounding must not separate equal sums.
    most = max(weights.values(), default=0.0) - 1e-9
    return ballot.answers[next(k for k, form in enumerate(forms) if weights.get(form, 0.0) > most)]


SURE = 0.02
"""Minimum distance of accuracies from 0 and 1; a closer accuracy is moved to this distance."""


def judge_messages(
    task: Task, prompt: Prompt, question: Question, answers: Sequence[str]
) -> tuple[Message, ...]:
    """Return messages that ask for the number of the best answer; without answers, or in few-shot
    prompts, they ask for an answer.
    """
    *before, last = compose(task, prompt, question, answers, "fuse")
    if prompt.style == "few_shot" or not answers:
        return (*before, last)
    content = last.content.removesuffix(REQUESTS["fuse"])
    return (*before, Message(last.role, f"{content}{CHOOSE}"))


CHOOSE = (
    "Which of these solutions is the best? Give no solution of your own. End with one line: Best:"
    " <number>"
)
"""Request to a judge, below the answers."""

_ORDINALS = "zeroth|first|second|third|fourth|fifth|sixth|seventh|eighth|ninth"
_NOUN = r"(?:solution|answer|option|candidate|response|choice|number|no|nr|sol|one)"
_NUMBER = rf"(?P<number>(?<![-.\d])\d{{1,4}}(?!\d|[.,/]\d)|(?:{'|'.join(NUMERALS)})\b)"
# Nouns after a number that counts things instead of naming a solution.
_COUNTED = r"(?:times|points|steps|ways|reasons|parts|(?:solution|answer|option|candidate)s)"
# Phrases that name a solution: by a number after "best", a noun or a verb; by a number before "is
# best" or joined to an option; by an ordinal; or by a number that fills the first or last line.
_NAMINGS = [
    re.compile(rf"(?im){pattern}")
    for pattern in (
        rf"\b(?P<best>(?:best|最佳|winner|correct\sone|preferred|choice|decision|verdict|selected|boxed)(?:[^\w\n]{{0,8}}(?:(?:is|overall|would\sbe)\b|{_NOUN}\b"
        rf"|(?P<no>not)\b)){{0,4}})\W{{0,8}}{_NUMBER}(?!\s{_COUNTED}\b)",
        rf"\b{_NOUN}s?[^\w\n]{{0,6}}(?:(?:no|number)\b\W{{0,3}})?{_NUMBER}",
        rf"\b(?P<place>{_ORDINALS})\s{_NOUN}\b",
        rf"(?:\b(?P<verb>go\swith|pick|choose|chose|select|prefer|not)\W{{1,4}}|(?:\A|\n)[^\w\n]{{0,9}}(?=\w+\W{{0,20}}\Z)|\A\W{{0,9}}(?=\w+[^\w\n]{{0,9}}\n)){_NUMBER}",
        rf"(?<=\boption\s[A-Z])\W{{0,4}}(?P<join>\b(?:or|and|nor|but)\b|[,/&])\W{{0,4}}{_NUMBER}",
        rf"{_NUMBER}(?=\sis\s(?:the\s)?best\b)",
    )
]


def chosen(task: Task, said: str, answers: Sequence[str]) -> str:
    """Return, verbatim, the answer that a judge names. What it `said` is parsed like a choice among
    lettered options. A judge that names no answer or several abstains: the result is then the most
    frequent answer, or what it said if there are no answers.
    """
    text = re.sub(r"(?<!\w)[A-Za-z](?!\w)", "xx", said.replace("_", " "))
    text = re.sub(r"\bwins\b|\bshould be (?:chosen|preferred|selected)", "is best", text)
    for pattern in _NAMINGS:
        text = pattern.sub(_lettered, text)
    letter = letter_in(text)
    past_letters = re.search(r"(?:\A|\n)Best: (\d\d)\s{0,9}\Z", said)
    number = LETTERS.index(letter) + 1 if letter else int(past_letters[1]) if past_letters else 0
    if 0 < number <= len(answers):
        return answers[number - 1]
    return majority(task, answers) if answers else said


def _lettered(found: re.Match[str]) -> str:
    """Return the matched text with the solution's number rewritten as a letter, or unchanged if
    there is no letter for it.
    """
    groups = found.groupdict()
    word = (groups.get("number") or groups["place"]).lower()
    spelled = next((each for each in (NUMERALS, _ORDINALS.split("|")) if word in each), None)
    number = spelled.index(word) if spelled else int(word)
    if not 1 <= number <= len(LETTERS):
        return found[0]
    lead = "answer is not" if groups.get("no") else "answer is" if groups.get("best") else ""
    return f" {lead or groups.get('verb') or groups.get('join') or ''} option {LETTERS[number - 1]}"


def unfit(role: Role, task: Task, questions: Sequence[Question] = ()) -> str:
    """Return the reason why a role can't be used on these questions of a kind, or "" if it
    can.
    """
    if role.votes and not can_vote(task):
        return f"kind {task.name} does not say which answers are the same"
    return lacks_check(task, questions) if role.checks else ""


_ROLES: dict[str, Role] = {}


def register_role(role: Role) -> None:
    """Register a role; a later role replaces an earlier one of the same name."""
    _ROLES[role.name] = role


def get_role(name: str) -> Role:
    """Return the role with this name. Raises GraphError naming the known roles if there is none."""
    try:
        return _ROLES[name]
    except KeyError:
        raise GraphError(f"unknown role {name!r}; known roles: {', '.join(_ROLES)}") from None


def check_roles(graph: CollaborationGraph) -> None:
    """Raise GraphError if a role is unknown or doesn't fit its node's settings."""
    for node in graph.nodes:
        if problem := _misfit(graph, node, get_role(node.role)):
            raise GraphError(f"node {node.id}: {problem}")


def _misfit(graph: CollaborationGraph, node: Node, role: Role) -> str:
    found = len(graph.reads[node.id])
    if found < role.min_in_degree:
        return f"role {node.role!r} needs at least {role.min_in_degree} predecessor, found {found}"
    if (node.waves or node.stop != LOSSLESS) and not role.may_stop(node.stop):
        return (
            "expected 'wave' with stop rule passed at a node that checks answers, or with any"
            f" other stop rule at a vote; found {node.stop.rule} at role {node.role!r}"
        )
    if role.routes != (node.route is not None):
        way = "without" if role.routes else "with"
        return f"role {ROUTER!r} and a route go together; found role {node.role!r} {way} a route"
    if role.by_majority and node.gate and len(graph.stages[node.id]) == 1:
        return (
            "a vote over only the nodes that its gate watches is the same either way; let it"
            " read other nodes too"
        )
    return ""


def fitted(node: Node, before: Set[int]) -> Node:
    """Return the node without the gate and vote settings that have no meaning for its role and
    predecessors.
    """
    role, gate = get_role(node.role), node.gate
    if not role.may_stop(node.stop):
        node = replace(node, waves=(), stop=LOSSLESS)
    if gate is None:
        return node
    watches = tuple(i for i in gate.watches if i in before)
    none_left = not before or (bool(gate.watches) and not watches)
    same = role.by_majority and set(watches or before) == set(before)
    return replace(node, gate=None if none_left or same else Gate(gate.over, watches))


def checking(roles: Collection[str], task: Task) -> str | None:
    """Return the first of these roles that checks answers of this kind, or None if no role does."""
    found = (name for name in selecting(roles) if get_role(name).checks)
    return None if lacks_check(task) else next(found, None)


def joining(roles: Collection[str]) -> list[str]:
    """Return which of these roles are tried wherever several answers meet."""
    return [name for name, role in _ROLES.items() if name in roles and role.joins]


def selecting(roles: Collection[str]) -> list[str]:
    """Return which of these roles need answers to read but are not tried wherever answers meet."""
    known = ((name, role) for name, role in _ROLES.items() if name in roles)
    return [name for name, role in known if role.min_in_degree > 0 and not role.joins]


def role_names() -> tuple[str, ...]:
    """Return the names of all registered roles except the router, which needs parameters."""
    return tuple(name for name, role in _ROLES.items() if not role.routes)


for _role in (
    Role(
        ASSISTANT,
        speak=partial(compose, purpose="refine"),
        does="checks them and writes an improved answer",
        asks=REQUESTS["refine"],
        outline="rounded",
    ),
    Role(
        FUSER,
        speak=partial(compose, purpose="fuse"),
        does="weighs them and writes one final answer",
        joins=True,
        ends="fused by {}",
        asks=REQUESTS["fuse"],
        outline="hexagon",
    ),
    Role(
        VOTER,
        decide=majority,
        min_in_degree=1,
        does="takes the most frequent answer",
        votes=True,
        joins=True,
        ends="majority",
    ),
    Role(
        "weighted",
        pick=by_weight,
        min_in_degree=1,
        does="takes the answer with the most weight, by how often each model is right alone",
        votes=True,
        weighs=True,
        ends="weighted majority",
    ),
    Role(
        "verifier",
        pick=passing,
        min_in_degree=1,
        does="drops those that fail the check, and takes the most frequent of the rest",
        checks=True,
        ends="majority of what passes the check",
    ),
    Role(
        "judge",
        speak=judge_messages,
        min_in_degree=1,
        does="chooses the best of them",
        read=chosen,
        ends="chosen by {}",
        asks=CHOOSE,
    ),
    Role(
        ROUTER,
        decide=lambda task, answers: answers[0],
        min_in_degree=2,
        does="asks one of them, by the question's text",
        routes=True,
    ),
):
    register_role(_role)
