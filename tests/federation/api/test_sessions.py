"""Drains and places of sessions over REST, and the commands of gmqttctl, against simulated nodes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import aiohttp
import pytest
from click.testing import CliRunner, Result

from api_calls import api_settings
from broker.api.server import ApiServer
from broker.server.logging import get_logger
from federation.api.sessions import SessionsService, session_place
from federation.errors import NotRunning
from federation.membership import FederationMembership
from federation.replication.copies import REPLACE_SECONDS
from federation.sessions.drain import DRAINED, DRAINING, RATE_MAX, SERVING
from federation.sessions.pb.sessions_pb2 import DESCRIPTOR, Session
from federation.shell.drain import DrainControl
from gmqttctl.cli import main
from simulator.client import Client
from simulator.federation import Federation
from simulator.node_process import NodeProcess
from simulator.node_store import Disk

CALL: Final = "/v1/federation/"


class Membership(FederationMembership):
    """That of a simulated node."""

    def __init__(self, process: NodeProcess) -> None:
        self.told: list[dict[str, str]] = []
        self.is_running = True
        self._process = process

    def members(self) -> list[Any]:
        if not self.is_running:
            raise NotRunning
        return []

    def set_state_tags(self, state: dict[str, str]) -> None:
        self.members()
        self.told.append(state)


class Drained:
    """Two nodes; the API is that of the first."""

    def __init__(self, **options: Any) -> None:
        self.federation = Federation(2, 2, each=[{"disk": Disk()}, {"disk": Disk()}], **options)
        self.process = self.federation.node(self.federation.hosts[0])
        self.membership = Membership(self.process)
        node, log = self.process.node, get_logger("federation")
        self.control = DrainControl(node, self.membership, lambda: self.federation.world.now, lambda: None, log)
        self.api = ApiServer(api_settings(["tcp://127.0.0.1:0"], ["tcp://127.0.0.1:0"]), {}, get_logger("api"))
        service = SessionsService(node, self.control, lambda at: 1_800_000_000 + at, lambda: self.federation.world.now)
        self.api.register(DESCRIPTOR.services_by_name["Sessions"], service)

    async def call(self, verb: str, path: str, body: str | None = None) -> tuple[int, dict[str, Any]]:
        url = f"http://{self.api.http_addresses[0]}"
        async with (
            aiohttp.ClientSession() as session,
            session.request(verb, f"{url}{CALL}{path}", data=body) as response,
        ):
            return response.status, await response.json()

    async def command(self, *arguments: str) -> Result:
        environment = {"GMQTTCTL_SERVERS": self.api.grpc_addresses[0]}
        return await asyncio.to_thread(CliRunner().invoke, main, arguments, env=environment, catch_exceptions=False)

    def connect(self, client_id: str, number: int = 0) -> Client:
        host = self.federation.hosts[number]
        node = self.federation.node(host)
        client = Client(node.broker, client_id, self.federation.world.now, expiry=3600)
        node.clients.append(client)
        host.settle()
        self.federation.run(1.0)
        return client

    def place(self, client_id: str, number: int) -> Session:
        return session_place(self.federation.node(self.federation.hosts[number]).node, client_id)


Start = Callable[..., Awaitable[Drained]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    started: list[Drained] = []

    async def begin(**options: Any) -> Drained:
        drained = Drained(**options)
        started.append(drained)
        await drained.api.start()
        return drained

    yield begin
    for drained in started:
        await drained.api.stop()


async def test_a_drain_begins_goes_on_and_ends(start: Start) -> None:
    drained = await start()
    drained.connect("c")
    code, status = await drained.call("POST", "drain", "{}")
    assert (code, status["state"], status["rate"]) == (200, "draining", 500)
    assert (status["clients_left"], status["sessions_left"]) == ("2", "2")  # the node's own client is one
    code, status = await drained.call("POST", "drain", '{"rate": 7}')
    assert (code, status["rate"]) == (200, 7)
    assert drained.membership.told == [{"draining": "1"}]
    drain = drained.control.drain
    drained.federation.world.run_until(lambda: drain.state == DRAINED, 60.0, "it is drained")
    drained.control.look()
    code, status = await drained.call("GET", "drain")
    assert (code, status["state"], status["clients_closed"], status["sessions_given"]) == (200, "drained", "2", "1")
    code, status = await drained.call("POST", "undrain", "{}")
    assert (code, status["state"], drained.membership.told[1:]) == (200, "serving", [{}])
    assert (await drained.call("POST", "undrain", "{}"))[1]["state"] == "serving"
    assert len(drained.membership.told) == 2


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        (f'{{"rate": {RATE_MAX + 1}}}', 400, f"rate is {RATE_MAX + 1}, may be 1 to {RATE_MAX}"),
        ('{"rate": -1}', 400, "rate"),
        ('{"rate": "fast"}', 400, "rate"),
        ('{"node": "n2"}', 400, "node"),
    ],
)
async def test_wrong_input_is_named_and_drains_nothing(start: Start, body: str, status: int, text: str) -> None:
    drained = await start()
    code, answer = await drained.call("POST", "drain", body)
    assert code == status
    assert text in answer["message"]
    assert drained.process.broker.elsewhere is None


async def test_a_node_that_keeps_its_sessions_or_does_not_run_is_not_drained(start: Start) -> None:
    apart = await start(session_scope="node")
    code, answer = await apart.call("POST", "drain", "{}")
    assert (code, answer["code"]) == (400, 9)
    assert "session_scope is node" in answer["message"]
    stopping = await start()
    stopping.membership.is_running = False
    assert (await stopping.call("POST", "drain", "{}"))[0] == 503
    assert stopping.process.broker.elsewhere is None


async def test_the_place_of_a_session_on_each_node(start: Start) -> None:
    drained = await start()
    drained.connect("c")
    drained.federation.run(2.0)
    here = drained.place("c", 0)
    assert (here.state, here.home, here.short, len(here.store_id)) == ("here", "n1", False, 32)
    assert [(keeper.node_name, keeper.whole) for keeper in here.keepers] == [("n2", True)]
    copy = drained.place("c", 1)
    assert (copy.state, copy.home, copy.store_id) == ("elsewhere", "n1", here.store_id)
    drained.connect("c", 1)
    moved = drained.place("c", 1)
    assert (moved.state, moved.home) == ("here", "n2")
    left = drained.place("c", 0)
    assert (left.state, left.home, left.counter, left.store_id) == ("elsewhere", "n2", moved.counter, moved.store_id)
    assert moved.counter > here.counter
    assert drained.place("nobody", 0).state == "unknown"
    drained.federation.hosts[0].crash()
    drained.federation.until_failed("n1")
    drained.federation.run(REPLACE_SECONDS + 1.0)
    assert drained.place("c", 1).short


async def test_a_session_that_cannot_arrive_is_leaving(start: Start) -> None:
    drained = await start()
    client = drained.connect("c")
    client.subscribe("t", drained.federation.world.now)
    drained.federation.run(1.0)
    client.disconnect(drained.federation.world.now)
    drained.federation.run(6.0)
    drained.federation.hosts[1].stand_still(1000.0)
    drained.control.begin(500)
    drained.federation.run(1.5)
    place = drained.place("c", 0)
    assert (place.state, place.home, "n2" in place.waits_for) == ("leaving", "n2", True)


async def test_the_commands(start: Start) -> None:
    drained = await start()
    drained.connect("c \x1b[31m")
    found = await drained.command("sessions", "show", "c \x1b[31m")
    shown = dict(line.split("  ", 1) for line in found.output.splitlines())
    assert (shown["client"].strip(), shown["state"].strip()) == (r"c \x1b[31m", "here")
    assert (shown["home"].strip(), shown["copies"].strip()) == ("n1", "n2")
    assert '"state": "here"' in (await drained.command("session", "--json", "c \x1b[31m")).output
    assert "unknown" in (await drained.command("session", "nobody")).output
    assert "serving for" in (await drained.command("drain", "--status")).output
    assert ", 2 clients and 2 sessions are left" in (await drained.command("drain", "--yes", "--rate", "5")).output
    drain = drained.control.drain
    drained.federation.world.run_until(lambda: drain.state == DRAINED, 60.0, "it is drained")
    assert "drained for" in (await drained.command("drain", "--yes", "--wait")).output
    undrained = (await drained.command("undrain")).output
    assert ("serving for" in undrained, "left" in undrained) == (True, False)
    assert (await drained.command("undrain", "n1")).output.startswith("n1: serving for")
    other = await drained.command("drain", "--yes", "n2")
    assert (other.exit_code, "no address of the node n2: " in other.output, " is n1" in other.output) == (1, True, True)
    wrong = await drained.command("drain", "--yes", "--servers", "127.0.0.1:1,127.0.0.1:2")
    assert (wrong.exit_code, "--server names 2 nodes" in wrong.output) == (1, True)
    assert (await drained.command("drain", "--rate", "0")).exit_code == 2


async def test_a_session_is_moved_to_a_node_that_is_named(start: Start) -> None:
    drained = await start()
    connected, away = drained.connect("c"), drained.connect("away \x1b[31m")
    away.disconnect(drained.federation.world.now)
    drained.federation.run(1.0)
    for client_id in ("c", "away \x1b[31m"):
        found = await drained.command("clients", "move", client_id, "--to", "n2", "--yes")
        assert (found.exit_code, "goes to n2" in found.output) == (0, True), found.output
        assert "\x1b" not in found.output
        drained.federation.run(6.0)
        place = drained.place(client_id, 0)
        assert (place.state, place.home) == ("elsewhere", "n2"), place
        assert drained.place(client_id, 1).state == "here"
    assert connected._connection.closed
    assert drained.control.drain.state == "serving"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nobody"], "no session here"),
        (["c", "--to", "n9"], 'node "n9" is no other member; there are n2'),
        (["c", "--to", "n1"], "no other member"),
    ],
)
async def test_a_session_that_cannot_be_moved(start: Start, arguments: list[str], words: str) -> None:
    drained = await start()
    drained.connect("c")
    found = await drained.command("sessions", "move", *arguments, "--yes")
    assert (found.exit_code, words in found.output) == (1, True), found.output
    assert drained.place("c", 0).state == "here"


@pytest.mark.parametrize(("call", "body"), [("drain", "{}"), ("sessions/c/move", "{}")])
async def test_nothing_is_given_to_another_worker_of_the_node(start: Start, call: str, body: str) -> None:
    drained = await start()
    drained.connect("c")
    drain = drained.control.drain
    (other,) = drained.process.node.senders
    drain.siblings = frozenset([other])
    code, answer = await drained.call("POST", call, body)
    assert (code, answer["code"]) == (400, 9)
    assert drained.process.broker.elsewhere is None
    drain.siblings = frozenset()
    assert (await drained.call("POST", call, body))[0] == 200


async def test_a_worker_follows_the_drain_of_its_node(start: Start) -> None:
    drained = await start()
    rates: list[int] = []
    drained.control.note_rate = rates.append
    await drained.call("POST", "drain", '{"rate": 7}')
    await drained.call("POST", "undrain", "{}")
    assert rates == [7, 0]
    drained.membership.is_running = False
    drained.control.wanted_rate = lambda: 7  # as the next process finds it
    drained.control.look()
    assert drained.control.drain.state == SERVING  # the other nodes are not known yet
    drained.membership.is_running = True
    drained.control.look()
    assert (drained.control.drain.state, drained.control.drain.rate) == (DRAINING, 7)
    drained.control.wanted_rate = lambda: 0  # as worker 0 notes it when it is not drained any more
    drained.control.look()
    assert drained.control.drain.state == SERVING
