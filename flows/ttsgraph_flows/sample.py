"""The sample stage: draw disjoint train, val and test questions (and worked examples) from a task's
source.
"""

from prefect import flow

from ttsgraph.stages import project
from ttsgraph_flows.stage import load_stage, main


@flow(name="sample")
def sample(task: str, profile: str | None = None) -> None:
    """Draw a task's questions in disjoint splits; write them to
    data/<profile>/<task>/questions.parquet.
    """
    stage = load_stage(task, profile)
    table = project.sample(stage)
    counts = table["split"].value_counts().rename("questions").reset_index()
    stage.record("sample", counts, stage.questions_path)


if __name__ == "__main__":
    main(sample)
