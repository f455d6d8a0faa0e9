"""Find the MLflow run that produced a folder's files, by the files' content, because DVC restores
files of earlier runs (its run cache, `dvc checkout`, `dvc exp apply`).
"""

from pathlib import Path

from ttsgraph.base.errors import InputError
from ttsgraph.base.files import command_of, md5
from ttsgraph_flows.stage import Stage
from ttsgraph_flows.tracking import HISTORY, MADE, client_of, explained


def run_that_made(stage: Stage, name: str, file: Path) -> str | None:
    """Return the id of the last run of this name whose result is this file: a search's history, or
    a stage's table. None if this MLflow has no such run.
    """
    if not file.exists():
        return None
    uri = stage.params.tracking_uri
    with explained(uri):
        client = client_of(uri)
        place = client.get_experiment_by_name(stage.experiment)
        wanted = f"attributes.run_name = '{name}' and tags.{MADE} = '{md5(file)}'"
        runs = client.search_runs([place.experiment_id], wanted, max_results=1) if place else ()
        return next((str(run.info.run_id) for run in runs), None)


def search_run(stage: Stage, folder: Path, method: str) -> str:
    """Return the id of the search run whose files a folder has. Raises InputError if this MLflow
    has none.
    """
    run_id = run_that_made(stage, method, folder / HISTORY)
    if run_id is None:
        raise InputError(
            f"MLflow at tracking_uri {stage.params.tracking_uri!r} (params.yaml): expected the run"
            f" of the search in {folder}, found none; run the search again"
            f" (`{command_of('search', folder / HISTORY)}`), which recreates it from the call"
            " cache, without calls"
        )
    return run_id
