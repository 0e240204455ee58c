"""The federation plugin inside this process: names that are lost, seeds that are not there, leaves by the API."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest

from broker.codec.writer import encode_publish
from broker.server.turns import TurnEnd
from federation.node import own_tags
from federation.plugin import TICK_SECONDS, FederationPlugin
from federation.serf.events import Member, MemberFailed, MemberJoin, MemberLeave, MemberStatus, NameConflict
from federation.serf.retry_join import RetryJoin
from federation.serf.serf import SerfPhase
from federation.stream.state import State
from mqtt_client import MqttClient
from waiting import DEADLINE, POLL_SECONDS

if TYPE_CHECKING:
    from broker.server.lifecycle import Server

    StartServer = Callable[[dict[str, Any]], Awaitable[Server]]

pytestmark = pytest.mark.uncompiled


class FederatedServer:
    def __init__(self, server: Server) -> None:
        self.server = server
        (plugin,) = server.plugins
        assert isinstance(plugin, FederationPlugin)
        self.plugin = plugin
        shell = plugin._gossip
        assert shell is not None
        self.shell = shell
        server.turns.ends.append(_Turned())

    @property
    def gossip_addr(self) -> str:
        member = self.shell.serf.local_member
        return f"{member.ip}:{member.port}"

    def status(self, name: str) -> MemberStatus:
        member = self.shell.serf.member(name)
        return MemberStatus.NONE if member is None else member.status


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
    """Looks after each turn of any node, and now and then: not all that gossip does makes a turn."""
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


async def test_a_node_that_lost_its_name_goes_without_a_leave(start_server: StartServer) -> None:
    """A leave is told by name, so the others would take it for that of the node that the name belongs to."""
    first = await start(start_server, "a")
    loser = await start(start_server, "b", first.gossip_addr)
    await until(lambda: first.status("b") == MemberStatus.ALIVE)
    loser.plugin._members_changed([NameConflict("b", "127.0.0.1", 1, True, True)])
    assert "belongs to another node of the federation, at 127.0.0.1:1" in loser.server.stop_reason
    heard: list[str] = []
    first.shell._on_events = lambda events: heard.extend(
        type(event).__name__ for event in events if isinstance(event, (MemberLeave, MemberFailed))
    )
    await loser.plugin.leave()
    assert loser.shell.stopped
    assert loser.shell.serf.phase == SerfPhase.ALIVE
    assert not loser.plugin.node.senders
    await until(lambda: bool(heard))
    assert heard == ["MemberFailed"]


async def test_a_join_by_the_api_of_a_node_with_a_taken_name_is_refused_and_it_goes_on(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await start(start_server, "a")
    double = await start(start_server, "a")
    known: asyncio.Future[NameConflict] = asyncio.get_running_loop().create_future()
    told = double.plugin._name_conflict

    def conflict(news: NameConflict) -> None:
        told(news)
        known.set_result(news)

    monkeypatch.setattr(double.plugin, "_name_conflict", conflict)
    status = await asyncio.gather(double.plugin.join([first.gossip_addr]), return_exceptions=True)
    assert "the node name 'a' is taken by" in str(status[0])
    # It has asked whether the other one lives.
    assert (await asyncio.wait_for(known, DEADLINE)).lost
    assert double.server.stop_reason == ""
    assert first.server.stop_reason == ""
    assert [member.name for member in double.plugin.members()] == ["a"]


async def test_exit_of_a_node_that_reaches_no_seed(start_server: StartServer) -> None:
    node = await start(start_server, "a", nobody(), retry_timeout="300ms", retry_timeout_action="exit")
    await until(lambda: bool(node.server.stop_reason))
    assert "did not answer within 0.3 s" in node.server.stop_reason
    assert "retry_timeout_action is exit" in node.server.stop_reason


async def test_no_exit_where_one_seed_of_several_answers(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One is enough to know all others: a seed that is down must not stop the nodes that start meanwhile."""
    deadline = asyncio.Event()
    at_deadline = FederationPlugin._retry_over

    def retry_over(plugin: FederationPlugin, retry_join: RetryJoin) -> None:
        at_deadline(plugin, retry_join)
        deadline.set()

    monkeypatch.setattr(FederationPlugin, "_retry_over", retry_over)
    first = await start(start_server, "a")
    settings = {"retry_timeout": "300ms", "retry_timeout_action": "exit"}
    second = await start(start_server, "b", nobody(), first.gossip_addr, **settings)
    await until(lambda: second.status("a") == MemberStatus.ALIVE)
    await asyncio.wait_for(deadline.wait(), DEADLINE)
    assert second.server.stop_reason == ""
    assert second.plugin._retry_join is not None
    assert len(second.plugin._retry_join.pending) == 1


async def test_a_node_that_left_by_the_api_stays_away_until_it_is_told_to_join(
    start_server: StartServer,
) -> None:
    first = await start(start_server, "a")
    second = await start(start_server, "b", first.gossip_addr, nobody())  # one seed is tried on and on
    await until(lambda: second.status("a") == first.status("b") == MemberStatus.ALIVE)
    assert await second.plugin.leave_federation()
    assert second.plugin.node.has_left
    await until(lambda: first.status("b") == MemberStatus.LEFT)
    retry_join = second.plugin._retry_join
    assert retry_join is not None
    await until(lambda: not retry_join._attempt_running)
    assert retry_join.pending, "one seed was never reached"
    assert retry_join.next_timeout() is None, "and is not tried any more"
    assert second.shell.serf.phase == SerfPhase.LEFT
    assert first.status("b") == MemberStatus.LEFT
    await second.plugin.join([first.gossip_addr])
    await until(lambda: second.status("b") == first.status("b") == MemberStatus.ALIVE)
    await until(lambda: list(first.plugin.node.senders) == ["b"] and list(second.plugin.node.senders) == ["a"])


async def test_what_a_deadline_delivers_waits_for_nothing_else(start_server: StartServer) -> None:
    """The rest of a block whose stream ended while receivers were full."""
    node = await start(start_server, "a")
    client = await MqttClient.connect(int(node.server.listeners.addresses[0].rpartition(":")[2]))
    await client.subscribe("t")
    member = Member("gone", "127.0.0.1", 1, own_tags(nobody(), True), MemberStatus.ALIVE)
    node.plugin._members_changed([MemberJoin(member)])
    sender = node.plugin.node.senders["gone"]
    sender.backoff_seconds_min = sender.backoff_seconds_max = 1000.0  # a new try would be a turn
    await until(lambda: sender.state is State.BACKOFF)
    receiver = node.plugin.node.receivers["gone"]
    receiver._block = (encode_publish(4, b"t", b"rest", 0, False, False, 0, b""), 4)
    assert (await client.message(3 * TICK_SECONDS)).payload == b"rest"
    await client.close()


async def test_a_seed_that_was_stopped_and_started_is_found_by_those_that_name_it(start_server: StartServer) -> None:
    """It names nobody itself, and the others list it as left: nobody reconnects to one that left."""
    address = nobody()
    first = await start(start_server, "a", gossip_addr=address)
    second = await start(start_server, "b", address)
    third = await start(start_server, "c", address)
    await until(lambda: second.status("c") == third.status("b") == first.status("c") == MemberStatus.ALIVE)
    await first.server.stop()
    await until(lambda: second.status("a") == third.status("a") == MemberStatus.LEFT)
    again = await start(start_server, "a", gossip_addr=address)
    await until(lambda: again.status("b") == again.status("c") == MemberStatus.ALIVE)
    await until(lambda: second.status("a") == third.status("a") == MemberStatus.ALIVE)
