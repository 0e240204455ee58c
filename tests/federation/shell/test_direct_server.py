"""A node's direct streams against a client that the test plays: strangers, nonsense, and who stands still."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import tempfile
from typing import Any, cast

import pytest

from broker.codec.packets import Publish
from broker.server.start_error import StartError
from direct_peers import Raw
from federation.shell import direct_server as direct_server_shell
from federation.shell import stream_server
from federation.shell.stream_server import GRPC_PREFACE
from federation.stream import direct_server
from federation.stream.counters import DropReason
from federation.stream.direct_wire import (
    ACK_PONG,
    PING,
    STATUS_OK,
    encode_ack,
    encode_batch,
    encode_hello,
)
from federation.stream.outbox import BLOCK_BYTES_MAX
from stations import Client, StartStation, Station, connections_become, interest, lone, only_connection
from waiting import DEADLINE


@pytest.mark.parametrize("pieces", [1, 2, 1000])
async def test_hello_batch_and_ping_in_pieces(start_station: StartStation, pieces: int) -> None:
    n1 = await lone(start_station)
    peer = await Raw.connect(n1.port)
    peer.writer.transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    data = encode_hello("peer", "s", "store") + encode_batch(0, 2, interest(b"a") + interest(b"b")) + PING
    for at in range(0, len(data), pieces):
        peer.writer.write(data[at : at + pieces])
        await peer.writer.drain()
        await asyncio.sleep(0)
    reply = await peer.reply()
    assert (reply.status, reply.clean_start, reply.next_event_id) == (STATUS_OK, True, 0)
    answers = await peer.until(lambda found: found.ack >= 0)
    assert answers.ack == 1
    assert sorted(n1.node.tree.interest_of("peer")) == [(b"", b"a"), (b"", b"b")]
    peer.writer.transport.abort()
    await n1.until(lambda: not n1.node.receivers.get("peer").stream, "the end")


@pytest.mark.thorough
@pytest.mark.parametrize(
    "data",
    [
        b"x",
        b"GMQE",
        b"GMQD\x01",
        b"PRI * HTTP/1",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\0\x01",
        b"\0" * 9,
        b"\x10\x0c",
    ],
)
async def test_wrong_prefaces_are_closed_and_counted(start_station: StartStation, data: bytes) -> None:
    n1 = await lone(start_station)
    peer = await Raw.connect(n1.port)
    peer.writer.write(data)
    assert await peer.rest() == b""
    assert n1.streams.connections_refused == 1
    assert not n1.streams.connections


@pytest.mark.parametrize("data", [b"", b"G", b"PRI *"])
async def test_silence_is_closed(start_station: StartStation, monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(stream_server, "PREFACE_SECONDS_MAX", 0.05)
    n1 = await lone(start_station)
    peer = await Raw.connect(n1.port)
    peer.writer.write(data)
    assert await peer.rest() == b""
    assert n1.streams.connections_refused == 1


async def test_a_message_that_is_refused_stops_nothing(start_station: StartStation) -> None:
    n1 = await start_station("n1")
    n2 = await start_station("n2", bytes_max=20_000)  # more than the digests of retained messages
    reader, writer = Client(n2, "r"), Client(n1, "w")
    reader.subscribe("t")
    n1.meet("n2", n2.addr)
    n2.meet("n1", n1.addr)
    await n1.until(lambda: n1.node.tree.interest_of("n2"), "interest")
    dropped = n1.node.counters["n2"].dropped
    writer.publish("t", b"before")
    outbox = n1.node.senders["n2"].outbox
    await n1.until(lambda: reader.payloads and not outbox.on_way, "acknowledgement")
    writer.publish("t", b"-" * 40_000)
    await n1.until(lambda: outbox.on_way, "batch")  # what follows is in another one
    writer.publish("t", b"behind")
    await n2.until(lambda: len(reader.payloads) == 2, "messages")
    writer.publish("t", b"after")
    await n2.until(lambda: len(reader.payloads) == 3, "message")
    assert reader.payloads == [b"before", b"behind", b"after"]
    assert dropped[DropReason.REFUSED] == 1
    assert set(n1.kinds()) == {"direct"}


async def test_retained_messages_that_are_refused_stop_nothing(start_station: StartStation) -> None:
    """They are left out of what follows each refusal."""
    n1 = await start_station("n1")
    n2 = await start_station("n2", bytes_max=20_000 + BLOCK_BYTES_MAX)
    reader, writer = Client(n2, "r"), Client(n1, "w")
    reader.subscribe("t")
    for number, size in enumerate((10, 2 * BLOCK_BYTES_MAX, 10, 3 * BLOCK_BYTES_MAX, 10)):
        writer.send(Publish(b"r/%d" % number, b"x" * size, 1, True, packet_id=1))
    n1.meet("n2", n2.addr)
    n2.meet("n1", n1.addr)
    await n1.until(lambda: n1.node.tree.interest_of("n2"), "interest")
    writer.publish("t", b"after")
    await n2.until(lambda: reader.payloads, "message")
    assert reader.payloads == [b"after"]
    counters = n1.node.counters["n2"]
    await n1.until(lambda: counters.full_states_sent == 3, "two refusals")
    await n2.until(lambda: len(n2.broker.retained) == 3, "retained messages")
    assert sorted(message.topic for message in n2.broker.retained.messages()) == [b"r/0", b"r/2", b"r/4"]
    assert counters.dropped[DropReason.REFUSED] == 2


async def test_a_big_batch(start_station: StartStation) -> None:
    n1 = await start_station("n1")
    n2 = await start_station("n2", bytes_max=2**25)
    reader, writer = Client(n2, "r"), Client(n1, "w")
    reader.subscribe("t")
    n1.meet("n2", n2.addr)
    n2.meet("n1", n1.addr)
    await n1.until(lambda: n1.node.tree.interest_of("n2"), "interest")
    payload = random.Random(5).randbytes(12 * 2**20)
    writer.publish("t", payload)
    writer.publish("t", b"after")
    await n2.until(lambda: len(reader.payloads) == 2, "messages")
    assert reader.payloads == [payload, b"after"]
    assert n1.node.counters["n2"].streams_lost == 0


@pytest.mark.interpreted
async def test_a_silent_client_is_closed(start_station: StartStation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_server, "SILENCE_SECONDS_MAX", 0.1)
    n1 = await lone(start_station)
    peer = await Raw.connect(n1.port)
    await peer.hello()
    assert await peer.end() == (False, "nothing for 0.1 s")
    assert not n1.node.receivers.get("peer").stream


async def clog(n1: Station, peer: Raw) -> None:
    """Small socket buffers, so that few answers fill them."""
    transport = only_connection(n1)
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2048)
    await peer.hello()
    cast(asyncio.Transport, peer.writer.transport).pause_reading()


async def small_peer(port: int) -> Raw:
    small = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    small.setblocking(False)
    await asyncio.get_running_loop().sock_connect(small, ("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=small)
    return Raw(reader, writer)


@pytest.mark.interpreted
async def test_a_client_that_never_reads_its_answers_is_aborted(
    start_station: StartStation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct_server_shell, "ANSWERS_BYTES_MAX", 2000)
    n1 = await lone(start_station)
    peer = await small_peer(n1.port)
    await connections_become(n1, 1)
    await clog(n1, peer)
    async with asyncio.timeout(DEADLINE):
        while n1.streams.connections:
            peer.writer.write(PING)
            await asyncio.sleep(0)
    assert n1.log.values("ended an event stream", "reason") == ["it does not read what we answer"]
    assert not n1.node.receivers.get("peer").stream
    peer.writer.transport.abort()


@pytest.mark.interpreted
async def test_the_close_does_not_wait_for_a_client_that_does_not_read(
    start_station: StartStation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answers are stuck: that it was told the reason is not waited for."""
    monkeypatch.setattr(direct_server_shell, "CLOSE_SECONDS_MAX", 0.05)
    n1 = await lone(start_station)
    peer = await small_peer(n1.port)
    await connections_become(n1, 1)
    transport = only_connection(n1)
    await clog(n1, peer)
    async with asyncio.timeout(DEADLINE):
        while not transport.get_write_buffer_size():
            peer.writer.write(PING)
            await asyncio.sleep(0)
        n1.part("peer")
    await connections_become(n1, 0)
    peer.writer.transport.abort()


async def test_too_many_connections(start_station: StartStation, monkeypatch: pytest.MonkeyPatch) -> None:
    n1 = await lone(start_station)
    first = await Raw.connect(n1.port)
    await first.hello()
    monkeypatch.setattr(stream_server, "CONNECTIONS_MAX", 1)
    second = await Raw.connect(n1.port)
    assert await second.rest() == b""
    assert n1.streams.connections_refused == 1
    first.writer.write(PING)
    assert (await first.reader.readexactly(8)) == encode_ack(ACK_PONG)
    first.writer.transport.abort()


async def test_strangers_that_say_nothing_keep_no_node_out(
    start_station: StartStation, monkeypatch: pytest.MonkeyPatch
) -> None:
    n1 = await lone(start_station)
    monkeypatch.setattr(stream_server, "CONNECTIONS_MAX", 3)
    strangers = [await Raw.connect(n1.port) for _ in range(3)]
    await connections_become(n1, 3)
    peer = await Raw.connect(n1.port)
    await peer.hello()
    assert await strangers[0].rest() == b""
    more = [await Raw.connect(n1.port) for _ in range(4)]
    for stranger in (*strangers, *more[:2]):
        assert await stranger.rest() == b""
    assert n1.streams.connections_refused == 5
    peer.writer.write(PING)
    assert (await peer.reader.readexactly(8)) == encode_ack(ACK_PONG)
    for other in (peer, *more):
        other.writer.transport.abort()


async def test_grpc_that_does_not_answer_closes_its_connections(start_station: StartStation) -> None:
    n1 = await lone(start_station)
    n1.streams.grpc_callers.path += "-gone"
    peer = await Raw.connect(n1.port)
    peer.writer.write(GRPC_PREFACE)
    assert await peer.rest() == b""
    assert n1.streams.connections_refused == 1


async def test_a_client_that_goes_before_its_connection_is_passed_on(start_station: StartStation) -> None:
    n1 = await lone(start_station)
    for _ in range(20):
        peer = await Raw.connect(n1.port)
        peer.writer.write(GRPC_PREFACE + b"\r\n\r\nSM\r\n\r\n")
        await peer.writer.drain()
        peer.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.writer.transport.abort()
    peer = await Raw.connect(n1.port)
    assert (await peer.hello()).status == STATUS_OK
    peer.writer.transport.abort()
    await connections_become(n1, 0)


@pytest.mark.parametrize("folder", ["none", "long" * 25])
async def test_a_private_socket_without_a_folder_is_a_start_error(
    start_station: StartStation, monkeypatch: pytest.MonkeyPatch, tmp_path: Any, folder: str
) -> None:
    path = tmp_path / folder
    if folder != "none":
        path.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(path))
    station = Station("n1")
    station.streams.bind("127.0.0.1", 0)
    with pytest.raises(StartError, match="set TMPDIR"):
        await station.streams.start()
    await station.stop()
