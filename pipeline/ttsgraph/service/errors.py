"""Errors in OpenAI's format: {"error": {"message", "type", "param", "code"}} and an HTTP status."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.requests import ClientDisconnect

from ttsgraph.base.errors import TTSGraphError

CLIENT_GONE = 499
"""HTTP status of a request whose client disconnected, used only in the log and metrics."""

_log = logging.getLogger(__name__)

_KINDS: dict[int, tuple[str, str | None]] = {
    401: ("authentication_error", "invalid_api_key"),
    404: ("not_found_error", "not_found"),
    413: ("invalid_request_error", "request_too_large"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
    504: ("timeout_error", "timeout"),
}
"""Map from an HTTP status to the type and code of its errors, if they differ from the defaults."""


class ApiError(TTSGraphError):
    """Error response with an HTTP status.

    The default message is the status's standard phrase; `param` is the parameter at fault.
    """

    def __init__(
        self,
        status: int,
        message: str = "",
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message or HTTPStatus(status).phrase)
        any_kind = "server_error" if status >= 500 else "invalid_request_error"
        self.kind, usual_code = _KINDS.get(status, (any_kind, None))
        self.status = status
        self.param = param
        self.code = code or usual_code
        self.headers = headers

    def body(self) -> dict[str, Any]:
        """Return the body of the response, which is also the event that ends a failed stream."""
        error = {"message": str(self), "type": self.kind, "param": self.param, "code": self.code}
        return {"error": error}


def reported(error: Exception, trace_id: str) -> ApiError:
    """Return the error that the client sees, which shows no details of a bug.

    Failures of the server or of its pool are logged with their cause.
    """
    if isinstance(error, ClientDisconnect):
        return ApiError(CLIENT_GONE, "the client disconnected")
    if not isinstance(error, ApiError):
        _log.error("%s", trace_id, exc_info=error)
        return ApiError(500)
    if error.status >= 500:
        _log.warning("%s %s: %s", trace_id, error, error.__cause__)
    return error
