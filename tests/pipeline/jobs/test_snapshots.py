"""Snapshots: pages, files, what is not written again, what is removed."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from broker.api.pb import admin_pb2
from gmqttctl.connection import Connection
from pipeline.errors import NodeError
from pipeline.jobs.snapshots import ask, read_snapshots, remove_old, write
from pipeline.subscriptions import Subscription

ROWS = [Subscription("a", "one", "t/#"), Subscription("a", "two", "$share/g/t")]


class Node:
    def __init__(self, count: int) -> None:
        self.tokens: list[str] = []
        self._all = [admin_pb2.Subscription(client_id=f"c{each:05}", topic_name="t/#") for each in range(count)]

    def handlers(self) -> Any:
        method = grpc.unary_unary_rpc_method_handler(
            self._list,
            admin_pb2.ListSubscriptionRequest.FromString,
            admin_pb2.ListSubscriptionResponse.SerializeToString,
        )
        return grpc.method_handlers_generic_handler("gmqtt.admin.api.SubscriptionService", {"List": method})

    def _list(self, request: Any, context: Any) -> Any:
        self.tokens += [value for name, value in context.invocation_metadata() if name == "authorization"]
        first = request.page_size * (request.page - 1)
        return admin_pb2.ListSubscriptionResponse(subscriptions=self._all[first : first + request.page_size])


@pytest.fixture
def server() -> Iterator[grpc.Server]:
    server = grpc.server(ThreadPoolExecutor(2))
    yield server
    server.stop(None).wait()


@pytest.mark.parametrize("count", [0, 999, 1000, 2500])
def test_all_pages_are_read(server: grpc.Server, count: int) -> None:
    node = Node(count)
    server.add_generic_rpc_handlers((node.handlers(),))
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    found = ask("a", address, Connection((address,), token="secret"))
    assert found == [Subscription("a", f"c{each:05}", "t/#") for each in range(count)]
    assert set(node.tokens) == {"Bearer secret"}


def test_a_node_without_the_service_is_named(server: grpc.Server) -> None:
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    with pytest.raises(NodeError, match=r"node a: gave no subscriptions at 127\.0\.0\.1"):
        ask("a", address, Connection((address,)))


def test_snapshots_come_back(tmp_path: Path) -> None:
    assert write(tmp_path, "a/b", 100, ROWS)
    assert not write(tmp_path, "a/b", 200, ROWS)
    assert write(tmp_path, "a/b", 300, [])
    assert not write(tmp_path, "a/b", 400, [])
    assert read_snapshots(tmp_path) == {"a/b": {100: ROWS, 300: []}}
    assert read_snapshots(tmp_path, since_ns=300) == {"a/b": {300: []}}
    assert read_snapshots(tmp_path, since_ns=299) == {"a/b": {100: ROWS, 300: []}}


def test_a_disk_that_fails_leaves_no_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a power failure a file with a name could have no content, and each later run would end with an error."""

    def fail(_: int) -> None:
        raise OSError("no disk")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", fail)
        with pytest.raises(OSError, match="no disk"):
            write(tmp_path, "n1", 5, [])
    assert read_snapshots(tmp_path) == {}
    assert write(tmp_path, "n1", 6, [])


def test_the_last_snapshot_of_a_node_stays(tmp_path: Path) -> None:
    write(tmp_path, "a", 100, ROWS)
    write(tmp_path, "a", 200, [])
    write(tmp_path, "b", 50, ROWS)
    remove_old(tmp_path, 1000)
    assert read_snapshots(tmp_path) == {"a": {200: []}, "b": {50: ROWS}}
