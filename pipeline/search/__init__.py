"""Search methods. A new method is one file with a registered Searcher, and one import here."""

from pipeline.search import agent_reinforce, bayesian, gptswarm, maao, random, textgrad
from pipeline.search.base import SEARCHERS, Problem, Searcher, make_searcher, searcher_class

__all__ = [
    "SEARCHERS",
    "Problem",
    "Searcher",
    "agent_reinforce",
    "bayesian",
    "gptswarm",
    "maao",
    "make_searcher",
    "random",
    "searcher_class",
    "textgrad",
]
