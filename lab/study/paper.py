"""Results from the paper (arXiv 2511.00086), for comparison with the study. Scores are in %, times
in seconds.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

RIVALS = ("random", "bayesian", "gptswarm", "maao", "textgrad")
OURS = "agent_reinforce"

Rows = Mapping[str, Mapping[str, Sequence[float]]]
"""Figures of the rows of a table, by block and name: the test score, the search seconds and, except
in table 2, the seconds per test query.
"""

_PUBLISHED: Mapping[str, Any] = yaml.safe_load(
    Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
)
TABLE_1: Rows = _PUBLISHED["table_1"]
TABLE_2: Rows = _PUBLISHED["table_2"]
TABLE_3: Rows = _PUBLISHED["table_3"]
TABLE_4: Mapping[str, Mapping[str, Mapping[str, float]]] = _PUBLISHED["table_4"]
PILOTS: Mapping[tuple[str, str, str], float] = {
    (figure, task, entry): accuracy
    for figure, tasks in _PUBLISHED["pilots"].items()
    for task, entries in tasks.items()
    for entry, accuracy in entries.items()
}
"""Accuracies in the text and the plots of section 4, by figure, task and entry."""

BEST_GRAPH = (
    "figure 6: an ensemble of small models, width 3, depth 4, biased to sequential refinement"
)
