"""What is checked before a request costs anything: its key, and the size of its body."""

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


class Keys:
    """The keys of which a request has to send one; with none, everybody may ask. One is of the
    environment, others of a file of lines `SHA-256 in hex, name`, as `sha256sum` writes, read again
    when it changes. Raises InputError for a file that can't be read; later, the old keys hold.
    """

    def __init__(self, key: str, file: Path | None) -> None:
        self._own = {_hashed(key.encode()): "environment"} if key else {}
        self._file = file
        self._stamp: tuple[int, int, int] | None = None
        self._names = self._own
        self.open = not key and file is None  # no key is needed
        self._read()

    def check(self, headers: Headers) -> str:
        """The name of the key that a request carries. Raises ApiError 401 for none of ours."""
        if self.open:
            return "-"
        try:
            self._read()
        except InputError as error:
            _log.warning("the keys stay as they were: %s", error)
        scheme, _, sent = headers.get("authorization", "").partition(" ")
        # Hashes are looked up, so that how much of a guess is right can't be timed.
        name = self._names.get(_hashed(sent.strip().encode("latin-1")))
        if scheme.lower() != "bearer" or name is None:
            said = "expected one of the server's API keys as a bearer token"
            raise ApiError(401, said, headers={"www-authenticate": "Bearer"})
        return name

    def _read(self) -> None:
        if self._file is None:
            return
        try:
            now = self._file.stat()
            stamp = now.st_mtime_ns, now.st_size, now.st_ino
            if stamp == self._stamp:
                return
            self._stamp = stamp  # a file that is wrong is told of once
            lines = self._file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{self._file}: expected a file of keys, but {error}") from None
        found = dict(self._own)
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.startswith("#"):
                continue
            if (parts := _LINE.fullmatch(line)) is None:
                where = f"{self._file}, line {number}"
                expected = "expected the SHA-256 of a key in hex, a space, and its name"
                raise InputError(f"{where}: {expected}")
            found[parts[1]] = quote((parts[2] or "").strip(" *")) or "-"
        self._names = found


def _hashed(key: bytes) -> str:
    return hashlib.sha256(key).hexdigest()


def check_framing(headers: Headers) -> None:
    """Raises ApiError 400 for two lengths: a proxy may see another end of the body."""
    if "content-length" in headers and "transfer-encoding" in headers:
        said = "expected Content-Length or Transfer-Encoding, found both"
        raise ApiError(400, said, headers={"connection": "close"})


async def read_body(request: Request, settings: ServiceSettings) -> bytes:
    """The request's body, read no further than allowed. Raises ApiError 408, 413 or 415."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(415, f"expected Content-Type application/json, found {kind or 'none'}")
    most = settings.max_body_bytes
    body = bytearray()
    try:
        async with asyncio.timeout(settings.receive_s):
            async for chunk in request.stream():
                body += chunk
                if len(body) > most:
                    raise ApiError(413, f"expected a body of at most {most} bytes")
    except TimeoutError:
        said = f"expected the request's body within {settings.receive_s:g} seconds"
        raise ApiError(408, said, headers={"connection": "close"}) from None
    return bytes(body)
