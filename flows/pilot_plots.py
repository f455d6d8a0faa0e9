"""Stage pilot_plots: the pilot's sweeps as pictures, apart from it, so that a colour never asks a
model.
"""

from prefect import flow

from ttsgraph.flows.stage import load_stage, main


@flow(name="pilot_plots")
def draw_pilot(task: str, profile: str | None = None) -> None:
    """Draw results/<profile>/<task>/pilot.parquet into pilot_plots beside it."""
    from ttsgraph.graphs.plots import pilot_plots  # matplotlib is slow to import

    stage = load_stage(task, profile)
    pilot_plots(stage.pilot_table(), stage.results / "pilot_plots")


if __name__ == "__main__":
    main(draw_pilot)
