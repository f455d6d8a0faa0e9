"""Figures that sum up a search."""

from __future__ import annotations

from typing import Any

import pandas as pd

from pipeline.search.driver import Found


def search_summary(found: Found, archive: pd.DataFrame) -> dict[str, Any]:
    """What the search found, and what it took: evaluations, calls, how many of them were really made, tokens, dollars."""
    calls, cached = int(archive["calls"].sum()), int(archive["cached_calls"].sum())
    return {
        "found_hash": found.graph.content_hash,
        "found_iteration": found.iteration,
        "val_accuracy": found.val_accuracy,
        "stopped_by": found.stopped_by,
        "iterations": int(archive["iteration"].max()),
        "candidates": len(archive),
        "failed_candidates": int((archive["status"] == "failed").sum()),
        "unscored_questions": int(archive["n_unscored"].sum()),
        "calls": calls,
        "made_calls": calls - cached,
        "distinct_over_naive_calls": (calls - cached) / calls if calls else 0.0,
        "tokens": int(archive["prompt_tokens"].sum() + archive["completion_tokens"].sum()),
        "dollars": float(archive["dollars"].sum()),
        "spent_dollars": float(archive["spent_dollars"].sum()),
    }
