"""What each stage's result depends on beside its inputs, as files that DVC watches; a stage that
DVC runs before all others. A file of the stage lists its settings and the digest of each module
that it runs, so `diff` says why a stage runs again. Files are written only where they differ.
"""

import json
from pathlib import Path

from ttsgraph.base.code import MEMORY, Code, own_code
from ttsgraph.base.files import write_text
from ttsgraph.runtime.clients import replayed_facts
from ttsgraph.serving.environment import number_format
from ttsgraph.settings.profile import Params, Profile, load_params, load_profile
from ttsgraph.stages.identity import stage_identity
from ttsgraph.stages.plan import IDENTITY, STAGES
from ttsgraph_flows.ending import PROFILE, command


def identity(profile: str | None = None) -> list[Path]:
    """Write what stages depend on into identity/<profile>/; returns the files."""
    params = load_params()
    name = params.profile if profile is None else profile
    code = Code(*own_code().roots, memory=MEMORY)
    texts = identities(params.model_copy(update={"profile": name}), load_profile(name), code)
    code.remember()
    folder = Path(IDENTITY.format(profile=name))
    for old in folder.rglob("*.json") if folder.exists() else ():
        if old not in texts:
            old.unlink()
    for path, text in texts.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            write_text(path, text)
    return list(texts)


def identities(params: Params, profile: Profile, code: Code) -> dict[Path, str]:
    """Path -> text of each file."""
    found = {}
    for plan in STAGES:
        for task in params.tasks if "task" in plan.per else (None,):
            path = Path(plan.identity.format(profile=params.profile, task=task))
            data = stage_identity(plan, params, profile, task, code)
            if "engine" in plan.settings and profile.hosted:
                data["number_format"] = _number_format(profile)
            found[path] = json.dumps(data, indent=1) + "\n"
    return found


def _number_format(profile: Profile) -> str:
    """Of the servers that answer: another one rounds, and so may answer, otherwise."""
    if profile.engine.device == "gpu":
        return "of the weights"
    replayed = replayed_facts()
    if replayed is not None and "number_format" in replayed:
        return replayed["number_format"]
    return number_format(profile.engine.dtype, profile.engine.python).name


if __name__ == "__main__":
    command(identity, profile=PROFILE)
