"""Checks of a request before it costs anything: its key and its body."""

from __future__ import annotations

import hashlib
import logging
import re
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json
from starlette.datastructures import Headers
from starlette.requests import Request

from ttsgraph.base.errors import InputError
from ttsgraph.service.errors import ApiError
from ttsgraph.settings.service import ServiceSettings

Body = TypeVar("Body", bound=BaseModel)

_LINE = re.compile(r"([0-9a-f]{64})\s+(\w[\w.@-]*)", re.ASCII)
_log = logging.getLogger(__name__)


class ApiKeys:
    """API keys, one of which each request has to send; if none are set, access is open.

    One key can come from the environment, others from a file. Each line of the file has the SHA-256
    of a key in hex, as `sha256sum` writes it, and a name of letters, digits and `_.@-`. Keys of the
    same name belong to the same client. The file is read again when it changes. Raises InputError
    if the file can't be read at the start; if it can't be read later, the old keys stay valid.
    """

    def __init__(self, key: str, file: Path | None) -> None:
        self._own = {_hashed(key.encode()): "environment"} if key else {}
        self._file = file
        self._stamp: tuple[int, ...] = ()
        self._names = self._own
        self.open = not key and file is None  # no key is needed
        self._read()

    def check(self, headers: Headers) -> str | None:
        """Return the name of the request's key, or None if no key is needed.

        Raises ApiError 401 if the key is missing or unknown.
        """
        if self.open:
            return None
        try:
            self._read()
        except InputError as error:
            _log.warning("the old keys stay valid: %s", error)
        scheme, _, sent = headers.get("authorization", "").partition(" ")
        # The look-up compares hashes, so its duration reveals nothing about a guessed key.
        name = self._names.get(_hashed(sent.strip().encode("latin-1")))
        if scheme.lower() != "bearer" or name is None:
            message = "expected one of the server's API keys as a bearer token"
            raise ApiError(401, message, headers={"www-authenticate": "Bearer"})
        return name

    def _read(self) -> None:
        """Read the file, if there is one and it has changed."""
        if self._file is None:
            return
        try:
            now = self._file.stat()  # two changes can have the same time
            before, self._stamp = self._stamp, (now.st_mtime_ns, now.st_size, now.st_ino)
            if before == self._stamp:
                return
            lines = self._file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{self._file}: can't read the keys file: {error}") from None
        found = dict(self._own)
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.startswith("#"):
                continue
            if (parts := _LINE.fullmatch(line.strip())) is None:
                raise InputError(
                    f"{self._file}, line {number}: expected the SHA-256 of a key in hex, a space,"
                    " and the key's name (letters, digits and any of _.@-)"
                )
            found[parts[1]] = parts[2]
        self._names = found


def _hashed(key: bytes) -> str:
    return hashlib.sha256(key).hexdigest()


async def read(request: Request, kind: type[Body], settings: ServiceSettings) -> Body:
    """Return the request's body, a JSON object of this kind.

    Raises ApiError 415 if the body isn't declared as JSON, 413 if it is longer than allowed, or
    400, naming the first invalid parameter, if it isn't valid.
    """
    form = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if form != "application/json":
        raise ApiError(415, f"expected Content-Type application/json, found {form or 'none'}")
    most = settings.max_body_bytes
    too_large = ApiError(413, f"expected a body of at most {most} bytes")
    if int(request.headers.get("content-length", 0)) > most:
        raise too_large  # reject it early: a client that waits for 100 Continue then sends no body
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            raise too_large
    expected = "expected a JSON object as the request's body"
    try:
        data = from_json(bytes(body), allow_inf_nan=False)
        if not isinstance(data, dict):
            raise ApiError(400, f"{expected}, found {type(data).__name__}")
        return kind.model_validate(data, context=settings)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = ".".join(map(str, first["loc"])) or "the request's body"
        param = str(first["loc"][0]) if first["loc"] else None
        message = f"{path}: {first['msg'].removeprefix('Value error, ')}"
        raise ApiError(400, message, param) from None
    except ValueError:  # also raised for deep nesting or invalid UTF-8
        raise ApiError(400, f"{expected}, but it is not JSON") from None
