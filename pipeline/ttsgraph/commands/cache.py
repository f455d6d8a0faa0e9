"""Commands about the cache of model calls: `ttsgraph cache`."""

from __future__ import annotations

from typing import Annotated

import typer

from ttsgraph.commands.common import app, print_json

cache_app = typer.Typer(
    help="Look at the cache of model calls, and bound it.", no_args_is_help=True
)
app.add_typer(cache_app, name="cache")


@cache_app.command("stats")
def cache_stats() -> None:
    """Calls and tokens by model, size, and whether an entry is damaged.

    Example: ttsgraph cache stats
    """
    from ttsgraph.runtime.clients import open_cache

    print_json(open_cache().stats())


@cache_app.command("prune")
def cache_prune(
    unused_days: Annotated[
        float | None, typer.Option(help="drop what was not used for so many days", min=0)
    ] = None,
) -> None:
    """Drop damaged entries and, if asked, old ones; a dropped call is made again, and paid again,
    when it is needed.

    Example: ttsgraph cache prune --unused-days 90
    """
    from ttsgraph.runtime.clients import open_cache

    cache = open_cache()
    print_json(cache.prune(cache.max_bytes, unused_days))
