"""What a node does with its predecessors' answers: the roles, and how each speaks to a model.

assistant  refines what its predecessors said; with none, it answers         (paper, section 3)
fuser      weighs several answers and gives one; with none, it answers       (paper, section 3)
voter      the most frequent extracted answer, without a model call, cost 0  (ours)
verifier   the same among answers that pass what their kind can check         (ours)
judge      has its model choose one of the answers, which it gives as it came (ours)

To add a role, write one function and register it: `speak` builds the messages of a role that calls
a model, `decide` picks an answer for a role that does not.

    register_role(Role("critic", speak=critic_messages, does="says what is wrong with them, then
    answers"))

CONTRIBUTING.md does it step by step.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace

from ttsgraph.base.errors import GraphError
from ttsgraph.graphs.graph import CollaborationGraph, Node
from ttsgraph.graphs.stopping import LOSSLESS, Gate, Head, most_frequent
from ttsgraph.models.client import Message
from ttsgraph.tasks.base import Question, Task
from ttsgraph.tasks.prompts import REQUESTS, Prompt, compose

Compose = Callable[[Prompt, Question, Sequence[str]], tuple[Message, ...]]
Decide = Callable[[Task, Sequence[str]], str]
Read = Callable[[str, Sequence[str]], str]


@dataclass(frozen=True, slots=True)
class Role:
    """A node's role: exactly one of `speak` (calls a model) and `decide` (does not), and how many
    predecessors it needs.

    `does` says in words what a node makes of the answers that it reads. A role that `votes` counts
    equal answers, so it is offered only where a kind of task says what these are. `read` is for a
    role whose model says something about the answers that it reads, rather than giving one: it
    makes the node's answer of what the model said and these answers.
    """

    name: str
    speak: Compose | None = None
    decide: Decide | None = None
    min_in_degree: int = 0
    does: str = ""
    votes: bool = False
    read: Read | None = None

    def __post_init__(self) -> None:
        if (self.speak is None) == (self.decide is None):
            raise GraphError(f"role {self.name!r}: expected exactly one of speak and decide")

    @property
    def calls_model(self) -> bool:
        """Whether a node of this role costs a model call."""
        return self.speak is not None

    @property
    def by_majority(self) -> bool:
        """Whether it takes the most frequent answer, so that a stop rule can say when that is
        clear.
        """
        return self.decide is majority


def assistant_messages(
    prompt: Prompt, question: Question, answers: Sequence[str]
) -> tuple[Message, ...]:
    """Answer, or improve on the predecessors' answers."""
    return compose(prompt, question, answers, "refine")


def fuser_messages(
    prompt: Prompt, question: Question, answers: Sequence[str]
) -> tuple[Message, ...]:
    """Compare the predecessors' answers and give one final answer."""
    return compose(prompt, question, answers, "fuse")


def majority(task: Task, answers: Sequence[str]) -> str:
    """The answer whose extracted form is most frequent, the earliest on a tie; answers with none
    don't count if others have one.

    Returns one of `answers` as it came, so that the task's grader reads it like any other answer. A
    kind whose forms have a `head` is voted on in two steps.
    """
    extracted = [task.extract(answer) for answer in answers]
    winner = most_frequent(extracted, head_of(task))
    return answers[0] if winner is None else answers[extracted.index(winner)]


def head_of(task: Task) -> Head | None:
    """What a vote on this kind counts first, if it has two steps."""
    return getattr(task, "head", None)


def passing(task: Task, answers: Sequence[str]) -> str:
    """The most frequent of the answers that pass what their kind can check of an answer alone (a
    schema, a form); where none passes, of all.

    A kind has `passes(text)` for that; answers to others pass if they can be read.
    """
    passes = getattr(task, "passes", None) or (lambda text: task.extract(text) is not None)
    kept = [answer for answer in answers if answer.strip() and passes(answer)] or list(answers)
    return majority(task, kept)


def judge_messages(
    prompt: Prompt, question: Question, answers: Sequence[str]
) -> tuple[Message, ...]:
    """Choose the best of the predecessors' answers by its number; with none, or in prompts that a
    model continues, answer.
    """
    *before, last = compose(prompt, question, answers, "fuse")
    if prompt.style == "few_shot" or not answers:
        return (*before, last)
    asked = last.content.removesuffix(REQUESTS["fuse"])
    return (*before, Message(last.role, f"{asked}{CHOOSE}"))


CHOOSE = (
    "Which of these solutions is the best? Give no solution of your own. End with one line: Best:"
    " <number>"
)
"""What a judge is asked once it has been shown the answers."""

_BEST = re.compile(r"(?i:best)\W{0,5}(?:solution\W*)?(\d+)")


def chosen(said: str, answers: Sequence[str]) -> str:
    """The answer that a judge names, as it came; what the judge said itself where it names none."""
    found = _BEST.findall(said)
    number = int(found[-1]) if found else 0
    return answers[number - 1] if 1 <= number <= len(answers) else said


_ROLES: dict[str, Role] = {}


def register_role(role: Role) -> None:
    """Make a role known by its name; a later role of the same name replaces the earlier."""
    _ROLES[role.name] = role


def get_role(name: str) -> Role:
    """The role of this name. Raises GraphError that lists the known ones."""
    try:
        return _ROLES[name]
    except KeyError:
        raise GraphError(f"unknown role {name!r}; known roles: {', '.join(_ROLES)}") from None


def check_roles(graph: CollaborationGraph) -> None:
    """Raises GraphError when a role is unknown or needs more predecessors than its node reads, or
    when a setting of a vote stands at a node that takes none.
    """
    for node in graph.nodes:
        role = get_role(node.role)
        found = len(graph.reads[node.id])
        if found < role.min_in_degree:
            raise GraphError(
                f"node {node.id}: role {node.role!r} needs at least {role.min_in_degree}"
                f" predecessor, found {found}"
            )
        if not role.by_majority and (node.waves or node.stop != LOSSLESS):
            raise GraphError(
                f"node {node.id}: stop and wave are for votes, and role {node.role!r} takes none"
            )
        if role.by_majority and node.gate and len(graph.stages[node.id]) == 1:
            raise GraphError(
                f"node {node.id}: a vote over what its gate watches is the same either way; let it"
                " read others too"
            )


def fitted(node: Node, before: Set[int]) -> Node:
    """The node without those settings of gates and votes that its role or these predecessors leave
    without a meaning.
    """
    votes = get_role(node.role).by_majority
    if node.waves and not votes:
        node = replace(node, waves=(), stop=LOSSLESS)
    if node.gate is None:
        return node
    watches = tuple(i for i in node.gate.watches if i in before)
    none_left = not before or (bool(node.gate.watches) and not watches)
    if none_left or (votes and set(watches or before) == set(before)):
        return replace(node, gate=None)
    return replace(node, gate=Gate(node.gate.over, watches))


def with_waves(graph: CollaborationGraph, waves: tuple[int, ...]) -> CollaborationGraph:
    """The graph whose votes ask in these waves where they set none themselves and may stop; answers
    are the same.
    """
    if not waves:
        return graph
    silent = {
        n.id
        for n in graph.nodes
        if get_role(n.role).by_majority and not n.waves and n.stop == LOSSLESS
    }
    nodes = tuple(replace(node, waves=waves) if node.id in silent else node for node in graph.nodes)
    return CollaborationGraph(nodes, graph.edges)


def role_names() -> tuple[str, ...]:
    """The names of all registered roles."""
    return tuple(_ROLES)


for _role in (
    Role("assistant", speak=assistant_messages, does="checks them and writes an improved answer"),
    Role("fuser", speak=fuser_messages, does="weighs them and writes one final answer"),
    Role(
        "voter",
        decide=majority,
        min_in_degree=1,
        does="takes the most frequent answer",
        votes=True,
    ),
    Role(
        "verifier",
        decide=passing,
        min_in_degree=1,
        does="drops those that fail the check, and takes the most frequent of the rest",
    ),
    Role(
        "judge", speak=judge_messages, min_in_degree=1, does="chooses the best of them", read=chosen
    ),
):
    register_role(_role)
