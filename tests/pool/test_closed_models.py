"""Models of which nothing is known but a name, prices and an endpoint."""

import pytest

from tests.support.project import laptop_on
from ttsgraph.base.errors import SettingsError
from ttsgraph.base.parsing import parse
from ttsgraph.graphs.budget import CostModel, Lengths
from ttsgraph.models.client import Completion
from ttsgraph.pool.spec import Price
from ttsgraph.settings.profile import Profile

URL = "http://127.0.0.1:1/v1"
PRICES = {
    "large": {"prompt": 2, "completion": 8},
    "small": 0.1,
    "middle": {"prompt": 0.4, "completion": 1.6},
}


def profile(metric: str = "dollars", **facts) -> Profile:
    """Three closed models: names, prices, base URL, key variable."""
    pool = {
        name: {"price": price, "base_url": URL, "api_key_env": "CLOSED_KEY"} | facts
        for name, price in PRICES.items()
    }
    return parse(Profile, laptop_on(pool, budget={"metric": metric, "limit": 0.002}), "here")


def test_a_model_is_a_name_and_a_price_and_an_endpoint():
    pool = profile().model_pool()
    assert [spec.family for spec in pool.values()] == ["large", "small", "middle"]
    # By price, where sizes are not known.
    assert list(pool.families) == ["small", "middle", "large"]
    assert pool.unknown.keys() == pool.keys()


def test_tokens_that_an_endpoint_knew_and_those_of_reasoning_have_prices_of_their_own():
    call = Completion("", 100, 50, 0.0, known_tokens=40, reasoning_tokens=30)
    plain = 100 * 10 + 50 * 40
    assert Price(10, 40).of(call) == pytest.approx(plain / 1e6)
    assert Price(10, 40, cached=1).of(call) == pytest.approx((plain - 40 * 9) / 1e6)
    assert Price(10, 40, 1, 80).of(call) == pytest.approx((plain - 40 * 9 + 30 * 40) / 1e6)


@pytest.mark.parametrize("metric", ["dollars", "runtime"])
def test_only_a_flops_budget_asks_for_facts(metric):
    assert profile(metric, speed=[1e-5, 1e-3]).cost_model("math").single("small") > 0
    needed = "a FLOPs budget needs total, non_embedding, layers, hidden of model 'large'"
    with pytest.raises(SettingsError, match=needed):
        profile("flops")
    with pytest.raises(SettingsError, match="needs layers of model 'large'"):
        profile("flops", total=2, non_embedding=1, hidden=8)
    with pytest.raises(SettingsError, match=needed):
        CostModel(profile().model_pool(), Lengths(10, 2), "flops")
