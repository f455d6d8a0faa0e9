"""How often Python looks for garbage while models are asked."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

NEW_OBJECTS = 50_000
"""New objects between two looks, instead of Python's 700.

A look goes through the objects of all calls that wait, and finds next to nothing: calls leave few
cycles. With 700 it took a tenth to a fifth of the client's core time, and a larger share the more
calls were waiting, so that the time for a graph grew faster than its nodes
(lab/benchmarks/growth.py).
"""


@contextmanager
def rare_collections() -> Iterator[None]:
    """Look for garbage seldom; as before afterwards. A collector that is off stays off."""
    before = gc.get_threshold()
    if before[0]:
        gc.set_threshold(max(NEW_OBJECTS, before[0]), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
