"""Published and hand-computed figures that the code is held to, from oracles.yaml."""

from pathlib import Path
from typing import Any

import yaml

from ttsgraph.pool.spec import ModelPool, ModelSpec, Price

_FIGURES: dict[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
PAPER_POOL = ModelPool(
    [ModelSpec(m, *facts, Price(price, price)) for m, (*facts, price) in _FIGURES["models"].items()]
)
BUDGET_MATH: dict[str, list[float]] = _FIGURES["budget_math"]
CHAIN_OF_3_LLAMA_8B: float = _FIGURES["chain_of_3_llama_8b"]
CHAIN_OF_4_LLAMA_8B_DOLLARS: float = _FIGURES["chain_of_4_llama_8b_dollars"]
LABELED, UNLABELED = (dict(enumerate(_FIGURES[name], 1)) for name in ("labeled", "unlabeled"))
