"""Search agents by kind. A new one is one file, and one branch here."""

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
    """The agent a profile asks for, with its own generator. Raises SettingsError when a language
    model has no way to `speak`.
    """
    # What both need takes long to import, and only a stage that makes an agent needs it.
    from ttsgraph.searching.agent.heuristic import HeuristicAgent
    from ttsgraph.searching.agent.llm import LLMAgent

    if settings.kind == "heuristic":
        return HeuristicAgent(rng, settings)
    if speak is None:
        raise SettingsError("agent of kind llm: expected a way to reach its model, found none")
    return LLMAgent(rng, settings, speak)
