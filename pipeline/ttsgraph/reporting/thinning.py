"""Which of many candidates a plot draws, so that it opens quickly: one for each place, and always
those that matter.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

MOST = 1500
"""Points that a plot draws before it leaves any out."""


def thinned(table: pd.DataFrame, always: set[int], most: int = MOST) -> list[int]:
    """Row numbers to draw: all if they are few, else the first at each place of a grid over cost
    and accuracy, as fine as `most` allows, and all of `always`.
    """
    rows = np.flatnonzero(table["accuracy"].notna().to_numpy())
    if len(rows) <= most:
        return rows.tolist()
    values = table.iloc[rows][["budget_units", "accuracy"]].to_numpy(dtype=float)
    low = values.min(axis=0)
    span = np.ptp(values, axis=0)
    places = (values - low) / np.where(span > 0, span, 1)
    split = (
        pd.factorize(table["split"].iloc[rows])[0]
        if "split" in table
        else np.zeros(len(rows), dtype=int)
    )
    for cells in (480, 240, 160, 120, 80, 60, 40, 30, 20):
        grid = np.column_stack([split, np.round(places * (cells, cells / 2)).astype(int)])
        _, first = np.unique(grid, axis=0, return_index=True)
        if len(first) <= most:
            break
    return sorted({*rows[first].tolist(), *always})
