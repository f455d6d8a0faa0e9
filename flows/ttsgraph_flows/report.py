"""Stage report: one page with the found graphs, the comparison, the archive, the searches, the
pilots and the ledger.
"""

import json
from pathlib import Path

from prefect import flow

from ttsgraph.base.files import json_text, write_text
from ttsgraph.reporting.answer import answer_by, brief, figures_of, metrics
from ttsgraph.reporting.explain import drawn
from ttsgraph.reporting.figures import Row
from ttsgraph.reporting.page import write_index, write_report
from ttsgraph.reporting.report_data import Report, TaskReport, read_recorded, read_task
from ttsgraph.settings.profile import load_params, load_profile
from ttsgraph.stages.plan import RECORDED
from ttsgraph.stages.records import Running, read_record
from ttsgraph_flows.answers import REPORTS, answers_file, write_serving
from ttsgraph_flows.stage import RESEARCH, Stage, load_stage, main


@flow(name="report")
def report(profile: str | None = None) -> None:
    """Write reports/<profile>/ from everything the other stages made, and reports/index.html, which
    links to all profiles.

    The page is index.html, with its plots beside it; answers.json has what a run ends with,
    metrics.json its numbers.
    """
    params = load_params()
    name = params.profile if profile is None else profile
    settings = load_profile(name)
    tasks = [_task(load_stage(task, name), params.methods) for task in params.tasks]
    as_row = Row(f"profiles/{name}.yaml", "", settings.model_dump(mode="json"))
    simulated = settings.engine.kind == "simulated"
    recorded = read_recorded(Path(RECORDED), name, simulated)
    found = Report(name, settings, as_row, tasks, recorded=recorded)
    write_report(REPORTS / name, found)
    write_text(answers_file(name), json.dumps(brief(found), indent=1, ensure_ascii=False))
    write_text(answers_file(name).with_name("metrics.json"), json_text(metrics(found)))
    _note(found, params.tracking_uri)
    write_serving(name, params.tracking_uri)
    write_index(REPORTS)


def _note(found: Report, tracking_uri: str) -> None:
    """Each search's own answer in its run in MLflow: sentence, graph, numbers and pictures."""
    from ttsgraph_flows.tracking import add_answer

    pool = found.profile.model_pool()
    for task in found.tasks:
        plots = REPORTS / found.name / "plots" / task.name
        charts = [plots / "overview.png", plots / "candidates.png"]
        for method in task.methods:
            run = Path(method.graph_file).with_name("run.json")
            if run.exists():
                answer = answer_by(task, method, pool)
                add_answer(
                    tracking_uri,
                    read_record(Running, run, "search").run_id,
                    answer.text,
                    drawn(answer.graph, pool),
                    figures_of(answer),
                    charts,
                )


def _task(stage: Stage, methods: tuple[str, ...]) -> TaskReport:
    again = RESEARCH / stage.params.profile / stage.task / "outcome.json"
    return read_task(stage.task, stage.questions_path, stage.results, methods, again)


if __name__ == "__main__":
    main(report, ())
