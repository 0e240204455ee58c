"""Event streams between nodes over real sockets: direct ones, the fall-back to gRPC, cut and changed connections."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from direct_peers import Raw
from federation.shell import grpc_options
from federation.shell.stream_server import GRPC_PREFACE
from federation.stream import direct_client, direct_server, served_stream, stream_choice
from federation.stream import sender as sender_module
from federation.stream.direct_wire import (
    PREFACE,
)
from stations import Client, StartStation, connections_become, two_nodes

ON_WAY: Final = 8  # messages


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_messages_pass_both_ways(start_station: StartStation, host: str) -> None:
    if ":" in host:
        try:
            socket.create_server((host, 0), family=socket.AF_INET6).close()
        except OSError:
            pytest.skip("this machine has no IPv6")
    n1, n2 = await start_station("n1", host), await start_station("n2", host)
    readers = [Client(n1, "r1"), Client(n2, "r2")]
    for reader in readers:
        reader.subscribe("t/#")
    n1.meet("n2", n2.addr)
    n2.meet("n1", n1.addr)
    for station, other in ((n1, "n2"), (n2, "n1")):
        await station.until(lambda s=station, o=other: s.node.tree.interest_of(o), "interest")
    for number in range(200):
        Client(n1, "w").publish("t/1", b"%d" % number)
        Client(n2, "w").publish("t/2", b"%d" % number + b"-" * (number * 100))
    for station, reader in zip((n1, n2), readers, strict=True):
        await station.until(lambda r=reader: len(r.payloads) >= 400, "messages")
    assert n1.kinds() == n2.kinds() == ["direct"]
    assert len(readers[0].payloads) == len(readers[1].payloads) == 400
    for station in (n1, n2):
        for transport in station.streams.connections:
            assert transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(6))
async def test_cut_anywhere_nothing_is_lost_or_doubled(
    start_station: StartStation, start_proxy: Callable[..., Any], seed: int
) -> None:
    rng = random.Random(seed)
    n1, n2 = await two_nodes(start_station)
    proxies = [await start_proxy(n1.port), await start_proxy(n2.port)]
    cuts = [
        [rng.choice((rng.randrange(80), rng.randrange(2_000), rng.randrange(150_000))) for _ in range(8)]
        for _ in proxies
    ]
    stations = {"n1": n1, "n2": n2}
    readers = {name: Client(station, "reader") for name, station in stations.items()}
    writers = {name: Client(station, "writer") for name, station in stations.items()}
    for name, reader in readers.items():
        reader.subscribe(f"to/{name}")
    n1.meet("n2", proxies[1].addr)
    n2.meet("n1", proxies[0].addr)
    await n1.until(lambda: n1.node.tree.interest_of("n2"), "interest")
    await n2.until(lambda: n2.node.tree.interest_of("n1"), "interest")
    for proxy, sizes in zip(proxies, cuts, strict=True):
        proxy.cuts = sizes
        proxy.cut()
    sent: dict[str, list[bytes]] = {"n1": [], "n2": []}
    for number in range(300):
        for name, other in (("n1", "n2"), ("n2", "n1")):
            payload = b"%d:" % number + rng.randbytes(rng.choice((0, 10, 1_000, 5_000)))
            writers[name].publish(f"to/{other}", payload)
            sent[other].append(payload)
        if rng.random() < 0.3:
            await asyncio.sleep(0)
    for name, station in stations.items():
        await station.until(lambda n=name: len(readers[n].payloads) >= len(sent[n]), "messages")  # type: ignore[misc]
        await station.until(
            lambda s=station: all(not peer.outbox.on_way for peer in s.node.senders.values()),  # type: ignore[misc]
            "acknowledgements",
        )
    for name in stations:
        assert readers[name].payloads == sent[name]
    for station in stations.values():
        (counters,) = station.node.counters.values()
        assert counters.full_states_sent == 1, "resumed, not begun anew"
        assert counters.streams_lost > 0
    assert all(not proxy.cuts for proxy in proxies)


@pytest.mark.parametrize("mode", ["gRPC", "settings", "silent"])
@pytest.mark.interpreted
async def test_falls_back_to_grpc_and_returns(
    start_station: StartStation, start_proxy: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setattr(sender_module, "HELLO_SECONDS_MAX", 0.4)
    n1, n2 = await two_nodes(start_station)
    proxy = await start_proxy(n2.port, mode)
    reader, writer = Client(n2, "r"), Client(n1, "w")
    reader.subscribe("t")
    n1.meet("n2", proxy.addr)
    n2.meet("n1", n1.addr)
    await n1.until(lambda: n1.node.tree.interest_of("n2"), "interest")
    writer.publish("t", b"1")
    await n2.until(lambda: reader.payloads, "message")
    await n1.until(lambda: "gRPC" in n1.kinds(), "fall-back")
    assert n1.kinds() == ["gRPC"]
    told = {
        "gRPC": "closed before it answered Hello",
        "settings": "the answer to Hello is none of a direct stream",
        "silent": "no answer to Hello",
    }
    assert any(reason.startswith(told[mode]) or "reset" in reason for reason in n1.reasons()), n1.reasons()
    # The stream of gRPC fails: direct again, over the same session.
    proxy.mode = "pass"
    proxy.cut()
    await n1.until(lambda: n1.kinds()[-1] == "direct" and n1.streaming("n2"), "direct stream")
    writer.publish("t", b"2")
    await n2.until(lambda: len(reader.payloads) == 2, "message")
    assert reader.payloads == [b"1", b"2"]
    assert n1.node.counters["n2"].full_states_sent == 1


@pytest.mark.interpreted  # it shortens a constant
async def test_returns_from_grpc_as_soon_as_a_direct_stream_gets_through(
    start_station: StartStation, start_proxy: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing breaks, nothing is lost or doubled, and it is asked for without a session."""
    monkeypatch.setattr(stream_choice, "PROBE_SECONDS", 0.05)
    n1, n2 = await two_nodes(start_station)
    proxy = await start_proxy(n2.port, "gRPC")
    reader, writer = Client(n2, "r"), Client(n1, "w")
    reader.subscribe("t")
    n1.meet("n2", proxy.addr)
    n2.meet("n1", n1.addr)
    await n1.until(lambda: n1.node.tree.interest_of("n2") and n1.streaming("n2"), "interest")
    writer.publish("t", b"0")
    await n2.until(lambda: reader.payloads, "message")
    asked = proxy.connections
    await n1.until(lambda: proxy.connections >= asked + 3, "questions")
    assert n1.kinds() == ["gRPC"]
    reasons = list(n1.reasons())
    proxy.mode = "pass"
    number = 1
    while n1.kinds() == ["gRPC"]:
        writer.publish("t", b"%d" % number)
        number += 1
        # Some are always on their way when the stream changes.
        await n2.until(lambda sent=number: len(reader.payloads) + ON_WAY >= sent, "messages")  # type: ignore[misc]
    await n1.until(lambda: n1.streaming("n2"), "direct stream")
    writer.publish("t", b"%d" % number)
    await n2.until(lambda: len(reader.payloads) > number, "messages")
    assert reader.payloads == [b"%d" % known for known in range(number + 1)]
    assert n1.kinds() == ["gRPC", "direct"]
    assert n1.reasons() == reasons
    counters = n1.node.counters["n2"]
    assert (counters.full_states_sent, counters.streams_lost) == (1, 0)


@pytest.mark.parametrize("kind", ["direct", "gRPC"])
@pytest.mark.interpreted
async def test_full_receivers_do_not_end_a_stream(
    start_station: StartStation, start_proxy: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """While nothing is read, the other node hears that we live: the acknowledgement is said again."""
    monkeypatch.setattr(direct_client, "PING_SECONDS", 0.1)
    monkeypatch.setattr(direct_client, "PONG_SECONDS_MAX", 1.0)
    monkeypatch.setattr(direct_server, "SILENCE_SECONDS_MAX", 1.5)
    monkeypatch.setattr(served_stream, "HELD_SECONDS", 0.05)
    monkeypatch.setattr(direct_server, "HELD_SECONDS", 0.05)
    monkeypatch.setattr(sender_module, "ACK_SECONDS_MAX", 1.2)
    n1, n2 = await two_nodes(start_station)
    reader, writer = Client(n2, "r"), Client(n1, "w")
    reader.subscribe("t")
    proxy = await start_proxy(n2.port, "pass" if kind == "direct" else "gRPC")
    n1.meet("n2", proxy.addr)
    n2.meet("n1", n1.addr)
    await n1.until(lambda: n1.node.tree.interest_of("n2"), "interest")
    writer.publish("t", b"0")
    await n2.until(lambda: reader.payloads, "message")
    publisher = n2.node.receivers.get("n1").publisher
    n2.broker.hold(publisher)
    n2.changed()
    held_until = n1.now() + 2.5
    for number in range(1, 100):
        writer.publish("t", b"%d" % number)
        await asyncio.sleep(0)
    n1.loop.call_at(held_until, n2.broker.release, publisher)
    n1.loop.call_at(held_until, n2.changed)
    await n2.until(lambda: len(reader.payloads) == 100, "messages")
    assert n1.now() >= held_until
    assert reader.payloads == [b"%d" % number for number in range(100)]
    assert n1.kinds() == [kind]
    assert n1.node.counters["n2"].streams_lost == 0


@pytest.mark.parametrize("data", [GRPC_PREFACE, GRPC_PREFACE + b"\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\4" + bytes(5)])
async def test_strangers_do_not_keep_connections_of_grpc(
    start_station: StartStation, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    """One never finishes its greeting (the preface and SETTINGS of HTTP/2), one makes no call."""
    monkeypatch.setattr(grpc_options, "IDLE_SECONDS_MAX", 0.3)
    monkeypatch.setattr(grpc_options, "HANDSHAKE_SECONDS_MAX", 0.3)
    n1 = await start_station("n1")
    peer = await Raw.connect(n1.port)
    peer.writer.write(data)
    await connections_become(n1, 2)
    await peer.rest()
    await connections_become(n1, 0)


async def test_another_address_is_tried_directly(start_station: StartStation, start_proxy: Callable[..., Any]) -> None:
    n1, n2 = await two_nodes(start_station)
    proxy = await start_proxy(n2.port, "gRPC")
    n2.meet("n1", n1.addr)
    n1.meet("n2", proxy.addr)
    # The address changes right when the first one has turned out to be no direct stream.
    await n1.until(lambda: n1.reasons() or n1.kinds(), "a try")
    n1.meet("n2", n2.addr)
    await n1.until(lambda: n1.kinds() and n1.kinds()[-1] == "direct" and n1.streaming("n2"), "direct stream")
    # From a stream of gRPC, too.
    n1.meet("n2", proxy.addr)
    await n1.until(lambda: n1.kinds()[-1] == "gRPC" and n1.streaming("n2"), "stream of gRPC")
    n1.meet("n2", n2.addr)
    await n1.until(lambda: n1.kinds()[-1] == "direct" and n1.streaming("n2"), "direct stream")


async def test_a_member_without_the_tag_gets_grpc(start_station: StartStation) -> None:
    n1, n2 = await two_nodes(start_station)
    n2.meet("n1", n1.addr)
    n1.meet("n2", n2.addr, direct=False)
    await n1.until(lambda: n1.streaming("n2"), "stream")
    assert n1.kinds() == ["gRPC"]


async def test_a_refused_connection_is_no_reason_for_grpc(start_station: StartStation) -> None:
    n1, n2 = await two_nodes(start_station)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    n1.meet("n2", f"127.0.0.1:{port}")
    n2.meet("n1", n1.addr)
    await n1.until(lambda: n1.node.senders["n2"].attempt >= 3, "tries")
    assert n1.reasons()
    assert all(reason.startswith("cannot connect") for reason in n1.reasons())
    n1.meet("n2", n2.addr)
    await n1.until(lambda: n1.streaming("n2"), "stream")
    assert n1.kinds() == ["direct"]


async def test_a_member_that_leaves_and_comes_back(start_station: StartStation) -> None:
    n1, n2 = await two_nodes(start_station)
    for _ in range(3):
        n1.meet("n2", n2.addr)
        n2.meet("n1", n1.addr)
        await n1.until(lambda: n1.streaming("n2"), "stream")
        await n2.until(lambda: n2.streaming("n1"), "stream")
        n1.part("n2")
        n2.part("n1")
        await n1.until(lambda: not n1.clients, "no client")
    assert n1.kinds() == ["direct"] * 3


async def test_stop_with_open_connections(start_station: StartStation) -> None:
    """Direct, gRPC, and three that are not told from each other yet; the port is free afterwards."""
    n1, n2 = await two_nodes(start_station)
    n3 = await start_station("n3")
    for station in (n2, n3):
        station.meet("n1", n1.addr, direct=station is n2)
        n1.meet(station.name, station.addr)
    await n2.until(lambda: n2.streaming("n1"), "stream")
    await n3.until(lambda: n3.streaming("n1"), "stream")
    raw = [await Raw.connect(n1.port) for _ in range(3)]
    for peer, data in zip(raw, (b"", GRPC_PREFACE[:3], PREFACE), strict=True):
        peer.writer.write(data)
    await connections_become(n1, 6)
    folder = n1.streams.grpc_callers.path.rpartition("/")[0]
    await n1.stop()
    assert not n1.streams.connections
    for peer in raw:
        assert await peer.rest() == b""
    await n2.until(lambda: not n2.streaming("n1"), "the end")
    await n3.until(lambda: not n3.streaming("n1"), "the end")
    assert not Path(folder).exists()  # noqa: ASYNC240
    socket.create_server(("127.0.0.1", n1.port)).close()
