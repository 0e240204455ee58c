"""What strangers and mistakes do to one node: a clear error or a counted drop, and other clients notice nothing."""

from __future__ import annotations

import asyncio
import contextlib
import random
import resource
import signal
import socket
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import pytest

from broker.codec.packets import ConnAck, Connect, Publish, SubAck, Subscribe, SubscribeFilter
from broker.codec.properties import MAXIMUM_PACKET_SIZE, SESSION_EXPIRY_INTERVAL
from broker.codec.writer import encode_packet

if TYPE_CHECKING:
    from broker.server.lifecycle import Server
    from tests.integration.conftest import Clients, MqttClient, Node, Nodes, Watch

    StartServer = Callable[[dict[str, Any]], Awaitable[Server]]
    StartWatch = Callable[[Node], Awaitable[Watch]]

DEADLINE: Final = 30.0
MIB: Final = 2**20
PACKET_TOO_LARGE: Final = 0x95
MALFORMED: Final = 0x81
PROTOCOL_ERROR: Final = 0x82
QUOTA_EXCEEDED: Final = 0x97
SHUTTING_DOWN: Final = 0x8B


def connect_packet(client_id: str, version: int = 5) -> bytes:
    return encode_packet(Connect(client_id, version, True), version)


async def dropped(writer: asyncio.StreamWriter) -> None:
    """End the connection without a goodbye."""
    writer.transport.abort()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


# --- start


async def refused(node: Node, text: str | None = None) -> tuple[int, str]:
    """Exit status and output of a start that must not succeed."""
    node.spawn(text)
    return await node.wait_ended(), node.log()


async def test_port_in_use(nodes: Nodes, watch: StartWatch) -> None:
    first = await nodes.start()
    others = await watch(first)
    second = nodes.make({"listeners": [{"address": f"127.0.0.1:{first.port}"}]})
    status, output = await refused(second)
    assert status == 1
    assert output.strip().count("\n") == 0, output
    assert f"127.0.0.1:{first.port}" in output
    assert "listeners[0].address" in output
    assert "in use" in output
    await others.check()


async def test_address_of_another_machine(nodes: Nodes) -> None:
    status, output = await refused(nodes.make({"listeners": [{"address": "192.0.2.1:20000"}]}))
    assert status == 1
    assert output.strip().count("\n") == 0, output
    assert "192.0.2.1:20000" in output
    assert "listeners[0].address" in output


async def test_host_that_does_not_resolve(nodes: Nodes) -> None:
    status, output = await refused(nodes.make({"listeners": [{"address": "no-such-host.invalid:20000"}]}))
    assert status == 1
    assert output.strip().count("\n") == 0, output
    assert "no-such-host.invalid:20000" in output


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('listeners:\n  - address: "127.0.0.1:99999"\n', "listeners[0].address"),
        ('listeners:\n  - address: "here and there"\n', "listeners[0].address"),
        ('listeners:\n  - adress: ":1883"\n', "address"),
        ("listeners: [\n", "1"),
        ("- a\n- b\n", ""),
        ("\0\1\2", ""),
        ("mqtt:\n  max_packet_size: often\n", "mqtt.max_packet_size"),
        ("mqtt:\n  maximum_qos: 3\n", "mqtt.maximum_qos"),
    ],
)
async def test_wrong_file(nodes: Nodes, text: str, expected: str) -> None:
    node = nodes.make()
    status, output = await refused(node, text)
    assert status == 2, output
    assert str(node.config_path) in output
    assert expected in output
    assert "Traceback" not in output


async def test_missing_and_unreadable_file(nodes: Nodes) -> None:
    node = nodes.make()
    node.config_path.mkdir()  # root can read every file, but no directory as one
    node.config_path = node.config_path / "missing.yml"
    await check_unreadable(node)
    node.config_path = node.config_path.parent
    await check_unreadable(node)


async def check_unreadable(node: Node) -> None:
    done = await asyncio.to_thread(node.command, "start")
    assert done.returncode == 2, done
    assert str(node.config_path) in done.stderr
    assert done.stderr.strip().count("\n") == 0, done.stderr


async def test_start_on_the_same_port_right_after_a_stop(nodes: Nodes, clients: Clients) -> None:
    node = await nodes.start()
    for _ in range(3):
        for number in range(5):
            await clients.connect(node.port, f"client-{number}")
        await node.stop()
        await node.start()


# --- packets


async def test_256_mib_remaining_length(nodes: Nodes, clients: Clients, watch: StartWatch) -> None:
    node = await nodes.start()
    others = await watch(node)
    client = await clients.connect(node.port)
    client.send_bytes(b"\x30\xff\xff\xff\x7f" + bytes(1000))
    await client.wait_closed()
    assert client.disconnect is not None
    assert client.disconnect.reason_code == PACKET_TOO_LARGE
    await others.check()


@pytest.mark.parametrize("following", [0, 3 * MIB])
async def test_packet_above_the_limit(nodes: Nodes, clients: Clients, watch: StartWatch, following: int) -> None:
    """Also when the client is in the middle of sending it, it reads why it is closed."""
    node = await nodes.start({"mqtt": {"max_packet_size": "1MiB"}})
    others = await watch(node)
    for version in (5, 4):
        client = await clients.connect(node.port, "", version)
        packet = encode_packet(Publish(b"a", bytes(4 * MIB)), version)
        client.send_bytes(packet[: 10 + following])
        await client.wait_closed()
        if version == 5:
            assert client.disconnect is not None
            assert client.disconnect.reason_code == PACKET_TOO_LARGE
    allowed = await clients.connect(node.port)
    await allowed.publish("a", bytes(MIB - 100), 1)
    await others.check()


async def test_large_packet_before_connect(nodes: Nodes, clients: Clients, watch: StartWatch) -> None:
    node = await nodes.start()
    others = await watch(node)
    client = await clients.open(node.port)
    client.send_bytes(b"\x10\xff\xff\xff\x7f" + bytes(1000))
    await client.wait_closed()
    await others.check()


@pytest.mark.parametrize("connected", [True, False])
async def test_remaining_length_that_cannot_be(
    nodes: Nodes, clients: Clients, watch: StartWatch, connected: bool
) -> None:
    node = await nodes.start()
    others = await watch(node)
    client = await clients.connect(node.port) if connected else await clients.open(node.port)
    client.send_bytes(b"\x30\xff\xff\xff\xff\x7f")
    await client.wait_closed()
    if connected:
        assert client.disconnect is not None
        assert client.disconnect.reason_code == MALFORMED
    await others.check()


async def test_half_a_packet_for_ever(nodes: Nodes, clients: Clients, watch: StartWatch) -> None:
    node = await nodes.start({"mqtt": {"connect_timeout": "500ms"}})
    others = await watch(node)
    packet = encode_packet(Publish(b"a", bytes(1000)), 5)
    halves = [await clients.connect(node.port) for _ in range(3)]
    halves[0].send_bytes(packet[:1])
    halves[1].send_bytes(packet[:2])
    halves[2].send_bytes(packet[:500])
    unfinished = await clients.open(node.port)
    unfinished.send_bytes(connect_packet("half")[:10])
    silent = await clients.open(node.port)
    whole = await clients.connect(node.port)
    for client in (*halves, unfinished, silent):
        await client.wait_closed()
    await whole.ping()
    await others.check()


async def test_two_connects(nodes: Nodes, clients: Clients, watch: StartWatch) -> None:
    node = await nodes.start()
    others = await watch(node)
    client = await clients.connect(node.port, "twice")
    client.send(Connect("twice", 5, True))
    await client.wait_closed()
    assert client.disconnect is not None
    assert client.disconnect.reason_code == PROTOCOL_ERROR
    both = await clients.open(node.port)
    both.send_bytes(connect_packet("twice") * 2)
    await both.answer(ConnAck)
    await both.wait_closed()
    await others.check()


async def test_first_packet_is_no_connect(nodes: Nodes, clients: Clients, watch: StartWatch) -> None:
    node = await nodes.start()
    others = await watch(node)
    for data in (
        b"\xc0\x00",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 9,
    ):
        client = await clients.open(node.port)
        client.send_bytes(data)
        await client.wait_closed()
        assert client.connack is None
    await others.check()


async def test_random_bytes(nodes: Nodes, clients: Clients, watch: StartWatch) -> None:
    """Thousands of connections with noise, and with noise behind a good CONNECT."""
    node = await nodes.start({"mqtt": {"connect_timeout": "1s"}})
    others = await watch(node)
    rng = random.Random(20260101)

    async def noise(count: int) -> None:
        for _ in range(count):
            data = bytearray(rng.randbytes(rng.randrange(1, 300)))
            kind = rng.randrange(4)
            if kind == 1:
                data[:0] = connect_packet(f"noise-{rng.randrange(50)}", rng.choice((3, 4, 5)))
            elif kind == 2:  # a packet whose frame is right
                data = data[:125]
                data[:0] = connect_packet("") + bytes((rng.randrange(256), len(data)))
            elif kind == 3:  # a good packet with some bytes changed
                data = bytearray(
                    connect_packet("") + encode_packet(Publish(b"watch/x", bytes(9), 1, True, False, 7), 5)
                )
                for _ in range(3):
                    data[rng.randrange(len(data))] = rng.randrange(256)
            reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
            with contextlib.suppress(OSError):
                writer.write(data)
                await writer.drain()
                if rng.random() < 0.5:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(0.005):
                            await reader.read(1000)
            await dropped(writer)

    async def keep_checking() -> None:
        while True:
            await others.check()

    checking = asyncio.create_task(keep_checking())
    await asyncio.gather(*(noise(300) for _ in range(10)))
    assert not checking.done(), checking
    checking.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await checking
    fresh = await watch_again(clients, node)
    await fresh.ping()
    assert "fault in handling a client" not in node.log()
    assert "Traceback" not in node.log()


async def watch_again(clients: Clients, node: Node) -> MqttClient:
    client = await clients.connect(node.port)
    await client.subscribe("fresh", qos=1)
    await client.publish("fresh", b"x", 1)
    assert (await client.message()).payload == b"x"
    return client


# --- subscriptions and connections


async def test_100_000_subscriptions(nodes: Nodes, clients: Clients, watch: StartWatch) -> None:
    node = await nodes.start()
    others = await watch(node)
    client = await clients.connect(node.port)
    slowest = 0.0
    codes: list[int] = []
    for start in range(0, 100_000, 2000):
        filters = [SubscribeFilter(b"many/%d/+" % number, 1) for number in range(start, start + 2000)]
        client.send(Subscribe(1 + start // 2000, filters))
        slowest = max(slowest, await others.check())
        codes += (await client.answer(SubAck)).reason_codes
    assert codes == [1] * 10_000 + [QUOTA_EXCEEDED] * 90_000
    assert slowest < 5.0
    await client.publish("many/9999/x", b"within", 1)
    assert (await client.message()).payload == b"within"
    await client.close()
    await others.check()


async def test_max_connections(nodes: Nodes, clients: Clients, watch: StartWatch) -> None:
    node = await nodes.start({"mqtt": {"max_connections": 20}})
    others = await watch(node)
    inside = [await clients.connect(node.port) for _ in range(18)]
    flood = await asyncio.gather(*(asyncio.open_connection("127.0.0.1", node.port) for _ in range(300)))
    for reader, writer in flood:
        writer.write(connect_packet("flood"))
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(DEADLINE):
                assert await reader.read(100) == b""
        await dropped(writer)
    await others.check()
    await inside[0].close()
    await served_again(clients, node)


async def test_out_of_file_descriptors(nodes: Nodes, clients: Clients, watch: StartWatch) -> None:
    """The process may open few files: those who are in are served, and who comes later is once there is room."""
    node = await nodes.start()
    others = await watch(node)
    resource.prlimit(node.pid, resource.RLIMIT_NOFILE, (60, 60))
    flood = [await asyncio.open_connection("127.0.0.1", node.port) for _ in range(200)]
    await others.check()
    for _, writer in flood:
        await dropped(writer)

    await served_again(clients, node)
    await others.check()


async def served_again(clients: Clients, node: Node) -> None:
    """There is room: a new client gets in, at the latest when the node has noticed it."""
    ends_at = time.monotonic() + DEADLINE
    while time.monotonic() < ends_at:
        with contextlib.suppress(AssertionError, TimeoutError, OSError):
            async with asyncio.timeout(2):
                await (await clients.connect(node.port)).ping()
                return
        await asyncio.sleep(0.05)
    raise AssertionError("new clients are not served although there is room")


# --- receivers that do not read


def stuck_socket(port: int, data: bytes) -> socket.socket:
    """A client that sends this and then never reads; its kernel buffer is small."""
    stuck = socket.socket()
    stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    stuck.connect(("127.0.0.1", port))
    stuck.sendall(data)
    return stuck


def subscriber(client_id: str, topic_filter: bytes, qos: int) -> bytes:
    return connect_packet(client_id) + encode_packet(Subscribe(1, [SubscribeFilter(topic_filter, qos)]), 5)


@pytest.mark.parametrize("qos", [0, 1])
async def test_client_that_never_reads(nodes: Nodes, clients: Clients, watch: StartWatch, qos: int) -> None:
    """Five stuck subscribers and 200 MB for each of them: the node's memory keeps its bounds, others get it all."""
    node = await nodes.start({"mqtt": {"max_queued_bytes": "4MiB"}})
    others = await watch(node)
    stuck = [stuck_socket(node.port, subscriber(f"stuck-{number}", b"flood", qos)) for number in range(5)]
    good = await clients.connect(node.port, "good")
    await good.subscribe("flood", qos=qos)
    publisher = await clients.connect(node.port, "publisher")
    await others.check()
    before = node.resident_bytes()
    packet = encode_packet(Publish(b"flood", bytes(100_000), qos, False, False, 1 if qos else 0), 5)
    highest = before
    for _ in range(200):
        publisher.send_bytes(packet * 10)
        await publisher.drain()
        await good.take(10)
        highest = max(highest, node.resident_bytes())
    await others.check()
    grown = (highest - before) / MIB
    assert grown < 5 * (4 + 1) + 50, f"{grown:.0f} MiB more"
    for one in stuck:
        one.close()
    await others.check()


async def test_slow_client_gets_what_is_within_the_bounds(nodes: Nodes, clients: Clients) -> None:
    """It stops reading, 600 messages are published (queue: 1000), it reads again: all are there, in order."""
    node = await nodes.start({"mqtt": {"write_buffer_high": "4KiB"}})
    slow = stuck_socket(node.port, subscriber("slow", b"slow", 0))
    try:
        publisher = await clients.connect(node.port, "publisher")
        await until_subscribed(publisher, slow)
        for number in range(600):
            await publisher.publish("slow", b"%d" % number + bytes(10_000))
        received = await asyncio.to_thread(read_publishes, slow, 600)
    finally:
        slow.close()
    assert [payload.rstrip(b"\0") for payload in received] == [b"%d" % number for number in range(600)]


async def until_subscribed(publisher: MqttClient, stuck: socket.socket) -> None:
    """CONNACK and SUBACK are there: they are read, and nothing after them."""
    stuck.settimeout(DEADLINE)
    for _ in range(2):
        head = await asyncio.to_thread(receive_exactly, stuck, 2)
        await asyncio.to_thread(receive_exactly, stuck, head[1])
    await publisher.ping()


def receive_exactly(source: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = source.recv(size - len(data))
        assert part, "closed"
        data += part
    return data


def read_publishes(source: socket.socket, count: int) -> list[bytes]:
    """The payloads of the next QoS 0 messages (MQTT 5, no properties)."""
    payloads = []
    for _ in range(count):
        assert receive_exactly(source, 1) == b"\x30"
        size = shift = 0
        while True:
            byte = receive_exactly(source, 1)[0]
            size |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        body = receive_exactly(source, size)
        topic_size = int.from_bytes(body[:2], "big")
        payloads.append(body[2 + topic_size + 1 :])
    return payloads


async def test_drops_are_counted(start_server: StartServer, clients: Clients) -> None:
    """What a stuck client, an absent one and one with a small Maximum Packet Size do not get."""
    server = await start_server({"mqtt": {"max_queued_messages": 100, "write_buffer_high": "4KiB"}})
    port = int(server.listeners.addresses[0].rsplit(":", 1)[1])
    dropped = server.broker.counters.messages_dropped
    small = await clients.connect(port, "small", properties={MAXIMUM_PACKET_SIZE: 100})
    await small.subscribe("counted")
    absent = await clients.connect(port, "absent", properties={SESSION_EXPIRY_INTERVAL: 100})
    await absent.subscribe("counted", qos=1)
    await absent.close()
    publisher = await clients.connect(port, "publisher")
    stuck = stuck_socket(port, subscriber("stuck", b"counted", 0))
    try:
        await until_subscribed(publisher, stuck)
        for _ in range(1500):
            await publisher.publish("counted", bytes(10_000))
        assert dropped["packet_too_large"] == 1500
        session = server.broker.sessions["stuck"]
        assert 0 < session.queue_length() <= 100
        assert session.messages_dropped > 0
        assert server.broker.sessions["absent"].messages_dropped == 1400
        assert dropped["queue_full"] == session.messages_dropped + 1400
        refused_before = server.broker.counters.protocol_errors
        bad = await clients.connect(port)
        bad.send_bytes(b"\xff\xff\xff\xff\xff")
        await bad.wait_closed()
        assert server.broker.counters.protocol_errors == refused_before + 1
    finally:
        stuck.close()


# --- stop


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT])
async def test_stop_with_stuck_clients(nodes: Nodes, clients: Clients, signal_number: signal.Signals) -> None:
    node = await nodes.start()
    told = await clients.connect(node.port, "told")
    old = await clients.connect(node.port, "old", 4)
    silent = await clients.open(node.port)
    stuck = [stuck_socket(node.port, subscriber(f"stuck-{number}", b"flood", 0)) for number in range(5)]
    publisher = await clients.connect(node.port, "publisher")
    for _ in range(20):
        await publisher.publish("flood", bytes(MIB))
    took = await node.stop(signal_number)
    assert took < 5.0
    await asyncio.gather(told.wait_closed(), old.wait_closed(), silent.wait_closed())
    assert told.disconnect is not None
    assert told.disconnect.reason_code == SHUTTING_DOWN
    for one in stuck:
        one.close()


async def test_second_signal_ends_at_once(nodes: Nodes) -> None:
    """A client that takes nothing delays the stop a little; the second SIGINT does not wait for it."""
    node = await nodes.start()
    stuck = stuck_socket(node.port, subscriber("stuck", b"flood", 0))
    assert node.process is not None
    node.process.send_signal(signal.SIGINT)
    node.process.send_signal(signal.SIGINT)
    assert await node.wait_ended(5.0) in (0, 1)
    stuck.close()
