"""Plain forms in hindsight: the best form of each kind within a budget, as if a user knew in
advance which form is best.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_union

from lab.pools.tables import Table
from ttsgraph.base.arrays import FloatArray
from ttsgraph.graphs import topologies
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import FUSER, VOTER
from ttsgraph.graphs.stopping import LOSSLESS, Gate, Stop

MOST_CALLS = 23
"""Maximum number of answers that a form combines: by default, a graph has at most 24 nodes, one of
them the sink.
"""

SIZES = (3, 4, 5, 6, 7, 9, 12, 16, MOST_CALLS)
MODELS = 6
"""Maximum number of models that forms combine."""

STOPS = {"lossless": LOSSLESS, "surer": Stop("beta", 0.95), "sure": Stop("beta", 0.8)}
GATES = (0.0, 0.34, 0.5, 0.67, 0.8)
PLAIN = ("single", "vote", "cascade", "router", "split")
"""Kinds with which a search is compared; the kind `reading` counts only for the best known result.
"""


@dataclass(frozen=True, slots=True)
class Form:
    """Plain form: its name and, for each question, the probability that its answer is right (1 or 0
    if that is known), and its cost in dollars.
    """

    name: str
    right: FloatArray
    dollars: FloatArray

    @property
    def accuracy(self) -> float:
        """Expected share of questions that the form answers correctly."""
        return float(self.right.mean())

    @property
    def cost(self) -> float:
        """Mean cost per question, in dollars."""
        return float(self.dollars.mean())


def of_graph(name: str, table: Table, graph: CollaborationGraph) -> Form:
    """Return the form of a graph, measured on a table's questions."""
    return Form(name, *table.measured(graph))


def singles(table: Table) -> dict[str, Form]:
    """Return the form of a single call of each model, by the model's name."""
    return {name: of_graph(name, table, topologies.single(name)) for name in table.place}


def best_of_each(known: Table, tried: Table, fresh: Table, limit: float) -> dict[str, Form]:
    """Return the best plain form of each kind, measured on fresh questions. The router is trained
    on `known`; the other forms are selected on `tried`.
    """
    mixed = split(singles(tried), singles(fresh), limit)
    forms = _best_graphs(tried, fresh, limit) | {"router": router(known, fresh, limit)}
    return forms | ({} if mixed is None else {"split": mixed})


def _best_graphs(tried: Table, fresh: Table, limit: float) -> dict[str, Form]:
    """Return for each kind the most accurate graph on `tried` whose cost is within the limit on
    both tables, measured on `fresh`; a kind without such a graph is left out.
    """
    found: dict[str, Form] = {}
    for kind, name, graph, cost in _ranked(tried):
        if kind not in found and cost <= limit:
            form = of_graph(name, fresh, graph)
            if form.cost <= limit:
                found[kind] = form
    return found


@lru_cache(maxsize=4)
def _ranked(tried: Table) -> list[tuple[str, str, CollaborationGraph, float]]:
    """Return the kind, name, graph and cost of each graph to try, the most accurate first."""
    alone = singles(tried)
    models = _worthwhile(alone)
    listed = {
        "single": ((name, topologies.single(name)) for name in alone),
        "vote": _votes(alone, models),
        "cascade": _cascades(alone, models),
        "reading": _reading(models),
    }
    made = [
        (kind, name, graph, of_graph(name, tried, graph))
        for kind, graphs in listed.items()
        for name, graph in graphs
    ]
    made.sort(key=lambda each: -each[3].accuracy)
    return [(kind, name, graph, form.cost) for kind, name, graph, form in made]


def _worthwhile(alone: dict[str, Form]) -> list[str]:
    """Return at most MODELS models, cheapest first. Models that are more accurate than every
    cheaper one are preferred, and after them the most accurate of the others.
    """
    cheap_first = sorted(alone, key=lambda name: (alone[name].cost, -alone[name].accuracy))
    front = [
        name
        for k, name in enumerate(cheap_first)
        if all(alone[name].accuracy > alone[other].accuracy for other in cheap_first[:k])
    ]
    ranked = sorted(alone, key=lambda name: (name not in front, -alone[name].accuracy))
    return [name for name in cheap_first if name in ranked[:MODELS]]


def vote(models: Sequence[str], stop: Stop | None = None) -> CollaborationGraph:
    """Return a vote of these models; with a rule to stop early, the models are asked in waves."""
    graph = topologies.parallel(models, models[0], VOTER)
    if stop is None:
        return graph
    waves = (len(models) // 2 + 1, 1) if stop == LOSSLESS else (3, 2)
    return topologies.with_sink(graph, stop=stop, waves=waves)


def cascade(first: Sequence[str], over: float, then: Sequence[str]) -> CollaborationGraph:
    """Return a vote of the models `first`, to which the models `then` are added if the first ones
    disagree by more than `over`.
    """
    graph = topologies.parallel([*first, *then], then[0], VOTER)
    return topologies.with_sink(graph, gate=Gate(over, tuple(range(len(first)))))


Named = tuple[str, CollaborationGraph]


def _votes(alone: dict[str, Form], models: Sequence[str]) -> Iterator[Named]:
    best_first = sorted(models, key=lambda name: -alone[name].accuracy)
    for k, times in product(range(2, len(best_first) + 1), (1, 2, 3)):
        if k * times <= MOST_CALLS:
            yield f"vote of the best {k} x {times}", vote(best_first[:k] * times)
    for name, size in product(models, SIZES):
        yield f"vote of {size} x {name}", vote([name] * size)
        for words, stop in STOPS.items():
            yield f"vote of up to {size} x {name} until {words}", vote([name] * size, stop)


def _cascades(alone: dict[str, Form], models: Sequence[str]) -> Iterator[Named]:
    firsts = [[name] * count for name, count in product(models, (1, 2, 3, 4, 5))]
    firsts += [list(models[k : k + size]) for size in (2, 3) for k in range(len(models) - size + 1)]
    for first, then, later in product(firsts, models, (1, 3, 7)):
        if alone[then].cost < max(alone[name].cost for name in first):
            continue
        votes = len(first)
        gates = {
            math.ceil(votes * (1 - over) - 1e-9): over for over in GATES
        }  # one gate for each distinct threshold
        for over in gates.values():
            label = f"{' + '.join(first)}, over {over:g} {later} x {then}"
            yield label, cascade(first, over, [then] * later)


def _reading(models: Sequence[str]) -> Iterator[Named]:
    for name, reader, size in product(models, models, (1, 2, 3, 5)):
        graph = topologies.parallel([name] * size, reader, FUSER)
        yield f"{size} x {name} read by {reader}", graph
        if size > 1:
            contested = topologies.with_sink(graph, gate=Gate(0.0))
            yield f"{size} x {name} read by {reader} where they disagree", contested


def split(tried: dict[str, Form], fresh: dict[str, Form], limit: float) -> Form | None:
    """Return the best split of questions between single calls of two models, based on the
    question's hash, with the largest affordable share for the more expensive model. Return None if
    no single call is over the limit, or if all are.
    """
    pairs = [
        (cheap, dear)
        for cheap, dear in product(fresh, fresh)
        if fresh[cheap].cost <= limit < fresh[dear].cost
    ]

    def mixed(forms: dict[str, Form], cheap: str, dear: str) -> Form:
        a, b = forms[cheap], forms[dear]
        share = (limit - fresh[cheap].cost) / (fresh[dear].cost - fresh[cheap].cost)
        right, dollars = (
            (1 - share) * x + share * y for x, y in ((a.right, b.right), (a.dollars, b.dollars))
        )
        return Form(f"{dear} for {share:.0%}, else {cheap}", right, dollars)

    if not pairs:
        return None
    best = max(pairs, key=lambda pair: mixed(tried, *pair).accuracy)
    return mixed(fresh, *best)


def router(known: Table, fresh: Table, limit: float) -> Form:
    """Return a router of single calls: TF-IDF with a logistic regression per model, trained on a
    single call of each model on every known question.

    Each fresh question is sent to the model with the highest expected accuracy minus a penalty
    proportional to the model's cost. The factor is the lowest that keeps the mean cost within the
    limit.
    """
    learnt, judged = singles(known), singles(fresh)
    models = _worthwhile(learnt)
    reader = make_union(
        TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True),
        TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), sublinear_tf=True),
    )
    texts = reader.fit_transform(known.sheet.texts), reader.transform(fresh.sheet.texts)
    expected = np.array([_expected(texts, learnt[name].right) for name in models])
    mean = np.array([learnt[name].cost for name in models])[:, None]
    right, dollars = (
        np.stack([getattr(judged[name], part) for name in models]) for part in ("right", "dollars")
    )
    columns = np.arange(fresh.count)

    def sent(price: float) -> FloatArray:
        return np.argmax(expected - price * mean / mean.max(), axis=0)

    low, high = 0.0, 1000.0
    for _ in range(60) if dollars[sent(0.0), columns].mean() > limit else ():
        middle = (low + high) / 2
        over = dollars[sent(middle), columns].mean() > limit
        low, high = (middle, high) if over else (low, middle)
    to = sent(high if low else 0.0)
    return Form("router of single calls", right[to, columns], dollars[to, columns])


def _expected(texts: tuple[object, object], right: FloatArray) -> FloatArray:
    """Return for each of the second texts the probability that a model is right, estimated from the
    first texts and the model's results on them.
    """
    if min(right.sum(), len(right) - right.sum()) < 5:
        return np.full(texts[1].shape[0], right.mean())  # type: ignore[attr-defined]
    strengths = {"C": (0.1, 1.0, 10.0)}
    model = GridSearchCV(LogisticRegression(), strengths, scoring="neg_log_loss", cv=5)
    return model.fit(texts[0], right).predict_proba(texts[1])[:, 1]


def oracle(fresh: Table, limit: float) -> float:
    """Return the best accuracy of single calls within the limit for a user who knows in advance on
    which questions the cheapest and the most expensive model are right.
    """
    alone = sorted(singles(fresh).values(), key=lambda form: form.cost)
    cheap, dear = alone[0], alone[-1]
    gain = dear.right > cheap.right
    left = limit * fresh.count - cheap.dollars.sum()
    extra = np.sort((dear.dollars - cheap.dollars)[gain])
    return float((cheap.right.sum() + (extra.cumsum() <= left).sum()) / fresh.count)
