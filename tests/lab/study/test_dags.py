from lab.study.dags import labeled_dags, unlabeled_dags
from tests.support.oracles import LABELED, UNLABELED


def test_labeled_counts_match_the_published_ones():
    assert {n: labeled_dags(n) for n in LABELED} == LABELED


def test_unlabeled_counts_match_oeis():
    assert {n: unlabeled_dags(n) for n in UNLABELED} == UNLABELED
