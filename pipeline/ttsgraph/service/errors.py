"""Errors in the shape that OpenAI's clients read: {"error": {"message", "type", "param", "code"}}
and an HTTP status.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from ttsgraph.base.errors import FormRefused, TTSGraphError
from ttsgraph.models.client import whole_text

CLIENT_GONE = 499
"""Nobody hears it; the log and the metrics show it."""

_TYPES = {
    401: "authentication_error",
    404: "not_found_error",
    408: "timeout_error",
    429: "rate_limit_error",
    504: "timeout_error",
}
_CODES = {
    401: "invalid_api_key",
    404: "not_found",
    413: "request_too_large",
    429: "rate_limit_exceeded",
    504: "timeout",
}


class ApiError(TTSGraphError):
    """A request that is answered with an error: status, what was expected and came, and the
    parameter it is about.
    """

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code or _CODES.get(status)
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        """The response's body, also the data of an event that ends a stream."""
        kind = _TYPES.get(self.status) or (
            "server_error" if self.status >= 500 else "invalid_request_error"
        )
        param = None if self.param is None else whole_text(self.param)
        return {
            "error": {
                "message": whole_text(str(self)),
                "type": kind,
                "param": param,
                "code": self.code,
            }
        }


def of_status(status: int, headers: Mapping[str, str] | None = None) -> ApiError:
    """An error of HTTP itself: unknown path, wrong method."""
    return ApiError(status, HTTPStatus(status).phrase, headers=headers)


def of_refusal(refused: FormRefused) -> ApiError:
    """A request that a pool model's endpoint refuses, with what it says of it."""
    model = str(refused).partition(" ")[0]
    said = f"pool model {model!r} refuses what this request asks for: {refused.said or 'no reason'}"
    return ApiError(400, said, code="unsupported_by_model")


def of_call(error: str, pool: Mapping[str, Any]) -> ApiError:
    """A model call of the graph that failed for good; the model is named, where it runs is not the
    client's business.
    """
    model = error.partition(" ")[0]
    named = f" {model!r}" if model in pool else ""
    return ApiError(502, f"pool model{named} failed or can't be reached", code="pool_model_failed")
