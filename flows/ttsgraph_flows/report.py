"""The report stage: one page with the found graphs, the comparison, the archive, the searches, the
pilots and the costs.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from prefect import flow

from ttsgraph.base.files import json_text, write_text
from ttsgraph.reporting.answer import answer_of, brief, figures_of, metrics, table_of
from ttsgraph.reporting.explain import ways
from ttsgraph.reporting.page import write_index, write_report
from ttsgraph.reporting.report_data import Report, read_task
from ttsgraph.settings.profile import load_params, load_profile
from ttsgraph.stages.records import GateRecord, read_record
from ttsgraph_flows.answers import REPORTS, answers_file, refresh
from ttsgraph_flows.stage import Stage, load_stage, main, outcome_path


@flow(name="report")
def report(profile: str | None = None) -> None:
    """Write reports/<profile>/ from the results of all other stages, and reports/index.html with
    links to all profiles.

    The page is index.html, with its plots next to it. answers.json has the final output of a run,
    and metrics.json its numbers.
    """
    params = load_params(profile=profile)
    name = params.profile
    settings = load_profile(name)
    stages = {task: load_stage(task, name) for task in params.tasks}
    tasks = []
    for task, stage in stages.items():
        known = task, stage.questions_path, stage.results, params.methods
        tasks.append(read_task(*known, outcome_path(name, task)))
    found = Report(name, settings, f"profiles/{name}.yaml", tasks)
    write_report(REPORTS / name, found)
    write_text(answers_file(name), json.dumps(brief(found), indent=1, ensure_ascii=False))
    write_text(answers_file(name).with_name("metrics.json"), json_text(metrics(found)))
    _note(found, stages)
    refresh()
    write_index(REPORTS)


def _note(found: Report, stages: Mapping[str, Stage]) -> None:
    """Add each search's recommendation (sentence, graph, numbers and pictures) to the search's
    MLflow run, and the sentence and numbers to the description of the version from that search.

    Searches without a run in this MLflow are skipped: if results were pulled, their runs are
    elsewhere.
    """
    from ttsgraph_flows.registry import Registry
    from ttsgraph_flows.tracking import HISTORY, add_answer, run_that_made

    pool = found.profile.model_pool()
    for task in found.tasks:
        charts = [REPORTS / found.name / "plots" / task.name / "overview.png"]
        stage = stages[task.name]
        for method in task.methods:
            history = Path(method.graph_file).with_name(HISTORY)
            if run_id := run_that_made(stage, method.name, history):
                answer = answer_of(task, pool, found.profile.budget.limit, method)
                note = [answer.text, "", "```", *ways(answer.graph, pool), "```", ""]
                uri = stage.params.tracking_uri
                add_answer(uri, run_id, "\n".join(note), figures_of(answer), charts)
                gated = read_record(GateRecord, history.with_name("lineage.json"), "evaluate")
                table = table_of(answer, found.profile.budget.metric)
                Registry(uri).describe(gated.version, answer.text, table)


if __name__ == "__main__":
    main(report, ())
