"""Worlds as files: `lab/worlds/named/<name>.yaml` says which calibrated task a world starts from
and which traits it changes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field, PositiveFloat, PositiveInt

from ttsgraph.base.errors import SettingsError
from ttsgraph.base.parsing import Closed, load, parse
from ttsgraph.pool.simulated import TaskTraits
from ttsgraph.settings.profile import Profile, SearchSettings
from ttsgraph.settings.stages import ContestSettings

FOLDER = Path("lab/worlds/named")
SETTINGS = Path("lab/worlds.yaml")


class WorldSettings(Closed):
    """One world. `traits` replace those of the task's simulation; of a trait per model, only the
    models named change.

    `tuned_on` says that constants of the search were chosen while looking at this world, on other
    seeds than are reported.
    """

    description: str
    task: str
    traits: dict[str, Any] = Field(default_factory=dict)
    tuned_on: bool = False

    def of(self, profile: Profile, where: str) -> TaskTraits:
        """The world's traits on a profile's pool. Raises SettingsError that names the file and the
        trait.
        """
        if self.task not in profile.simulation.tasks:
            known = ", ".join(profile.simulation.tasks)
            raise SettingsError(f"{where}: expected task as one of {known}, found {self.task!r}")
        base = profile.simulation.tasks[self.task].model_dump()
        for name, value in self.traits.items():
            base[name] = (
                {**base[name], **value}
                if isinstance(value, dict) and isinstance(base.get(name), dict)
                else value
            )
        return parse(TaskTraits, base, where)


class WorldQuestions(Closed):
    """Questions of each search: `train` that the profile stage asks every model, `val` for
    selection.
    """

    train: PositiveInt = 256
    val: PositiveInt = 48


class BestSettings(Closed):
    """How the best graph known of a world and budget is found: by enumerating structures, then by
    climbing from the best of them.

    Both on `questions`; the best `confirmed` of each are measured on as many others as `truth`,
    which judge all graphs.
    """

    questions: PositiveInt = 3000
    steps: PositiveInt = 3000
    confirmed: PositiveInt = 8
    truth: PositiveInt = 6000


class FrontSettings(Closed):
    """How a front is looked for: `limits` in mean units a question, `questions` that choose,
    `truth` others that judge, and `steps` changed copies for each limit and family.
    """

    limits: tuple[PositiveFloat, ...] = (8, 18, 40, 80)
    questions: PositiveInt = 800
    truth: PositiveInt = 3000
    steps: PositiveInt = 120


class WorldsSettings(Closed):
    """lab/worlds.yaml: what `make worlds` runs. `calls` are those that a contest may make, per
    budget.
    """

    profile: str
    budgets: dict[PositiveFloat, PositiveInt]
    roles: tuple[str, ...]
    questions: WorldQuestions = WorldQuestions()
    search: SearchSettings
    contest: ContestSettings = ContestSettings()
    best: BestSettings = BestSettings()
    fronts: FrontSettings = FrontSettings()


def load_worlds(folder: Path = FOLDER) -> dict[str, WorldSettings]:
    """All worlds of a folder by name. Raises SettingsError."""
    found = {path.stem: load(WorldSettings, path) for path in sorted(folder.glob("*.yaml"))}
    if not found:
        raise SettingsError(f"{folder}: expected a file <name>.yaml for each world, found none")
    return found
