"""Importing a package without the other packages that it would make use of if they were there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def as_if_missing(*packages: str) -> Iterator[None]:
    """What is imported meanwhile finds these packages missing, but for those that are loaded
    already. For imports at a module's top, where no other thread imports.
    """
    hidden = [name for name in packages if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None: not to be imported
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
