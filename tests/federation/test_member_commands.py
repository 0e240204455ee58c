"""`gmqttctl members` against a real API."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
from click.testing import CliRunner, Result

from api_calls import api_settings
from broker.api.server import ApiServer
from broker.server.logging import get_logger
from federation.api.membership import MembershipService
from federation.gossip.counters import Counters
from federation.gossip.messages import SUSPECT
from federation.pb import federation_pb2
from federation.serf.coordinates import Coordinates
from gmqttctl.cli import main
from gmqttctl.errors import EXIT_FAILED
from membership_control import Control
from wording import check_named


async def run(control: Control, *arguments: str, servers: int = 1) -> Result:
    """The node started 26 and a half hours ago."""
    api = ApiServer(api_settings(["tcp://127.0.0.1:0"], ["tcp://127.0.0.1:0"]), {}, get_logger("api"), None)
    begin = time.time() - 26.5 * 3600
    service = MembershipService(control, lambda at: begin + at)
    api.register(federation_pb2.DESCRIPTOR.services_by_name["Membership"], service)
    await api.start()
    try:
        environment = {"GMQTTCTL_SERVERS": ",".join([api.grpc_addresses[0]] * servers)}
        return await asyncio.to_thread(CliRunner().invoke, main, arguments, env=environment, catch_exceptions=False)
    finally:
        await api.stop()


async def test_members_are_listed() -> None:
    control = Control()
    other = Coordinates("node2", control.core._rng, Counters())
    control.core.coordinates.ping_completed("node2", 0.0123, other.ack_payload())
    estimate = control.core.coordinates.round_trip("node2") or 0.0
    control.accuse(SUSPECT, 0.0)
    lines = (await run(control, "members")).output.splitlines()
    assert lines[0].split() == ["node", "address", "status", "since", "round", "trip", "zone", "tags"]
    assert [line.split() for line in lines[1:]] == [
        ["node1", "192.168.0.105:8902", "alive", "1d", "2h", "-", "-", "fed_addr=192.168.0.105:8901"],
        ["node2", "[::1]:8912", "suspected", "1d", "2h", f"{estimate * 1000:.1f}", "ms", "west", "zone=west"],
    ]
    found = json.loads((await run(control, "members", "list", "-o", "json")).output)
    assert [member["name"] for member in found["members"]] == ["node1", "node2"]


async def test_tags_are_changed_and_shown() -> None:
    control = Control()
    result = await run(control, "members", "tags", "rack=b7", "color=a=b")
    assert result.output.splitlines() == ["color=a=b", "fed_addr=192.168.0.105:8901", "rack=b7"]
    result = await run(control, "set_tags", "--delete", "rack", "--delete", "color")
    assert result.output.splitlines() == ["fed_addr=192.168.0.105:8901"]


@pytest.mark.parametrize(
    ("arguments", "servers", "status", "words"),
    [
        (["rack"], 1, 2, "NAME=VALUE"),
        (["=b7"], 1, 2, "NAME=VALUE"),
        (["store=x"], 1, 1, "node's own"),
        (["rack=b7"], 2, 1, "--server names 2 nodes"),
    ],
)
async def test_tags_that_cannot_be_set(arguments: list[str], servers: int, status: int, words: str) -> None:
    result = await run(Control(), "members", "tags", *arguments, servers=servers)
    assert (result.exit_code, words in result.output) == (status, True), result.output


async def test_a_node_whose_federation_is_not_running_has_answered() -> None:
    control = Control()
    control.running = False
    result = await run(control, "list_members")
    assert result.exit_code == EXIT_FAILED
    check_named(result.output, ["node 127.0.0.1:", "not running"])
    assert "no answer" not in result.output


async def test_of_several_nodes_none_leaves() -> None:
    """The first that answers would."""
    result = await run(Control(), "members", "leave", "--yes", servers=2)
    assert (result.exit_code, "--server names 2 nodes" in result.output) == (1, True), result.output
