"""Users and tokens in, replicas and dollars out."""

import pytest
from typer.testing import CliRunner

from ttsgraph.base.errors import InputError
from ttsgraph.cli import app
from ttsgraph.service.capacity import plan


def test_a_load_by_hand():
    paid = {"dollars": 0.001, "replica_tokens": 2000, "replica_dollars": 2}
    found = plan(1200, 6, 6, 10, 3000, peak=3, **paid)  # 6 questions a second
    assert found.per_s == pytest.approx(6)
    assert found.under_way == 60
    assert found.processes == 1  # 77 a second, of 110 that one gives
    assert found.replicas == 13  # 9 servers' worth of tokens, each 70 % busy
    assert found.server_dollars == pytest.approx(13 * 2 * 730)
    assert found.call_dollars == pytest.approx(1200 * 6 * 730 * 0.001)


def test_what_is_read_can_be_what_a_server_is_short_of():
    read = {"prompt_tokens": 60_000, "replica_prompt_tokens": 20_000}
    assert plan(1200, 6, 6, 10, 3000, replica_tokens=2000, **read).replicas == 26


def test_rented_models_take_no_servers():
    found = plan(100, 5, 3, 2, 500, dollars=0.002)
    assert (found.replicas, found.server_dollars) == (0, 0.0)


def test_a_figure_that_cannot_be_is_named():
    with pytest.raises(InputError, match="expected users above 0, found 0"):
        plan(0, 5, 3, 2, 500)


def test_the_command_says_what_it_takes():
    given = "capacity --users 1200 --questions 6 --calls 6 --seconds 10 --tokens 3000"
    done = CliRunner().invoke(
        app, [*given.split(), "--replica-tokens", "2000", "--replica-dollars", "2"]
    )
    assert done.exit_code == 0, done.output
    assert "13 model servers" in done.output
    assert "60 answers under way" in done.output
    assert "$18,980 a month" in done.output
