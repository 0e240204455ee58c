"""Errors of the API: a gRPC status code, a text, and the HTTP status that belongs to the code."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, Final

import grpc

# The trailing metadata of each ApiError over gRPC. A status without it, such as UNAVAILABLE, may be one of the client's side.
TOLD: Final = (("gmqttd-told", "1"),)

# The statuses of grpc-gateway. 499, the client closed the request, has no name in HTTP.
HTTP_STATUSES: Final[dict[grpc.StatusCode, int]] = {
    grpc.StatusCode.OK: HTTPStatus.OK,
    grpc.StatusCode.CANCELLED: 499,
    grpc.StatusCode.UNKNOWN: HTTPStatus.INTERNAL_SERVER_ERROR,
    grpc.StatusCode.INVALID_ARGUMENT: HTTPStatus.BAD_REQUEST,
    grpc.StatusCode.DEADLINE_EXCEEDED: HTTPStatus.GATEWAY_TIMEOUT,
    grpc.StatusCode.NOT_FOUND: HTTPStatus.NOT_FOUND,
    grpc.StatusCode.ALREADY_EXISTS: HTTPStatus.CONFLICT,
    grpc.StatusCode.PERMISSION_DENIED: HTTPStatus.FORBIDDEN,
    grpc.StatusCode.UNAUTHENTICATED: HTTPStatus.UNAUTHORIZED,
    grpc.StatusCode.RESOURCE_EXHAUSTED: HTTPStatus.TOO_MANY_REQUESTS,
    grpc.StatusCode.FAILED_PRECONDITION: HTTPStatus.BAD_REQUEST,
    grpc.StatusCode.ABORTED: HTTPStatus.CONFLICT,
    grpc.StatusCode.OUT_OF_RANGE: HTTPStatus.BAD_REQUEST,
    grpc.StatusCode.UNIMPLEMENTED: HTTPStatus.NOT_IMPLEMENTED,
    grpc.StatusCode.INTERNAL: HTTPStatus.INTERNAL_SERVER_ERROR,
    grpc.StatusCode.UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
    grpc.StatusCode.DATA_LOSS: HTTPStatus.INTERNAL_SERVER_ERROR,
}


class ApiError(Exception):
    """The error of a call. gRPC answers `code` and `text`; REST answers the same in JSON, with `http_status`."""

    def __init__(self, code: grpc.StatusCode, text: str, http_status: int = 0) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.http_status = http_status or HTTP_STATUSES[code]

    @property
    def number(self) -> int:
        """The code as gRPC sends it: 3 for INVALID_ARGUMENT."""
        number: int = self.code.value[0]
        return number


def is_told(trailing_metadata: Iterable[Any] | None) -> bool:
    """Return whether an error over gRPC is the answer of a node. An older node, and a Go broker, do not say so."""
    return any(tuple(item) == TOLD[0] for item in trailing_metadata or ())


def invalid_argument(text: str) -> ApiError:
    """The error of a wrong request. The text names the field and says what would be right."""
    return ApiError(grpc.StatusCode.INVALID_ARGUMENT, text)


def not_found(text: str) -> ApiError:
    return ApiError(grpc.StatusCode.NOT_FOUND, text)
