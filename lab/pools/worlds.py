"""Worlds by name: the source of the questions that a search knows, and of those that judge its
result.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd
import yaml

from lab.pools.kinds import KINDS, pool_of
from lab.pools.tables import LENGTHS, WRONG, Member, Pool, Sheet, Table, table_of
from ttsgraph.base.errors import InputError

NAMED = yaml.safe_load(Path(__file__).with_name("named.yaml").read_text())
RECORD = "gsm8k"
FRESH = 10_000
FRESH_SEED = 1_000_001
TRIED = 2000
TRIED_SEED = 1_000_002
"""Seeds of the questions that judge, and of those that plain forms are chosen on; a search has
others.
"""


@dataclass(frozen=True)
class World:
    """A pool, and tables of its questions."""

    name: str
    pool: Pool
    held_out: bool

    @property
    def limits(self) -> dict[str, float]:
        """Budget name -> dollars per question: 4 and 8 cheap calls, and 3 of the most expensive."""
        tokens = (LENGTHS.prompt_tokens + LENGTHS.generated_tokens) / 1e6
        prices = [tokens * member.price for member in self.pool.members.values()]
        return {"4-cheap": 4 * min(prices), "8-cheap": 8 * min(prices), "3-dear": 3 * max(prices)}

    def tables(self, questions: int, seed: int) -> tuple[Table, Table, Table]:
        """Questions given to a search, questions that judge it, and questions that plain forms are
        chosen on.
        """
        known = table_of(self.pool, questions, seed)
        return known, _later(self.name, FRESH, FRESH_SEED), _later(self.name, TRIED, TRIED_SEED)


@lru_cache(maxsize=4)
def _later(name: str, count: int, seed: int) -> Table:
    return table_of(world_of(name).pool, count, seed, later=True)


@dataclass(frozen=True)
class Record(World):
    """Recorded answers of two models, one of each to a question: known questions are drawn, all
    others judge. A call that reads answers is assumed equal to one that doesn't, as none was
    recorded.
    """

    @property
    def limits(self) -> dict[str, float]:
        """Budget name -> dollars per question: a part of the cost of a call of the
        expensive model.
        """
        dear = max(float(self._table().dollars(name).mean()) for name in self.pool.members)
        return {f"{percent}%": percent / 100 * dear for percent in (25, 50, 75)}

    def tables(self, questions: int, seed: int) -> tuple[Table, Table, Table]:
        """Tables as in any world; plain forms are chosen on the questions that judge."""
        order = np.random.default_rng([seed, 7]).permutation(len(_recorded()))
        rest = self._table(order[questions:])
        return self._table(order[:questions]), rest, rest

    def _table(self, places: np.ndarray | slice = slice(None)) -> Table:
        rows = _recorded().iloc[places]
        right = rows[list(self.pool.members)].to_numpy(float).T
        shares = np.zeros((*right.shape, 2 + WRONG))
        shares[:, :, 1] = right
        for k, each in enumerate(right):  # each has its own wrong answers
            shares[k, :, 2 + k] = 1 - each
        texts = rows["question"].tolist()
        prompt = np.array([len(text) / 4 for text in texts])
        written = np.full(right.shape, float(LENGTHS.generated_tokens))
        key = np.zeros(len(rows), dtype=np.intp)
        return Table(self.pool, Sheet(texts, shares, key, prompt, written), seed=0)


@lru_cache(maxsize=1)
def _recorded() -> pd.DataFrame:
    return pd.read_csv(Path(__file__).with_name(f"{RECORD}.csv"))


RECORDED = Pool(
    "GSM8K as Mixtral and GPT-4 answered it",
    {"mixtral_8x7b": Member(0.24, greedy=True), "gpt_4_1106": Member(24.7, greedy=True)},
    check=0.0,
    follow=0.0,
)


def world_of(name: str) -> World:
    """World of this name, also of a kind with any seed. Raises InputError."""
    if name == RECORD:
        return Record(name, RECORDED, held_out=False)
    if name in NAMED:
        entry = dict(NAMED[name])
        members = {each: Member(**known) for each, known in entry.pop("members").items()}
        held_out = not entry.pop("chosen_on", False)
        return World(name, Pool(members=members, **entry), held_out)
    kind, _, seed = name.rpartition("-")
    if kind not in KINDS or not seed.isdigit():
        raise InputError(
            f"expected a world: {', '.join([RECORD, *NAMED])}, or a kind with a seed as in"
            f" {kind or 'gem'}-0 ({', '.join(KINDS)}), found {name!r}"
        )
    return World(name, pool_of(kind, int(seed)), int(seed) % 2 == 1)


def names(held_out: bool) -> list[str]:
    """Worlds of a part: the record belongs to the part for tuning."""
    drawn = [f"{kind}-{k}" for kind in KINDS for k in range(8 if kind == "drawn" else 2)]
    return [name for name in (RECORD, *NAMED, *drawn) if world_of(name).held_out == held_out]
