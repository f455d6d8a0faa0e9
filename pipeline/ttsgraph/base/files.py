"""Small files that stages exchange, written atomically, and errors about unwritable places."""

import errno
import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ttsgraph.base.errors import DataError, InputError


def finite(value: Any) -> Any:
    """Return plain data with None in place of NaN and infinities, because JSON lacks them."""
    return json.loads(json.dumps(value, default=dict), parse_constant=lambda name: None)


def json_text(data: Any, **form: Any) -> str:
    """Return plain data as JSON, with null in place of NaN and infinities.

    `form` holds options of `json.dumps`; the default is an indent of 1.
    """
    return json.dumps(finite(data), allow_nan=False, **({"indent": 1} | form))


def write_text(path: Path, text: str, suffix: str = ".part") -> None:
    """Write text to a file, as `write_bytes` writes bytes."""
    write_bytes(path, text.encode(), suffix)


def write_bytes(path: Path, content: bytes, suffix: str = ".part") -> None:
    """Write a file under a temporary name, which ends with `suffix`, and rename it."""
    if path.is_dir():
        raise InputError(f"{path}: expected a file to write, found a folder; add a file name")
    unfinished = path.with_name(path.name + suffix)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        unfinished.write_bytes(content)
    except OSError as error:  # an error from an open file lacks the path
        error.filename = error.filename or str(path)
        raise
    os.replace(unfinished, path)


@contextmanager
def locked(folder: Path, wait: bool = False) -> Iterator[None]:
    """Lock a folder against other processes.

    If another process holds the lock, wait for it (`wait`) or raise InputError with its process id.
    The kernel (flock) releases the lock when its holder ends, so a leftover lock file is harmless.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / ".lock"
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError:
            holder = path.read_text().strip() or "unknown"
            raise InputError(
                f"{folder}: another run works here (process {holder}); wait for it, or stop it"
            ) from None
        path.write_text(f"{os.getpid()}\n")
        yield
        path.write_text("")


CHECKSUM = "checksum"
FOUND = "found"
"""Name of the folder with the result of `ttsgraph run`, in results/<profile>/<task>/."""


def read_json(path: Path, made_by: str) -> Any:
    """Return the content of a JSON file.

    If it can't be read, raises DataError naming `made_by`, the stage that makes the file.
    """
    advice = makes(made_by, path)
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{path}: expected a file, but there is none; {advice}") from None
    except (OSError, ValueError, RecursionError) as error:  # RecursionError: too deeply nested
        raise DataError(f"{path}: expected JSON, but it can't be read: {error}; {advice}") from None


def checksum_of(data: Any) -> str:
    """Return a hash of data from a JSON file, or from `finite`."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]


def checked_text(data: Mapping[str, Any]) -> str:
    """Return plain data as JSON that includes the checksum of the data."""
    plain = finite(data)
    return json_text({**plain, CHECKSUM: checksum_of(plain)})


def checked_json(path: Path, made_by: str) -> dict[str, Any]:
    """Return the data of a file from `checked_text`, or of an older file without a checksum.

    Raises DataError if the file is missing, isn't a JSON object or has the wrong checksum.
    """
    data = read_json(path, made_by)
    advice = makes(made_by, path)
    if not isinstance(data, dict):
        raise DataError(f"{path}: expected a JSON object, found {type(data).__name__}; {advice}")
    checksum = data.pop(CHECKSUM, None)
    if checksum not in (None, checksum_of(data)):
        raise DataError(f"{path}: its content differs from what was written; {advice}")
    return data


def kept(path: Path) -> Any:
    """Return the value that `keep` stored, or None if it is missing or damaged."""
    try:
        return checked_json(path, "")["value"]
    except (DataError, LookupError):
        return None


def keep(path: Path, value: Any) -> None:
    """Store plain data that could be computed again.

    If several processes store different values in parallel, one of the values is kept.
    """
    write_text(path, checked_text({"value": value}), f".{os.getpid()}.part")


_FULL = ("ENOSPC", "EDQUOT", "EFBIG")
_CLOSED = ("EACCES", "EPERM", "EROFS", "ENOTDIR", "EISDIR", "EEXIST")
_SQLITE = re.compile(
    "(database or disk is full|disk I/O error|readonly database|unable to open database file)"
)
"""Names of the errors of a full disk and of a place that can't be written to, and parts of SQLite's
messages about either.
"""


def unusable(error: BaseException | None, place: Path | None = None) -> str:
    """Return a message with the place that can't be written to, the reason and the remedy.

    Return "" unless the error or one of its causes is about such a place. `place` is the path of a
    database, because a database's errors don't name their file.
    """
    while error is not None:
        if isinstance(error, OSError):
            if error.filename is not None:
                place = Path(os.fsdecode(error.filename))
            kinds = _FULL if error.filename is None else (*_FULL, *_CLOSED)
            why = error.strerror if errno.errorcode.get(error.errno or 0) in kinds else ""
        else:
            why = next(iter(_SQLITE.findall(str(error))), "")
        if why:
            return (
                f"{place or Path.cwd()}: expected to write here, but this fails: {why}; computed"
                " results are kept; free space, fix its permissions, or move away what is in its"
                " place, and run again"
            )
        error = error.__cause__
    return ""


def makes(stage: str, path: Path) -> str:
    """Return advice for a missing or damaged file: the stage that makes it, and its command."""
    if path.parent.name == FOUND:
        return "`ttsgraph run` makes it"
    return (
        f"the stage {stage!r} makes it: `{command_of(stage, path)}`, or `make repro`, which"
        " also makes everything before it"
    )


def command_of(stage: str, path: Path) -> str:
    """Return the command that runs a stage, with options derived from the file that it makes."""
    tops = [k for k, part in enumerate(path.parts) if part in ("data", "results", "research")]
    below = path.parts[tops[-1] + 1 : -1] if tops else ()
    names = ["profile", "task", *(["method"] if stage in ("search", "evaluate") else [])]
    known = zip(names, below, strict=False) if stage != "report" and below[len(names) - 1 :] else ()
    options = "".join(f" --{k} {value}" for k, value in known)
    return f"python -m ttsgraph_flows.{stage}{options}"


def md5(content: Path | bytes) -> str:
    """Return the MD5 of bytes, or of a file's bytes, as DVC computes it."""
    data = content.read_bytes() if isinstance(content, Path) else content
    return hashlib.md5(data, usedforsecurity=False).hexdigest()
