"""What MLflow shows of a run beside its figures: what made it, at which commit, and the graph."""

from __future__ import annotations

import subprocess
from functools import lru_cache
from pathlib import Path

from ttsgraph.graphs.graph import CollaborationGraph

COMMIT = "mlflow.source.git.commit"


def git(*arguments: str, folder: Path = Path()) -> str | None:
    """What git says in a folder, the working directory by default; None where it can't."""
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


@lru_cache(maxsize=1)
def commit() -> str | None:
    """The commit of the working directory; None outside a repository."""
    return git("rev-parse", "HEAD")


def run_tags(stage: str) -> dict[str, str]:
    """Tags by which MLflow shows a run's source, the flow of a stage, and commit."""
    tags = {"mlflow.source.name": f"{__package__}.{stage}", "mlflow.source.type": "LOCAL"}
    known = commit()
    return tags | {COMMIT: known} if known else tags


def graph_note(title: str, graph: CollaborationGraph) -> str:
    """A run's note: the graph drawn level by level, each node with those that it reads."""
    lines = []
    for depth, level in enumerate(graph.levels):
        for node in map(graph.node, level):
            before = graph.predecessors[node.id]
            what = f"{'   ' * depth}[{node.id}] {node.role}{' ' + node.model if node.model else ''}"
            told = f"  <- {', '.join(map(str, before))}" if before else ""
            lines.append(f"{what}{told}{'  = answer' if node.id == graph.sink else ''}")
    return "\n".join([f"**{title}**", "", "```", *lines, "```"])
