"""Pages of the REST API that are no calls: health checks and metrics."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

HEALTH_PATHS: Final = ("/healthz", "/readyz")  # open to everybody, so that probes need no token


class Page(NamedTuple):
    """`content_type` may have parameters."""

    status: int
    content_type: str
    body: bytes


PageMaker = Callable[[], Page | Awaitable[Page]]


def alive_page() -> Page:
    """/healthz: the event loop of the process answers."""
    return Page(200, "text/plain; charset=utf-8", b"ok\n")


def ready_page(reasons: list[str]) -> Page:
    """/readyz: 200 when clients can be sent here, else 503 with the reasons."""
    body = json.dumps({"ready": not reasons, "reasons": reasons}) + "\n"
    return Page(503 if reasons else 200, "application/json", body.encode())
