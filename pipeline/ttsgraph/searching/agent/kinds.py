"""Search agents by kind. To add a kind, write one file and add a branch to `make_agent`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ttsgraph.base.errors import SettingsError
from ttsgraph.models.client import Chat
from ttsgraph.settings.profile import AgentSettings

if TYPE_CHECKING:
    from ttsgraph.searching.agent.heuristic import HeuristicAgent


def make_agent(
    settings: AgentSettings, rng: np.random.Generator, speak: Chat | None = None
) -> HeuristicAgent:
    """Return the agent that a profile asks for; it draws from `rng`. Raises SettingsError
    if the agent is a language model and `speak` is None.
    """
    # these imports are slow, and only stages that create an agent need them
    from ttsgraph.searching.agent.heuristic import HeuristicAgent
    from ttsgraph.searching.agent.llm import LLMAgent

    if settings.kind == "heuristic":
        return HeuristicAgent(rng, settings)
    if speak is None:
        raise SettingsError(
            "agent.kind llm: expected `speak`, which calls the agent's language model, found None"
        )
    return LLMAgent(rng, settings, speak)
