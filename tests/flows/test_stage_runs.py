"""What decided before a search, in MLflow and in words."""

from __future__ import annotations

import pandas as pd

from ttsgraph_flows.lineage import why_models


def test_why_these_models_names_the_reason_and_the_best_that_were_tried() -> None:
    trials = pd.DataFrame(
        {
            "counts": ['{"a": 1}', '{"a": 2}', '{"a": 2}', '{"b": 1}'],
            "accuracy": [0.2, 0.5, 0.7, float("nan")],
        }
    )
    told = why_models({"a": 2}, {"reason": "a leads"}, trials)
    assert (
        told
        == '{"a": 2}: a leads; of 2 multisets tried, the best on average: {"a": 2} 60.0 %; {"a": 1}'
        " 20.0 %"
    )
