"""Commands for results that are deployed or published (`ttsgraph serve`, `lineage`, `promote`,
`verify` and others), and for the cache of model calls.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from ttsgraph.commands.common import app, command, echo, loader_of, params

cache_app = typer.Typer(help="Inspect and prune the cache of model calls.", no_args_is_help=True)
app.add_typer(cache_app, name="cache")

BROKEN = 5
"""Exit code of `ttsgraph lineage` if a link is broken."""


@command(app)
def serve(
    models: list[str],
    *,
    host: str | None = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535)] = None,
    no_key: bool = False,
) -> None:
    """Serve found graphs as models of an OpenAI-compatible server; aliases are followed when they
    move. A folder can be served anywhere, with default settings if there is no params.yaml.

    Example: ttsgraph serve math@champion

    Args:
        models: <task>@<alias> in the registry, or folders with results or a bundle.json
        host: address to listen on (default: service.host in params.yaml)
        port: port; 0 picks a free one (default: service.port)
        no_key: allow access without a key
    """
    from ttsgraph.service import server
    from ttsgraph.settings.service import ServiceSettings

    saved = all(Path(model).is_dir() for model in models) and not Path("params.yaml").exists()
    settings = ServiceSettings() if saved else params().service
    chosen = {"host": host, "port": port}
    given = {name: value for name, value in chosen.items() if value is not None}
    loader, names = loader_of(models)
    server.serve(loader, names, settings.model_copy(update=given), no_key)


@command(app)
def served(task: str, path: Path | None = None) -> None:
    """Write served questions with known answers to a file that a task can use as its source.

    Example: ttsgraph served math

    Args:
        task: task of the questions
        path: file to write (default: inputs/<task>-served.jsonl)
    """
    from ttsgraph_flows.served import SERVED, write_served

    path = path or Path("inputs") / f"{task}-{SERVED}"
    count = write_served(task, path)
    typer.echo(f"{path}: {count} questions; use them with source: {{kind: jsonl, path: {path}}}")


@command(app)
def lineage(version: str, *, check: bool = False, json: bool = False) -> None:
    """Show a version's provenance with every link verified.

    Ends with exit code 5 if a link is broken. Example: ttsgraph lineage math@champion

    Args:
        version: math@champion, math@challenger or math/3
        check: print failed checks only
        json: print JSON, with the version's record
    """
    from ttsgraph_flows.lineage import lineage as walk

    walked = walk(version, params().tracking_uri)
    echo(*([walked.to_dict()] if json else walked.lines(check)))
    if walked.broken:
        links = ", ".join(f"{link.name} {link.subject}" for link in walked.broken)
        typer.echo(f"broken: {links}", err=True)
        sys.exit(BROKEN)


@command(app)
def promote(version: str) -> None:
    """Make a version with intact lineage the champion of its task, regardless of the promotion
    rule.

    Example: ttsgraph promote math@challenger

    Args:
        version: version: math/3 or math@challenger
    """
    from ttsgraph_flows.answers import refresh
    from ttsgraph_flows.lineage import lineage as walk
    from ttsgraph_flows.registry import Registry

    registry = Registry(params().tracking_uri)
    wanted = registry.find(version)
    walk(wanted.label, registry.uri).require_intact()
    before = registry.promote(wanted)
    refresh()
    echo({"champion": wanted.label, "before": before.label if before else None})


@command(app)
def rollback(task: str) -> None:
    """Restore the previous champion of a task.

    Example: ttsgraph rollback math

    Args:
        task: task with a champion
    """
    from ttsgraph_flows.answers import refresh
    from ttsgraph_flows.registry import Registry

    left, now = Registry(params().tracking_uri).rollback(task)
    refresh()
    echo({"champion": now.label, "before": left.label})


@command(app)
def verify(tasks: list[str] | None = None) -> None:
    """Rebuild everything in a temporary folder from recorded calls, without models, and compare it
    with the recorded results.

    Ends with exit code 2 if something differs, otherwise with 6 if a task and the report can't be
    verified because the task's recorded calls are missing. Example: ttsgraph verify math
    """
    from ttsgraph_flows.verify import exit_code
    from ttsgraph_flows.verify import verify as rebuilt

    sys.exit(exit_code(rebuilt(None, tasks or ())))


@command(app)
def register(tasks: list[str] | None = None) -> None:
    """Register pulled or moved results in this folder's MLflow and registry, without calling
    models.

    Example: ttsgraph register math
    """
    from ttsgraph_flows.verify import register as registered

    echo(*registered(tasks or ()))


@command(cache_app, "stats")
def cache_stats() -> None:
    """Show the cache's size, the calls and tokens by model, and the number of damaged entries.

    Example: ttsgraph cache stats
    """
    from ttsgraph.runtime.clients import open_cache

    echo(open_cache().stats())


@command(cache_app, "prune")
def cache_prune(*, unused_days: Annotated[float | None, typer.Option(min=0)] = None) -> None:
    """Delete damaged entries and, on request, old ones. If a deleted call is needed again, it is
    made and paid for again.

    Example: ttsgraph cache prune --unused-days 90

    Args:
        unused_days: delete calls not used for this long, in days
    """
    from ttsgraph.runtime.clients import open_cache

    echo(open_cache().prune(unused_days))
