"""The settings section `workers`: where candidates are evaluated, and where the calls are kept that
several machines share.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import PositiveInt, model_validator

from ttsgraph.base.parsing import Closed


class WorkerSettings(Closed):
    """In the process that searches (local), or by workers of a Dask or Ray cluster that share out
    the questions.
    """

    kind: Literal["local", "dask", "ray"] = "local"
    """in this process, or on a Dask or Ray cluster"""
    count: PositiveInt = 2
    """workers that there are, or that are started where there is no address"""
    address: str | None = None
    """of the cluster's scheduler; without one, workers are started here"""
    store: Path | None = None
    """folder that all machines see, for the call cache; without one it is a file for one machine"""

    @model_validator(mode="after")
    def _complete(self) -> WorkerSettings:
        if self.kind == "local" and self.address is not None:
            raise ValueError("address is for kind dask or ray, found kind local")
        if self.address is not None and self.store is None:
            raise ValueError(
                "expected a store, a folder that all machines of the cluster see, found none"
            )
        if self.store is not None and not self.store.is_absolute():
            raise ValueError(
                "expected store as an absolute path, the same on all machines, found"
                f" {str(self.store)!r}"
            )
        return self
