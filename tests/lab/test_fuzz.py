"""Small whole searches of random settings: each ends in a result, or in an error about them."""

from collections import Counter

from lab.fuzz.cases import failures


def test_a_dozen_searches_of_a_fixed_seed_end_as_they_should():
    ended = Counter[str]()
    assert list(failures(3, range(12), ended)) == []
    assert ended["found"] >= 6
