"""Search methods. To add a method, write a module with a registered Searcher, and add the module to
the first import.
"""

from ttsgraph.searching.methods import agent_reinforce, random, textgrad  # noqa: F401 (each registers its method)
from ttsgraph.searching.methods.base import SEARCHERS, Problem, Searcher, searcher_class

__all__ = ["SEARCHERS", "Problem", "Searcher", "searcher_class"]
