"""The pilot_plots stage: draw the pilot's sweeps. It is a separate stage so that a change of colour
doesn't repeat the pilot's calls.
"""

from prefect import flow

from ttsgraph_flows.stage import load_stage, main


@flow(name="pilot_plots")
def draw_pilot(task: str, profile: str | None = None) -> None:
    """Draw the sweeps in results/<profile>/<task>/pilot.parquet; write the pictures to the folder
    pilot_plots next to it.
    """
    from ttsgraph.reporting.charts import chart_svg, sweeps
    from ttsgraph.reporting.figures import TableSource
    from ttsgraph.reporting.pictures import of_simulation, write_picture

    stage = load_stage(task, profile)
    folder = stage.results / "pilot_plots"
    for chart in sweeps(task, TableSource("pilot.parquet", stage.folder.table("pilot"))):
        write_picture(chart_svg(chart, of_simulation(folder)), folder / f"{chart.name}.svg")


if __name__ == "__main__":
    main(draw_pilot)
