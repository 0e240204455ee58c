"""What one client can cost a node, and bytes that are no request."""

from __future__ import annotations

import msgpack  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.rpc import client as rpc_client
from federation.rpc.client import OPEN_QUERIES_MAX, STREAMS_MAX
from federation.rpc.requests import COMMANDS
from federation.rpc.server import CLIENTS_MAX
from federation.rpc.wire import REQUEST_BYTES_MAX
from rpc_agent import Agent


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
