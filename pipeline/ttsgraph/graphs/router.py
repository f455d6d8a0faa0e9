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
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from operator import add
from typing import TYPE_CHECKING, Any

from ttsgraph.base.errors import GraphError
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


@dataclass(frozen=True)
class Router:
    """Parameters of a router as canonical JSON text. Two routers are equal if their texts are.

    `of` builds a router from plain data with these keys:

    branches   number of branches
    default    branch that a trained router prefers on a tie
    shares     share of the questions by branch; weights of a graph's mean cost
    loads      by branch, mean cost of its questions there, relative to the mean over all questions
    tokens, idf, mean, spread, weights, intercept   only if trained: `weights` has a row per token
               and length, and a column per branch
    held_out   branch -> keys of the training questions that go there, although the trained
               router would send them elsewhere
    learnt     number of training questions, score on them, versions of the code

    Raises GraphError if the parameters are not valid.
    """

    text: str

    def __post_init__(self) -> None:
        _check(self.data, len(self.text))

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Router:
        """Return a router from the output of `to_json`; a split's data may lack the hash. Raises
        GraphError if the parameters are not valid, or do not match the hash.
        """
        if not isinstance(data, Mapping):
            raise GraphError(f"expected a router to be a JSON object, found {type(data).__name__}")
        plain = {name: value for name, value in data.items() if name != "hash"}
        made = cls.new(plain)
        if data.get("hash", None if "tokens" in plain else made.hash) != made.hash:
            raise GraphError(
                f"expected hash {made.hash} for these router parameters, found"
                f" {data.get('hash')!r}: the file was changed; use the original graph"
            )
        return made

    @classmethod
    def new(cls, data: Mapping[str, Any]) -> Router:
        """Return a router with these parameters. Raises GraphError if they are not valid."""
        try:
            return cls(json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False))
        except (TypeError, ValueError) as error:
            raise GraphError(
                "expected a router's parameters to be plain data, but JSON can't hold them:"
                f" {error}"
            ) from None

    @classmethod
    def split(cls, shares: Sequence[float]) -> Router:
        """Return a router that sends these shares of all questions to its branches, whatever the
        questions are about. Raises GraphError if the shares are not valid.
        """
        return cls.new({"branches": len(shares), "default": 0, "shares": list(shares)})

    @cached_property
    def data(self) -> dict[str, Any]:
        """The parameters as plain data."""
        return dict(json.loads(self.text))

    @cached_property
    def hash(self) -> str:
        """Hex digest of the parameters."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        """Return the parameters with their hash, as plain data for a graph file."""
        return {"hash": self.hash, **self.data}

    @property
    def branches(self) -> int:
        """Number of branches."""
        return int(self.data["branches"])

    @property
    def shares(self) -> tuple[float, ...]:
        """Share of the questions that each branch receives."""
        return tuple(self.data["shares"])

    @property
    def loads(self) -> tuple[float, ...]:
        """Weight of each branch in the mean cost: its share of the questions times their relative
        cost.
        """
        loads = self.data.get("loads", [1.0] * self.branches)
        return tuple(share * load for share, load in zip(self.shares, loads, strict=True))

    @property
    def learnt(self) -> bool:
        """True for a trained router, False for a split."""
        return "tokens" in self.data

    @cached_property
    def _held_out(self) -> dict[str, int]:
        held_out = self.data.get("held_out", {})
        return {key: int(branch) for branch, keys in held_out.items() for key in keys}

    @cached_property
    def _places(self) -> dict[str, int]:
        return {token: place for place, token in enumerate(self.data["tokens"])}

    @cached_property
    def _arrays(self) -> dict[str, FloatArray]:
        import numpy as np

        names = ("idf", "mean", "spread", "weights", "intercept")
        return {name: np.array(self.data[name], dtype=float) for name in names}

    def choose(self, question: Question) -> int:
        """Return the index of the branch that answers the question; defined for any text."""
        if not self.learnt:
            place = int(key_of(question), 16) / 16**KEY
            ends = accumulate(self.shares)
            return next((k for k, end in enumerate(ends) if place < end), self.branches - 1)
        held_out = self._held_out.get(key_of(question)) if self._held_out else None
        return self.decide(question) if held_out is None else held_out

    def decide(self, question: Question) -> int:
        """Return the branch that a trained router picks: the one with the highest score. On a tie,
        return the default branch if it is among the best, or else the first of them.
        """
        scores = self.scores(question).round(DIGITS)
        best = float(scores.max())
        default = int(self.data["default"])
        return default if scores[default] >= best else int(scores.argmax())

    def scores(self, question: Question) -> FloatArray:
        """Return the expected score of each branch on a question, minus the price of the branch."""
        import numpy as np

        arrays = self._arrays
        places_of = self._places
        seen = [(places_of[t], n) for t, n in tokens(question).items() if t in places_of]
        sizes = standard(np.array(lengths(question.text)), arrays["mean"], arrays["spread"])
        scores = arrays["intercept"] + sizes @ arrays["weights"][len(arrays["idf"]) :]
        if not seen:
            return np.asarray(scores)
        places = np.array([place for place, _ in seen])
        counts = np.array([count for _, count in seen], dtype=float)
        values = (1 + np.log(counts)) * arrays["idf"][places]
        return np.asarray(scores + values / np.linalg.norm(values) @ arrays["weights"][places])


def standard(values: FloatArray, mean: FloatArray, spread: FloatArray) -> FloatArray:
    """Return lengths in standard deviations from the mean, limited to SEEN_FROM, times
    LENGTH_WEIGHT.
    """
    import numpy as np

    far = np.clip((values - mean) / spread, -SEEN_FROM, SEEN_FROM)
    return np.asarray(far * LENGTH_WEIGHT)


_LEARNT = {"tokens", "idf", "mean", "spread", "weights", "intercept"}
_PLAIN = {"branches", "default", "shares", "loads"}
_KNOWN = {*_PLAIN, "held_out", "learnt", *_LEARNT}


def _check(data: dict[str, Any], size: int) -> None:
    """Raise GraphError if a router's parameters are not valid."""

    def expect(right: bool, what: str) -> None:
        if not right:
            raise GraphError(f"expected a router {what}")

    expect(size <= MOST_CHARACTERS, f"of at most {MOST_CHARACTERS} characters, found {size}")
    expect(not set(data) - _KNOWN, f"without unknown keys, found {sorted(set(data) - _KNOWN)[:1]}")
    split = set(data) <= _PLAIN
    expect(
        split or set(data) >= _LEARNT,
        "with only shares (a split), or with all parameters of a trained router: tokens, idf,"
        " mean, spread, weights and intercept",
    )
    count = data.get("branches")
    expect(type(count) is int and count >= 2, f"with at least 2 branches, found {count!r}")
    assert isinstance(count, int)
    places = [data.get("default", 0)]
    places += [int(k) if str(k).isdigit() else -1 for k in data.get("held_out", {})]
    expect(
        all(type(place) is int and 0 <= place < count for place in places),
        f"whose 'default' and 'held_out' branches are from 0 to {count - 1}, found {places!r}",
    )
    shares: Any = data.get("shares")
    expect(
        _numbers(shares, count) and min(shares) >= 0 and abs(sum(shares) - 1) < 1e-3,
        f"with {count} shares of at least 0 that sum to 1, found {shares!r}",
    )
    loads: Any = data.get("loads", shares)
    expect(
        _numbers(loads, count) and min(loads) >= 0,
        f"with {count} loads of at least 0, found {loads!r}",
    )
    if not split:
        tokens = len(data["tokens"])
        rows = data["weights"]
        sizes = {"idf": tokens, "mean": len(LENGTHS), "spread": len(LENGTHS), "intercept": count}
        expect(
            all(isinstance(token, str) for token in data["tokens"])
            and all(_numbers(data[name], size) for name, size in sizes.items())
            and min(data["spread"]) > 0
            and isinstance(rows, list)
            and len(rows) == tokens + len(LENGTHS)
            and all(_numbers(row, count) for row in rows),
            f"with {tokens} idf values, {len(LENGTHS)} means and positive spreads, {count}"
            f" intercepts and {tokens + len(LENGTHS)} x {count} weights, all of them numbers",
        )


def _numbers(values: Any, count: int) -> bool:
    return (
        isinstance(values, list)
        and len(values) == count
        and all(type(value) in (int, float) and math.isfinite(value) for value in values)
    )
