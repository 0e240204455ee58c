"""Which of several servers a call goes to."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import grpc
import pytest

from broker.api.errors import TOLD
from broker.api.pb.admin_pb2 import Node
from gmqttctl.connection import Connection
from gmqttctl.errors import CommandError, NoAnswer, NotNow
from gmqttctl.node_calls import NodeCalls
from gmqttctl.service import BACKUP, NODE

CLOSED = "127.0.0.1:1"
DELAY_SECONDS: Final = 0.5  # of a connection over TLS to a far or busy node


class Api(grpc.GenericRpcHandler):
    """A server that answers each call, or refuses it."""

    def __init__(self, server: grpc.Server, refuses: bool) -> None:
        server.add_generic_rpc_handlers((self,))
        self.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        self.calls: list[str] = []
        self.says_so = False
        self._refuses = refuses

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        method = handler_call_details.method
        if method.endswith("/Backup"):
            return grpc.unary_stream_rpc_method_handler(lambda _, context: iter([self._answer(method, context)]))
        return grpc.unary_unary_rpc_method_handler(lambda _, context: self._answer(method, context))

    def _answer(self, method: str, context: grpc.ServicerContext) -> bytes:
        self.calls.append(method.rpartition("/")[2])
        if self._refuses:
            if self.says_so:
                context.set_trailing_metadata(TOLD)
            context.abort(grpc.StatusCode.UNAVAILABLE, "not committed")
        return Node(node_name="n").SerializeToString() if method.endswith("/Get") else b""


@pytest.fixture
def apis() -> Iterator[list[Api]]:
    """One that refuses, and one that answers."""
    servers = [grpc.server(ThreadPoolExecutor(2)) for _ in range(2)]
    found = [Api(server, refuses) for server, refuses in zip(servers, (True, False), strict=True)]
    for server in servers:
        server.start()
    yield found
    for server in servers:
        server.stop(None).wait()


@pytest.mark.parametrize(("says_so", "fault"), [(True, NotNow), (False, NoAnswer)])
def test_a_call_that_was_refused_goes_to_no_other_server(
    apis: list[Api], says_so: bool, fault: type[CommandError]
) -> None:
    """An older node does not say that the status is its own: it may be that of a connection that was lost."""
    refusing, other = apis
    refusing.says_so = says_so
    with NodeCalls(Connection((refusing.address, other.address))) as calls:
        with pytest.raises(fault, match="not committed"):
            calls.call(NODE, "Get")
        with pytest.raises(fault, match="not committed"):
            list(calls.stream(BACKUP, "Backup"))
        assert calls.address == refusing.address
    assert (refusing.calls, other.calls) == (["Get", "Backup"], [])


@pytest.mark.parametrize("before", [(), (CLOSED,), (CLOSED, CLOSED)])
def test_the_first_server_that_takes_a_connection_is_asked(apis: list[Api], before: tuple[str, ...]) -> None:
    other, asked = apis
    with NodeCalls(Connection((*before, asked.address, other.address))) as calls:
        assert calls.call(NODE, "Get").node_name == "n"
        assert len(list(calls.stream(BACKUP, "Backup"))) == 1
        assert calls.address == asked.address
    assert other.calls == []


def test_without_any_the_last_one_is_named() -> None:
    with NodeCalls(Connection((CLOSED, "127.0.0.1:2"))) as calls, pytest.raises(NoAnswer, match=r"127\.0\.0\.1:2"):
        calls.call(NODE, "Get")


def pump(source: socket.socket, to: socket.socket) -> None:
    with contextlib.suppress(OSError):  # either end may reset its connection
        while data := source.recv(2**16):
            to.sendall(data)
        to.shutdown(socket.SHUT_WR)


@pytest.fixture
def far(apis: list[Api]) -> Iterator[str]:
    """The address of a way to the second of them whose first answer takes its time."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            near, _ = listening.accept()
            with near, socket.create_connection(("127.0.0.1", int(apis[1].address.rpartition(":")[2]))) as server:
                time.sleep(DELAY_SECONDS)
                back = threading.Thread(target=pump, args=(server, near))
                back.start()
                pump(near, server)
                back.join()

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        thread.join()


@pytest.mark.parametrize("others", [(), (CLOSED,)])
def test_a_node_that_is_slow_to_connect_to_is_asked(far: str, others: tuple[str, ...]) -> None:
    with NodeCalls(Connection((far, *others))) as calls:
        assert calls.call(NODE, "Get").node_name == "n"
        assert calls.address == far
