"""Checks before a request costs anything: its key and the size of its body."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from pathlib import Path
from urllib.parse import quote

from starlette.datastructures import Headers
from starlette.requests import Request

from ttsgraph.base.errors import InputError
from ttsgraph.service.errors import ApiError
from ttsgraph.settings.service import ServiceSettings

_LINE = re.compile("([0-9a-f]{64})(?: (.*))?")
_log = logging.getLogger(__name__)


class ApiKeys:
    """API keys, one of which each request has to send; without any, access is open.

    One key is in the environment, others in a file of lines `SHA-256 in hex, name`, as `sha256sum`
    writes them, which is read again when it changes. Raises InputError if the file can't be read;
    later on, the old keys stay valid.
    """

    def __init__(self, key: str, file: Path | None) -> None:
        self._own = {_hashed(key.encode()): "environment"} if key else {}
        self._file = file
        self._stamp: tuple[int, int, int] | None = None
        self._names = self._own
        self.open = not key and file is None  # no key is needed
        self._read()

    def check(self, headers: Headers) -> str:
        """Return the name of the request's key. Raises ApiError 401 for an unknown key."""
        if self.open:
            return "-"
        try:
            self._read()
        except InputError as error:
            _log.warning("the old keys stay valid: %s", error)
        scheme, _, sent = headers.get("authorization", "").partition(" ")
        # Looking up hashes leaks no timing information about a guess.
        name = self._names.get(_hashed(sent.strip().encode("latin-1")))
        if scheme.lower() != "bearer" or name is None:
            message = "expected one of the server's API keys as a bearer token"
            raise ApiError(401, message, headers={"www-authenticate": "Bearer"})
        return name

    def _read(self) -> None:
        if self._file is None:
            return
        try:
            now = self._file.stat()
            stamp = now.st_mtime_ns, now.st_size, now.st_ino
            if stamp == self._stamp:
                return
            self._stamp = stamp  # report a faulty file once
            lines = self._file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{self._file}: can't read the file of keys: {error}") from None
        found = dict(self._own)
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.startswith("#"):
                continue
            if (parts := _LINE.fullmatch(line)) is None:
                where = f"{self._file}, line {number}"
                expected = "expected the SHA-256 of a key in hex, a space, and its name"
                raise InputError(f"{where}: {expected}")
            name = quote((parts[2] or "").strip(" *"))
            # Each key needs its own name, because only the key that asked may judge an answer.
            found[parts[1]] = name if name not in ("", "-") else f"key-{parts[1][:8]}"
        self._names = found


def _hashed(key: bytes) -> str:
    return hashlib.sha256(key).hexdigest()


def check_framing(headers: Headers) -> None:
    """Raise ApiError 400 for two lengths: a proxy may see another end of the body."""
    if "content-length" in headers and "transfer-encoding" in headers:
        message = "expected Content-Length or Transfer-Encoding, found both"
        raise ApiError(400, message, headers={"connection": "close"})


async def read_body(request: Request, settings: ServiceSettings) -> bytes:
    """Return the request's body, read no further than allowed. Raises ApiError 408, 413 or 415."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(415, f"expected Content-Type application/json, found {kind or 'none'}")
    most = settings.max_body_bytes
    too_large = ApiError(413, f"expected a body of at most {most} bytes")
    if int(request.headers.get("content-length", 0)) > most:
        raise too_large  # refuse it before a client that waits for 100 Continue sends it
    body = bytearray()
    try:
        async with asyncio.timeout(settings.receive_s):
            async for chunk in request.stream():
                body += chunk
                if len(body) > most:
                    raise too_large
    except TimeoutError:
        message = f"expected the request's body within {settings.receive_s:g} seconds"
        raise ApiError(408, message, headers={"connection": "close"}) from None
    return bytes(body)
