"""A broker of one client, in this process, that keeps what the client acknowledges."""

from __future__ import annotations

import asyncio
import contextlib

from broker.codec.packets import ConnAck, Connect, Packet, PingReq, PingResp, PubAck, SubAck, Subscribe
from broker.codec.reader import PacketReader
from broker.codec.writer import encode_packet


class ScriptedUpstream:
    """A broker of one client that keeps what the client acknowledges."""

    def __init__(self) -> None:
        self.port = 0
        self.filters: list[bytes] = []
        self.acknowledged: list[int] = []
        self._writer: asyncio.StreamWriter | None = None
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        if self._writer is not None:
            self._writer.close()

    def send(self, *packets: Packet) -> None:
        assert self._writer is not None
        self._writer.write(b"".join(encode_packet(packet, 5) for packet in packets))

    async def drain(self) -> None:
        """Wait until the client reads."""
        assert self._writer is not None
        await self._writer.drain()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        packets = PacketReader(5)
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                for packet in packets.receive_data(data):
                    self._received(packet)

    def _received(self, packet: Packet) -> None:
        if isinstance(packet, Connect):
            self.send(ConnAck(False))
        elif isinstance(packet, Subscribe):
            self.filters += [entry.topic_filter for entry in packet.filters]
            self.send(SubAck(packet.packet_id, [1] * len(packet.filters)))
        elif isinstance(packet, PingReq):
            self.send(PingResp())
        elif isinstance(packet, PubAck):
            self.acknowledged.append(packet.packet_id)
