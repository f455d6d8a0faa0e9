"""A recording of a real run, as one animated picture: `python -m lab.benchmarks.recording` rebuilds
the project it is called in, and writes its board, then its ending, to docs/recording.svg.

What is quick is shown as long as what takes minutes: the recording lasts SECONDS at most.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.text import Text

from ttsgraph.base.files import write_text
from ttsgraph.base.state import STATE
from ttsgraph.settings.profile import load_params
from ttsgraph_flows.answers import tell
from ttsgraph_flows.live import BOARD, Board, Posting, picture

WIDTH = 118
SECONDS = 60.0
MOST_FRAMES = 30
LAST_S = 12.0
"""How long the ending stands."""

EVERY_S = 1.0
COMMAND = (sys.executable, "-m", "ttsgraph_flows.repro")
PICTURE = Path("docs/recording.svg")
INK = "#d8dee9"
PAGE = "#171a21"
FRAME = """<g class="frame" style="animation-name:{unique_id}"><defs>{lines}</defs><style>
.{unique_id}-matrix{{font:{char_height}px ui-monospace,Menlo,Consolas,monospace;fill:#d8dee9}}
{styles}</style>{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g>"""
CHARACTER = (12.2, 24.4)
"""Width and height of a character in rich's pictures."""


def watched(
    command: Sequence[str], env: Mapping[str, str], folder: Path, every_s: float = EVERY_S
) -> Iterator[list[Posting]]:
    """Run a command that runs stages; yields the board whenever it has changed. Raises
    CalledProcessError when the command fails.
    """
    board = Board(folder)
    shown = {**env, BOARD: str(folder.resolve())}
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, env=shown, stdout=quiet, stderr=quiet) as child:
        before: list[Posting] = []
        while True:
            ended = child.poll() is not None
            now = board.postings()
            if now != before:
                yield now
                before = now
            if ended:
                break
            time.sleep(every_s)
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, command)


def chosen(boards: Sequence[list[Posting]], most: int = MOST_FRAMES) -> list[list[Posting]]:
    """At most so many boards, the first and the last among them, and as evenly as can be."""
    if len(boards) <= most:
        return list(boards)
    return [boards[round(k * (len(boards) - 1) / (most - 1))] for k in range(most)]


def movie(
    frames: Sequence[RenderableType], title: str, seconds: float = SECONDS, last_s: float = LAST_S
) -> str:
    """Frames one after the other as an animated SVG that needs nothing from elsewhere; the last
    one is all that is seen where nothing may move.
    """
    height = max(len(_console(frame).export_text(clear=False).splitlines()) for frame in frames) + 1
    each = min(2.0, (seconds - last_s) / max(1, len(frames) - 1))
    whole = each * (len(frames) - 1) + last_s
    parts = []
    rules = []
    for k, frame in enumerate(frames):
        name = f"frame-{k}"
        parts.append(_console(frame).export_svg(code_format=FRAME, unique_id=name))
        begin = 100 * k * each / whole
        end = 100 * (k + 1) * each / whole
        closing = f"{end:.3f}%{{opacity:0}}" if k + 1 < len(frames) else "100%{opacity:1}"
        rules.append(f"@keyframes {name}{{0%{{opacity:0}}{begin:.3f}%{{opacity:1}}{closing}}}")
    width = WIDTH * CHARACTER[0] + 24
    tall = height * CHARACTER[1] + 24
    style = (
        f".frame{{opacity:0;animation:{whole:.1f}s step-end infinite}}"
        "@media (prefers-reduced-motion: reduce){.frame{animation:none}"
        ".frame:last-of-type{opacity:1}}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {tall:.0f}" role="img">'
        f"<title>{title}</title><style>{style}{''.join(rules)}</style>"
        f'<rect width="100%" height="100%" rx="10" fill="{PAGE}"/>'
        f'<g transform="translate(12 12)">{"".join(parts)}</g></svg>\n'
    )


def _console(frame: RenderableType) -> Console:
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(frame)
    return console


def ending(profile: str) -> Text:
    """What a run ends with."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    tell(profile, console)
    return Text.from_ansi(console.export_text(styles=True))


def main() -> None:
    """Rebuild the project here, and write the recording."""
    prompt = Text("$ make repro\n", style="bold")
    boards = list(watched(COMMAND, os.environ, STATE / "recording"))
    frames = [prompt, *(Group(prompt, picture(board)) for board in chosen(boards))]
    frames.append(Group(prompt, ending(load_params().profile)))
    write_text(PICTURE, movie(frames, "make repro, recorded"))
    print(f"{PICTURE}: {len(frames)} frames")


if __name__ == "__main__":
    main()
