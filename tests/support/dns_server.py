"""A small DNS server on loopback, over UDP and TCP, with the records that a test gives it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import dns.flags
import dns.message
import dns.rcode
import dns.rrset

from node_process import free_port

UDP_BYTES_MAX = 512


class DnsServer:
    """`records`: texts by (name, type), such as ("gossip.test.", "SRV"): ["0 0 8902 pod-0.test."]. `additional`: names whose A
    records come along with every answer. `asked` counts the questions by name and transport."""

    def __init__(self) -> None:
        self.port = free_port()
        self.records: dict[tuple[str, str], list[str]] = {}
        self.additional: list[str] = []
        self.asked: list[tuple[str, str]] = []

    def answer(self, data: bytes, transport: str) -> bytes:
        query = dns.message.from_wire(data)
        question = query.question[0]
        name, kind = question.name.to_text(), question.to_text().split()[-1]
        self.asked.append((name, transport))
        reply = dns.message.make_response(query)
        found = self.records.get((name, kind), [])
        if found:
            reply.answer.append(dns.rrset.from_text(name, 0, "IN", kind, *found))
            for other in self.additional:
                reply.additional.append(dns.rrset.from_text(other, 0, "IN", "A", *self.records[other, "A"]))
        else:
            reply.set_rcode(dns.rcode.NXDOMAIN)
        wire = reply.to_wire(max_size=65_535)
        if transport == "udp" and len(wire) > UDP_BYTES_MAX:
            reply = dns.message.make_response(query)
            reply.flags |= dns.flags.TC
            wire = reply.to_wire()
        return wire


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, server: DnsServer) -> None:
        self._server = server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)  # uvloop's transports are no subclasses

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self._transport.sendto(self._server.answer(data, "udp"), addr)


@asynccontextmanager
async def running_dns_server() -> AsyncIterator[DnsServer]:
    server = DnsServer()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        length = int.from_bytes(await reader.readexactly(2), "big")
        reply = server.answer(await reader.readexactly(length), "tcp")
        writer.write(len(reply).to_bytes(2, "big") + reply)
        await writer.drain()
        writer.close()

    loop = asyncio.get_running_loop()
    datagrams, _ = await loop.create_datagram_endpoint(
        lambda: _Datagrams(server), local_addr=("127.0.0.1", server.port)
    )
    streams = await asyncio.start_server(serve, "127.0.0.1", server.port)
    try:
        yield server
    finally:
        datagrams.close()
        streams.close()
        await streams.wait_closed()
