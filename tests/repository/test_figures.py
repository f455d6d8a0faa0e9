"""Figures that pages state are the code's (figures.yaml)."""

import math
import re
import tomllib
from collections.abc import Iterable, Sequence
from importlib import import_module
from pkgutil import resolve_name

import pytest
import yaml

from codecheck.sandbox import SandboxLimits
from lab.study import paper
from tests.support.project import ROOT
from ttsgraph.settings.profile import load_profile

STATED = yaml.safe_load((ROOT / "tests" / "repository" / "figures.yaml").read_text())
NUMBERS = ["one", "two", "three", "four", "five", "six"]
NUMBERS += ["seven", "eight", "nine", "ten", "eleven", "twelve"]
PYTHON = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"][2:]


def worded(number: float) -> str:
    """A small whole number, or a half, as a word."""
    return "half" if number == 0.5 else NUMBERS[int(number) - 1]


def three(scores: Iterable[float]) -> str:
    first, second, third = (f"{score:.0f}" for score in scores)
    return f"{first}, {second} and {third}"


def best(methods: Sequence[str]) -> str:
    """The best scores of these methods in the paper's first table."""
    tables = paper.TABLE_1.values()
    return three(int(max(table[method][0] for method in methods)) for table in tables)


KNOWN = {
    **{name: import_module(name) for name in ("codecheck", "lab", "tests", "ttsgraph")},
    **{"ttsgraph_flows": import_module("ttsgraph_flows"), "math": math, "PYTHON": PYTHON},
    **{"worded": worded, "three": three, "best": best, "LIMITS": SandboxLimits()},
    "PAPERS": load_profile("paper", ROOT / "profiles").init,
}


def figure(text: str) -> str:
    for name in re.findall(r"\b(?:codecheck|lab|tests|ttsgraph|ttsgraph_flows)(?:\.\w+)+", text):
        resolve_name(name)  # which imports its module
    return eval(f"f'''{text}'''", KNOWN)


@pytest.mark.parametrize("page", STATED)
def test_figures_of_a_page_are_the_code_s(page: str) -> None:
    text = " ".join((ROOT / page).read_text().split())
    assert [wanted for wanted in map(figure, STATED[page]) if wanted not in text] == []
