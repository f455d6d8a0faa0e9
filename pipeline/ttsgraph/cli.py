"""The `ttsgraph` command line, thin, over the library; a command imports what it needs."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ttsgraph.api.commands import InOrder, compare, init, run
from ttsgraph.base.ending import EXIT_INPUT, guarded
from ttsgraph.base.errors import InputError
from ttsgraph.base.files import md5, write_text
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.scaffold.commands import (
    ProfileName,
    TaskName,
    new_model,
    new_task,
    schema,
    settings_of,
)
from ttsgraph_flows.commands import register, verify

if TYPE_CHECKING:  # a command imports what it needs, so that --help is there at once
    from ttsgraph.deployment.bundle import Deployed, Loader
    from ttsgraph.settings.profile import Params, Profile

BROKEN = 5
"""Exit code of a lineage with a broken link."""

app = typer.Typer(
    help="Search, cost and run multi-LLM collaboration graphs.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)
graph_app = typer.Typer(help="Look at one graph file.", no_args_is_help=True)
app.add_typer(graph_app, name="graph")
cache_app = typer.Typer(
    help="Look at the cache of model calls, and bound it.", no_args_is_help=True
)
app.add_typer(cache_app, name="cache")
for command in (new_task, new_model, register, verify, run, compare, schema):
    app.command()(command)
app.command(cls=InOrder)(init)

GRAPH = "a graph file, a results folder, or a version of the registry such as math@champion"
VERSION = "a folder with results or a bundle.json, or a version such as math@champion"
GraphName = Annotated[str, typer.Argument(help=GRAPH)]


def _params() -> Params:
    from ttsgraph.settings.profile import load_params

    return load_params()


def _profile(name: str | None) -> Profile:
    """The profile asked for, or that of params.yaml."""
    from ttsgraph.settings.profile import load_profile

    return load_profile(name if name is not None else _params().profile)


def _settings(profile: str | None, task: str | None) -> tuple[Profile, str]:
    """The profile and task asked for, or those of params.yaml."""
    loaded, name, chosen = settings_of(profile, task)
    return _as_measured(loaded, name, chosen), chosen


def _as_measured(profile: Profile, name: str, task: str) -> Profile:
    """The profile of this name, its costs as its profile stage measured them, if that has run."""
    path = Path("results", name, task, "profile.parquet")
    if not path.exists():
        return profile
    from ttsgraph.stages.project import as_measured  # which imports what measures

    return as_measured(profile, task, path.parent)


def _found(
    name: str, profile: str | None, task: str | None = None
) -> tuple[CollaborationGraph, Profile, str, Deployed | None]:
    """A graph with its profile and task. A results folder and a version bring their own; of a file,
    roles are known and models in the profile's pool.
    """
    from ttsgraph.graphs.roles import check_roles

    if not _is_graph_file(name):
        deployed = _deployed(name)
        return deployed.graph, deployed.profile, deployed.task, deployed
    loaded, chosen = _settings(profile, task)
    graph = CollaborationGraph.read(Path(name))
    check_roles(graph)
    for node in graph.nodes:
        _ = loaded.model_pool()[node.model]
    return graph, loaded, chosen, None


def _is_graph_file(name: str) -> bool:
    return Path(name).is_file() or Path(name).suffix == ".json"


def _deployed(name: str) -> Deployed:
    """What a folder or a version of the registry holds."""
    loader, names = _loader([name])
    return loader.resolve(names[0])


def _print(data: Any) -> None:
    typer.echo(json.dumps(data, indent=1))


@graph_app.command()
def validate(graph: GraphName, profile: ProfileName = None) -> None:
    """Check a graph: acyclic, one sink, known roles and models.

    Example: ttsgraph graph validate graph.json --profile paper
    """
    found, *_ = _found(graph, profile)
    size = {"n_nodes": len(found.nodes), "width": found.width, "depth": found.depth}
    _print({"valid": True, "hash": found.content_hash} | size)


@graph_app.command()
def cost(graph: GraphName, profile: ProfileName = None, task: TaskName = None) -> None:
    """What a graph costs per question: FLOPs, budget units, dollars.

    Example: ttsgraph graph cost graph.json --profile paper --task math
    """
    found, loaded, chosen, _ = _found(graph, profile, task)
    flops = None if loaded.model_pool().unknown else loaded.cost_model(chosen, "flops")
    _print(
        {
            "flops": None if flops is None else flops.graph_cost(found) * flops.unit,
            "budget_units": loaded.cost_model(chosen, loaded.budget.metric).graph_cost(found),
            "budget_metric": loaded.budget.metric,
            "budget_limit": loaded.budget.limit,
            "budget_of": loaded.budget.limits,
            "dollars": loaded.cost_model(chosen, "dollars").graph_cost(found),
            "width": found.width,
            "depth": found.depth,
            "n_nodes": len(found.nodes),
        }
    )


@graph_app.command()
def ask(
    graph: GraphName,
    question: Annotated[str, typer.Argument(help="the question, as text")],
    profile: ProfileName = None,
    task: TaskName = None,
    trace: Annotated[bool, typer.Option(help="also print every node's answer")] = False,
) -> None:
    """Run a graph on one question; models are started or reached as the profile says.

    Example: ttsgraph graph ask graph.json "12 + 7" --task math
    """
    from ttsgraph.deployment.bundle import read_shots
    from ttsgraph.runtime.clients import ask_graph

    found, loaded, chosen, deployed = _found(graph, profile, task)
    shots = deployed.shots if deployed else read_shots(profile or _params().profile, loaded, chosen)
    answer = asyncio.run(
        ask_graph(found, question, deployed.profile_with() if deployed else loaded, chosen, shots)
    )
    shown = {"answer": answer.text, "latency_s": answer.latency_s, "calls": answer.usage.calls}
    _print(shown | ({"nodes": dict(answer.node_texts)} if trace else {}))


@graph_app.command()
def draw(
    graph: GraphName,
    out: Annotated[Path, typer.Option("--out", "-o", help=".svg, .png or .pdf")] = Path(
        "graph.svg"
    ),
) -> None:
    """Draw a graph to a file.

    Example: ttsgraph graph draw graph.json --out graph.png
    """
    from ttsgraph.reporting import pictures

    if out.suffix not in pictures.FORMATS:
        forms = ", ".join(pictures.FORMATS)
        raise InputError(f"expected a file ending in {forms}, found {out}")
    if _is_graph_file(graph):
        found = CollaborationGraph.read(Path(graph))
        pool = None
    else:
        version = _deployed(graph)
        found = version.graph
        pool = version.profile.model_pool()
    drawn = pictures.graph_svg(found, pool, simulated=pictures.of_simulation(out))
    pictures.write_picture(drawn, out)
    typer.echo(out)


@app.command()
def export(
    graph: Annotated[str, typer.Argument(help=VERSION)],
    out: Annotated[Path, typer.Option("--out", "-o", help="the Python file")] = Path("answers.py"),
) -> None:
    """Write a found graph as one readable Python file that needs only the openai package.

    Example: ttsgraph export results/mine/sample/found --out answers.py
    """
    from ttsgraph.api.export import export as written

    write_text(out, written(_deployed(graph)))
    typer.echo(f'{out} answers questions: python {out} "a question"')


@app.command()
def estimate(profile: ProfileName = None, task: TaskName = None) -> None:
    """How many calls, tokens, dollars and hours the stages take, and what of it `ttsgraph run` is
    expected to, before anything is spent.

    Example: ttsgraph estimate --profile paper --task math
    """
    from ttsgraph.stages.estimate import estimate_run

    loaded, chosen = _settings(profile, task)
    _print(estimate_run(loaded, chosen))


@app.command()
def explain(graph: GraphName, profile: ProfileName = None, task: TaskName = None) -> None:
    """Say in words what a graph does, what a question costs, and what each node was worth on the
    test questions, if the graph was found here.

    A folder and a version bring their own profile and task. Example: ttsgraph explain math@champion
    """
    from ttsgraph.reporting.explain import explain as in_words
    from ttsgraph.reporting.explain import worth_of

    found, loaded, chosen, deployed = _found(graph, profile, task)
    if deployed is not None and not Path(graph).is_dir():
        from ttsgraph_flows.registry import origin

        typer.echo(origin(_params().tracking_uri, deployed))
    for line in in_words(found, loaded, chosen):
        typer.echo(line)
    path = Path(graph)
    places = [path if path.is_dir() else path.parent]
    if deployed is not None:
        places += sorted(Path("results").glob(f"*/{chosen}/*"))
    if folders := [place for place in places if (place / "nodes.parquet").exists()]:
        from ttsgraph.stages.worth import kept_nodes  # with a library that reads such tables

        nodes = kept_nodes(found, folders)
        for line in worth_of(found, nodes) if nodes is not None else []:
            typer.echo(line)


@app.command()
def doctor(
    profile: ProfileName = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON instead of lines")] = False,
) -> None:
    """What a profile needs of this machine, what is missing and how to get it, and what a run of
    each task takes.

    Ends with exit code 2 when something is missing. Example: ttsgraph doctor --profile paper
    """
    from ttsgraph.runtime.doctor import examine, in_lines
    from ttsgraph.stages.estimate import estimate_all

    name = profile if profile is not None else _params().profile
    loaded = _profile(name)
    findings = examine(loaded)
    tasks = {task: _as_measured(loaded, name, task) for task in loaded.tasks} if loaded.pool else {}
    estimates, unknown = estimate_all(tasks)
    if as_json:
        _print({"findings": [asdict(finding) for finding in findings], "estimates": estimates})
    else:
        for line in in_lines(findings, estimates, unknown):
            typer.echo(line)
    if not all(finding.ok for finding in findings):
        sys.exit(2)


@app.command()
def prepare(profile: ProfileName = None) -> None:
    """Make the weights of a profile's local models ready, so that no run has to wait for it; `make
    setup` does it.

    Example: ttsgraph prepare --profile laptop
    """
    from ttsgraph.runtime.clients import prepare_weights

    loaded = _profile(profile)
    if not loaded.hosted:
        raise InputError(
            "expected a profile with models that are served here; this one's engine is"
            f" {loaded.engine.kind}"
        )
    python = loaded.engine.python
    _print({name: prepare_weights(name, m, python=python) for name, m in loaded.hosted.items()})


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
    settings = _params().service
    chosen = {"host": host, "port": port}
    given = {name: value for name, value in chosen.items() if value is not None}
    from ttsgraph.service import server

    loader, names = _loader(models)
    server.serve(loader, names, settings.model_copy(update=given), no_key)


def _loader(models: list[str]) -> tuple[Loader, tuple[str, ...]]:
    """Where the models come from, and their names: folders if they all are, else the registry."""
    from ttsgraph.deployment.bundle import FileLoader

    folders = tuple(Path(model) for model in models if Path(model).is_dir())
    if len(folders) == len(models):
        files = FileLoader(folders)
        return files, files.names
    for model in models:
        registered = "@" in model or "/" not in model or re.fullmatch(r"[^/]+/\d+", model)
        if not registered and not Path(model).is_dir():
            raise InputError(
                f"{model}: expected a results folder or a name like math@champion, but there is no"
                " such folder; `make repro` makes it, or `ttsgraph run`"
            )
    if folders:
        raise InputError(
            f"expected folders or names like math@champion, found both: {', '.join(models)}"
        )
    from ttsgraph_flows.registry import RegistryLoader

    return RegistryLoader(_params().tracking_uri), tuple(models)


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

    settings = _params().service.feedback
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

    uri = _params().tracking_uri
    if (version is None) == (dataset is None and model is None):
        raise InputError("expected a version, or else --dataset or --model")
    if version is None:
        if dataset and Path(dataset).is_file():
            dataset = md5(Path(dataset))
        found = dependents(uri, dataset, model)
        _print([{"version": v.label, "aliases": v.aliases, "run_id": v.run_id} for v in found])
        return
    walked = walk(version, uri)
    if as_json:
        _print(walked.to_dict())
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

    registry = Registry(_params().tracking_uri)
    wanted = registry.find(version)
    require_intact(wanted.label, registry.uri)
    before = registry.promote(wanted)
    refresh()
    _print({"champion": wanted.label, "before": before.label if before else None})


@app.command()
def rollback(task: Annotated[str, typer.Argument(help="a task with a champion")]) -> None:
    """Make the version that the champion replaced the champion again.

    Example: ttsgraph rollback math
    """
    from ttsgraph_flows.answers import refresh
    from ttsgraph_flows.registry import Registry

    left, now = Registry(_params().tracking_uri).rollback(task)
    refresh()
    _print({"champion": now.label, "before": left.label})


@cache_app.command("stats")
def cache_stats(profile: ProfileName = None) -> None:
    """Calls and tokens by model, size, and whether an entry is damaged.

    Example: ttsgraph cache stats
    """
    from ttsgraph.runtime.clients import open_cache

    _print(open_cache(_profile(profile)).stats())


@cache_app.command("prune")
def cache_prune(
    profile: ProfileName = None,
    max_gib: Annotated[
        float | None, typer.Option(help="drop what was not used for longest above this size", min=0)
    ] = None,
    unused_days: Annotated[
        float | None, typer.Option(help="drop what was not used for so many days", min=0)
    ] = None,
) -> None:
    """Drop damaged entries and, if asked, old ones; a dropped call is made again, and paid again,
    when it is needed.

    Without --max-gib the profile's engine.cache_gib holds. Example: ttsgraph cache prune
    --unused-days 90
    """
    from ttsgraph.models.cache import GIB
    from ttsgraph.runtime.clients import open_cache

    cache = open_cache(_profile(profile))
    _print(cache.prune(cache.max_bytes if max_gib is None else int(max_gib * GIB), unused_days))


def main() -> None:
    """Entry point: one line and exit code 2 for what a person can mend, 3 for a run that stopped
    early, 4 at a limit.
    """
    guarded(in_a_line)


def in_a_line() -> None:
    """Run a command. Raises InputError in place of the box that Typer draws around a mistake."""
    usage_error = typer.BadParameter.__mro__[1]  # which Typer names nowhere
    try:
        code = app(standalone_mode=False)
    except typer.Abort:
        raise InputError("aborted; nothing was written") from None
    except Exception as error:
        if not isinstance(error, usage_error):
            raise
        usage: Any = error
        if not (said := usage.format_message()):  # a group's help, which has been shown
            sys.exit(EXIT_INPUT)
        at = usage.ctx.command_path if usage.ctx else "ttsgraph"
        raise InputError(f"{said.rstrip('.')}; see {at} --help") from None
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
