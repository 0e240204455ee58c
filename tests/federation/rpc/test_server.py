"""The RPC of an agent, object by object, and the dialogues that the real program `serf` had with a real agent."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from federation.rpc import server as rpc_server
from federation.rpc.client import CALLS_MAX, QUERIES_MAX
from federation.rpc.requests import COMMANDS, ForceLeave, Join, SetTags
from federation.rpc.server import LOG_LINES_MAX
from federation.serf.config import SerfConfig
from federation.serf.messages import Query, QueryResponse
from federation.serf.serf import Serf
from gossip_node import introduce
from rpc_agent import Agent

VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parents[2] / "data" / "gossip-vectors.json").read_text())
DIALOGUES = {
    vector["name"].rpartition(":")[0]: vector
    for vector in VECTORS
    if vector["transport"] == "rpc" and vector["name"].endswith("requests")
}
ANSWERS = {vector["name"].rpartition(":")[0]: vector for vector in VECTORS if vector["name"].endswith(": responses")}


def shape(value: object) -> object:
    """A value without what differs from cluster to cluster."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items() if key not in ("Tags", "tags", "runtime", "Keys")}
    if isinstance(value, list):
        return [shape(item) for item in value[:1]]
    return type(value).__name__ if not isinstance(value, bytes) else "str"


@pytest.mark.parametrize("name", sorted(DIALOGUES))
def test_dialogues_of_the_real_program(name: str) -> None:
    """The responses to its requests have the fields and types of those of a real agent."""
    auth = "sekret" if "+auth+" in name else ""
    agent = Agent(auth)
    client = agent.client()
    data = bytes.fromhex(DIALOGUES[name]["hex"])
    for at in range(len(data)):
        client.client.receive_data(data[at : at + 1], 0.0)
    for call in agent.rpc.take_calls():
        agent.rpc.finish(call, "")
    agent.settle()
    found = client.take()
    for _ in range(3):  # queries end
        agent.serf.handle_timeout(100.0)
        agent.settle(100.0)
    found += client.take()
    wanted = ANSWERS[name]["decoded"]
    headers = [item for item in wanted if set(item) == {"Error", "Seq"}]
    first: dict[int, str] = {}
    for header in headers:
        first.setdefault(header["Seq"], header["Error"])
    ours: dict[int, str] = {}
    for item in found:
        if set(item) == {"Error", "Seq"}:
            ours.setdefault(item["Seq"], item["Error"])
    if "(script)" not in name:
        assert ours == first
        assert [shape(item) for item in found[:4]] == [shape(item) for item in wanted[:4]]
    else:  # its join fails there, and has no node with the key 99
        assert {seq: bool(error) for seq, error in ours.items() if seq not in (7, 9)} == {
            seq: bool(error) for seq, error in first.items() if seq not in (7, 9)
        }


def test_every_command_has_a_dialogue_or_a_test() -> None:
    named = " ".join(DIALOGUES).replace("(script)", "")
    assert [command for command in COMMANDS if command not in named] == ["stop"]


# --- handshake and authentication


@pytest.mark.parametrize(
    ("requests", "errors", "is_closed"),
    [
        ([("members", None)], ["Handshake required"], True),
        ([("auth", {"AuthKey": "key"})], ["Handshake required"], True),
        ([("handshake", {"Version": 2})], ["Unsupported IPC version"], True),
        ([("handshake", {})], ["Unsupported IPC version"], True),
        ([("bogus", None)], ["Unsupported command"], True),
        ([("handshake", {"Version": 1}), ("members", None)], ["", "Authentication required"], False),
        ([("handshake", {"Version": 1}), ("event", {"Name": "x"})], ["", "Authentication required"], False),
        ([("handshake", {"Version": 1}), ("auth", {"AuthKey": "other"})], ["", "Invalid authentication token"], False),
        ([("handshake", {"Version": 1}), ("handshake", {"Version": 1})], ["", "Handshake already performed"], False),
        ([("handshake", {"Version": 1}), ("auth", {"AuthKey": "key"}), ("leave", None)], ["", ""], False),
    ],
)
def test_the_first_requests(requests: list[tuple[str, object]], errors: list[str], is_closed: bool) -> None:
    client = Agent("key").client()
    found = [item["Error"] for command, body in requests for item in client.call(command, body) if "Error" in item]
    assert (found, client.client.closed) == (errors, is_closed)
    words = ("", "Handshake already performed")
    assert client.agent.rpc.refused == sum(error not in words for error in errors)
    assert client.call("members") == [] or not is_closed


@pytest.mark.parametrize(("command", "body"), [("auth", {"AuthKey": "other"}), ("event", {"Name": "x"})])
def test_a_client_without_the_key_has_three_requests(command: str, body: object) -> None:
    agent = Agent("key")
    client = agent.client().greeted()
    for is_last in (False, False, True):
        assert client.call(command, body)[0]["Error"]
        assert client.client.closed is is_last
    assert client.call("auth", {"AuthKey": "key"}) == []
    second = agent.client().greeted()
    second.call(command, body)
    assert second.call("auth", {"AuthKey": "key"}) == [{"Error": "", "Seq": 3}]
    assert second.client.is_ready


def test_a_key_is_not_needed_without_one() -> None:
    client = Agent().client().greeted()
    assert client.call("auth", {"AuthKey": "any"}) == [{"Error": "", "Seq": 2}]


# --- requests


def names(items: list[Any]) -> list[str]:
    return [member["Name"] for member in items[1]["Members"]]


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ({"Name": "", "Status": "", "Tags": None}, "abc"),
        ({}, "abc"),
        ({"Name": "[ab]"}, "ab"),
        ({"Name": "b|c"}, "bc"),
        ({"Name": "(b|c)"}, "bc"),
        ({"Name": "[[:alpha:]]"}, "abc"),
        ({"Name": r"c\z"}, "c"),
        ({"Name": "(?i)A"}, "a"),
        ({"Status": "alive"}, "abc"),
        ({"Status": "left"}, ""),
        ({"Status": "aliv"}, ""),
        ({"Tags": {"role": "ed.e"}}, "bc"),
        ({"Tags": {"role": ""}}, "a"),
        ({"Name": "c", "Tags": {"role": "edge"}}, "c"),
    ],
)
def test_members_are_filtered(body: object, found: str) -> None:
    assert "".join(names(Agent().client().greeted().call("members-filtered", body))) == found


@pytest.mark.parametrize("expression", ["[", "(?=a)", "x" * 2000, "a{1001}", r"\pL{100}"])
def test_what_is_no_expression_of_go_or_takes_too_much_is_refused(expression: str) -> None:
    client = Agent().client().greeted()
    header, body = client.call("members-filtered", {"Name": expression})
    assert "regular expression" in header["Error"]
    assert body == {"Members": []}
    assert not client.client.closed


def test_a_member_has_the_fields_of_an_agent() -> None:
    _, body = Agent().client().greeted().call("members")
    assert body["Members"][1] == {
        "Addr": bytes((127, 0, 0, 1)),
        "DelegateCur": 4,
        "DelegateMax": 5,
        "DelegateMin": 2,
        "Name": "b",
        "Port": 17947,
        "ProtocolCur": 2,
        "ProtocolMax": 5,
        "ProtocolMin": 1,
        "Status": "alive",
        "Tags": {"role": "edge"},
    }


def test_the_coordinate_of_an_unknown_member_is_zero() -> None:
    header, body = Agent().client().greeted().call("get-coordinate", {"Node": "nobody"})
    assert header["Error"] == ""
    assert body == {"Coord": {"Adjustment": 0.0, "Error": 0.0, "Height": 0.0, "Vec": None}, "Ok": False}


def test_calls_of_the_shell_answer_when_they_end() -> None:
    agent = Agent()
    client = agent.client().greeted()
    assert client.call("join", {"Existing": ["127.0.0.1:1"], "Replay": True}) == []
    assert client.call("force-leave", {"Node": "c", "Prune": True}) == []
    assert client.call("tags", {"Tags": {"x": "y"}, "DeleteTags": ["z"]}) == []
    assert client.call("stats")[0] == {"Error": "", "Seq": 5}  # others need not wait
    join, force_leave, tags = agent.rpc.take_calls()
    assert join.request == Join(("127.0.0.1:1",), True)
    assert force_leave.request == ForceLeave("c", True)
    assert tags.request == SetTags({"x": "y"}, ("z",))
    agent.rpc.finish(tags, "")
    agent.rpc.finish(join, "refused")
    agent.rpc.finish(force_leave, "", None)
    assert client.take() == [
        {"Error": "", "Seq": 4},
        {"Error": "refused", "Seq": 2},
        {"Num": 0},
        {"Error": "", "Seq": 3},
    ]
    assert client.client.calls == 0
    for _ in range(CALLS_MAX):
        assert client.call("leave") == []
    assert str(CALLS_MAX) in client.call("leave")[0]["Error"]


def test_a_query_streams_acks_responses_and_its_end() -> None:
    agent = Agent()
    client = agent.client().greeted()
    body = {"Name": "load", "Payload": b"1m", "RequestAck": True, "Timeout": 2 * 10**9, "FilterNodes": None}
    assert client.call("query", body) == [{"Error": "", "Seq": 2}]
    (message,) = [message for message in agent.serf.take_broadcasts(0, 1400, 10) if message[1] == 4]
    query = Query.decode(message[2:])
    assert (query.timeout_ns, query.payload) == (2 * 10**9, b"1m")
    for flags, payload in ((1, None), (0, b"0.7")):
        response = QueryResponse(query.lamport_time, query.query_id, "b", flags, payload)
        agent.serf.user_message(response.encode(), 1.0)
    agent.settle(1.0)
    head = {"Error": "", "Seq": 2}
    assert client.take() == [
        head,
        {"From": "a", "Payload": None, "Type": "ack"},
        head,
        {"From": "b", "Payload": None, "Type": "ack"},
        head,
        {"From": "b", "Payload": b"0.7", "Type": "response"},
    ]
    agent.serf.handle_timeout(2.0)
    agent.settle(2.0)
    assert client.take() == [head, {"From": "", "Payload": None, "Type": "done"}]
    assert client.client.queries == {}


def test_queries_of_a_client_that_is_gone_end() -> None:
    agent = Agent()
    client = agent.client().greeted()
    for _ in range(QUERIES_MAX):
        client.call("query", {"Name": "load"})
    assert str(QUERIES_MAX) in client.call("query", {"Name": "load"})[0]["Error"]
    assert len(agent.serf.asked_queries) == QUERIES_MAX
    agent.rpc.disconnected(client.client)
    agent.rpc.disconnected(client.client)
    assert len(agent.serf.asked_queries) == 0
    agent.settle()


@pytest.mark.parametrize(
    ("command", "body", "error"),
    [
        ("query", {"Name": "_serf_conflict", "Payload": b"a"}, "prefix"),
        ("query", {"Name": "_serf_ping", "Payload": b"x"}, "prefix"),
        ("query", {"Name": "load", "Payload": bytes(2000)}, "1024"),
        ("query", {"Name": "load", "Timeout": -1}, "Timeout"),
        ("query", {"Name": "load", "FilterNodes": [1]}, "FilterNodes"),
        ("query", [], "no map"),
        ("event", {"Name": "deploy", "Payload": bytes(600)}, "512"),
        ("event", {"Name": 7}, "Name"),
        ("event", {"Name": ""}, "empty"),
        ("event", {"Name": b"\xff"}, "UTF-8"),
        ("respond", {"ID": 9, "Payload": b""}, "No pending queries matching ID"),
        ("stream", {"Type": "bogus"}, "Invalid event filter"),
        ("monitor", {"LogLevel": "loud"}, "Unknown log level: loud"),
        ("tags", {"Tags": {"a": 1}}, "Tags"),
        ("get-coordinate", {"Node": []}, "Node"),
        ("stop", {"Stop": -1}, "Stop"),
    ],
)
def test_bad_requests_are_answered_and_the_next_one_is_done(command: str, body: object, error: str) -> None:
    client = Agent().client().greeted()
    header, *rest = client.call(command, body)
    assert error in header["Error"]
    assert len(rest) == (COMMANDS[command].empty is not None)
    assert client.call("event", {"Name": "next"}) == [{"Error": "", "Seq": 3}]


# --- streams


def test_events_reach_the_streams_that_want_them() -> None:
    agent = Agent()
    client = agent.client().greeted()
    client.call("stream", {"Type": "user:deploy,query"})
    assert client.call("stream", {"Type": "member-join"}) == [{"Error": "", "Seq": 3}]
    client.send({"Command": "stream", "Seq": 3}, {"Type": "*"})
    assert client.take() == [{"Error": "Stream with given sequence exists", "Seq": 3}]
    agent.serf.user_event("deploy", b"now")
    agent.serf.user_event("other", b"")
    agent.serf.query("load", b"?", 0.0)
    agent.settle()
    head = {"Error": "", "Seq": 2}
    assert client.take() == [
        head,
        {"Coalesce": False, "Event": "user", "LTime": 1, "Name": "deploy", "Payload": b"now"},
        head,
        {"Event": "query", "ID": 1, "LTime": 1, "Name": "load", "Payload": b"?"},
    ]
    other = Serf(SerfConfig("d", "127.0.0.1", 17949), Random(9), 0.0)
    introduce(agent.serf, other)
    agent.settle(5.0)
    assert client.take() == []  # coalesced
    at = agent.rpc.next_timeout()
    assert at == 6.0
    agent.rpc.handle_timeout(at)
    header, body = client.take()
    assert (header["Seq"], body["Event"], [member["Name"] for member in body["Members"]]) == (3, "member-join", ["d"])
    assert client.call("stop", {"Stop": 2}) == [{"Error": "", "Seq": 4}]
    agent.serf.user_event("deploy", b"again")
    agent.settle()
    assert client.take() == []


def test_a_client_answers_a_query_once_in_time() -> None:
    agent = Agent()
    client, second = agent.client().greeted(), agent.client().greeted()
    for one in (client, second):
        one.call("stream", {"Type": "query"})
    asked = agent.serf.query("load", b"", 0.0)
    agent.settle()
    for one in (client, second):
        assert one.take()[1]["ID"] == 1
    # As with an agent, a response that is refused for its length may be repeated.
    assert "1024" in client.call("respond", {"ID": 1, "Payload": bytes(2000)})[0]["Error"]
    assert client.call("respond", {"ID": 1, "Payload": b"0.7"}) == [{"Error": "", "Seq": 4}]
    assert asked.responses == {"a": b"0.7"}
    assert "already sent" in client.call("respond", {"ID": 1, "Payload": b"0.7"})[0]["Error"]
    assert "already sent" in second.call("respond", {"ID": 1, "Payload": b"0.8"})[0]["Error"]
    agent.serf.query("load", b"", 10.0)
    agent.settle(10.0)
    assert second.take()[1]["ID"] == 2
    assert "deadline" in second.call("respond", {"ID": 2, "Payload": b""}, now=99.0)[0]["Error"]


def test_a_monitor_has_the_last_lines_then_new_ones_of_its_level() -> None:
    agent = Agent()
    for number in range(LOG_LINES_MAX + 5):
        agent.rpc.log_line("INFO", f"line {number}")
    agent.rpc.log_line("DEBUG", "detail")
    client = agent.client().greeted()
    found = client.call("monitor", {"LogLevel": "info"})
    assert found[0] == {"Error": "", "Seq": 2}
    lines = [item["Log"] for item in found if "Log" in item]
    assert lines == [f"line {number}" for number in range(6, LOG_LINES_MAX + 5)]
    agent.rpc.log_line("DEBUG", "more detail")
    agent.rpc.log_line("ERR", "trouble")
    assert client.take() == [{"Error": "", "Seq": 2}, {"Log": "trouble"}]
    assert client.call("monitor", {"LogLevel": "ERR"}) == [{"Error": "Monitor already exists", "Seq": 3}]
    client.call("stop", {"Stop": 2})
    agent.rpc.log_line("ERR", "trouble")
    assert client.take() == []


def test_levels_have_an_order() -> None:
    assert sorted(rpc_server.LEVELS, key=lambda level: rpc_server.LEVELS[level]) == [
        "TRACE",
        "DEBUG",
        "INFO",
        "WARN",
        "ERR",
    ]
