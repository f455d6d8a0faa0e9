"""Results from the paper (arXiv 2511.00086), for comparison with the study. Scores are in %, times
in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping

RIVALS = ("random", "bayesian", "gptswarm", "maao", "textgrad")
OURS = "agent_reinforce"

PaperRow = tuple[float, float, float]
"""Test score, search seconds, seconds per test query."""

TABLE_1: Mapping[str, Mapping[str, PaperRow]] = {
    "math": {
        "random": (39, 2852, 27.3),
        "bayesian": (42, 3076, 38.0),
        "gptswarm": (40, 943, 18.4),
        "maao": (34, 1440, 24.6),
        "textgrad": (41, 3687, 40.4),
        OURS: (56, 804, 17.3),
    },
    "mmlu": {
        "random": (44, 658, 17.8),
        "bayesian": (38, 2150, 26.8),
        "gptswarm": (42, 463, 10.6),
        "maao": (41, 738, 8.1),
        "textgrad": (46, 2276, 9.6),
        OURS: (54, 493, 8.0),
    },
    "humaneval": {
        "random": (63, 1560, 12.6),
        "bayesian": (33, 2588, 42.6),
        "gptswarm": (55, 804, 15.5),
        "maao": (42, 860, 20.7),
        "textgrad": (42, 2842, 17.3),
        OURS: (73, 300, 4.9),
    },
}
"""Results at a budget of 80."""

TABLE_2: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "math": {
        "full": (56, 804),
        "insight_1": (45, 1946),
        "insight_2": (49, 2208),
        "insight_3": (48, 1436),
        "roles": (52, 785),
    },
    "mmlu": {
        "full": (54, 493),
        "insight_1": (42, 1293),
        "insight_2": (47, 896),
        "insight_3": (54, 487),
        "roles": (54, 677),
    },
}
"""Score and search seconds of Agent-REINFORCE without one insight or without roles; `full` has all
insights and roles.
"""

TABLE_3: Mapping[str, Mapping[str, PaperRow]] = {
    "5e-4 dollars": {
        "random": (35, 2546, 52.5),
        "bayesian": (36, 2372, 56.6),
        "gptswarm": (43, 832, 20.5),
        "maao": (47, 1104, 20.0),
        "textgrad": (22, 3062, 57.9),
        OURS: (56, 648, 18.1),
        "joint": (52, 415, 14.0),
    },
    "42": {
        "random": (33, 1706, 56.9),
        "bayesian": (45, 2724, 49.5),
        "gptswarm": (44, 858, 31.2),
        "maao": (46, 889, 50.9),
        "textgrad": (45, 2661, 48.6),
        OURS: (50, 726, 23.8),
        "joint": (47, 698, 17.4),
    },
    "18": {
        "random": (39, 1440, 16.0),
        "bayesian": (38, 1634, 23.1),
        "gptswarm": (44, 1028, 29.1),
        "maao": (44, 836, 14.6),
        "textgrad": (40, 2553, 16.8),
        OURS: (47, 771, 16.7),
        "joint": (44, 717, 5.6),
    },
}
"""MATH under other budgets; `joint` is Agent-REINFORCE for accuracy and latency."""

TABLE_4: Mapping[str, Mapping[str, Mapping[str, float]]] = {
    "math": {
        "1B mix": {"sequential": 37, "parallel": 41, "hybrid": 44},
        "3B mix": {"sequential": 58, "parallel": 56, "hybrid": 59},
        "8B x 1": {"sequential": 49, "parallel": 49, "hybrid": 49},
    },
    "mmlu": {
        "1B mix": {"sequential": 35, "parallel": 43, "hybrid": 30},
        "3B mix": {"sequential": 49, "parallel": 51, "hybrid": 41},
        "8B x 1": {"sequential": 64, "parallel": 64, "hybrid": 64},
    },
}
"""Accuracy by model combination and topology, with LLaMA models; means of 10 random graphs."""

PILOTS: Mapping[tuple[str, str, str], float] = {
    ("figure 3", "math", "1 x llama-3.2-3b"): 39,
    ("figure 3", "math", "2 x llama-3.2-3b"): 46,
    ("figure 3", "math", "1 x llama-3.1-8b"): 49,
    ("figure 3", "mmlu", "1 x llama-3.2-3b"): 41,
    ("figure 3", "mmlu", "2 x llama-3.2-3b"): 45,
    ("figure 3", "mmlu", "1 x llama-3.1-8b"): 64,
    ("figure 4c", "math", "1 x 8"): 38,
    ("figure 4c", "math", "3 x 4"): 47,
}
"""Accuracies in the text and the plots of section 4, by figure, task and entry; 3 x 4 is width x
depth.
"""

BEST_GRAPH = (
    "figure 6: an ensemble of small models, width 3, depth 4, biased to sequential refinement"
)
