"""The federation plugin in this process: a lost node name, seeds, a leave, the log of members."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from structlog.testing import capture_logs

from broker.codec.writer import encode_publish
from broker.message import Message
from broker.plugins import Plugin
from broker.server import lifecycle
from broker.server.turns import TurnEnd
from federation.errors import JoinFailed, NotRunning
from federation.gossip.keyring import key_text
from federation.plugin import TICK_SECONDS, FederationPlugin
from federation.serf.events import Member, MemberJoin, MemberStatus, NameConflict
from federation.stream.frames import encode_block_header
from federation.stream.receiver import OpenStream
from federation.stream.state import State
from federation.tags import own_tags
from mqtt_client import MqttClient
from waiting import DEADLINE, POLL_SECONDS

if TYPE_CHECKING:
    from broker.server.lifecycle import Server

    StartServer = Callable[[dict[str, Any]], Awaitable[Server]]

MESSAGES: Final = 2_000  # more than a session queues


class FederatedServer:
    def __init__(self, server: Server) -> None:
        self.server = server
        (plugin,) = server.plugins
        assert isinstance(plugin, FederationPlugin)
        self.plugin = plugin
        server.turns.ends.append(_Turned())

    @property
    def gossip_addr(self) -> str:
        (own,) = [member for member in self.plugin.membership.members() if member.name == self.plugin.node.name]
        return f"{own.ip}:{own.port}"

    def status(self, name: str) -> MemberStatus:
        for member in self.plugin.membership.members():
            if member.name == name:
                return member.status
        return MemberStatus.NONE


async def start(start_server: StartServer, name: str, *seeds: str, **settings: object) -> FederatedServer:
    section = {
        "node_name": name,
        "fed_addr": "127.0.0.1:0",
        "gossip_addr": "127.0.0.1:0",
        "retry_join": list(seeds),
        "retry_interval": "100ms",
        **settings,
    }
    return FederatedServer(await start_server({"plugins": {"federation": section}, "plugin_order": ["federation"]}))


_waiting: list[asyncio.Event] = []


class _Turned(TurnEnd):
    def turn_ended(self, now: float) -> None:
        for event in _waiting:
            event.set()


async def until(condition: Callable[[], bool]) -> None:
    """Looks after each turn of any node, and at intervals: some changes of gossip cause no turn."""
    turned = asyncio.Event()
    _waiting.append(turned)
    try:
        async with asyncio.timeout(DEADLINE):
            while not condition():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(turned.wait(), POLL_SECONDS)
                turned.clear()
    finally:
        _waiting.remove(turned)


def nobody() -> str:
    """An address where nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


async def test_a_node_that_lost_its_name_stops_without_a_leave(start_server: StartServer) -> None:
    """A leave carries the name, so the others would take it for a leave of the node that keeps the name."""
    first = await start(start_server, "a")
    loser = await start(start_server, "b", first.gossip_addr)
    await until(lambda: first.status("b") == MemberStatus.ALIVE)
    loser.plugin.membership.receive_events([NameConflict("b", "127.0.0.1", 1, True, True)])
    assert "belongs to another node of the federation, at 127.0.0.1:1" in loser.server.stop_reason
    await loser.plugin.leave()
    with pytest.raises(NotRunning):
        loser.plugin.membership.members()
    assert not loser.plugin.node.senders
    await until(lambda: first.status("b") != MemberStatus.ALIVE)
    assert first.status("b") == MemberStatus.FAILED


class Announcing(Plugin):
    def tags(self) -> dict[str, str]:
        return {"log_addr": "192.0.2.1:1884", "fed_addr": "not ours to set"}


async def test_other_nodes_see_the_tags_that_plugins_announce(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await start(start_server, "a")
    monkeypatch.setattr(lifecycle, "load_plugin", lambda name: [FederationPlugin, Announcing][name == "admin"])
    section = {
        "node_name": "b",
        "fed_addr": "127.0.0.1:0",
        "gossip_addr": "127.0.0.1:0",
        "retry_join": [first.gossip_addr],
    }
    await start_server({"plugins": {"federation": section}, "plugin_order": ["federation", "admin"]})
    await until(lambda: first.status("b") == MemberStatus.ALIVE)
    (other,) = first.server.members.others()
    assert (other.name, other.status, other.tags["log_addr"]) == ("b", "ALIVE", "192.0.2.1:1884")
    assert other.tags["fed_addr"].startswith("127.0.0.1:"), "the federation's own tags are not replaced"


async def test_a_join_by_the_api_of_a_node_with_a_taken_name_is_refused_and_it_goes_on(
    start_server: StartServer,
) -> None:
    first = await start(start_server, "a")
    double = await start(start_server, "a")
    with capture_logs() as lines:
        with pytest.raises(JoinFailed, match="the node name 'a' is taken by"):
            await double.plugin.membership.join([first.gossip_addr])
        # Then it asks whether the other node lives.
        await until(lambda: any(line["event"] == "not joined: the name of this node is taken" for line in lines))
    assert double.server.stop_reason == ""
    assert first.server.stop_reason == ""
    assert [member.name for member in double.plugin.membership.members()] == ["a"]


async def test_nodes_with_the_keys_of_their_gossip_find_each_other_and_nobody_else(
    start_server: StartServer, tmp_path: Path
) -> None:
    keys = [key_text(bytes((number,)) * 32) for number in range(3)]
    file = tmp_path / "keyring.json"
    file.write_text(json.dumps([keys[1], keys[0]]))
    file.chmod(0o600)
    security: dict[str, object] = {"gossip_label": "berlin", "gossip_cidrs_allowed": ["127.0.0.0/8"]}
    first = await start(start_server, "a", encrypt_keys=keys[:2], **security)
    second = await start(start_server, "b", first.gossip_addr, keyring_file=str(file), **security)
    await until(lambda: first.status("b") == MemberStatus.ALIVE and second.status("a") == MemberStatus.ALIVE)
    strangers: dict[str, dict[str, object]] = {
        "plain": security | {"encrypt_keys": []},
        "wrong_key": security | {"encrypt_keys": keys[2:]},
        "wrong_label": {"encrypt_keys": keys},
    }
    for reason, settings in strangers.items():
        stranger = await start(start_server, reason, **settings)
        with pytest.raises(JoinFailed):
            await stranger.plugin.membership.join([first.gossip_addr])
        (dropped,) = [metric for metric in first.plugin.metrics() if metric.name == "gmqtt_gossip_dropped_total"]
        assert dropped.samples[reason,] > 0
    assert sorted(member.name for member in first.plugin.membership.members()) == ["a", "b"]


async def test_no_exit_where_one_seed_of_several_answers(start_server: StartServer) -> None:
    """One seed is enough: a seed that is down must not stop nodes that start meanwhile."""
    first = await start(start_server, "a")
    settings = {"retry_timeout": "300ms", "retry_timeout_action": "exit"}
    with capture_logs() as lines:
        second = await start(start_server, "b", nobody(), first.gossip_addr, **settings)
        # The line of the same deadline: some seed was not reached within retry_timeout.
        await until(lambda: any(line["event"].startswith("retry_join has not reached all hosts") for line in lines))
    (late,) = [line for line in lines if line["event"].startswith("retry_join has not")]
    assert len(late["errors"]) == 1
    assert second.status("a") == MemberStatus.ALIVE
    assert second.server.stop_reason == ""


async def test_a_leave_waits_for_the_acknowledgements_of_its_events(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("federation.plugin.DRAIN_SECONDS_MAX", DEADLINE)  # a busy machine
    first = await start(start_server, "a")
    second = await start(start_server, "b", first.gossip_addr)
    client = await MqttClient.connect(int(first.server.listeners.addresses[0].rpartition(":")[2]))
    await client.subscribe("t", qos=1)
    senders = second.plugin.node.senders
    await until(lambda: "a" in senders and senders["a"].state is State.STREAMING)
    await until(lambda: second.plugin.node.tree.interest_of("a") == [(b"", b"t")])
    broker = second.server.broker
    for number in range(500):
        broker.publish(Message(b"t", b"%d" % number, 1, False), second.server.now())
    counters = second.plugin.node.counters["a"]
    with capture_logs() as lines:
        await second.plugin.membership.leave()
    assert counters.events_acked >= 500
    assert sum(counters.dropped.values()) == 0
    assert [line for line in lines if line["event"].startswith("some events did not")] == []
    for number in range(500):
        assert (await client.message()).payload == b"%d" % number
    await client.close()


async def test_messages_of_a_deadline_are_written_at_once(start_server: StartServer) -> None:
    """The rest of a block whose stream ended while receivers were full."""
    node = await start(start_server, "a")
    client = await MqttClient.connect(int(node.server.listeners.addresses[0].rpartition(":")[2]))
    await client.subscribe("t", qos=1)
    member = Member("gone", "127.0.0.1", 1, own_tags(nobody(), True), MemberStatus.ALIVE)
    node.plugin.membership.receive_events([MemberJoin(member)])
    sender = node.plugin.node.senders["gone"]
    sender.backoff_seconds_min = sender.backoff_seconds_max = 1000.0  # a new try would be a turn
    await until(lambda: sender.state is State.BACKOFF)
    receiver = node.plugin.node.receivers.get("gone")
    receiver.hello("session")
    stream = OpenStream()
    receiver.open_stream(stream, node.server.now())
    packets = b"".join(encode_publish(4, b"t", b"%d" % number, 1, False, False, 1, b"") for number in range(MESSAGES))
    block = encode_block_header(4, MESSAGES, len(packets)) + packets
    assert receiver.receive_batch(stream, 0, MESSAGES, block, node.server.now()) == MESSAGES - 1
    assert receiver.publisher.held, "the queue is full"
    receiver.close_stream(stream)
    node.server.flush_soon()
    for number in range(MESSAGES):
        assert (await client.message(3 * TICK_SECONDS)).payload == b"%d" % number
    await client.close()
