import pytest

from lab.study.dags import labeled_dags, unlabeled_dags
from tests.support.oracles import LABELED, UNLABELED
from ttsgraph.base.errors import InputError


def test_labeled_counts_match_the_published_ones():
    assert {n: labeled_dags(n) for n in LABELED} == LABELED


def test_unlabeled_counts_match_oeis():
    assert {n: unlabeled_dags(n) for n in UNLABELED} == UNLABELED


@pytest.mark.parametrize("n", [-1, 1000])
def test_out_of_range_is_refused(n):
    with pytest.raises(InputError, match="number of nodes from 0 to"):
        labeled_dags(n)
