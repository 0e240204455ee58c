#!/usr/bin/env python3
"""Which functions of the compiled modules a message that comes alone runs through, in the order of their first call.

    bench/hot_path.py            prints what it finds
    bench/hot_path.py --write    writes hot_path.txt beside it, by which setup.py lays out the compiled code
    bench/hot_path.py --steady   prints only what every message runs through (tests/test_hot_path.py)

Two federated nodes run on loopback in this process, interpreted, and lone messages go from a client of the first one to
a client of the second, then to one of the same node: QoS 0 and 1, MQTT 3.1.1 and 5. Each is followed until everybody has
acknowledged it.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import importlib
import json
import linecache
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import uvloop  # noqa: E402

import broker.routing.router  # noqa: E402
from broker.codec.packets import (  # noqa: E402
    ConnAck,
    Connect,
    Packet,
    PubAck,
    Publish,
    SubAck,
    Subscribe,
    SubscribeFilter,
)
from broker.codec.reader import PacketReader  # noqa: E402
from broker.codec.writer import encode_packet  # noqa: E402
from broker.config.loader import load_bytes  # noqa: E402
from broker.server.lifecycle import Server  # noqa: E402
from broker.server.logging import setup_logging  # noqa: E402
from federation.plugin import FederationPlugin  # noqa: E402
from federation.stream.sender import PeerSender  # noqa: E402
from federation.stream.state import State  # noqa: E402
from federation.stream.tree import Interest  # noqa: E402

setup: Any = importlib.import_module("setup")  # setup.py

WARM_UP: Final = 3  # messages of each kind before those that are recorded
ROUNDS: Final = 20
STEADY_ROUNDS: Final = 4
WAIT_SECONDS_MAX: Final = 20.0
SETTLE_SECONDS: Final = 0.003  # for the last acknowledgement of a message; the next one must find a new millisecond

Function = tuple[str, str]  # module and qualified name

# What the loop calls for a message. All else that it calls meanwhile (gossip, watches) is not recorded.
DOORS: Final = frozenset(
    {
        "ClientProtocol.data_received",
        "DirectConnection.data_received",
        "DirectServerProtocol._write_ack",
        "DirectServerProtocol.data_received",
        "Turns._end_turn",
    }
)

HEAD: Final = """\
# The functions of the compiled modules that a message which comes alone runs through, in the order of their first call:
# through the node that sends it to another, through that other one, then what other messages add (QoS 1, a subscriber on
# the same node). setup.py has the linker lay them side by side in this order. Written by `bench/hot_path.py --write`, which
# keeps the lines of C functions as it finds them.
#
#     MODULE FUNCTION                a function or method, as compiled code calls it
#     MODULE FUNCTION from Python    also the entry for interpreted callers and for callbacks
#     C NAME                         a function of mypyc's runtime, which all of the way calls; seen by single-stepping the
#                                    compiled form, or in its code
"""


@dataclass(frozen=True)
class Scenario:
    remote: bool
    qos: int
    version: int
    topics: int = 1  # in turn

    def topic(self, number: int) -> bytes:
        return b"hot/%d/%d/%d/%d/%d" % (self.remote, self.qos, self.version, self.topics, number)


SCENARIOS: Final = [
    Scenario(remote, qos, version, topics)
    for remote in (True, False)
    # A message that follows one of its kind takes a way of its own.
    for qos, topics in ((0, 1), (0, 2), (1, 1))
    for version in (4, 5)
]


def called_name(caller: FrameType) -> str:
    """The name by which the caller calls now, "" where no call is written (a property, an operator)."""
    positions = next(islice(caller.f_code.co_positions(), caller.f_lasti // 2, None), None)
    if positions is None or None in positions:
        return ""
    line, end_line, column, end_column = (number or 0 for number in positions)
    lines = [linecache.getline(caller.f_code.co_filename, at).encode() for at in range(line, end_line + 1)]
    lines[-1] = lines[-1][:end_column]
    lines[0] = lines[0][column:]
    try:
        node = ast.parse(b"(" + b"".join(lines) + b")", mode="eval").body
    except SyntaxError:
        return ""
    if not isinstance(node, ast.Call):
        return ""
    return getattr(node.func, "attr", "") or getattr(node.func, "id", "")


@dataclass
class Recorder:
    """`found` is function -> whether Python calls it, in the order of the first call."""

    modules: frozenset[str]
    found: dict[Function, bool] = field(default_factory=dict)
    now: set[Function] = field(default_factory=set)

    def profile(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event != "call" or not self._is_hot(frame) or not self._came_by_a_door(frame):
            return
        function = frame.f_code.co_qualname
        if "<" in function:  # part of the function around it
            return
        key = (frame.f_globals["__name__"], function)
        self.now.add(key)
        caller = frame.f_back
        by_python = caller is None or not self._is_hot(caller)
        if not by_python and not self.found.get(key) and caller is not None:
            # Also where compiled code calls what was kept as a value, under another name.
            name = called_name(caller)
            by_python = name not in ("", frame.f_code.co_name, function.split(".")[0])
        self.found[key] = self.found.get(key, False) or by_python

    def _is_hot(self, frame: FrameType) -> bool:
        return frame.f_globals.get("__name__") in self.modules

    def _came_by_a_door(self, frame: FrameType) -> bool:
        door = frame
        back: FrameType | None = frame
        while back is not None:
            if self._is_hot(back):
                door = back
            back = back.f_back
        return door.f_code.co_qualname in DOORS

    @contextmanager
    def recording(self, on: bool) -> Iterator[None]:
        before = sys.getprofile()
        if on:
            sys.setprofile(self.profile)
        try:
            yield
        finally:
            sys.setprofile(before)


class Client:
    """An MQTT client on the product's own codec, of which nothing is recorded: it does not come by a door."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, version: int) -> None:
        self._reader = reader
        self._writer = writer
        self._version = version
        self._packets = PacketReader(version)

    @classmethod
    async def connect(cls, port: int, client_id: str, version: int) -> Client:
        client = cls(*await asyncio.open_connection("127.0.0.1", port), version)
        client.send(Connect(client_id, version, clean_start=True, keep_alive=0))
        assert isinstance(await client.packet(), ConnAck)
        return client

    def send(self, packet: Packet) -> None:
        self._writer.write(encode_packet(packet, self._version))

    async def packet(self) -> Packet:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while True:
                data = await self._reader.read(65_536)
                assert data, "closed by the node"
                for packet in self._packets.receive_data(data):
                    return packet

    def close(self) -> None:
        self._writer.transport.abort()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.002)


async def start_node(name: str, *seeds: str) -> tuple[Server, FederationPlugin]:
    anywhere = "127.0.0.1:0"
    configuration = {
        "listeners": [{"address": anywhere}],
        "log": {"level": "error"},
        "plugin_order": ["federation"],
        "plugins": {
            "federation": {"node_name": name, "fed_addr": anywhere, "gossip_addr": anywhere, "retry_join": seeds},
        },
    }
    loaded = load_bytes(json.dumps(configuration).encode(), name)
    assert loaded.settings is not None, loaded.faults
    setup_logging(loaded.settings.log)
    server = Server(loaded.settings)
    await server.start()
    (plugin,) = server.plugins
    assert isinstance(plugin, FederationPlugin)
    return server, plugin


def port_of(server: Server) -> int:
    return int(server.listeners.addresses[0].rpartition(":")[2])


async def send_one(topic: bytes, qos: int, publisher: Client, subscriber: Client, sender: PeerSender) -> None:
    """One message, until nobody has anything left to say about it."""
    publisher.send(Publish(topic, b"x" * 16, qos, False, packet_id=qos))
    message = await subscriber.packet()
    assert isinstance(message, Publish), message
    if qos:
        subscriber.send(PubAck(message.packet_id))
        assert isinstance(await publisher.packet(), PubAck)
    await until(lambda: sender.outbox.size == 0 and sender.outbox.on_way_size == 0)
    await asyncio.sleep(SETTLE_SECONDS)


def knows_interest(plugin: FederationPlugin, interest: Interest) -> bool:
    return any(interest in plugin.node.tree.interest_of(name) for name in plugin.node.senders)


async def run(recorder: Recorder, rounds: int) -> list[Counter[Function]]:
    """How many messages of each scenario ran through a function."""
    (first, plugin), sender_name = await start_node("first"), "second"
    (member,) = [member for member in plugin.membership.members() if member.name == plugin.node.name]
    second, _ = await start_node(sender_name, f"{member.ip}:{member.port}")
    counts: list[Counter[Function]] = []
    clients: list[Client] = []
    try:
        await until(lambda: sender_name in plugin.node.senders)
        sender = plugin.node.senders[sender_name]
        await until(lambda: sender.state is State.STREAMING)
        for scenario in SCENARIOS:
            publisher = await Client.connect(port_of(first), "publisher", scenario.version)
            subscriber = await Client.connect(
                port_of(second if scenario.remote else first), "subscriber", scenario.version
            )
            topics = [scenario.topic(number) for number in range(scenario.topics)]
            subscriber.send(Subscribe(1, [SubscribeFilter(topic, scenario.qos) for topic in topics]))
            assert isinstance(await subscriber.packet(), SubAck)
            if scenario.remote:
                await until(partial(knows_interest, plugin, (b"", topics[-1])))
            count: Counter[Function] = Counter()
            for number in range(WARM_UP + rounds):
                for server in (first, second):
                    server.turns.stop()  # the timers of connecting are long over in a node whose clients are quiet
                recorder.now.clear()
                with recorder.recording(number >= WARM_UP):
                    await send_one(topics[number % len(topics)], scenario.qos, publisher, subscriber, sender)
                count.update(recorder.now)
            counts.append(count)
            clients += [publisher, subscriber]  # what their end would cause is not to come between
    finally:
        for client in clients:
            client.close()
        await second.stop()  # one after the other: each is heard by the other, or has nobody to tell
        await first.stop()
    return counts


def hot_path(rounds: int, share: float) -> list[str]:
    """Lines of HOT_PATH for the functions that this share of the messages of a scenario runs through."""
    modules = frozenset(path.removesuffix(".py").replace("/", ".") for path in setup.hot_modules())
    recorder = Recorder(modules)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        counts = runner.run(run(recorder, rounds))
    return [
        f"{module} {function}{' from Python' * by_python}"
        for (module, function), by_python in recorder.found.items()
        if any(count[module, function] >= rounds * share for count in counts)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description="The functions that a message runs through, in order.")
    parser.add_argument("--write", action="store_true", help=f"write them to {setup.HOT_PATH}")
    parser.add_argument("--steady", action="store_true", help="only what every message of a kind runs through")
    options = parser.parse_args()
    os.chdir(ROOT)
    if not str(broker.router.__file__).endswith(".py"):
        print("hot_path: this is the compiled form, whose calls cannot be seen: use .venv/bin/python", file=sys.stderr)
        return 2
    lines = hot_path(STEADY_ROUNDS, 1.0) if options.steady else hot_path(ROUNDS, 0.2)
    if options.write:
        path = Path(setup.HOT_PATH)
        runtime = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("C ")]
        path.write_text("\n".join([HEAD, *runtime, "", *lines, ""]), encoding="utf-8")
    else:
        print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
