"""Commands about results that are deployed or published: `ttsgraph serve`, `lineage`, `promote`,
`verify` and others.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ttsgraph.base.errors import InputError
from ttsgraph.base.files import md5
from ttsgraph.commands.common import app, echo, loader_of, params, print_json

BROKEN = 5
"""Exit code of a lineage with a broken link."""

Tasks = Annotated[
    list[str] | None, typer.Argument(help="tasks of the profile (default: those of params.yaml)")
]


@app.command()
def serve(
    models: Annotated[
        list[str],
        typer.Argument(help="<task>@<alias> of the registry, or folders: results or a bundle.json"),
    ],
    host: Annotated[
        str | None, typer.Option(help="address to listen at (default: service.host of params.yaml)")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(help="port, 0 for a free one (default: service.port)", min=0, max=65535),
    ] = None,
    no_key: Annotated[
        bool, typer.Option("--no-key", help="let everybody ask who can reach the address")
    ] = False,
) -> None:
    """Serve found graphs as models of an OpenAI-compatible server; an alias that moves is followed.

    Example: ttsgraph serve math@champion
    """
    settings = params().service
    chosen = {"host": host, "port": port}
    given = {name: value for name, value in chosen.items() if value is not None}
    from ttsgraph.service import server

    loader, names = loader_of(models)
    server.serve(loader, names, settings.model_copy(update=given), no_key)


@app.command()
def served(
    task: Annotated[str, typer.Argument(help="whose questions")],
    path: Annotated[
        Path | None, typer.Argument(help="the file (default: inputs/<task>-served.jsonl)")
    ] = None,
) -> None:
    """Write served questions whose right answer is known into a file that a search can start from.

    Example: ttsgraph served math
    """
    from ttsgraph_flows.served import SERVED, write_served

    settings = params().service.feedback
    path = path or Path("inputs") / f"{task}-{SERVED}"
    count = write_served(settings.path, settings.rows, task, path)
    typer.echo(f"{path}: {count} questions; source: {{kind: jsonl, path: {path}}} takes them")


@app.command()
def lineage(
    version: Annotated[
        str | None, typer.Argument(help="math@champion, math@challenger or math/3")
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="versions made with this dataset: a file, or its MD5")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="versions whose pool had this model: its name, or name@revision"),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="print what does not hold")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="print JSON, with every candidate and exchange")
    ] = False,
) -> None:
    """Where a version comes from, every link verified; or which versions a dataset or a model is
    behind.

    Ends with exit code 5 when a link is broken. Example: ttsgraph lineage math@champion
    """
    from ttsgraph_flows.lineage import lineage as walk
    from ttsgraph_flows.registry import dependents

    uri = params().tracking_uri
    if (version is None) == (dataset is None and model is None):
        raise InputError("expected a version, or else --dataset or --model")
    if version is None:
        if dataset and Path(dataset).is_file():
            dataset = md5(Path(dataset))
        found = dependents(uri, dataset, model)
        print_json([{"version": v.label, "aliases": v.aliases, "run_id": v.run_id} for v in found])
        return
    walked = walk(version, uri)
    if as_json:
        print_json(walked.to_dict())
    else:
        typer.echo("\n".join(walked.lines(check)))
    if walked.broken:
        links = ", ".join(f"{link.name} {link.subject}" for link in walked.broken)
        typer.echo(f"broken: {links}", err=True)
        sys.exit(BROKEN)


@app.command()
def promote(version: Annotated[str, typer.Argument(help="math/3 or math@challenger")]) -> None:
    """Make a version whose lineage is intact the champion of its task, whatever the rule says.

    Example: ttsgraph promote math@challenger
    """
    from ttsgraph_flows.answers import refresh
    from ttsgraph_flows.lineage import require_intact
    from ttsgraph_flows.registry import Registry

    registry = Registry(params().tracking_uri)
    wanted = registry.find(version)
    require_intact(wanted.label, registry.uri)
    before = registry.promote(wanted)
    refresh()
    print_json({"champion": wanted.label, "before": before.label if before else None})


@app.command()
def rollback(task: Annotated[str, typer.Argument(help="a task with a champion")]) -> None:
    """Make the version that the champion replaced the champion again.

    Example: ttsgraph rollback math
    """
    from ttsgraph_flows.answers import refresh
    from ttsgraph_flows.registry import Registry

    left, now = Registry(params().tracking_uri).rollback(task)
    refresh()
    print_json({"champion": now.label, "before": left.label})


@app.command()
def verify(tasks: Tasks = None) -> None:
    """Rebuild everything from recorded calls, without any model and in a temporary folder, and
    compare it with what is recorded.

    Ends with exit code 2 where something is different, else with 6 where a task's calls aren't
    here, so that it and the report are not verified. Example: ttsgraph verify math
    """
    from ttsgraph_flows.verify import exit_code
    from ttsgraph_flows.verify import verify as rebuilt

    sys.exit(exit_code(rebuilt(None, tasks or ())))


@app.command()
def register(tasks: Tasks = None) -> None:
    """Bring results that were pulled, or moved to another folder, into this folder's MLflow and
    registry, without any model.

    Example: ttsgraph register math
    """
    from ttsgraph_flows.verify import register as registered

    echo(*registered(tasks or ()))
