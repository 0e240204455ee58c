"""Hooks on real sockets: connections that a plugin refuses, and plugins that raise."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import structlog.testing

from broker.authorization import Authorizer, ClientIdentity, Verdict
from broker.codec.packets import PubAck, Publish
from broker.wrappers import AcceptRequest
from mqtt_client import Clients

if TYPE_CHECKING:
    from broker.server.lifecycle import Server

    StartServer = Callable[[dict[str, Any]], Awaitable[Server]]


def port_of(server: Server) -> int:
    return int(server.listeners.addresses[0].rpartition(":")[2])


async def test_a_plugin_refuses_connections(start_server: StartServer, clients: Clients) -> None:
    server = await start_server({})
    seen: list[tuple[str, str]] = []

    def around(request: AcceptRequest, proceed: Callable[[AcceptRequest], None]) -> None:
        seen.append((request.remote_addr.rpartition(":")[0], request.listener.transport))
        if len(seen) == 2:
            request.refuse(reason="two is too many")
        proceed(request)

    server.broker.wrap_accept(around)
    first = await clients.connect(port_of(server), "first")
    second = await clients.open(port_of(server))
    await second.wait_closed()
    third = await clients.connect(port_of(server), "third")
    assert seen == [("127.0.0.1", "tcp")] * 3
    assert second.answers.empty()
    assert server.broker.counters.connections_refused == 1
    assert not first.closed.is_set()
    assert not third.closed.is_set()


async def test_the_fault_of_an_authorizer_is_logged(start_server: StartServer, clients: Clients) -> None:
    class Faulty(Authorizer):
        def may_publish(self, client: ClientIdentity, topic: bytes) -> Verdict:
            raise LookupError("no rule for this topic")

    server = await start_server({})
    server.broker.add_authorizer(Faulty())
    client = await clients.connect(port_of(server), "c")
    with structlog.testing.capture_logs() as lines:
        for number in (1, 2):
            client.send(Publish(b"a", b"", 1, packet_id=number))
            assert (await client.answer(PubAck)).reason_code == 0x87
    (line,) = [line for line in lines if line.get("call") == "Authorizer.may_publish"]
    assert repr(line["exc_info"]) == "LookupError('no rule for this topic')"
    assert server.broker.counters.plugin_faults == 2
