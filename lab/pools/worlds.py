"""Worlds by name. A world supplies the questions that a search knows, and the questions on which
its result is judged.
"""

import zlib
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
"""Numbers and seeds of the questions on which searches are judged (FRESH), and of the questions on
which plain forms are selected (TRIED); the known questions of a search have other seeds.
"""


@dataclass(frozen=True)
class World:
    """Named pool from which tables of questions are drawn."""

    name: str
    pool: Pool
    held_out: bool

    @property
    def limits(self) -> dict[str, float]:
        """Limit of each budget, in dollars per question: the cost of 4 or 8 calls of the cheapest
        model, or of 3 calls of the most expensive one.
        """
        tokens = (LENGTHS.prompt_tokens + LENGTHS.generated_tokens) / 1e6
        prices = [tokens * member.price for member in self.pool.members.values()]
        return {"4-cheap": 4 * min(prices), "8-cheap": 8 * min(prices), "3-dear": 3 * max(prices)}

    def tables(self, questions: int, seed: int) -> tuple[Table, Table, Table]:
        """Return the tables of the questions known to a search, of the questions on which it is
        judged, and of the questions on which plain forms are selected.
        """
        # Worlds with one seed would share the luck of their questions and of the models' answers.
        known = table_of(self.pool, questions, zlib.crc32(f"{self.name} {seed}".encode()))
        return known, _later(self.name, FRESH, FRESH_SEED), _later(self.name, TRIED, TRIED_SEED)


@lru_cache(maxsize=4)
def _later(name: str, count: int, seed: int) -> Table:
    return table_of(world_of(name).pool, count, seed, later=True)


@dataclass(frozen=True)
class Record(World):
    """World of recorded answers: one answer of each of two models to each question. The known
    questions are drawn with a seed, and the search is judged on all others. No calls that read
    answers were recorded; such a call is assumed to give the same reply as a call that reads none.
    """

    @property
    def limits(self) -> dict[str, float]:
        """Limit of each budget, in dollars per question: a share of the mean cost of a call of the
        expensive model.
        """
        dear = max(float(self._table().dollars(name).mean()) for name in self.pool.members)
        return {f"{percent}%": percent / 100 * dear for percent in (25, 50, 75)}

    def tables(self, questions: int, seed: int) -> tuple[Table, Table, Table]:
        """Return the three tables, as in any world; here, plain forms are selected on the questions
        on which the search is judged.
        """
        order = np.random.default_rng([seed, 7]).permutation(len(_recorded()))
        rest = self._table(order[questions:])
        return self._table(order[:questions]), rest, rest

    def _table(self, places: np.ndarray | slice = slice(None)) -> Table:
        rows = _recorded().iloc[places]
        right = rows[list(self.pool.members)].to_numpy(float).T
        shares = np.zeros((*right.shape, 2 + WRONG))
        shares[:, :, 1] = right
        for k, each in enumerate(right):  # the models have different wrong replies
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
    """Return the world with this name, which may also be a kind with any seed. Raises InputError if
    there is none.
    """
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
            f"expected the name of a world: {', '.join([RECORD, *NAMED])}; or a kind with a seed,"
            f" such as gem-0 (kinds: {', '.join(KINDS)}); found {name!r}"
        )
    return World(name, pool_of(kind, int(seed)), int(seed) % 2 == 1)


def names(held_out: bool) -> list[str]:
    """Return the names of the worlds for reporting if `held_out` is set, and otherwise of the
    worlds for tuning, which include the record.
    """
    drawn = [f"{kind}-{k}" for kind in KINDS for k in range(8 if kind == "drawn" else 2)]
    return [name for name in (RECORD, *NAMED, *drawn) if world_of(name).held_out == held_out]
