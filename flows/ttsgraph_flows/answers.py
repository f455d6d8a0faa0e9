"""Final output of a run: each task's sentence, graph description and small table, as written by the
report stage.

A report is derived from its tables only, so it is the same wherever it is made. The registry
decides which graph serves, and can change without a new report. If the serving graph is not the
graph in the report, the page and the terminal say so in a line. The page reads this line from a
script next to it, which is rewritten when the champion changes.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ttsgraph.base.errors import TTSGraphError
from ttsgraph.base.files import write_text
from ttsgraph.settings.profile import load_params

if TYPE_CHECKING:  # MLflow is slow to import
    from ttsgraph_flows.registry import Registry

REPORTS = Path("reports")
SERVING = "window.ttsgraphServing"
"""JavaScript variable in which a page finds the lines about its champions."""


def answers_file(profile: str) -> Path:
    """Return the path of a profile's report summary."""
    return REPORTS / profile / "answers.json"


def _serving_file(profile: str) -> Path:
    return REPORTS / profile / "serving.js"


def lines_beside(profile: str) -> dict[str, str]:
    """Return task -> line about a champion that differs from the page's graph, as last written.

    The result is empty if the script has not been written, or if every champion is the graph that
    the page names.
    """
    path = _serving_file(profile)
    if not path.exists():
        return {}
    text = path.read_text(encoding="utf-8").strip()
    lines: dict[str, str] = json.loads(text.removeprefix(f"{SERVING} = ").removesuffix(";"))
    return lines


def refresh() -> None:
    """Write the script of each page again, after a report or a change of the champion. A script
    that can't be written stays as it is.
    """
    from ttsgraph_flows.registry import Registry

    for path in sorted(REPORTS.glob(f"*/{answers_file('*').name}")):
        with contextlib.suppress(TTSGraphError, ValueError, LookupError):
            registry = Registry(load_params().tracking_uri)
            tasks = json.loads(path.read_text(encoding="utf-8"))["tasks"]
            lines = {answer["task"]: _line(registry, answer) for answer in tasks}
            shown = {task: line for task, line in lines.items() if line}
            text = json.dumps(shown, indent=1, ensure_ascii=False)
            write_text(_serving_file(path.parent.name), f"{SERVING} = {text};\n")


def _line(registry: Registry, answer: dict[str, Any]) -> str:
    """Return the line about the champion of an answer's task; "" if it is the graph that the answer
    names.
    """
    task, named = answer["task"], answer["graph_hash"]
    versions = registry.versions(task)
    champion = next((v for v in versions if "champion" in v.aliases), None)
    if champion is not None and champion.tags.get("graph_hash") == named:
        return ""
    same = [v.label for v in versions if v.tags.get("graph_hash") == named]
    this = f" This one is {same[-1]}: ttsgraph serve {same[-1]}." if same else ""
    if champion is None:
        return f"Nothing serves as {task}@champion yet.{this}"
    return f"{task}@champion is another graph: ttsgraph explain {champion.label}.{this}"


def tell(profile: str, console: Console | None = None, folder: Path = Path()) -> None:
    """Print the results of a profile; print nothing if the report stage has not run.

    `folder` is the project's path, as shown to the user.
    """
    path = answers_file(profile)
    if not path.exists():
        return
    console = console or Console(highlight=False)
    if not console.is_terminal:  # a log has no width, so each sentence is put on one line
        console = Console(file=console.file, width=200, highlight=False)
    found = json.loads(path.read_text(encoding="utf-8"))
    if found["simulated"]:
        console.print("simulated: no language model answered")
    beside = lines_beside(profile)
    # A report that was pulled has no script; its versions must be registered before they serve.
    first = "" if _serving_file(profile).exists() else "ttsgraph register && "
    for answer in found["tasks"]:
        _tell(answer | {"serve": first + answer["serve"]}, beside.get(answer["task"], ""), console)
    console.print(f"report: {folder / path.with_name('index.html')}", soft_wrap=True)


def _tell(answer: dict[str, Any], beside: str, console: Console) -> None:
    on_one_line = not console.is_terminal
    sentence = Text.assemble((f"{answer['task']}: ", "bold"), answer["sentence"])
    console.print()
    console.print(sentence, soft_wrap=on_one_line)
    console.print()
    for line in answer["graph"]:
        console.print(Text(f"  {line}", overflow="fold", no_wrap=False))
    table = Table(box=None, padding=(0, 2), header_style="dim")
    for k, head in enumerate(answer["heads"]):
        table.add_column(head, justify="left" if k == 0 else "right", no_wrap=k > 0)
    for cells in answer["rows"]:
        table.add_row(*map(Text, cells), style="bold" if cells[0].startswith("→") else None)
    console.print()
    console.print(table)
    console.print()
    console.print(f"  {answer['serve']}")
    if beside:
        console.print(Text(f"  {beside}", style="yellow"), soft_wrap=on_one_line)
