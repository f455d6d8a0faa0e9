"""How a run ends for people: each task's sentence, graph in characters and small table, as the
report stage wrote them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

REPORTS = Path("reports")
SERVING = "window.ttsgraphServing"
"""What a page calls the lines that stand beside its answers."""


def answers_file(profile: str) -> Path:
    """Where the report stage writes a profile's report in brief."""
    return REPORTS / profile / "answers.json"


def serving_file(profile: str) -> Path:
    """The script that says where the registry's champion is not what the page names, for the page
    to read (ttsgraph_flows/champion.py).
    """
    return REPORTS / profile / "serving.js"


def lines_beside(profile: str) -> dict[str, str]:
    """Task -> what that script says; nothing where there is none, or the champion is as named."""
    path = serving_file(profile)
    if not path.exists():
        return {}
    text = path.read_text(encoding="utf-8").strip()
    lines: dict[str, str] = json.loads(text.removeprefix(f"{SERVING} = ").removesuffix(";"))
    return lines


def tell(profile: str, console: Console | None = None) -> None:
    """Print what was found with a profile; nothing where the report stage has not run."""
    path = answers_file(profile)
    if not path.exists():
        return
    # A log has no width of its own; sentences in it stand on one line each.
    console = console or Console(highlight=False)
    wide = (
        console if console.is_terminal else Console(file=console.file, width=200, highlight=False)
    )
    found = json.loads(path.read_text(encoding="utf-8"))
    if found["simulated"]:
        wide.print("simulated: no language model answered")
    beside = lines_beside(profile)
    for told in found["tasks"]:
        _tell(told, beside.get(told["task"], ""), wide)
    wide.print(f"report: {path.with_name('index.html')}")


def _tell(told: dict[str, Any], beside: str, console: Console) -> None:
    console.print()
    console.print(
        Text.assemble((f"{told['task']}: ", "bold"), told["sentence"]),
        soft_wrap=not console.is_terminal,
    )
    console.print()
    for line in told["graph"]:
        console.print(Text(f"  {line}", overflow="fold", no_wrap=False))
    table = Table(box=None, padding=(0, 2), header_style="dim")
    for k, head in enumerate(told["heads"]):
        table.add_column(head, justify="left" if k == 0 else "right", no_wrap=k > 0)
    for cells in told["rows"]:
        table.add_row(*map(Text, cells), style="bold" if cells[0].startswith("→") else None)
    console.print()
    console.print(table)
    console.print()
    console.print(f"  {told['serve']}")
    if beside:
        console.print(Text(f"  {beside}", style="yellow"), soft_wrap=not console.is_terminal)
