"""Log of promotions to champion, with author and reason: promotions/<task>.jsonl, one line per
promotion.

Each line has the digest of the previous line, the promoted version has the digest of its line, and
DVC tracks the file. So changed lines, and aliases moved by other means, are detected.
"""

import getpass
import json
from pathlib import Path

from ttsgraph.base.ending import say
from ttsgraph.base.errors import DataError, EndpointError, InputError
from ttsgraph.base.files import locked, md5, write_text
from ttsgraph.base.parsing import ClosedModel, parse
from ttsgraph.base.state import home
from ttsgraph.deployment.provenance import sha256
from ttsgraph_flows.dvc_stages import dvc, read_record

RESTORE = "restore it and its .dvc file with `git checkout` and `dvc checkout`"


class Promotion(ClosedModel):
    """One line of the log: the version and the digest of its lineage record, the author of the
    promotion, the reason, and the digest of the previous line.
    """

    version: str
    record_sha256: str
    by: str
    reason: str
    before: str

    @property
    def text(self) -> str:
        """The line of the log, without its end."""
        return json.dumps(self.model_dump())

    @property
    def digest(self) -> str:
        """SHA-256 of the line, in hex."""
        return sha256(self.text)


def path_of(task: str) -> Path:
    """Return the path of a task's log. An experiment's copy of the project shares the log with
    the project.
    """
    return home() / "promotions" / f"{task}.jsonl"


def promotions(task: str) -> list[Promotion]:
    """Return a task's promotions, oldest first. Raises DataError if a line was changed or removed,
    or if the file isn't the one that DVC tracks.
    """
    path = path_of(task)
    found = _read(path)
    if (home() / ".dvc").is_dir() and _tracked(path) != _md5(found):
        raise DataError(f"{path}: expected the file that DVC tracks, found another one; {RESTORE}")
    return found


def note(task: str, version: str, record_sha256: str, reason: str) -> str:
    """Append a promotion to the log unless it is already the last line; return the digest of the
    last line. Raises DataError as `promotions` does.
    """
    path = path_of(task)
    with locked(path.parent, wait=True):
        found = _read(path)
        last = found[-1] if found else None
        is_noted = last and (last.version, last.record_sha256) == (version, record_sha256)
        if is_noted and _tracked(path) == _md5(found[:-1]):
            _track(path)  # an earlier process ended between writing the line and tracking the file
        promotions(task)  # raises if the file isn't the tracked one
        if last is None or not is_noted:
            made = {"version": version, "record_sha256": record_sha256, "reason": reason}
            before = last.digest if last else ""
            last = Promotion(**made, by=getpass.getuser(), before=before)
            # Replaced, not appended to: DVC may link it to its cache, and a disk may be full.
            write_text(path, _text([*found, last]))
            _track(path)
        return last.digest


def _read(path: Path) -> list[Promotion]:
    """Return the lines of a log. Raises DataError if they can't be read, or if one of them doesn't
    follow from the previous one.
    """
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        found = [parse(Promotion, json.loads(line), str(path)) for line in text.splitlines()]
    except (OSError, ValueError, InputError) as error:
        raise DataError(f"{path}: expected JSON lines, found others: {error}; {RESTORE}") from None
    before = ["", *(each.digest for each in found)]
    if text != _text(found) or [each.before for each in found] != before[:-1]:
        raise DataError(
            f"{path}: expected the digest of the previous line in each line, found a different one:"
            f" a line was changed or removed; {RESTORE}"
        )
    return found


def _tracked(path: Path) -> str | None:
    """Return the MD5 that DVC has recorded for the file, or None if DVC doesn't track it. Raises
    DataError if DVC's record is damaged.
    """
    return read_record(Path(f"{path}.dvc"), lambda found: str(found["outs"][0]["md5"]), None)


def _text(lines: list[Promotion]) -> str:
    return "".join(f"{each.text}\n" for each in lines)


def _md5(lines: list[Promotion]) -> str | None:
    """Return the MD5 of a file that consists of these lines, or None if there are no lines."""
    return md5(_text(lines).encode()) if lines else None


def _track(path: Path) -> None:
    """Make DVC track the current file, if the project uses DVC."""
    if not (home() / ".dvc").is_dir():
        return
    where = str(path.relative_to(home()))
    try:
        dvc("add", "--quiet", where, folder=home())
    except EndpointError as error:
        say(f"warning: {error}; run `dvc add {where}` to track it")
