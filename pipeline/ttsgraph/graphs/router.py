"""A router: it looks at a question's text and picks the branch that answers, without a call.

The parameters of a router are data. A trained router gives every branch a score that is linear in a
few lengths and in the TF-IDF of words, word pairs, characters and given fields. It picks the branch
with the highest score. A question of the training set is routed by routers trained on other
questions (`held_out`), so that a route's score on the training set is honest. A router without
weights splits questions by a hash of their text.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from operator import add, mul
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field, StrictInt, StrictStr, model_validator

from ttsgraph.base.errors import GraphError, SettingsError
from ttsgraph.base.parsing import ClosedModel, parse
from ttsgraph.base.rounding import DIGITS

if TYPE_CHECKING:  # slow to import, and a split needs no arrays
    from ttsgraph.base.arrays import FloatArray
    from ttsgraph.tasks.base import Question

MOST_CHARACTERS = 400_000
"""Maximum length of a router's parameters as JSON."""

HEAD = 1500
TAIL = 500
"""Numbers of characters that are read at the start (HEAD) and at the end (TAIL) of a text; with
this limit, a decision takes less than a millisecond.
"""

WORD = re.compile(r"\w+|[^\w\s]")
LENGTHS = ("characters", "lines", "digits", "capitals", "other letters")
"""Names of the lengths: logarithms of a text's numbers of characters and lines, and shares of three
kinds of characters.
"""

SEEN_FROM = 3.0
"""Bound on lengths, in standard deviations from the mean."""

KEY = 10
"""Number of hexadecimal digits of a question's key."""

LENGTH_WEIGHT = 0.2
"""Weight of a length that is one standard deviation from the mean; word vectors have norm 1."""


def read(text: str) -> str:
    """Return the part of a text that the router reads."""
    return text if len(text) <= HEAD + TAIL else text[:HEAD] + text[-TAIL:]


def tokens(question: Question) -> Counter[str]:
    """Return counts of the words ("w:add"), pairs of words, runs of 1 to 3 characters ("c:, 1"),
    and fields given with the question ("f:subject=law", from `meta["fields"]`).
    """
    lowered = read(question.text).lower()
    words = WORD.findall(lowered)
    found = Counter[str](f"w:{word}" for word in words)
    found.update(f"w:{a} {b}" for a, b in pairwise(words))
    pairs = list(map(add, lowered, lowered[1:]))
    for grams in (lowered, pairs, map(add, pairs, lowered[2:])):
        # Runs are counted before they are named, because most occur more than once.
        for gram, count in Counter(grams).items():
            found[f"c:{gram}"] = count
    for name, value in question.meta.get("fields", {}).items():
        found[f"f:{name}={value}"] = 1
    return found


def lengths(text: str) -> list[float]:
    """Return the LENGTHS of a text."""
    part = read(text)
    size = max(1, len(part))
    return [
        math.log1p(len(text)),
        math.log1p(text.count("\n")),
        sum(map(str.isdigit, part)) / size,
        sum(map(str.isupper, part)) / size,
        (len(part) - len(part.encode("ascii", "ignore"))) / size,
    ]


def key_of(question: Question) -> str:
    """Return a digest of a question's text: its key in `held_out`, and the value from which a split
    picks a branch.
    """
    text = f"{len(question.text)} {read(question.text)}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=KEY // 2).hexdigest()


Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Share = Annotated[Number, Field(ge=0)]


class Router(ClosedModel):
    """Parameters of a router. Two routers are equal if their canonical texts are.

    The tables from `tokens` to `weights` belong to a trained router; a split has none of them.
    `weights` has a row per token and length, and a column per branch. `of` and `new` build a router
    from plain data, and raise GraphError if the parameters are not valid.
    """

    branches: Annotated[StrictInt, Field(ge=2)]
    """number of branches"""
    default: Annotated[StrictInt, Field(ge=0)] = 0
    """branch that a trained router prefers on a tie"""
    shares: tuple[Share, ...]
    """share of the questions by branch; weights of a graph's mean cost"""
    given_loads: tuple[Share, ...] = Field(default=(), alias="loads")
    """mean cost of each branch's questions there, relative to the mean over all questions"""
    held_out: dict[Annotated[int, Field(ge=0)], tuple[str, ...]] = Field(default={})
    """branch -> keys of the training questions that go there, although the trained router would
    send them elsewhere"""
    history: Any = Field(default=None, alias="learnt")
    """number of training questions, score on them, versions of the code"""
    tokens: tuple[StrictStr, ...] | None = None
    idf: tuple[Number, ...] = ()
    mean: tuple[Number, ...] = ()
    spread: tuple[Annotated[Number, Field(gt=0)], ...] = ()
    intercept: tuple[Number, ...] = ()
    weights: tuple[tuple[Number, ...], ...] = ()
    _text: str = ""
    """the parameters as canonical JSON text"""

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        count, words = self.branches, len(self.tokens or ())
        sizes = {"shares": count} | ({"given_loads": count} if self.given_loads else {})
        tables = {"idf": words, "mean": len(LENGTHS), "spread": len(LENGTHS), "intercept": count}
        tables["weights"] = words + len(LENGTHS)
        sizes |= tables if self.tokens is not None else dict.fromkeys(tables, 0)
        for name, size in sizes.items():
            if (found := len(getattr(self, name))) != size:
                raise ValueError(f"expected {size} values of {name!r}, found {found}")
        if {len(row) for row in self.weights} - {count}:
            raise ValueError(f"expected {count} weights in each row")
        if max([self.default, *self.held_out]) >= count:
            raise ValueError(f"expected branches from 0 to {count - 1} in 'default' and 'held_out'")
        if abs(sum(self.shares) - 1) >= 1e-3:
            raise ValueError(f"expected shares that sum to 1, found {self.shares}")
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Router) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Router:
        """Return a router from the output of `to_json`; a split's data may lack the hash. Raises
        GraphError if the parameters are not valid, or do not match the hash.
        """
        if not isinstance(data, Mapping):
            raise GraphError(f"expected a router to be a JSON object, found {type(data).__name__}")
        made = cls.new({name: value for name, value in data.items() if name != "hash"})
        if data.get("hash", None if made.learnt else made.hash) != made.hash:
            raise GraphError(
                f"expected hash {made.hash} for these router parameters, found"
                f" {data.get('hash')!r}: the file was changed; use the original graph"
            )
        return made

    @classmethod
    def new(cls, data: Mapping[str, Any]) -> Router:
        """Return a router with these parameters. Raises GraphError if they are not valid."""
        try:
            made = parse(cls, data, "router")
            text = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)
        except (SettingsError, TypeError, ValueError) as error:
            raise GraphError(str(error)) from None
        if len(text) > MOST_CHARACTERS:
            raise GraphError(
                f"expected a router of at most {MOST_CHARACTERS} characters, found {len(text)}"
            )
        made._text = text
        return made

    @classmethod
    def split(cls, shares: Sequence[float]) -> Router:
        """Return a router that sends these shares of all questions to its branches, whatever the
        questions are about. Raises GraphError if the shares are not valid.
        """
        return cls.new({"branches": len(shares), "default": 0, "shares": list(shares)})

    @cached_property
    def data(self) -> dict[str, Any]:
        """The parameters as plain data."""
        return dict(json.loads(self._text))

    @cached_property
    def hash(self) -> str:
        """Hex digest of the parameters."""
        return hashlib.sha256(self._text.encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        """Return the parameters with their hash, as plain data for a graph file."""
        return {"hash": self.hash, **self.data}

    @property
    def loads(self) -> tuple[float, ...]:
        """Weight of each branch in the mean cost: its share of the questions times their relative
        cost.
        """
        return tuple(map(mul, self.shares, self.given_loads or (1.0,) * self.branches))

    @property
    def learnt(self) -> bool:
        """True for a trained router, False for a split."""
        return self.tokens is not None

    @cached_property
    def _branch_of_key(self) -> dict[str, int]:
        return {key: branch for branch, keys in self.held_out.items() for key in keys}

    @cached_property
    def _places(self) -> dict[str, int]:
        return {token: place for place, token in enumerate(self.tokens or ())}

    @cached_property
    def _arrays(self) -> dict[str, FloatArray]:
        import numpy as np

        names = ("idf", "mean", "spread", "weights", "intercept")
        return {name: np.array(getattr(self, name)) for name in names}

    def choose(self, question: Question) -> int:
        """Return the index of the branch that answers the question; defined for any text."""
        if not self.learnt:
            place = int(key_of(question), 16) / 16**KEY
            ends = accumulate(self.shares)
            return next((k for k, end in enumerate(ends) if place < end), self.branches - 1)
        branch = self._branch_of_key.get(key_of(question))
        return self.decide(question) if branch is None else branch

    def decide(self, question: Question) -> int:
        """Return the branch that a trained router picks: the one with the highest score. On a tie,
        return the default branch if it is among the best, or else the first of them.
        """
        scores = self.scores(question).round(DIGITS)
        best = float(scores.max())
        return self.default if scores[self.default] >= best else int(scores.argmax())

    def scores(self, question: Question) -> FloatArray:
        """Return the expected score of each branch on a question, minus the price of the branch."""
        import numpy as np

        arrays, place_of = self._arrays, self._places
        idf, weights = arrays["idf"], arrays["weights"]
        seen = [(place_of[t], n) for t, n in tokens(question).items() if t in place_of]
        sizes = standard(np.array(lengths(question.text)), arrays["mean"], arrays["spread"])
        scores = arrays["intercept"] + sizes @ weights[len(idf) :]
        places = np.array([place for place, _ in seen], dtype=int)
        counts = np.array([count for _, count in seen], dtype=float)
        values = (1 + np.log(counts)) * idf[places]
        return np.asarray(scores + values / np.linalg.norm(values) @ weights[places])


def standard(values: FloatArray, mean: FloatArray, spread: FloatArray) -> FloatArray:
    """Return lengths in standard deviations from the mean, limited to SEEN_FROM, times
    LENGTH_WEIGHT.
    """
    import numpy as np

    far = np.clip((values - mean) / spread, -SEEN_FROM, SEEN_FROM)
    return np.asarray(far * LENGTH_WEIGHT)
