"""Who made which version the champion of its task, and why: promotions/<task>.jsonl, a line for
each promotion. Each line has the digest of the one before it, and DVC tracks the file, so that an
alias that was moved in another way, and a line that was changed, are found.
"""

import getpass
import json
from hashlib import sha256
from pathlib import Path

import yaml

from ttsgraph.base.ending import say
from ttsgraph.base.errors import DataError, EndpointError
from ttsgraph.base.files import locked, md5
from ttsgraph.base.parsing import Closed, parse
from ttsgraph.base.state import home
from ttsgraph_flows.dvc_stages import dvc


class Promotion(Closed):
    """A line: the version and the digest of its lineage record, who promoted it, why, and the
    digest of the line before.
    """

    version: str
    record_sha256: str
    by: str
    reason: str
    before: str


def path_of(task: str) -> Path:
    """A task's file, which a copy of an experiment shares with the project."""
    return home() / "promotions" / f"{task}.jsonl"


def promotions(task: str) -> list[Promotion]:
    """A task's promotions, oldest first. Raises DataError where a line was changed or taken out, or
    the file isn't the one that DVC tracks.
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
    """Append a promotion, unless it is the last one already. Raises DataError as `promotions`."""
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
    """Let DVC track the file as it is now, where the project is one of DVC's."""
    if not (home() / ".dvc").is_dir():
        return
    where = str(path.relative_to(home()))
    try:
        dvc("add", "--quiet", where, folder=home())
    except EndpointError as error:
        say(f"warning: {error}; `dvc add {where}` tracks it")


def _plain(line: str, path: Path) -> object:
    try:
        return json.loads(line)
    except ValueError:
        raise DataError(f"{path}: expected JSON lines, found {line[:40]!r}") from None


def _digest(line: str) -> str:
    return sha256(line.encode()).hexdigest()
