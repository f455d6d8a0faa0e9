"""Errors in OpenAI's format: {"error": {"message", "type", "param", "code"}} and an HTTP status."""

import logging
from collections.abc import Mapping
from http import HTTPStatus

from starlette.requests import ClientDisconnect

from ttsgraph.base.errors import TTSGraphError

CLIENT_GONE = 499
"""HTTP status of a request whose client disconnected, used only in the log and metrics."""

_KINDS = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
_log = logging.getLogger(__name__)


class ApiError(TTSGraphError):
    """Error response with an HTTP status.

    The default message is the status's standard phrase; `param` is the parameter at fault. `said`
    is the error in the body of the response, or in the event that ends a failed stream.
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
        kind = _KINDS.get(status, "server_error" if status >= 500 else "invalid_request_error")
        self.status = status
        self.headers = headers
        self.said = {"message": str(self), "type": kind, "param": param, "code": code}


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
