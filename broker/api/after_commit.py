"""Answers of calls that have changed durable state."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc

from broker.api.errors import ApiError
from broker.server.committed import NotCommitted, committed

if TYPE_CHECKING:
    from broker.server.host import Host


async def answer_after_commit(host: Host) -> None:
    """Wait until what the call has changed is on disk. Raises ApiError when the store takes nothing."""
    try:
        await committed(host)
    except NotCommitted as fault:
        raise ApiError(grpc.StatusCode.UNAVAILABLE, str(fault)) from None
