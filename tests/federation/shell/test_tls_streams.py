"""Streams between nodes that prove their names by certificates, on real sockets."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from broker.codec.packets import Connect
from broker.codec.writer import encode_packet
from broker.server import tls_transport
from certificates import Authority, Pair
from direct_peers import Raw
from federation.stream.direct_wire import PREFACE
from stations import Client, StartStation, Station, connections_become
from waiting import DEADLINE


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def start_node(start_station: StartStation, authority: Authority) -> Callable[..., Any]:
    """A node with a certificate under its own name, unless the test gives it another one."""

    async def start(name: str, **trust: Any) -> Station:
        if "pair" not in trust:
            trust["pair"] = authority.node(name)
        station: Station = await start_station(name, **{"cacert": authority.cacert, **trust})
        return station

    return start


def acquaint(*nodes: Station) -> None:
    for node in nodes:
        for other in nodes:
            if other is not node:
                node.meet_tags(other.name, other.tags)


NUMBERS = count()


async def pass_message(sender: Station, receiver: Station) -> None:
    """A message of a new topic, after the interest has crossed."""
    number = next(NUMBERS)
    client = Client(receiver, f"reader-{number}")
    topic = f"topic/{number}"
    client.subscribe(topic)
    await sender.until(lambda: (b"", topic.encode()) in sender.node.tree.interest_of(receiver.name), "the interest")
    Client(sender, f"writer-{number}").publish(topic, b"hello")
    await receiver.until(lambda: client.payloads == [b"hello"], "the message")


async def pass_messages(one: Station, other: Station) -> None:
    await pass_message(one, other)
    await pass_message(other, one)


@pytest.mark.parametrize("batch", [True, False])
@pytest.mark.parametrize("requires_tls", [True, False])
async def test_messages_pass_both_ways(start_node: Callable[..., Any], batch: bool, requires_tls: bool) -> None:
    one, other = [await start_node(name, batch=batch, requires_tls=requires_tls) for name in ("n1", "n2")]
    acquaint(one, other)
    await pass_messages(one, other)
    assert one.kinds() == other.kinds() == ["direct" if batch else "gRPC"]
    assert one.log.values("event stream to a node", "tls") == [True]
    assert one.node.senders["n2"].addr == other.tls_addr
    assert not any(one.refusals.totals.values())


def refusals(node: Station) -> list[str]:
    """The words of what a node has refused."""
    return [word for word, count in node.refusals.totals.items() if count]


def refused(node: Station) -> list[str]:
    """The reasons in the log of what a node has refused as a server."""
    return node.log.values("refused a node", "reason")


async def told(node: Station, reasons: Callable[[Station], list[str]], *parts: str) -> None:
    """Wait for a reason with all of these parts."""
    await node.until(lambda: any(all(part in reason for part in parts) for reason in reasons(node)), f"a line: {parts}")


async def test_a_certificate_of_another_authority_is_refused_on_both_sides(
    start_node: Callable[..., Any], tmp_path: Path
) -> None:
    foreign = Authority(tmp_path / "foreign", "another authority")
    one = await start_node("n1")
    other = await start_node("n2", pair=foreign.node("n2"), cacert=foreign.cacert)
    acquaint(one, other)
    for node, name in ((one, "n2"), (other, "n1")):
        await told(node, Station.reasons, "cacert")
        assert refusals(node) == ["certificate"]
        assert not node.streaming(name)


@pytest.mark.parametrize("batch", [True, False])
async def test_a_node_is_not_taken_for_another_one(start_node: Callable[..., Any], batch: bool) -> None:
    """n3 has a certificate of the authority, and says that it is n2."""
    one = await start_node("n1")
    forger = await start_node("n3", batch=batch)
    forger.node.name = forger.name = "n2"
    forger.meet_tags("n1", one.tags)
    one.meet_tags("n2", forger.tags)
    await told(one, Station.reasons, "n3", "n2")
    await told(one, refused, "n3", "n2")
    await told(forger, Station.reasons, "n3", "n2")
    assert refusals(one) == ["name"]
    assert one.node.counters["n2"].events_received == 0
    assert not one.streaming("n2")


async def test_a_certificate_that_expired_is_refused_until_it_is_renewed(
    start_node: Callable[..., Any], authority: Authority
) -> None:
    one = await start_node("n1")
    other = await start_node("n2", pair=authority.node("n2", age_days=5))
    assert other.tls is not None
    assert "expired" in other.tls.warning
    acquaint(one, other)
    await told(one, refused, "expired", "that node")
    await told(one, Station.reasons, "expired", "that node")
    await told(other, Station.reasons, "expired", "this node")
    authority.node("n2")  # the same files
    other.tls.renew()
    await pass_messages(one, other)


async def test_open_streams_stay_and_new_ones_use_the_new_files(
    start_node: Callable[..., Any], authority: Authority, tmp_path: Path
) -> None:
    """All nodes move to another authority, without a restart."""
    one, other = await start_node("n1"), await start_node("n2")
    acquaint(one, other)
    await pass_messages(one, other)
    new = Authority(tmp_path, authority.name)  # in the same files
    for node in (one, other):
        new.node(node.name)
        node.tls.renew()
    await pass_message(one, other)
    assert one.kinds() == other.kinds() == ["direct"], "no stream was lost"
    for station in (one, other):
        for transport in list(station.streams.connections):
            transport.abort()
    await one.until(lambda: len(one.kinds()) == 2, "another stream")
    await pass_messages(one, other)
    late = await start_node("n3", pair=new.node("n3"))
    acquaint(one, late)
    await pass_messages(one, late)


@pytest.mark.parametrize("fault", ["cert", "key", "cacert"])
async def test_files_that_cannot_be_used_leave_the_former_ones(start_node: Callable[..., Any], fault: str) -> None:
    one, other = await start_node("n1"), await start_node("n2")
    path = Path(getattr(one.settings.tls, fault))
    path.write_bytes(path.read_bytes()[:100])  # noqa: ASYNC240
    with pytest.raises(Exception, match=f"tls\\.{fault if fault == 'cacert' else 'cert'}"):
        one.tls.renew()
    acquaint(one, other)
    await pass_messages(one, other)


# --- connections that are no node's


def context_of(authority: Authority, pair: Pair | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.cacert)
    context.check_hostname = False
    if pair is not None:
        context.load_cert_chain(pair.cert, pair.key)
    return context


async def closed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """What the other end sends before it closes the connection."""
    try:
        async with asyncio.timeout(DEADLINE):
            return await reader.read(-1)
    except OSError:
        return b""
    finally:
        writer.transport.abort()


async def test_a_client_without_a_certificate_is_refused(start_node: Callable[..., Any], authority: Authority) -> None:
    one = await start_node("n1")
    reader, writer = await asyncio.open_connection("127.0.0.1", one.tls_port, ssl=context_of(authority, None))
    writer.write(PREFACE)
    assert await closed(reader, writer) == b""
    await told(one, refused, "did not return a certificate")
    assert refusals(one) == ["certificate"]
    await connections_become(one, 0)


async def test_a_certificate_without_a_dns_name_is_refused(
    start_node: Callable[..., Any], authority: Authority
) -> None:
    one = await start_node("n1")
    nameless = authority.pair("n2", dns_names=())
    reader, writer = await asyncio.open_connection("127.0.0.1", one.tls_port, ssl=context_of(authority, nameless))
    assert await closed(reader, writer) == b""
    await told(one, refused, "no DNS name")
    assert refusals(one) == ["name"]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_only_tls_1_3_is_spoken(
    start_node: Callable[..., Any], authority: Authority, version: ssl.TLSVersion
) -> None:
    one = await start_node("n1")
    context = context_of(authority, authority.node("peer"))
    context.maximum_version = version
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", one.tls_port, ssl=context)
    except OSError:
        assert version is ssl.TLSVersion.TLSv1_2
        await told(one, refused, "protocol")
        assert refusals(one) == ["handshake"]
    else:
        assert version is ssl.TLSVersion.TLSv1_3
        writer.transport.abort()


@pytest.mark.parametrize("data", [PREFACE, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", encode_packet(Connect("c", 5), 5)])
async def test_plain_text_on_the_port_of_tls_is_refused(start_node: Callable[..., Any], data: bytes) -> None:
    one = await start_node("n1", requires_tls=True)
    peer = await Raw.connect(one.tls_port)
    peer.writer.write(data)
    assert await peer.rest() == b""
    await told(one, refused, "without TLS")
    assert one.streams.connections_refused == 1
    await connections_become(one, 0)


async def test_a_handshake_that_does_not_end_is_given_up(
    start_node: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_transport, "HANDSHAKE_SECONDS_MAX", 0.05)
    one = await start_node("n1")
    peer = await Raw.connect(one.tls_port)
    peer.writer.write(b"\x16\x03")
    assert await peer.rest() == b""
    await told(one, refused, "not completed")
    assert refusals(one) == ["handshake"]


@asynccontextmanager
async def meddler(one: Station, other: Station, size: int, change: Callable[[bytes], bytes]) -> AsyncIterator[None]:
    """The way of one node to the other one is a proxy that reads `size` bytes at a time and changes what goes there."""
    pumps: set[asyncio.Task[None]] = set()

    async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter, is_changed: bool) -> None:
        try:
            while data := await source.read(size):
                target.write(change(data) if is_changed else data)
                await target.drain()
        except OSError:
            pass
        target.transport.abort()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", other.tls_port)
        pumps.add(asyncio.create_task(pump(reader, back, True)))
        pumps.add(asyncio.create_task(pump(there, writer, False)))

    proxy = await asyncio.start_server(serve, "127.0.0.1", 0)
    one.meet_tags(other.name, {**other.tags, "fed_tls": f"127.0.0.1:{proxy.sockets[0].getsockname()[1]}"})
    other.meet_tags(one.name, one.tags)
    try:
        yield
    finally:
        proxy.close()
        for node in (one, other):
            await node.stop()
        await asyncio.wait(pumps)


@pytest.mark.parametrize("size", [1, 7])
async def test_bytes_that_come_in_pieces(start_node: Callable[..., Any], size: int) -> None:
    one, other = await start_node("n1"), await start_node("n2")
    async with meddler(one, other, size, bytes):
        await pass_messages(one, other)
        assert one.kinds() == ["direct"]


async def test_a_byte_that_changes_on_the_way_ends_the_stream_and_loses_nothing(start_node: Callable[..., Any]) -> None:
    one, other = await start_node("n1"), await start_node("n2")
    flips: list[bool] = []

    def change(data: bytes) -> bytes:
        return data[:-1] + bytes([data[-1] ^ 1]) if flips and flips.pop() else data

    async with meddler(one, other, 65_536, change):
        await pass_messages(one, other)
        flips.append(True)
        await pass_messages(one, other)
        assert not flips
        assert one.kinds() == ["direct", "direct"]
        assert one.log.values("event stream to a node", "clean_start") == [True, False], "the session goes on"
        assert refusals(one) == refusals(other) == []


@pytest.mark.parametrize("size", [1, 5, 6, 40, 300, 10_000])
async def test_what_is_no_handshake_is_refused(start_node: Callable[..., Any], size: int) -> None:
    one, other = await start_node("n1"), await start_node("n2")
    peer = await Raw.connect(one.tls_port)
    peer.writer.write(b"\x16\x03\x01" + random.Random(size).randbytes(size))
    peer.writer.write_eof()
    await peer.rest()
    await one.until(lambda: one.refusals.totals["handshake"] == 1, "the refusal")
    await connections_become(one, 0)
    acquaint(one, other)
    await pass_messages(one, other)


# --- beside nodes without TLS


async def test_a_node_without_tls_in_one_federation_with_nodes_that_have_it(
    start_node: Callable[..., Any], start_station: StartStation
) -> None:
    one, other = await start_node("n1"), await start_node("n2")
    plain = await start_station("n3")
    acquaint(one, other, plain)
    await pass_messages(one, other)
    await pass_messages(one, plain)
    await pass_messages(other, plain)
    assert plain.kinds() == ["gRPC", "gRPC"], "their ports without TLS take the Go broker's stream alone"
    assert sorted(zip(one.kinds(), one.log.values("event stream to a node", "tls"), strict=True)) == [
        ("direct", False),
        ("direct", True),
    ]
    assert refusals(one) == refusals(other) == []


async def test_an_older_node_without_tls_finds_the_stream_that_is_taken(
    start_node: Callable[..., Any], start_station: StartStation
) -> None:
    """It does not know the tag of TLS, and tries a direct stream first."""
    one = await start_node("n1")
    older = await start_station("n2")
    one.meet_tags("n2", older.tags)
    older.meet("n1", one.addr)
    await pass_messages(one, older)
    assert older.kinds() == ["gRPC"]
    await told(one, refused, "plugins.federation.tls")
    assert refusals(one) == ["plain"]


async def test_jobs_are_not_taken_on_the_port_without_tls(start_node: Callable[..., Any]) -> None:
    one = await start_node("n1")
    peer = await Raw.connect(one.port)
    peer.writer.write(encode_packet(Connect("$node/jobs-n2", 5), 5))
    assert await peer.rest() == b""
    assert refusals(one) == ["plain"]


async def test_a_member_without_tls_gets_nothing_where_tls_is_required(
    start_node: Callable[..., Any], start_station: StartStation
) -> None:
    one, other = await start_node("n1", requires_tls=True), await start_node("n2", requires_tls=True)
    plain = await start_station("n3")
    acquaint(one, other, plain)
    await pass_messages(one, other)
    for node in (one, other):
        assert "n3" not in node.node.senders
        (event,) = node.node.take_events()
        assert event.name == "n3"
        assert "require_tls" in event.reason
        assert not node.addr
    for event in plain.node.take_events():
        assert "plugins.federation.tls" in event.reason


async def test_nobody_is_taken_for_a_member_with_tls_without_it(start_node: Callable[..., Any]) -> None:
    """The Go broker's stream needs no proof, but not under the name of a member that has one."""
    one, other = await start_node("n1"), await start_node("n2")
    forger = await start_node("n2", batch=False)
    acquaint(one, other)
    await pass_messages(one, other)
    forger.meet("n1", one.addr, direct=False)
    await told(forger, Station.reasons, "n2", "fed_tls")
    await told(one, refused, "n2", "fed_tls")
    assert refusals(one) == ["plain"]


async def test_a_member_that_gets_tls_is_reached_with_it(
    start_node: Callable[..., Any], start_station: StartStation
) -> None:
    """A rolling change: each node restarts with TLS, one after the other."""
    one = await start_node("n1")
    former = await start_station("n2")
    acquaint(one, former)
    await pass_messages(one, former)
    await former.stop()
    present = await start_node("n2")
    acquaint(one, present)
    await pass_messages(one, present)
    assert one.log.values("event stream to a node", "tls") == [False, True]
