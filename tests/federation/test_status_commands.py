"""What `gmqttctl status --wait` and `gmqttctl upgrade` wait for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from click.testing import CliRunner
from google.protobuf.message import Message

from broker.api.pb.admin_pb2 import Node
from federation import status_commands, upgrade_command
from federation.member_commands import node_state
from federation.pb.federation_pb2 import STATUS_ALIVE, ListMembersResponse, Member
from federation.status_commands import until_well
from federation.upgrade_command import Upgrade, UpgradePlan
from gmqttctl.cli import main
from gmqttctl.connection import Connection
from gmqttctl.errors import EXIT_NOT_HEALTHY, NoAnswer, NotNow
from wording import check_each_named, check_named

AWAY = [NotNow("n1", "not now: the federation is not running"), NoAnswer("n1", "no answer: Connection refused")]


@pytest.mark.interpreted
@pytest.mark.parametrize("fault", AWAY)
def test_a_node_that_starts_is_waited_for(monkeypatch: pytest.MonkeyPatch, fault: Exception) -> None:
    monkeypatch.setattr(status_commands, "LOOK_SECONDS", 0.0)
    answers: list[Exception | list[str]] = [fault, ["one copy is not whole"], fault, []]

    def look() -> list[str]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert until_well(look, 60.0) == []
    assert answers == []
    answers = [fault]
    with pytest.raises(type(fault)):
        until_well(look, None)


@pytest.mark.interpreted
@pytest.mark.parametrize("fault", AWAY)
def test_an_upgrade_waits_for_a_node_that_starts(monkeypatch: pytest.MonkeyPatch, fault: NoAnswer | NotNow) -> None:
    """A node that was restarted answers before its federation runs."""

    def ask(calls: Any) -> dict[str, Any]:
        raise fault

    monkeypatch.setattr(upgrade_command, "ask", ask)
    said: list[str] = []
    upgrade = Upgrade(Connection(("127.0.0.1:1",)), lambda name, server: None, UpgradePlan(1000, 60.0), said.append)
    check_each_named(upgrade._wrong("127.0.0.1:1", "n1", 2), [[fault.text]])


class OlderNode(grpc.GenericRpcHandler):
    """One of version 0.0.1, from before there were alarms, that sees itself and n2."""

    def __init__(self) -> None:
        self.node = Node(node_name="n1", version="0.0.1")

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        members = [Member(name=name, status=STATUS_ALIVE) for name in ("n1", "n2")]
        answers: dict[str, Message] = {"Get": self.node, "ListMembers": ListMembersResponse(members=members)}
        answer = answers.get(handler_call_details.method.rpartition("/")[2])
        if answer is None:
            return None
        return grpc.unary_unary_rpc_method_handler(lambda _, context: answer.SerializeToString())


@pytest.fixture
def older() -> Iterator[tuple[OlderNode, str]]:
    """The node, and the address of its API."""
    server = grpc.server(ThreadPoolExecutor(2))
    node = OlderNode()
    server.add_generic_rpc_handlers((node,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield node, f"127.0.0.1:{port}"
    server.stop(None).wait()


def test_a_node_without_alarms_is_well_when_it_is_ready(older: tuple[OlderNode, str]) -> None:
    node, address = older
    shown = CliRunner().invoke(main, ["status", "--server", address])
    assert shown.exit_code == 0
    check_named(shown.output, ["n1", "0.0.1 is older", "alarms"])
    node.node.not_ready.append("it drains")
    shown = CliRunner().invoke(main, ["status", "--server", address])
    assert shown.exit_code == EXIT_NOT_HEALTHY
    check_named(shown.output, ["0.0.1 is older", "it drains"])


def test_a_node_without_alarms_is_upgraded_when_it_is_ready(older: tuple[OlderNode, str]) -> None:
    node, address = older
    said: list[str] = []
    upgrade = Upgrade(Connection((address,)), lambda name, server: None, UpgradePlan(1000, 60.0), said.append)
    assert upgrade._wrong(address, "n1", 2) == []
    node.node.not_ready.append("it drains")
    check_each_named(upgrade._wrong(address, "n1", 2), [["it drains"]])
    check_each_named(said, [["n1", "0.0.1", "alarms"]])  # once


@pytest.mark.parametrize(
    ("members", "state"),
    [
        ([("STATUS_ALIVE", False, {})], "alive"),
        ([("STATUS_ALIVE", False, {"draining": "1"})], "draining"),
        ([("STATUS_ALIVE", True, {"draining": "1"})], "suspected"),
        ([("STATUS_FAILED", False, {"draining": "1"})], "failed"),
        ([("STATUS_ALIVE", False, {"draining": "1"})] * 2, "draining"),
        ([("STATUS_ALIVE", False, {}), ("STATUS_LEFT", False, {})], "1 of 2 workers alive"),
    ],
)
def test_the_state_of_a_node_is_that_of_its_members(
    members: list[tuple[str, bool, dict[str, str]]], state: str
) -> None:
    made: list[Mapping[str, Any]] = [
        {"status": status, "suspected": suspected, "tags": tags} for status, suspected, tags in members
    ]
    assert node_state(made) == state
