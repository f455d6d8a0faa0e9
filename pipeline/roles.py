"""What a node does with its predecessors' answers: the roles, and how each speaks to a model.

assistant  refines what its predecessors said; with none, it answers         (paper, section 3)
fuser      weighs several answers and gives one; with none, it answers       (paper, section 3)
voter      the most frequent extracted answer, without a model call, cost 0  (ours)

To add a role, write one function and register it: `speak` builds the messages of a role that calls a model, `decide` picks an
answer for a role that does not.

    register_role(Role("critic", speak=critic_messages, does="says what is wrong with them, then answers"))

CONTRIBUTING.md does it step by step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pipeline.errors import GraphError
from pipeline.graph import CollaborationGraph
from pipeline.models.client import Message
from pipeline.prompts import Prompt, compose
from pipeline.tasks.base import Question, Task

Speak = Callable[[Prompt, Question, Sequence[str]], tuple[Message, ...]]
Decide = Callable[[Task, Sequence[str]], str]


@dataclass(frozen=True, slots=True)
class Role:
    """A node's role: exactly one of `speak` (calls a model) and `decide` (does not), and how many predecessors it needs.

    `does` says in words what a node makes of the answers that it reads. A role that `votes` counts equal answers, so it is offered
    only where a kind of task says what these are.
    """

    name: str
    speak: Speak | None = None
    decide: Decide | None = None
    min_in_degree: int = 0
    does: str = ""
    votes: bool = False

    def __post_init__(self) -> None:
        if (self.speak is None) == (self.decide is None):
            raise GraphError(f"role {self.name!r}: expected exactly one of speak and decide")

    @property
    def calls_model(self) -> bool:
        """Whether a node of this role costs a model call."""
        return self.speak is not None


def assistant_messages(prompt: Prompt, question: Question, answers: Sequence[str]) -> tuple[Message, ...]:
    """Answer, or improve on the predecessors' answers."""
    return compose(prompt, question, answers, "refine")


def fuser_messages(prompt: Prompt, question: Question, answers: Sequence[str]) -> tuple[Message, ...]:
    """Compare the predecessors' answers and give one final answer."""
    return compose(prompt, question, answers, "fuse")


def majority(task: Task, answers: Sequence[str]) -> str:
    """The answer whose extracted form is most frequent, the earliest on a tie; answers with none don't count if others have one.

    Returns one of `answers` as it came, so that the task's grader reads it like any other answer.
    """
    extracted = [task.extract(answer) for answer in answers]
    votes = Counter(form for form in extracted if form is not None)
    if not votes:
        return answers[0]
    winner = max(votes, key=lambda form: votes[form])
    return answers[extracted.index(winner)]


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
    """Raises GraphError when a node's role is unknown or needs more predecessors than the node has."""
    for node in graph.nodes:
        needed, found = get_role(node.role).min_in_degree, graph.in_degree(node.id)
        if found < needed:
            raise GraphError(f"node {node.id}: role {node.role!r} needs at least {needed} predecessor, found {found}")


def role_names() -> tuple[str, ...]:
    """The names of all registered roles."""
    return tuple(_ROLES)


for _role in (
    Role("assistant", speak=assistant_messages, does="checks them and writes an improved answer"),
    Role("fuser", speak=fuser_messages, does="weighs them and writes one final answer"),
    Role("voter", decide=majority, min_in_degree=1, does="takes the most frequent answer", votes=True),
):
    register_role(_role)
