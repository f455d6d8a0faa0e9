"""Names of tasks and models: they name folders, files and MLflow experiments."""

from __future__ import annotations

import re

from ttsgraph.base.errors import InputError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def require_name(name: str, what: str) -> None:
    """Raises InputError for a name that can't name a folder."""
    if not _NAME.fullmatch(name):
        raise InputError(
            f"expected {what} named with letters, digits, '.', '_' and '-' only, found {name!r}"
        )
