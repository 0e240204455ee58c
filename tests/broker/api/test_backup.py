"""Backups that are refused; tests/integration makes and restores some."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from google.protobuf.empty_pb2 import Empty

from broker.api.backup import BackupService
from broker.api.errors import ApiError
from broker.workers.shares import Place


async def test_a_node_with_other_workers_refuses() -> None:
    """The stores of the others would be missing."""
    server: Any = SimpleNamespace(worker=SimpleNamespace(place=Place(0, 3, True, {}, "")))
    with pytest.raises(ApiError, match="3 workers") as refused:
        await anext(BackupService(server).Backup(Empty(), None))
    assert refused.value.code is grpc.StatusCode.FAILED_PRECONDITION
