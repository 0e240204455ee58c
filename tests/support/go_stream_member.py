"""A member that speaks the Go broker's event stream and records the events that it gets."""

from __future__ import annotations

import asyncio
import random
import uuid
from typing import Any, Final

import grpc
import grpc.aio

from broker.server.logging import get_logger
from federation.pb import federation_pb2 as pb
from federation.serf.config import SerfConfig
from federation.serf.serf import Serf
from federation.shell.gossip import GossipShell
from federation.shell.gossip_sockets import bind_gossip
from waiting import DEADLINE, eventually

SERVICE: Final = "gmqtt.federation.api.Federation"


def as_it_is(data: bytes) -> bytes:
    return data


class GoStreamMember:
    """A Go broker as other nodes see it: a member of the gossip, a stream server, a stream client.

    events      of the other node, each id once, in order
    sent        events to the other node by id, until they are acknowledged
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.changed = asyncio.Condition()
        # server side
        self.session_id = ""
        self.next_event_id = 0
        self.clean_starts = 0
        self.hellos = 0
        self.events: list[pb.Event] = []
        self.doubled = 0
        self.breaks_at: set[int] = set()  # event ids at which the stream is broken, unacknowledged
        # client side
        self.client_session_id = str(uuid.uuid4())
        self.next_id = 0
        self.sent: dict[int, pb.Event] = {}
        self.acked = -1
        self.channel: grpc.aio.Channel | None = None
        self.call: Any = None
        self.reading: asyncio.Task[None] | None = None

    async def start(self, gossip_of_node: str) -> None:
        self.server = grpc.aio.server()
        handlers: dict[str, Any] = {
            "Hello": grpc.unary_unary_rpc_method_handler(
                self.hello,
                request_deserializer=pb.ClientHello.FromString,
                response_serializer=pb.ServerHello.SerializeToString,
            ),
            "EventStream": grpc.stream_stream_rpc_method_handler(
                self.event_stream,
                request_deserializer=pb.Event.FromString,
                response_serializer=pb.Ack.SerializeToString,
            ),
        }
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        port = self.server.add_insecure_port("127.0.0.1:0")
        await self.server.start()
        sockets = bind_gossip("127.0.0.1", 0)
        config = SerfConfig(self.name, "127.0.0.1", sockets.port, {"fed_addr": f"127.0.0.1:{port}"})
        serf = Serf(config, random.Random(7), asyncio.get_running_loop().time())
        self.gossip = GossipShell(serf, sockets, lambda events: None, get_logger("gossip"))
        await self.gossip.start()
        await self.gossip.join([gossip_of_node])

    async def stop(self) -> None:
        await self.break_stream()
        if self.channel is not None:
            await self.channel.close()
        await self.server.stop(0)
        await self.gossip.stop()

    # --- the server

    async def hello(self, request: pb.ClientHello, context: Any) -> pb.ServerHello:
        assert dict(context.invocation_metadata())["node_name"]
        self.hellos += 1
        if request.session_id == self.session_id:
            return pb.ServerHello(clean_start=False, next_event_id=self.next_event_id)
        self.session_id = request.session_id
        self.next_event_id = 0
        self.clean_starts += 1
        return pb.ServerHello(clean_start=True, next_event_id=0)

    async def event_stream(self, _requests: Any, context: Any) -> None:
        while (event := await context.read()) is not grpc.aio.EOF:
            if event.WhichOneof("Event") is None:
                raise AssertionError("an event without content, which crashes the Go broker")
            if event.id in self.breaks_at:
                self.breaks_at.discard(event.id)
                return
            if event.id < self.next_event_id:
                self.doubled += 1
            else:
                assert event.id == self.next_event_id, "ids rise by one"
                self.next_event_id += 1
                async with self.changed:
                    self.events.append(event)
                    self.changed.notify_all()
            await context.write(pb.Ack(event_id=event.id))

    async def wait_events(self, count: int, kind: str) -> list[Any]:
        def chosen() -> list[Any]:
            return [getattr(event, kind) for event in self.events if event.WhichOneof("Event") == kind]

        async with asyncio.timeout(DEADLINE), self.changed:
            await self.changed.wait_for(lambda: len(chosen()) >= count)
        return chosen()

    # --- the client

    async def connect(self, fed_addr: str, resend_from_before: int = 0) -> pb.ServerHello:
        if self.channel is None:
            self.channel = grpc.aio.insecure_channel(fed_addr)
        metadata = (("node_name", self.name),)
        hello = self.channel.unary_unary(
            f"/{SERVICE}/Hello",
            request_serializer=pb.ClientHello.SerializeToString,
            response_deserializer=pb.ServerHello.FromString,
        )
        request = pb.ClientHello(session_id=self.client_session_id)
        async with asyncio.timeout(DEADLINE):
            reply = await eventually(
                lambda: self.try_hello(hello(request, metadata=metadata)), f"{self.name} is a member for the node"
            )
            assert isinstance(reply, pb.ServerHello)
        if reply.clean_start:
            self.next_id = 0
            self.acked = -1
            self.sent.clear()
        stream = self.channel.stream_stream(
            f"/{SERVICE}/EventStream", request_serializer=as_it_is, response_deserializer=pb.Ack.FromString
        )
        self.call = stream(metadata=metadata)
        self.reading = asyncio.create_task(self.read_acks(self.call))
        for event_id, event in list(self.sent.items()):
            if event_id >= reply.next_event_id - resend_from_before:
                await self.call.write(event.SerializeToString())
        return reply

    async def try_hello(self, call: Any) -> pb.ServerHello | None:
        """The reply; None while the node does not know this member."""
        try:
            reply: pb.ServerHello = await call
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.INTERNAL and "has not yet joined" in str(error.details()):
                return None
            raise
        return reply

    async def read_acks(self, call: Any) -> None:
        try:
            while (ack := await call.read()) is not grpc.aio.EOF:
                async with self.changed:
                    assert ack.event_id < self.next_id
                    self.acked = max(self.acked, ack.event_id)
                    self.changed.notify_all()
        except (grpc.RpcError, asyncio.CancelledError):
            return

    async def send(self, event: pb.Event) -> None:
        event.id = self.next_id
        self.next_id += 1
        self.sent[event.id] = event
        await self.call.write(event.SerializeToString())

    async def send_bytes(self, data: bytes) -> None:
        event = pb.Event(id=self.next_id)
        self.sent[self.next_id] = event
        self.next_id += 1
        await self.call.write(event.SerializeToString() + data)

    async def wait_acked(self) -> None:
        async with asyncio.timeout(DEADLINE), self.changed:
            await self.changed.wait_for(lambda: self.acked == self.next_id - 1)

    async def break_stream(self) -> None:
        if self.call is not None:
            self.call.cancel()
            assert self.reading is not None
            await asyncio.wait((self.reading,))
            self.call = None


def subscribe(topic_filter: str, share_name: str = "") -> pb.Event:
    return pb.Event(Subscribe=pb.Subscribe(share_name=share_name, topic_filter=topic_filter))


def message(topic: str, payload: bytes, qos: int = 1, **fields: Any) -> pb.Event:
    return pb.Event(message=pb.Message(topic_name=topic, payload=payload, qos=qos, **fields))
