"""Recording of the calls behind results, and their replay without a model.

A recorded call is a content key with a completion and its measured latency, or with the call's
failure; the question is not recorded. Equal calls give equal files.
"""

import io
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from ttsgraph.base.errors import CallFailed, ContextOverflow, DataError, NoAnswer, PromptRefused
from ttsgraph.base.files import read_json, write_bytes
from ttsgraph.models.client import Client, Completion, Request

ENGINE = "engine.json"
"""File next to recorded calls, with the engine that answered them and its number format."""
REPLAY = "replay.parquet"
"""File of recorded calls in a project's state folder; as long as it exists, it answers all calls.
"""

_FAILURES: dict[str, type[CallFailed] | type[NoAnswer]] = {
    "failed": CallFailed,
    "overflow": ContextOverflow,
    "refused": PromptRefused,
}
_FLAGS = ("cut", "estimated")
_COLUMNS = (
    *("key", "model", "text", "prompt_tokens", "completion_tokens", "latency_s", "reasoning"),
    *("reasoning_tokens", "known_tokens", "failure", *_FLAGS),
)
"""Columns of a file; older files lack the flags. A failed call has its message in `text`."""

_TOLD = tuple(name for name in _COLUMNS if name not in ("key", "model", "failure"))


@dataclass(frozen=True, slots=True)
class Call:
    """A call's outcome: a completion, or the error that each replay raises."""

    model: str
    outcome: Completion | CallFailed | NoAnswer


Calls = Mapping[str, Call]
"""Recorded calls by content key."""


class NotRecorded(DataError):
    """Error raised if a replay requests a call that was not recorded."""


def read_engine(path: Path) -> dict[str, str]:
    """Return the engine of recorded calls and its number format, or {} if there is no such file.
    Raises DataError if the file isn't JSON.
    """
    return dict(read_json(path, "verify")) if path.exists() else {}


class ReplayClient(Client):
    """Client that answers from recorded calls only. Raises NotRecorded for any other call."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def begin(self, request: Request) -> Completion:
        """Return the recorded completion immediately. Raises the recorded failure, or
        NotRecorded.
        """
        key = request.key()
        if (call := self._calls.get(key)) is None:
            asked = request.messages[-1].content[-60:]
            raise NotRecorded(
                f"expected call {key[:16]} of {request.model} (replica {request.replica}, prompt"
                f" ending {asked!r}) among the {len(self._calls)} recorded calls, but it is missing"
            )
        if isinstance(call.outcome, Completion):
            return replace(call.outcome, cached=True)
        raise call.outcome


def _schema() -> Any:
    """Return the Arrow schema of a file of recorded calls."""
    import pyarrow as pa  # large, and needs the extra `tables`

    types = {"key": pa.binary(32), "latency_s": pa.float64()} | dict.fromkeys(_FLAGS, pa.bool_())
    types |= dict.fromkeys([name for name in _COLUMNS if "_tokens" in name], pa.int64())
    return pa.schema([(name, types.get(name, pa.string())) for name in _COLUMNS])


def write_calls(calls: Calls, path: Path) -> None:
    """Write calls to a Parquet file, atomically and sorted by key, so that equal calls give equal
    files.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [_row(key, calls[key]) for key in sorted(calls)]
    table, content = pa.Table.from_pylist(rows, _schema()), io.BytesIO()
    packed = {"compression": "zstd", "compression_level": 9, "write_statistics": False}
    pq.write_table(table, content, use_dictionary=["model", "text", "failure"], **packed)
    write_bytes(path, content.getvalue())


def read_calls(path: Path | BinaryIO) -> dict[str, Call]:
    """Return the recorded calls in a file. Raises DataError if the file can't be read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows = pq.read_table(path, schema=_schema()).to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise DataError(
            f"{path}: expected recorded calls, but they can't be read: {str(error).splitlines()[0]}"
        ) from None
    return {row["key"].hex(): _call(row) for row in rows}


def _row(key: str, call: Call) -> dict[str, Any]:
    done, failure = call.outcome, ""
    if not isinstance(done, Completion):
        failure = next(kind for kind, error in _FAILURES.items() if isinstance(done, error))
        done = Completion(str(done), 0, 0, 0.0)
    values = {name: getattr(done, name) for name in _TOLD}
    return {"key": bytes.fromhex(key), "model": call.model, "failure": failure, **values}


def _call(row: Mapping[str, Any]) -> Call:
    if row["failure"]:
        return Call(row["model"], _FAILURES[row["failure"]](row["text"]))
    values = {name: row[name] for name in _TOLD} | {name: bool(row[name]) for name in _FLAGS}
    return Call(row["model"], Completion(**values, cached=True))
