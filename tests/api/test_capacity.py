"""Users and tokens in, replicas and dollars out."""

import pytest
from typer.testing import CliRunner

from ttsgraph.base.errors import InputError
from ttsgraph.cli import app

ASKED = "capacity --users 1200 --questions 6 --calls 6 --seconds 10 --tokens 3000"  # 6 a second


def planned(more: str) -> str:
    done = CliRunner().invoke(app, f"{ASKED} {more}".split(), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize(
    ("more", "said"),
    [
        # 9 servers' worth of tokens, each 70 % busy; 77 questions a second, of 110 that one gives
        (
            "--replica-tokens 2000 --replica-dollars 2 --dollars 0.001",
            "6 questions a second in the busiest hour, 60 answers under way\n"
            "1 processes of ttsgraph serve, 13 model servers\n"
            "$18,980 a month for model servers, $5,256 for calls\n",
        ),
        ("--dollars 0.002", " 0 model servers\n$0 a month for model servers, $10,512 for calls\n"),
    ],
)
def test_what_a_load_takes(more, said):
    assert said in planned(more)


def test_a_figure_that_cannot_be_is_named():
    with pytest.raises(InputError, match="expected --users above 0, found 0"):
        planned("--users 0")
