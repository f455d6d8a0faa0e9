"""Stage sample: draw disjoint train, val and test questions (and worked examples) from a task's
source.
"""

from prefect import flow

from ttsgraph.stages.schemas import Questions, write_table
from ttsgraph.tasks.sources import load_questions, questions_table, split_questions
from ttsgraph_flows.stage import load_stage, main


@flow(name="sample")
def sample(task: str, profile: str | None = None) -> None:
    """Draw a task's disjoint questions into data/<profile>/<task>/questions.parquet."""
    stage = load_stage(task, profile)
    settings = stage.given.task(task)  # as written: no question depends on what was measured since
    seed = stage.params.seed
    questions = load_questions(settings.task, settings.source, seed)
    splits = split_questions(questions, settings.splits.sizes(), seed)
    table = questions_table(splits)
    write_table(table, Questions, stage.questions_path)
    counts = table["split"].value_counts().rename("questions").reset_index()
    stage.record("sample", counts, stage.questions_path)


if __name__ == "__main__":
    main(sample)
