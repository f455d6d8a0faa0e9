"""What a search leaves in its folder: tables, the history of its journal, its summary and the
graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ttsgraph.base.files import md5, write_text
from ttsgraph.base.journal import entries_of, write_history
from ttsgraph.evaluation.archive import Archive, without_nodes
from ttsgraph.evaluation.progress import Spent
from ttsgraph.searching.agent.base import Exchange
from ttsgraph.searching.methods.summary import SPENT, Found, edge_table, search_summary
from ttsgraph.stages.records import Searched, write_record
from ttsgraph.stages.schemas import Candidates, Edges, Evidence, Trajectory, write_table


def write_search(
    folder: Path,
    found: Found,
    archive: Archive,
    spent: Spent,
    exchanges: Sequence[Exchange] = (),
    isolation_missing: Mapping[str, str] | None = None,
) -> tuple[dict[str, Any], pd.DataFrame]:
    """Write what was found beside the journal of the folder, journal.jsonl; returns the summary,
    and the table of nodes' answers.
    """
    candidates = archive.table()
    evidence = archive.answers.table()
    write_table(candidates, Candidates, folder / "archive.parquet")
    write_table(evidence, Evidence, folder / "evidence.parquet")
    write_table(found.trajectory, Trajectory, folder / "trajectory.csv")
    journal = folder / "journal.jsonl"
    write_history(without_nodes(entries_of(journal)), folder / "history.jsonl")
    write_table(edge_table(entries_of(journal)), Edges, folder / "edges.parquet")
    summary = search_summary(found, candidates, spent, exchanges) | {
        "isolation_missing": dict(isolation_missing or {}),
        "trajectory_md5": md5(folder / "trajectory.csv"),
        "evidence_left_out": archive.answers.left_out,
    }
    write_record(Searched, folder / "search.json", summary, SPENT)
    write_text(folder / "graph.json", found.graph.to_json())
    return summary, evidence
