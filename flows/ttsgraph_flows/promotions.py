"""Log of promotions to champion, with author and reason: promotions/<task>.jsonl, one line per
promotion.

Each line has the digest of the previous line, the promoted version has the digest of its line, and
DVC tracks the file. So changed lines, and aliases moved by other means, are detected.
"""

import getpass
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ttsgraph.base.ending import say
from ttsgraph.base.errors import DataError, EndpointError
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
    lines = _lines(path)
    found = _parsed(lines, path)
    digests = ["", *map(sha256, lines)]
    for number, (digest, each) in enumerate(zip(digests, found, strict=False), 1):
        if each.before != digest:
            raise DataError(
                f"{path}, line {number}: expected the digest of the previous line, found a"
                f" different one: a line was changed or removed; {RESTORE}"
            )
    kept = _tracked(path)
    if lines and (home() / ".dvc").is_dir() and kept != _md5(lines):
        raise DataError(
            f"{path}: expected the file that DVC tracks ({kept or f'{path.name}.dvc is missing'}),"
            f" found a different one; {RESTORE}"
        )
    return found


def note(task: str, version: str, record_sha256: str, reason: str) -> str:
    """Append a promotion to the log unless it is already the last line; return the digest of the
    last line. Raises DataError as `promotions` does.
    """
    path = path_of(task)
    with locked(path.parent, wait=True):
        lines = _lines(path)
        last = next(reversed(_parsed(lines[-1:], path)), None)
        is_noted = last and (last.version, last.record_sha256) == (version, record_sha256)
        if is_noted and _tracked(path) == _md5(lines[:-1]):
            _track(path)  # an earlier process ended between writing the line and tracking the file
        promotions(task)  # raises if the earlier lines are damaged
        if not is_noted:
            line = Promotion(
                version=version,
                record_sha256=record_sha256,
                by=getpass.getuser(),
                reason=reason,
                before=last_digest(task),
            )
            # Replaced, not appended to: DVC may link it to its cache, and a disk may be full.
            write_text(path, _text([*lines, json.dumps(line.model_dump())]))
            _track(path)
        return last_digest(task)


def last_digest(task: str) -> str:
    """Return the digest of the last line of a task's log; "" if there is no line."""
    return next(map(sha256, reversed(_lines(path_of(task)))), "")


def _lines(path: Path) -> list[str]:
    with _readable(path):
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def _parsed(lines: Sequence[str], path: Path) -> list[Promotion]:
    with _readable(path):
        return [parse(Promotion, json.loads(line), str(path)) for line in lines]


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path}: expected JSON lines, but they can't be read: {error}; {RESTORE}"
        ) from None


def _tracked(path: Path) -> str | None:
    """Return the MD5 that DVC has recorded for the file, or None if DVC doesn't track it. Raises
    DataError if DVC's record is damaged.
    """
    record = path.with_name(path.name + ".dvc")
    return read_record(record, lambda found: str(found["outs"][0]["md5"]), None)


def _text(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _md5(lines: Sequence[str]) -> str | None:
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
