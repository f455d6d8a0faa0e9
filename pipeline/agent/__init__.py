"""Search agents. A new kind is one file, and one branch here."""

from __future__ import annotations

import numpy as np

from pipeline.agent.base import SearchAgent
from pipeline.agent.heuristic import HeuristicAgent
from pipeline.settings import AgentSettings


def make_agent(settings: AgentSettings, rng: np.random.Generator) -> SearchAgent:
    """The agent a profile asks for, with its own generator."""
    return HeuristicAgent(rng, settings.insight_1, settings.insight_2, settings.insight_3, settings.step)
