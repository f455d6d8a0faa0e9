"""Commands for one graph: `ttsgraph graph`, `explain` and `export`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ttsgraph.base.errors import InputError
from ttsgraph.base.files import write_text
from ttsgraph.commands.common import app, command, deployed, echo, is_graph_file, measured, params
from ttsgraph.graphs.graph import CollaborationGraph

if TYPE_CHECKING:
    from ttsgraph.deployment.bundle import DeployedVersion
    from ttsgraph.settings.profile import Profile

graph_app = typer.Typer(help="Run and draw one graph.", no_args_is_help=True)
app.add_typer(graph_app, name="graph")


def _found(
    name: str, profile: str | None, task: str | None = None
) -> tuple[CollaborationGraph, Profile, str, DeployedVersion | None]:
    """Return a graph with its profile, its task, and its version (None for a graph file).

    A results folder and a version have their own profile; the roles and models of a graph file are
    checked against the named profile.
    """
    from ttsgraph.graphs.roles import check_roles

    if not is_graph_file(name):
        found = deployed(name)
        return found.graph, found.profile, found.task, found
    loaded, chosen = measured(profile, task)
    graph = CollaborationGraph.read(Path(name))
    check_roles(graph)
    for node in graph.nodes:
        _ = loaded.model_pool()[node.model]
    return graph, loaded, chosen, None


@command(graph_app)
def ask(
    graph: str,
    question: str,
    *,
    profile: str | None = None,
    task: str | None = None,
    trace: bool = False,
) -> None:
    """Run a graph on one question; models are started or called according to the profile.

    Example: ttsgraph graph ask graph.json "12 + 7" --task math

    Args:
        question: question, as text
        trace: also print every node's answer
    """
    from ttsgraph.deployment.bundle import DeployedVersion, read_shots

    found, loaded, chosen, version = _found(graph, profile, task)
    if version is None:
        shots = read_shots(profile or params().profile, loaded, chosen)
        version = DeployedVersion(chosen, found, loaded, shots)
    answer = asyncio.run(version.answer(question))
    shown = {"answer": answer.text, "latency_s": answer.latency_s, "calls": answer.usage.calls}
    echo(shown | ({"nodes": dict(answer.node_texts)} if trace else {}))


@command(graph_app)
def draw(
    graph: str, *, out: Annotated[Path, typer.Option("--out", "-o")] = Path("graph.svg")
) -> None:
    """Draw a graph to a file.

    Example: ttsgraph graph draw graph.json --out graph.png

    Args:
        out: .svg or .png
    """
    from ttsgraph.reporting import pictures

    if out.suffix not in pictures.FORMATS:
        raise InputError(f"--out: expected a file name ending in .svg or .png, found {out}")
    version = None if is_graph_file(graph) else deployed(graph)
    found = version.graph if version else CollaborationGraph.read(Path(graph))
    pool = version.profile.model_pool() if version else None
    drawn = pictures.graph_svg(found, pool, simulated=pictures.of_simulation(out))
    pictures.write_picture(drawn, out)
    typer.echo(out)


@command(app)
def export(
    graph: str, *, out: Annotated[Path, typer.Option("--out", "-o")] = Path("answers.py")
) -> None:
    """Write a found graph as one readable Python file that needs only the packages openai and, for
    votes, finalanswer.

    Example: ttsgraph export results/mine/sample/found --out answers.py

    Args:
        graph: folder with results or a bundle.json, or a version such as math@champion
        out: Python file to write
    """
    from ttsgraph.api.export import export as written

    write_text(out, written(deployed(graph)))
    typer.echo(f'{out} answers questions: python {out} "a question"')


@command(app)
def explain(graph: str, *, profile: str | None = None, task: str | None = None) -> None:
    """Check a graph, and describe what it does with a question and what that costs.

    A results folder or a version has its own profile and task.

    Example: ttsgraph explain math@champion
    """
    from ttsgraph.reporting.explain import explain as in_words

    found, loaded, chosen, version = _found(graph, profile, task)
    if version is not None and not Path(graph).is_dir():
        from ttsgraph_flows.registry import origin

        echo(origin(params().tracking_uri, version))
    echo(*in_words(found, loaded, chosen))
