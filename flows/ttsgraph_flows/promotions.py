"""Log of promotions to champion, with author and reason: promotions/<task>.jsonl, one line each.

Each line has the digest of the previous one, and DVC tracks the file, so that changed lines, and
aliases moved by other means, are detected.
"""

import getpass
import json
from hashlib import sha256
from pathlib import Path

import yaml

from ttsgraph.base.ending import say
from ttsgraph.base.errors import DataError, EndpointError
from ttsgraph.base.files import locked, md5
from ttsgraph.base.parsing import ClosedModel, parse
from ttsgraph.base.state import home
from ttsgraph_flows.dvc_stages import dvc


class Promotion(ClosedModel):
    """A line: the version and the digest of its lineage record, its author, the reason, and the
    digest of the previous line.
    """

    version: str
    record_sha256: str
    by: str
    reason: str
    before: str


def path_of(task: str) -> Path:
    """Return the path of a task's file, which copies of an experiment share with the project."""
    return home() / "promotions" / f"{task}.jsonl"


def promotions(task: str) -> list[Promotion]:
    """Return a task's promotions, oldest first. Raises DataError if a line was changed or removed,
    or the file isn't the one that DVC tracks.
    """
    path = path_of(task)
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    found = [parse(Promotion, _plain(line, path), str(path)) for line in lines]
    digests = ["", *map(_digest, lines)]
    for number, (digest, each) in enumerate(zip(digests, found, strict=False), 1):
        if each.before != digest:
            raise DataError(f"{path}, line {number}: the line before it was changed")
    tracked = path.with_name(path.name + ".dvc")
    if tracked.exists():
        kept = yaml.safe_load(tracked.read_text(encoding="utf-8"))["outs"][0]["md5"]
        if kept != md5(path):
            raise DataError(f"{path}: expected the file that DVC tracks ({kept}), found another")
    return found


def note(task: str, version: str, record_sha256: str, reason: str) -> None:
    """Append a promotion unless it is already the last one. Raises DataError like `promotions`."""
    path = path_of(task)
    with locked(path.parent, wait=True):
        known = promotions(task)
        if known and (known[-1].version, known[-1].record_sha256) == (version, record_sha256):
            return
        before = _digest(path.read_text(encoding="utf-8").splitlines()[-1]) if known else ""
        line = Promotion(
            version=version,
            record_sha256=record_sha256,
            by=getpass.getuser(),
            reason=reason,
            before=before,
        )
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line.model_dump()) + "\n")
        _track(path)


def _track(path: Path) -> None:
    """Let DVC track the current file, if the project uses DVC."""
    if not (home() / ".dvc").is_dir():
        return
    where = str(path.relative_to(home()))
    try:
        dvc("add", "--quiet", where, folder=home())
    except EndpointError as error:
        say(f"warning: {error}; run `dvc add {where}` to track it")


def _plain(line: str, path: Path) -> object:
    try:
        return json.loads(line)
    except ValueError:
        raise DataError(f"{path}: expected JSON lines, found {line[:40]!r}") from None


def _digest(line: str) -> str:
    return sha256(line.encode()).hexdigest()
