"""Commands for the cache of model calls: `ttsgraph cache`."""

from __future__ import annotations

from typing import Annotated

import typer

from ttsgraph.commands.common import app, print_json

cache_app = typer.Typer(help="Inspect and prune the cache of model calls.", no_args_is_help=True)
app.add_typer(cache_app, name="cache")


@cache_app.command("stats")
def cache_stats() -> None:
    """Show calls and tokens by model, size, and damaged entries.

    Example: ttsgraph cache stats
    """
    from ttsgraph.runtime.clients import open_cache

    print_json(open_cache().stats())


@cache_app.command("prune")
def cache_prune(
    unused_days: Annotated[
        float | None, typer.Option(help="delete calls not used for this number of days", min=0)
    ] = None,
) -> None:
    """Delete damaged entries and, on request, old ones; a deleted call is made, and paid, again if
    it is needed.

    Example: ttsgraph cache prune --unused-days 90
    """
    from ttsgraph.runtime.clients import open_cache

    cache = open_cache()
    print_json(cache.prune(cache.max_bytes, unused_days))
