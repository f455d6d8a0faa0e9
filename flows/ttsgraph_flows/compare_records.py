"""Compare rebuilt files with recorded ones by their content.

Integers, strings and booleans must be equal, as must rows and their order: graphs, answers,
decisions, counts. The last digits of other numbers depend on the order in which a processor adds
terms up, so these numbers may differ by the relative tolerance RELATIVE (near 0, by FLOOR), except
in the columns EXACT. Pages and pictures only show values from other files, in a machine's fonts,
and are not compared. All other files hold questions and calls, which involve no computation, and
are compared by hash.
"""

import io
import json
import math
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from ttsgraph.base.ending import say
from ttsgraph.base.files import CHECKSUM, md5
from ttsgraph.base.wording import counted
from ttsgraph_flows.dvc_store import arrow_table

RELATIVE = 1e-6
FLOOR = 1e-8

EXACT = frozenset(("correct", "dollars", "budget_units", "units"))
"""Columns whose numbers must be equal: grades, and costs of calls."""

LEFT_OUT = frozenset((CHECKSUM, "crc32", "length", "files", "trajectory_md5"))
"""Keys that are not compared: digests of values that are themselves compared, and the length of
their text.
"""

SHOWN = ("index.html", "plots", "pilot_plots")
"""Pages and pictures, which are not compared."""

MOST_NAMED = 5
"""Maximum number of differences named per file."""

NOTHING = object()


class Equality(Enum):
    """Result of comparing a file with the recorded one."""

    BYTES = "equal to the byte"
    DIGITS = "equal to the digit"
    SHOWN = "a page or pictures"


def _csv(content: bytes) -> Any:
    import pandas as pd

    # A hash that consists of digits and a single e would otherwise be read as a number.
    texts = dict.fromkeys(("graph_hash", "result_hash"), str)
    return pd.read_csv(io.BytesIO(content), dtype=texts).to_dict("list")


READERS: Mapping[str, Callable[[bytes], Any]] = {
    ".csv": _csv,
    ".json": json.loads,
    ".jsonl": lambda content: [json.loads(line) for line in content.splitlines()],
    ".parquet": lambda content: arrow_table(content).to_pydict(),
}


def by_content(path: str) -> bool:
    """Return True if a stage's output is compared by content. Such outputs are published next to
    the calls.
    """
    return path.startswith(("results/", "reports/")) and Path(path).suffix in READERS


def compared(path: str, rebuilt: Path, recorded: str, kept: bytes | None) -> Equality | str:
    """Return how a rebuilt file equals the recorded one, or a description of the difference. The
    digests are compared first; if they differ, the file is compared with the recorded content
    `kept`, if that is available.
    """
    found = md5_of(rebuilt)
    if recorded == found:
        return Equality.BYTES
    if found == "missing":
        return f"{path} is missing"
    if rebuilt.name in SHOWN:
        return Equality.SHOWN
    if not by_content(path):
        return f"{path} is {found}, recorded: {recorded}"
    if kept is None:
        return f"{path} is {found}, recorded: {recorded}, whose content isn't here"
    read = READERS[rebuilt.suffix]
    try:
        wrong = list(differences(read(kept), read(rebuilt.read_bytes())))
    except (ValueError, OSError) as error:
        return f"{path}: expected values to compare, but they can't be read: {error}"
    if not wrong:
        return Equality.DIGITS
    more = f"; and {len(wrong) - MOST_NAMED} more" if len(wrong) > MOST_NAMED else ""
    return f"{path}: {'; '.join(wrong[:MOST_NAMED])}{more}"


def md5_of(path: Path) -> str:
    """Return the MD5 that DVC gives a file or a folder; "missing" if it doesn't exist."""
    if path.is_file():
        return md5(path)
    if not path.is_dir():
        return "missing"
    names = sorted(each.relative_to(path).as_posix() for each in path.rglob("*") if each.is_file())
    listed = [{"md5": md5(path / name), "relpath": name} for name in names]
    return f"{md5(json.dumps(listed, sort_keys=True).encode())}.dir"


def differences(kept: Any, found: Any) -> Iterator[str]:
    """Yield the differences between the recorded data `kept` and the rebuilt data `found`, as
    text.
    """
    before, now = dict(_values(kept)), dict(_values(found))
    for place in before | now:
        one, other = before.get(place, NOTHING), now.get(place, NOTHING)
        column = place.rpartition(".")[2].partition("[")[0]
        if not _equal(one, other, exact=column in EXACT):
            yield f"{place or 'it'} is {_said(other)}, recorded: {_said(one)}"


def _values(data: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each value in the data with its place, and what each list and mapping is."""
    if isinstance(data, dict):
        yield place, "a mapping"
        for key, value in data.items():
            if key not in LEFT_OUT:
                yield from _values(value, f"{place}.{key}" if place else key)
    elif isinstance(data, list):
        yield place, f"a list of {len(data)} entries"
        for number, value in enumerate(data):
            yield from _values(value, f"{place}[{number}]")
    else:
        yield place, data


def _equal(kept: Any, found: Any, exact: bool) -> bool:
    if not (isinstance(kept, float) and isinstance(found, float)):
        return type(kept) is type(found) and bool(kept == found)
    if math.isnan(kept) or math.isnan(found):
        return math.isnan(kept) and math.isnan(found)
    return kept == found if exact else math.isclose(kept, found, rel_tol=RELATIVE, abs_tol=FLOOR)


def _said(value: Any) -> str:
    text = "missing" if value is NOTHING else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def published_copy(folder: Path, path: str) -> Path:
    """Return the path of a published result. The results of a task are in a subfolder named after
    the task, the results of a report in the profile's folder itself.
    """
    return folder.joinpath(*Path(path).parts[2:])


def publish_results(results: Mapping[str, bytes], folder: Path) -> None:
    """Write results (path -> content) for publication, replacing earlier results of their tasks."""
    for task in {Path(path).parts[2] for path in results if path.startswith("results/")}:
        shutil.rmtree(folder / task, ignore_errors=True)
    for path, content in results.items():
        copy = published_copy(folder, path)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(content)
    size = sum(map(len, results.values())) / 1e6
    say(f"{folder}: {counted(len(results), 'result file')}, {size:.2f} MB")


@dataclass(slots=True)
class Verification:
    """Result of verifying a task, or the report: counts of equal files, descriptions of
    differences, and, if it could not be verified, the reason.
    """

    equal: Counter[Equality] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    unverified: str = ""

    def __str__(self) -> str:
        if self.unverified and not self.wrong:
            return f"not verified: {self.unverified}"
        same, digits, shown = (self.equal[kind] for kind in Equality)
        counts = f"{counted(same, 'file')} equal to the byte, {digits} equal to the digit (numbers"
        counts += f" within {RELATIVE:g}), {len(self.wrong)} different"
        if shown:
            counts += f", {counted(shown, 'page')} or pictures that differ but are not compared"
        return "\n  ".join([counts, *self.wrong])

    def see(self, name: str, found: Equality | str) -> None:
        """Add the result of comparing one of a stage's files."""
        if isinstance(found, Equality):
            self.equal[found] += 1
        else:
            self.wrong.append(f"{name}: {found}")
