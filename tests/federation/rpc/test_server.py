"""The RPC of an agent, object by object, and the dialogues that the real program `serf` had with a real agent."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.rpc import client as rpc_client
from federation.rpc import server as rpc_server
from federation.rpc.client import CALLS_MAX, OPEN_QUERIES_MAX, QUERIES_MAX, STREAMS_MAX, RpcClient
from federation.rpc.requests import COMMANDS, ForceLeave, Join, SetTags
from federation.rpc.server import CLIENTS_MAX, LOG_LINES_MAX, RpcServer
from federation.rpc.wire import REQUEST_BYTES_MAX
from federation.serf.config import SerfConfig
from federation.serf.messages import Query, QueryResponse
from federation.serf.serf import Serf

VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parents[2] / "data" / "gossip-vectors.json").read_text())
DIALOGUES = {
    vector["name"].rpartition(":")[0]: vector
    for vector in VECTORS
    if vector["transport"] == "rpc" and vector["name"].endswith("requests")
}
ANSWERS = {vector["name"].rpartition(":")[0]: vector for vector in VECTORS if vector["name"].endswith(": responses")}


class Agent:
    """A node "a" that knows "b" and "c", its RPC, and one client that is not connected yet."""

    def __init__(self, auth: str = "") -> None:
        self.serf = Serf(SerfConfig("a", "127.0.0.1", 17946, {"fed_addr": "127.0.0.1:8901"}), Random(1), 0.0)
        for name, port in (("b", 17947), ("c", 17948)):
            other = Serf(SerfConfig(name, "127.0.0.1", port, {"role": "edge"}), Random(port), 0.0)
            self.serf.gossip.membership.merge(other.gossip.membership.encode_nodes(), 0.0)
            self.serf.coordinates.ping_completed(name, 0.01, other.ack_payload())
        self.serf.take_events()
        self.rpc = RpcServer(self.serf, auth, {"os": "linux"})

    def client(self) -> Connected:
        client = self.rpc.connect()
        assert client is not None
        return Connected(self, client)

    def settle(self, now: float = 0.0) -> None:
        self.rpc.receive_events(self.serf.take_events(), now)


class Connected:
    def __init__(self, agent: Agent, client: RpcClient) -> None:
        self.agent = agent
        self.client = client
        self.sequence = 0

    def send(self, *objects: object, now: float = 0.0) -> None:
        self.client.receive_data(b"".join(msgpack.packb(item) for item in objects), now)

    def take(self) -> list[Any]:
        unpacker = msgpack.Unpacker()
        unpacker.feed(self.client.take_output())
        return list(unpacker)

    def call(self, command: str, body: object = None, now: float = 0.0) -> list[Any]:
        self.sequence += 1
        header = {"Command": command, "Seq": self.sequence}
        self.send(*([header] if body is None else [header, body]), now=now)
        return self.take()

    def greeted(self) -> Connected:
        assert self.call("handshake", {"Version": 1}) == [{"Error": "", "Seq": 1}]
        return self


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
        ([("handshake", {"Version": 1}), ("members", None)], ["", "Authentication required"], True),
        ([("handshake", {"Version": 1}), ("event", {"Name": "x"})], ["", "Authentication required"], True),
        ([("handshake", {"Version": 1}), ("auth", {"AuthKey": "other"})], ["", "Invalid authentication token"], True),
        ([("handshake", {"Version": 1}), ("handshake", {"Version": 1})], ["", "Handshake already performed"], False),
        ([("handshake", {"Version": 1}), ("auth", {"AuthKey": "key"}), ("leave", None)], ["", ""], False),
    ],
)
def test_the_first_requests(requests: list[tuple[str, object]], errors: list[str], is_closed: bool) -> None:
    client = Agent("key").client()
    found = [item["Error"] for command, body in requests for item in client.call(command, body) if "Error" in item]
    assert (found, client.client.closed) == (errors, is_closed)
    assert client.agent.rpc.refused == int(is_closed)
    assert client.call("members") == [] or not is_closed


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


@pytest.mark.parametrize("expression", ["(a+)+", "[", "x" * 200, "a*b*c*"])
def test_expressions_that_could_run_long_are_refused(expression: str) -> None:
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
    agent.serf.gossip.membership.merge(other.gossip.membership.encode_nodes(), 5.0)
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
    assert client.call("respond", {"ID": 1, "Payload": b"0.7"}) == [{"Error": "", "Seq": 3}]
    assert asked.responses == {"a": b"0.7"}
    assert "No pending" in client.call("respond", {"ID": 1, "Payload": b"0.7"})[0]["Error"]
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


# --- bounds


@pytest.mark.interpreted
def test_a_client_that_does_not_read_loses_records_and_its_requests_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc_client, "RECORD_BYTES_MAX", 2000)
    monkeypatch.setattr(rpc_client, "UNREAD_BYTES_MAX", 4000)
    agent = Agent()
    client = agent.client().greeted()
    client.call("stream", {"Type": "user"})
    for number in range(100):
        agent.serf.user_event(f"event {number}", b"")
        agent.settle()
    assert agent.rpc.records_dropped > 0
    told = [item["Name"] for item in client.take() if "Name" in item]
    assert told == [f"event {number}" for number in range(len(told))]
    assert len(told) + agent.rpc.records_dropped == 100
    for number in range(40):
        client.send({"Command": "members", "Seq": 100 + number})
    assert not client.client.takes_requests
    answered: list[int] = []
    for _ in range(40):
        answered += [item["Seq"] for item in client.take() if "Seq" in item]
        client.client.work(0.0)
    assert answered == list(range(100, 140))


def test_many_requests_in_one_chunk_are_done_in_turns() -> None:
    client = Agent().client().greeted()
    data = b"".join(msgpack.packb({"Command": "stats", "Seq": number}) for number in range(120))
    has_more = client.client.receive_data(data, 0.0)
    turns = 1
    while has_more:
        has_more = client.client.work(0.0)
        turns += 1
    assert turns == 3
    assert [item["Seq"] for item in client.take() if "Seq" in item] == list(range(120))


def test_strangers_do_not_shut_clients_out() -> None:
    agent = Agent()
    strangers = [agent.client() for _ in range(CLIENTS_MAX)]
    found = [agent.client().greeted() for _ in range(CLIENTS_MAX)]
    assert all(stranger.client.closed for stranger in strangers)
    assert agent.rpc.connect() is None
    assert len(agent.rpc.clients) == CLIENTS_MAX
    assert agent.rpc.refused == CLIENTS_MAX + 1
    agent.rpc.disconnected(found[0].client)
    agent.client().greeted()


def test_streams_and_open_queries_of_a_client_are_bounded() -> None:
    agent = Agent()
    client = agent.client().greeted()
    for _ in range(STREAMS_MAX):
        client.call("stream", {"Type": "query"})
    assert str(STREAMS_MAX) in client.call("stream", {"Type": "query"})[0]["Error"]
    for _ in range(OPEN_QUERIES_MAX // STREAMS_MAX + 1):
        agent.serf.query("load", b"", 0.0)
    agent.settle()
    assert len(client.client.open_queries) == OPEN_QUERIES_MAX
    agent.serf.query("load", b"", 1000.0)
    agent.settle(1000.0)
    assert len(client.client.open_queries) == STREAMS_MAX  # the others are past their deadlines


@pytest.mark.parametrize(
    "data",
    [
        b"\xc1",
        b"\x90",
        b"\xa3abc",
        b"\xdf\xff\xff\xff\xff",
        b"\xdd\xff\xff\xff\xff",
        b"\x81\xa4Body\xc6\x7f\xff\xff\xff" + bytes(REQUEST_BYTES_MAX + 1000),
        b"\x91" * 5000,
        msgpack.packb({"Command": "x" * REQUEST_BYTES_MAX, "Seq": 1}),
        msgpack.packb({"Command": 1, "Seq": 1}),
        msgpack.packb({"Command": "stats", "Seq": -1}),
        msgpack.packb({"Command": b"\xff", "Seq": 1}),
    ],
)
def test_garbage_ends_the_connection(data: bytes) -> None:
    client = Agent().client().greeted()
    for at in range(0, len(data), 1000):
        client.client.receive_data(data[at : at + 1000], 0.0)
    assert client.client.closed
    assert client.agent.rpc.malformed == 1
    assert client.call("stats") == []


# An old encoder writes times as raw bytes, a new one as the extension -1. No message has one, so both are skipped.
TIMES = [msgpack.packb(b"\xa0" + bytes(8), use_bin_type=False), msgpack.packb(msgpack.Timestamp(1_700_000_000, 5))]


@pytest.mark.parametrize("time", [*TIMES, msgpack.packb(b"\xa0" + bytes(8))])
def test_times_of_both_formats_are_skipped(time: bytes) -> None:
    client = Agent().client().greeted()
    header = b"\x83\xa7Command\xa5stats\xa3Seq\x02\xa4Time" + time
    client.client.receive_data(header, 0.0)
    assert client.take()[0] == {"Error": "", "Seq": 2}


@given(st.lists(st.binary(max_size=60), max_size=5))
def test_no_bytes_raise(chunks: list[bytes]) -> None:
    client = Agent().client().greeted()
    for chunk in chunks:
        client.client.receive_data(chunk, 0.0)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**64 - 1) | st.binary(max_size=9) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)
KEYS = ("Name", "Status", "Tags", "Existing", "Replay", "Node", "Prune", "Payload", "Coalesce", "Timeout", "FilterTags")


@given(
    st.sampled_from(sorted(set(COMMANDS) - {"handshake", "auth"})),
    st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5), values, max_size=5) | values,
)
def test_every_command_answers_any_body(command: str, body: object) -> None:
    client = Agent().client().greeted()
    if COMMANDS[command].body is None:
        body = None
    found = client.call(command, {} if body is None and COMMANDS[command].body is not None else body)
    calls = client.agent.rpc.take_calls()
    if calls:
        assert found == []
    else:
        assert found[0]["Seq"] == 2
        assert len(found) >= 1 + (COMMANDS[command].empty is not None)
    client.agent.settle()


def test_levels_have_an_order() -> None:
    assert sorted(rpc_server.LEVELS, key=lambda level: rpc_server.LEVELS[level]) == [
        "TRACE",
        "DEBUG",
        "INFO",
        "WARN",
        "ERR",
    ]
