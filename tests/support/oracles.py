"""Published and hand-computed figures that the code is held to (arXiv 2511.00086; OEIS)."""

from ttsgraph.pool.spec import ModelPool, ModelSpec, Price

# name: family, total, non-embedding, layers, hidden, $ per million tokens
_FACTS = {
    "llama-3.2-1b": ("llama-3", 1.2358e9, 0.9732e9, 16, 2048, 0.02),
    "llama-3.2-3b": ("llama-3", 3.2127e9, 2.8187e9, 28, 3072, 0.06),
    "llama-3.1-8b": ("llama-3", 8.0303e9, 6.9796e9, 32, 4096, 0.18),
    "gemma-3-1b": ("gemma", 0.99989e9, 0.6979e9, 26, 1152, 0.02),
    "gemma-1.1-2b": ("gemma", 2.5062e9, 1.9819e9, 18, 2048, 0.06),
    "gemma-1.1-7b": ("gemma", 8.5377e9, 7.7513e9, 28, 3072, 0.27),
}
PAPER_POOL = ModelPool(
    tuple(ModelSpec(n, f, t, m, la, h, Price(p, p)) for n, (f, t, m, la, h, p) in _FACTS.items())
)


# MATH, in-degree 0 to 3, in units of one gemma-3-1b inference
BUDGET_MATH = {
    "llama-3.2-1b": [1.388, 2.209, 3.044, 3.893],
    "llama-3.2-3b": [4.015, 6.383, 8.788, 11.232],
    "llama-3.1-8b": [9.888, 15.668, 21.507, 27.404],
    "gemma-3-1b": [1.000, 1.595, 2.203, 2.824],
    "gemma-1.1-2b": [2.807, 4.448, 6.106, 7.780],
    "gemma-1.1-7b": [10.941, 17.301, 23.699, 30.136],
}
CHAIN_OF_3_LLAMA_8B = 41.22
CHAIN_OF_4_LLAMA_8B_DOLLARS = 4.92e-4

LABELED = {1: 1, 2: 3, 3: 25, 4: 543, 5: 29281, 6: 3781503, 7: 1138779265, 8: 783702329343}
# OEIS A003087
_COUNTS = (1, 2, 6, 31, 302, 5984, 243668, 20286025, 3424938010, 1165948612902)
UNLABELED = dict(enumerate(_COUNTS, 1))
