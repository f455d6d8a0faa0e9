"""The garbage collector looks seldom while models are asked, and is left as it was found."""

from __future__ import annotations

import gc

import pytest

from ttsgraph.models.collector import NEW_OBJECTS, rare_collections


@pytest.mark.parametrize(
    ("before", "within"), [(700, NEW_OBJECTS), (10 * NEW_OBJECTS, 10 * NEW_OBJECTS), (0, 0)]
)
def test_collections_are_rare_within_and_as_before_afterwards(before, within):
    found = gc.get_threshold()
    try:
        gc.set_threshold(before, 9, 8)
        with rare_collections():
            assert gc.get_threshold() == (within, 9, 8)
        assert gc.get_threshold() == (before, 9, 8)
    finally:
        gc.set_threshold(*found)
