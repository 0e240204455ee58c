"""Backups that are refused; tests/integration makes and restores some."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from google.protobuf.empty_pb2 import Empty

from broker.api.backup import BackupService
from broker.api.errors import ApiError
from broker.config.settings import Settings
from broker.workers.shares import Place


async def test_a_node_with_workers_of_an_earlier_start_refuses(tmp_path: Path) -> None:
    """What they have would be missing."""
    (tmp_path / "worker-3").mkdir()
    server: Any = SimpleNamespace(
        worker=SimpleNamespace(place=Place(0, 3, True, {}, "")),
        settings=Settings(data_dir=str(tmp_path)),
        path_of=str,
    )
    with pytest.raises(ApiError, match="earlier start") as refused:
        await anext(BackupService(server).Backup(Empty(), None))
    assert refused.value.code is grpc.StatusCode.FAILED_PRECONDITION
