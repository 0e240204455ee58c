"""A node with the RPC of an agent and its clients, without sockets."""

from __future__ import annotations

from random import Random
from typing import Any

import msgpack  # type: ignore[import-untyped]

from federation.rpc.client import RpcClient
from federation.rpc.server import RpcServer
from federation.serf.config import SerfConfig
from federation.serf.serf import Serf
from gossip_node import introduce


class Agent:
    """A node "a" that knows "b" and "c", its RPC, and one client that is not connected yet."""

    def __init__(self, auth: str = "") -> None:
        self.serf = Serf(SerfConfig("a", "127.0.0.1", 17946, {"fed_addr": "127.0.0.1:8901"}), Random(1), 0.0)
        for name, port in (("b", 17947), ("c", 17948)):
            other = Serf(SerfConfig(name, "127.0.0.1", port, {"role": "edge"}), Random(port), 0.0)
            introduce(self.serf, other)
            self.serf.coordinates.ping_completed(name, 0.01, other.ack_payload())
        self.serf.take_events()
        self.rpc = RpcServer(self.serf, auth, {"os": "linux"})

    def client(self) -> Connected:
        client = self.rpc.connect()
        assert client is not None
        return Connected(self, client)

    def settle(self, now: float = 0.0) -> None:
        self.rpc.receive_events(self.serf.take_events(), now)


class Connected:
    def __init__(self, agent: Agent, client: RpcClient) -> None:
        self.agent = agent
        self.client = client
        self.sequence = 0

    def send(self, *objects: object, now: float = 0.0) -> None:
        self.client.receive_data(b"".join(msgpack.packb(item) for item in objects), now)

    def take(self) -> list[Any]:
        unpacker = msgpack.Unpacker()
        unpacker.feed(self.client.take_output())
        return list(unpacker)

    def call(self, command: str, body: object = None, now: float = 0.0) -> list[Any]:
        self.sequence += 1
        header = {"Command": command, "Seq": self.sequence}
        self.send(*([header] if body is None else [header, body]), now=now)
        return self.take()

    def greeted(self) -> Connected:
        assert self.call("handshake", {"Version": 1}) == [{"Error": "", "Seq": 1}]
        return self
