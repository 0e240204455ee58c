"""Every captured packet, stream and dialogue of tests/data/gossip-vectors.json decodes, to what is written beside it."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest

from federation.gossip.addresses import ip_text
from federation.gossip.counters import Counters, DropReason
from federation.gossip.keyring import Keyring
from federation.gossip.lzw import compress, decompress
from federation.gossip.messages import (
    ACK,
    ALIVE,
    COMPOUND,
    COMPRESS,
    DEAD,
    ERROR,
    HAS_CRC,
    INDIRECT_PING,
    NACK,
    PING,
    PUSH_PULL,
    SUSPECT,
    USER,
    Accusation,
    Ack,
    Alive,
    IndirectPing,
    Nack,
    Ping,
    PushPullNode,
    decode_error,
)
from federation.gossip.msgpack_fields import bytes_field, decode_fields, encode
from federation.gossip.sealing import PLAIN, Sealing, StreamRefused, is_encrypted
from federation.gossip.streams import StreamDecoder
from federation.gossip.wire import open_packet
from federation.serf import messages as serf_messages
from federation.serf.messages import (
    ConflictResponse,
    JoinIntent,
    KeyRequest,
    KeyResponse,
    LeaveIntent,
    Query,
    QueryResponse,
    RelayMessage,
    UserEvent,
)
from federation.serf.state import SerfState
from federation.serf.tags import decode_tags

VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parents[2] / "data" / "gossip-vectors.json").read_text())


def vectors(transport: str) -> list[Any]:
    chosen = [vector for vector in VECTORS if vector["transport"] == transport]
    return [pytest.param(vector, id=vector["name"].replace(" ", "-")) for vector in chosen]


def sealing_of(vector: dict[str, Any]) -> Sealing:
    if "key" not in vector:
        return PLAIN
    key = vector["key"]
    keys = key if isinstance(key, list) else [key]
    return Sealing(Keyring([bytes.fromhex(text) for text in keys], Random(1)))


# --- comparing


def as_shown(value: object) -> object:
    """Binary as the vectors print it: text where it is printable, otherwise hex."""
    if value is None:
        return None
    assert isinstance(value, bytes)
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return "hex:" + value.hex()
    return text if text.isprintable() else "hex:" + value.hex()


def meta_shown(meta: bytes) -> object:
    return {"magic": meta[0], "tags": decode_tags(meta)}


def coordinate_shown(payload: bytes | None) -> object:
    if payload is None:
        return None
    coordinate = decode_fields(payload[1:])
    return {"pingVersion": payload[0], "coord": {key.decode(): value for key, value in coordinate.items()}}


def filter_shown(encoded: bytes) -> object:
    return {"filter": encoded[0], "body": msgpack.unpackb(encoded[1:])}


def check_serf(message: bytes, decoded: dict[str, Any]) -> None:
    """One Serf message: its fields are those of the vector, and it is encoded to the same bytes."""
    kind, body = message[0], message[1:]
    shown = decoded.get("body")
    if kind == serf_messages.JOIN:
        join = JoinIntent.decode(body)
        assert {"LTime": join.lamport_time, "Node": join.node} == shown
        assert join.encode() == message
    elif kind == serf_messages.LEAVE:
        leave = LeaveIntent.decode(body)
        assert {"LTime": leave.lamport_time, "Node": leave.node, "Prune": leave.prune} == shown
        assert leave.encode() == message
    elif kind == serf_messages.USER_EVENT:
        event = UserEvent.decode(body)
        assert shown == {
            "CC": event.coalesce,
            "LTime": event.lamport_time,
            "Name": event.name,
            "Payload": as_shown(event.payload),
        }
        assert event.encode() == message
    elif kind == serf_messages.QUERY:
        query = Query.decode(body)
        assert shown is not None
        assert query.payload is not None or shown["Payload"] is None
        assert {
            "Addr": ip_text(query.addr),
            "Filters": [filter_shown(item) for item in query.filters or []] or None,
            "Flags": query.flags,
            "ID": query.query_id,
            "LTime": query.lamport_time,
            "Name": query.name,
            "Port": query.port,
            "RelayFactor": query.relay_factor,
            "SourceNode": query.source_node,
            "Timeout": query.timeout_ns,
        } == {key: value for key, value in shown.items() if key != "Payload"}
        assert query.encode() == message
        if "payload_serf" in decoded and decoded["payload_serf"]["serf"] == "keyRequest":
            request = KeyRequest.decode((query.payload or b"")[1:])
            assert as_shown(request.key) == decoded["payload_serf"]["body"]["Key"]
            assert request.encode() == query.payload
    elif kind == serf_messages.QUERY_RESPONSE:
        response = QueryResponse.decode(body)
        assert shown is not None
        assert (response.flags, response.origin, response.query_id, response.lamport_time) == (
            shown["Flags"],
            shown["From"],
            shown["ID"],
            shown["LTime"],
        )
        assert response.encode() == message
        if "payload_serf" in decoded and decoded["payload_serf"]["serf"] == "keyResponse":
            keys = KeyResponse.decode((response.payload or b"")[1:])
            expected = decoded["payload_serf"]["body"]
            assert (list(keys.keys or ()) or None, keys.message, keys.primary_key, keys.result) == (
                expected["Keys"],
                expected["Message"],
                expected["PrimaryKey"],
                expected["Result"],
            )
            assert keys.encode() == response.payload
        if "payload_serf" in decoded and decoded["payload_serf"]["serf"] == "conflictResponse":
            claim = ConflictResponse.decode((response.payload or b"")[1:])
            assert claim is not None
            expected = decoded["payload_serf"]["body"]
            assert (claim.name, ip_text(claim.addr), claim.port, claim.status) == (
                expected["Name"],
                expected["Addr"],
                expected["Port"],
                expected["Status"],
            )
    elif kind == serf_messages.RELAY:
        relay = RelayMessage.decode(body)
        destination = decoded["header"]["DestAddr"]
        assert (ip_text(relay.addr), relay.port) == (destination["IP"], destination["Port"])
        assert relay.encode(decoded["header"]["DestName"]) == message
        check_serf(relay.message, decoded["inner"])
    else:
        raise AssertionError(f"no Serf message of type {kind} was expected")


def check_message(message: bytes, decoded: dict[str, Any]) -> None:
    kind, body = message[0], message[1:]
    assert kind == decoded["type"]
    shown = decoded.get("body")
    if kind == USER:
        check_serf(body, decoded["user"])
        return
    fields: dict[str, object]
    again: bytes
    if kind == PING:
        ping = Ping.decode(body)
        fields = {
            "Node": ping.node,
            "SeqNo": ping.sequence,
            "SourceAddr": ip_text(ping.source_addr),
            "SourceNode": ping.source_node,
            "SourcePort": ping.source_port,
        }
        again = ping.encode()
    elif kind == INDIRECT_PING:
        request = IndirectPing.decode(body)
        fields = {
            "Nack": request.nack,
            "Node": request.node,
            "Port": request.port,
            "SeqNo": request.sequence,
            "SourceAddr": ip_text(request.source_addr),
            "SourceNode": request.source_node,
            "SourcePort": request.source_port,
            "Target": ip_text(request.target),
        }
        again = request.encode()
    elif kind == ACK:
        ack = Ack.decode(body)
        fields = {"Payload": coordinate_shown(ack.payload), "SeqNo": ack.sequence}
        again = ack.encode()
    elif kind == NACK:
        nack = Nack.decode(body)
        fields = {"SeqNo": nack.sequence}
        again = nack.encode()
    elif kind in (SUSPECT, DEAD):
        accusation = Accusation.decode(body)
        fields = {"From": accusation.origin, "Incarnation": accusation.incarnation, "Node": accusation.node}
        again = accusation.encode(kind)
    else:
        assert kind == ALIVE
        alive = Alive.decode(body)
        fields = {
            "Addr": ip_text(alive.addr),
            "Incarnation": alive.incarnation,
            "Meta": meta_shown(alive.meta),
            "Node": alive.node,
            "Port": alive.port,
            "Vsn": list(alive.versions),
        }
        again = alive.encode()
    assert fields == shown
    assert again == message


def leaves(decoded: dict[str, Any]) -> list[dict[str, Any]]:
    if decoded["type"] == COMPRESS:
        return leaves(decoded["inner"])
    if decoded["type"] == COMPOUND:
        return [leaf for part in decoded["parts"] for leaf in leaves(part)]
    return [decoded]


# --- the vectors


@pytest.mark.parametrize("vector", vectors("udp"))
def test_packet_decodes(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["hex"])
    if "key" in vector:
        without_key, other_key = Counters(), Counters()
        assert open_packet(data, without_key) == []
        assert open_packet(data, other_key, Sealing(Keyring([bytes(32)], Random(1)))) == []
        if is_encrypted(data):
            assert without_key.dropped[DropReason.ENCRYPTED] == 1
            assert other_key.dropped[DropReason.WRONG_KEY] == 1
        assert without_key.drops == other_key.drops == 1
    counters = Counters()
    messages = open_packet(data, counters, sealing_of(vector))
    assert counters.drops == 0
    expected = leaves(vector["decoded"]["msg"])
    assert len(messages) == len(expected)
    for message, decoded in zip(messages, expected, strict=True):
        check_message(message, decoded)


@pytest.mark.parametrize("vector", vectors("tcp"))
@pytest.mark.parametrize("chunk", [1, 100, 1 << 20])
def test_stream_decodes(vector: dict[str, Any], chunk: int) -> None:
    data = bytes.fromhex(vector["hex"])
    if "key" in vector:
        with pytest.raises(StreamRefused) as refused:
            StreamDecoder().receive_data(data)
        assert refused.value.reason == DropReason.ENCRYPTED
    decoder = StreamDecoder(sealing_of(vector))
    for at in range(0, len(data), chunk):
        assert not decoder.complete
        decoder.receive_data(data[at : at + chunk])
    assert decoder.complete
    decoded = leaves(vector["decoded"]["msg"])[0]
    assert decoder.message_type == decoded["type"]
    if decoded["type"] == PUSH_PULL:
        check_push_pull(decoder, decoded)
    elif decoded["type"] == PING:
        assert Ping.from_fields(decoder.fields).node == decoded["body"]["Node"]
    elif decoded["type"] == ACK:
        assert Ack.from_fields(decoder.fields).sequence == decoded["body"]["SeqNo"]
    elif decoded["type"] == ERROR:
        assert decode_error(decoder.fields) == decoded["body"]["Error"]
    else:
        check_serf(decoder.user_message, decoded["user"])


def check_push_pull(decoder: StreamDecoder, decoded: dict[str, Any]) -> None:
    push_pull = decoder.push_pull
    assert push_pull is not None
    assert push_pull.join == decoded["header"]["Join"]
    assert [node_shown(node) for node in push_pull.nodes] == decoded["nodes"]
    state = SerfState.decode(push_pull.user_state[1:])
    shown = decoded["userState"]["body"]
    assert (state.lamport_time, state.event_time, state.query_time, state.status_times, state.left_members) == (
        shown["LTime"],
        shown["EventLTime"],
        shown["QueryLTime"],
        shown["StatusLTimes"],
        shown["LeftMembers"] or [],
    )
    slots = shown["Events"]
    if isinstance(slots, dict):
        slots = list(slots["nonNull"].values())
    assert len(state.events) == sum(len(slot["Events"]) for slot in slots or [])
    again = SerfState.decode(state.encode()[1:])
    assert again.events == state.events
    assert again.status_times == state.status_times


def node_shown(node: PushPullNode) -> dict[str, object]:
    return {
        "Addr": ip_text(node.addr),
        "Incarnation": node.incarnation,
        "Meta": meta_shown(node.meta),
        "Name": node.name,
        "Port": node.port,
        "State": node.state,
        "Vsn": list(node.versions),
    }


@pytest.mark.parametrize("vector", vectors("rpc"))
def test_dialogue_is_msgpack(vector: dict[str, Any]) -> None:
    unpacker = msgpack.Unpacker(raw=True, strict_map_key=False)
    unpacker.feed(bytes.fromhex(vector["hex"]))
    objects = list(unpacker)
    assert len(objects) == len(vector["decoded"])
    for found, shown in zip(objects, vector["decoded"], strict=True):
        assert {key.decode() for key in found} == set(shown)


def plain_compressed() -> list[Any]:
    chosen = []
    for vector in VECTORS:
        data = bytes.fromhex(vector["hex"])
        data = data[5:] if data[0] == HAS_CRC else data
        if vector["transport"] != "rpc" and "key" not in vector and data[0] == COMPRESS:
            chosen.append(pytest.param(data, id=vector["name"].replace(" ", "-")))
    return chosen


@pytest.mark.parametrize("data", plain_compressed())
def test_compressed_bytes_are_written_identically(data: bytes) -> None:
    packed = bytes_field(decode_fields(data[1:]), b"Buf")
    assert compress(decompress(packed, 1 << 20)) == packed
    assert b"\x09" + encode({"Algo": 0, "Buf": packed}) == data
