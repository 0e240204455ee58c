"""Clients that keep their Session State over lost connections and over changes of the node [MQTT5 4.1, 4.4], and note what they
were promised and what they got."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from broker.codec import properties as props
from broker.codec.packets import (
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    Properties,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    SubscribeFilter,
)
from broker.codec.reader import PacketReader
from broker.codec.reason_codes import UNSPECIFIED_ERROR, USE_ANOTHER_SERVER
from broker.codec.writer import encode_packet
from mqtt_client import opened

EXPIRY: Final = 3600
RECONNECT_SECONDS: Final = 0.05
PACE_SECONDS: Final = 0.02
WINDOW: Final = 20  # messages of one publisher that are not acknowledged


class SessionClient:
    """One client identifier, connected again and again until `stop`.

    faults  promises that the server broke
    others  further ports: it takes the next one where nobody answers, and goes where a server sends it
    referred  how often a server sent it elsewhere
    left    connections that it left open when it went to another node; the servers are to close them
    """

    def __init__(self, port: int | Path, client_id: str) -> None:
        self.client_id = client_id
        self.faults: list[str] = []
        self.others: list[int | Path] = []
        self.referred = 0
        self.left: set[asyncio.Task[None]] = set()
        self._port = port
        self._conversation: asyncio.Task[None] | None = None
        self._leaves_open = False
        self._writer: asyncio.StreamWriter | None = None
        self._is_known = False  # a CONNACK came
        self._is_accepted = False  # it came over this connection
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        for left in self.left:
            left.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            if not self._task.cancelled() and self._task.exception() is not None:
                self.faults.append(f"{self.client_id}: {self._task.exception()!r}")

    @property
    def port(self) -> int | Path:
        """Where it is, or will be next."""
        return self._port

    @property
    def is_online(self) -> bool:
        return self._is_accepted

    def go(self, port: int | Path, leaves_open: bool = False) -> None:
        """Go on at another node, without DISCONNECT; the connection to this one stays open, and is read, on demand."""
        self._port = port
        self._leaves_open = leaves_open and self._is_accepted
        if self._conversation is not None:
            self._conversation.cancel()

    async def _run(self) -> None:
        while True:
            self._conversation = asyncio.create_task(self._converse())
            try:
                await asyncio.wait([self._conversation])
            except asyncio.CancelledError:
                self._conversation.cancel()
                await asyncio.wait([self._conversation])
                raise
            if not self._conversation.cancelled():
                self._ended(self._conversation.exception())
            self._writer = None
            self._is_accepted = False
            await asyncio.sleep(RECONNECT_SECONDS)

    def _ended(self, error: BaseException | None) -> None:
        if isinstance(error, OSError):
            if self.others:
                self.others.append(self._port)
                self._port = self.others.pop(0)
        elif error is not None:
            self.faults.append(f"{self.client_id}: {error!r}")
            raise error

    async def _converse(self) -> None:
        reader, writer = await opened(self._port)
        self._writer = writer
        try:
            properties: Properties = {props.SESSION_EXPIRY_INTERVAL: EXPIRY}
            self.send(Connect(self.client_id, 5, False, 0, None, None, None, properties))
            packets = PacketReader(5)
            while data := await reader.read(65536):
                for packet in packets.receive_data(data):
                    if isinstance(packet, ConnAck | Disconnect) and packet.reason_code == USE_ANOTHER_SERVER:
                        self._is_sent_elsewhere(packet)
                    elif isinstance(packet, ConnAck):
                        self._welcomed(packet)
                    else:
                        self.received(packet)
        finally:
            if self._leaves_open:
                self._leaves_open = False
                left = asyncio.create_task(_until_closed(reader, writer))
                self.left.add(left)
                left.add_done_callback(self.left.discard)
            else:
                writer.close()

    def _welcomed(self, packet: ConnAck) -> None:
        if packet.reason_code:
            raise ConnectionRefusedError("the node stops, or takes no sessions now")
        if self._is_known and not packet.session_present:
            self.session_is_gone()
        self._is_known = self._is_accepted = True
        self.connected()

    def _is_sent_elsewhere(self, packet: ConnAck | Disconnect) -> None:
        self.referred += 1
        reference = props.get_str(packet.properties, props.SERVER_REFERENCE)
        assert reference is not None
        self.others.append(self._port)
        self._port = int(reference.rpartition(":")[2])
        if self._port in self.others:
            self.others.remove(self._port)

    def send(self, packet: Packet) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(encode_packet(packet, 5))

    def session_is_gone(self) -> None:
        self.faults.append(f"{self.client_id}: the session is gone")

    def connected(self) -> None:
        raise AssertionError("a subclass implements this")

    def received(self, packet: Packet) -> None:
        raise AssertionError("a subclass implements this")


async def _until_closed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        with contextlib.suppress(OSError):
            while await reader.read(65536):
                pass
    finally:
        writer.close()


class SessionPublisher(SessionClient):
    """Publishes numbers in rising order, the QoS levels by turns, each on a topic of its own, until `enough`.

    sent  by topic: how many numbers
    rate  numbers a second, at most
    """

    def __init__(
        self, port: int | Path, client_id: str, levels: Sequence[int] = (1, 2), rate: float = math.inf
    ) -> None:
        super().__init__(port, client_id)
        self.topics = {qos: f"t/{client_id}/{qos}" for qos in levels}
        self.sent = dict.fromkeys(self.topics.values(), 0)
        self.done = asyncio.Event()
        self._levels = tuple(levels)
        self._rate = rate
        self._began_at = 0.0
        self._is_enough = False
        self._packet_id = 0
        self._inflight: dict[int, Publish | PubRel] = {}

    def start(self) -> None:
        self._began_at = time.monotonic()
        super().start()

    async def _run(self) -> None:
        if self._rate == math.inf:
            await super()._run()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(super()._run())
            tasks.create_task(self._pace())

    async def _pace(self) -> None:
        while True:
            await asyncio.sleep(PACE_SECONDS)
            self._fill()

    def enough(self) -> None:
        """Publish no more; `done` is set when everything is acknowledged."""
        self._is_enough = True
        self._fill()

    @property
    def acknowledged(self) -> int:
        """How many messages the server took over."""
        return sum(self.sent.values()) - len(self._inflight)

    def connected(self) -> None:
        for packet_id, packet in self._inflight.items():
            if isinstance(packet, Publish):
                self.send(Publish(packet.topic, packet.payload, packet.qos, False, True, packet_id))
            else:
                self.send(packet)
        self._fill()

    def _may_send(self) -> bool:
        is_ready = self._is_accepted and not self._is_enough and len(self._inflight) < WINDOW
        return is_ready and sum(self.sent.values()) < (time.monotonic() - self._began_at) * self._rate

    def _fill(self) -> None:
        while self._may_send():
            self._packet_id = self._packet_id % 65535 + 1
            qos = self._levels[self._packet_id % len(self._levels)]
            topic = self.topics[qos]
            packet = Publish(topic.encode(), b"%d" % self.sent[topic], qos, False, False, self._packet_id)
            self.sent[topic] += 1
            self.sends(topic)
            self._inflight[self._packet_id] = packet
            self.send(packet)
        if self._is_enough and not self._inflight:
            self.done.set()

    def received(self, packet: Packet) -> None:
        if isinstance(packet, PubComp):  # also 0x92: PUBREL is sent again when PUBCOMP was lost
            self._inflight.pop(packet.packet_id, None)
            self._fill()
        elif isinstance(packet, PubAck | PubRec):
            published = self._inflight.get(packet.packet_id)
            if packet.reason_code >= UNSPECIFIED_ERROR:
                if isinstance(published, Publish):
                    del self._inflight[packet.packet_id]
                    self.refused(published, packet.reason_code)
                self._fill()
            elif isinstance(published, Publish):
                self.accepted(published)
                if isinstance(packet, PubAck):
                    del self._inflight[packet.packet_id]
                    self._fill()
                else:
                    self._inflight[packet.packet_id] = PubRel(packet.packet_id)
            if isinstance(packet, PubRec) and packet.packet_id in self._inflight:
                self.send(PubRel(packet.packet_id))

    def inflight(self) -> list[Publish]:
        """What the server has not taken over."""
        return [packet for packet in self._inflight.values() if isinstance(packet, Publish)]

    def sends(self, topic: str) -> None:
        """The next number of the topic is about to be published."""

    def accepted(self, packet: Publish) -> None:
        """The server has taken the message over."""

    def refused(self, packet: Publish, reason_code: int) -> None:
        self.faults.append(f"{self.client_id}: reason code 0x{reason_code:02x}")


class SessionSubscriber(SessionClient):
    """Subscribes to all topics.

    numbers  by topic: what came, QoS 2 without the PUBLISH packets that were sent again
    is_ordered  False where a publisher comes to another worker while a node or a worker does not answer (docs/stores.md)
    """

    def __init__(self, port: int | Path, client_id: str, is_ordered: bool = True) -> None:
        super().__init__(port, client_id)
        self.is_ordered = is_ordered
        self.numbers: dict[str, list[int]] = {}
        self.subscribed = asyncio.Event()
        self.changed: Callable[[], None] = lambda: None
        self._unreleased: dict[int, tuple[bytes, bytes]] = {}  # topic and payload by packet identifier

    def connected(self) -> None:
        if not self.subscribed.is_set():
            self.send(Subscribe(1, [SubscribeFilter(b"t/#", 2)]))

    def received(self, packet: Packet) -> None:
        if isinstance(packet, SubAck):
            self.subscribed.set()
        elif isinstance(packet, PubRel):
            self._unreleased.pop(packet.packet_id, None)
            self.send(PubComp(packet.packet_id))
        elif isinstance(packet, Publish):
            if packet.qos == 1:
                self._note(packet)
                self.send(PubAck(packet.packet_id))
            else:
                if packet.packet_id not in self._unreleased:
                    self._unreleased[packet.packet_id] = (packet.topic, packet.payload)
                    self._note(packet)
                elif self._unreleased[packet.packet_id] != (packet.topic, packet.payload):
                    older, newer = self._unreleased[packet.packet_id], (packet.topic, packet.payload)
                    self.faults.append(
                        f"{self.client_id}: {newer} with the packet identifier of {older}, without PUBREL"
                    )
                self.send(PubRec(packet.packet_id))

    def _note(self, packet: Publish) -> None:
        self.numbers.setdefault(packet.topic.decode(), []).append(int(packet.payload))
        self.changed()

    @property
    def duplicates(self) -> int:
        return sum(len(came) - len(set(came)) for came in self.numbers.values())

    def has_all(self, sent: dict[str, int]) -> bool:
        if not self.is_ordered:
            return all(len(set(self.numbers.get(topic, ()))) == count for topic, count in sent.items())
        return all(count == 0 or self.numbers.get(topic, [-1])[-1] == count - 1 for topic, count in sent.items())

    def broken_promises(self, sent: dict[str, int]) -> list[str]:
        """What is missing, doubled or out of order."""
        faults = list(self.faults)
        for topic, count in sent.items():
            came = self.numbers.get(topic, [])
            if not self.is_ordered:
                came = sorted(came)
            if topic.endswith("/2"):
                if came != list(range(count)):
                    faults.append(
                        f"{self.client_id}: {topic}: not each of {count} once, in order: {_first_odd(came, count)}"
                    )
            elif (firsts := list(dict.fromkeys(came))) != list(range(count)):
                faults.append(f"{self.client_id}: {topic}: not all of {count} in order: {_first_odd(firsts, count)}")
        return faults


def _first_odd(came: list[int], count: int) -> str:
    missing = sorted(set(range(count)) - set(came))
    text = f"missing {missing[:4]} ({len(missing)})"
    for index, number in enumerate(came):
        if number != index:
            near = f"behind {came[max(0, index - 3) : index]}, before {came[index + 1 : index + 4]}"
            return f"{text}, {number} at place {index}, {near}"
    return f"{text}, {len(came)} came"
