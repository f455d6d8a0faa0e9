"""Where the registry's champion is another graph than the one that a report names: a line that says
so, for page, terminal and README.

A report follows from its tables alone, so it is the same wherever it is made; what serves is the
registry's to say, and can change without a new report. So this stands beside the page, in a script
that the page reads (`reports/<profile>/serving.js`), and is written anew when the champion changes.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any

from ttsgraph.base.errors import DataError, TTSGraphError
from ttsgraph.base.files import write_text
from ttsgraph.reporting.explain import in_brief
from ttsgraph.reporting.figures import SPACE, shown
from ttsgraph.settings.profile import load_params
from ttsgraph_flows.answers import REPORTS, SERVING, answers_file, serving_file
from ttsgraph_flows.registry import CHAMPION, Registry, Version


def lines_of(profile: str, tracking_uri: str) -> dict[str, str]:
    """Task -> what to say beside the report's answer; nothing for a task whose champion is the
    graph that the report names. Raises InputError when the registry can't be used.
    """
    found = json.loads(answers_file(profile).read_text(encoding="utf-8"))
    registry = Registry(tracking_uri)
    lines = {told["task"]: _line(registry, told) for told in found["tasks"]}
    return {task: line for task, line in lines.items() if line}


def _line(registry: Registry, told: dict[str, Any]) -> str:
    task = told["task"]
    versions = registry.versions(task)
    champion = next((v for v in versions if CHAMPION in v.aliases), None)
    if champion is not None and champion.tags["graph_hash"] == told["graph_hash"]:
        return ""
    same = [v for v in versions if v.tags.get("graph_hash") == told["graph_hash"]]
    this = f" This one is {same[-1].label}: ttsgraph serve {same[-1].label}." if same else ""
    if champion is None:
        return f"Nothing serves as {task}@{CHAMPION} yet.{this}"
    return f"{task}@{CHAMPION} is another graph: {_words(registry, champion)}.{this}"


def _words(registry: Registry, version: Version) -> str:
    """A version's graph, with its score in its own test; its name alone where files are gone."""
    try:
        deployed = registry.deployed(version)
        test = registry.provenance(version).test
    except DataError:
        return version.label
    words = in_brief(deployed.graph, deployed.profile.model_pool())
    score = (
        f"{shown(test.accuracy, 'percent')} right"
        f" ({shown(test.low, 'bare')} to {shown(test.high, 'bare')})"
    )
    return f"{version.label}, {words}; {score.replace(SPACE, ' ')}"


def write_serving(profile: str, tracking_uri: str) -> None:
    """Write the script that a profile's page reads."""
    lines = json.dumps(lines_of(profile, tracking_uri), indent=1, ensure_ascii=False)
    write_text(serving_file(profile), f"{SERVING} = {lines};\n")


def refresh() -> None:
    """Write the script of each page here anew, after the champion changed. What can't be told is no
    reason to fail: that page goes on saying what it said.
    """
    uri = load_params().tracking_uri
    for path in sorted(REPORTS.glob(f"*/{answers_file('*').name}")):
        with contextlib.suppress(TTSGraphError, ValueError, LookupError):
            write_serving(path.parent.name, uri)
