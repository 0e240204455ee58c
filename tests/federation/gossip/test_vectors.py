"""Every captured packet, stream and dialogue of tests/data/gossip-vectors.json decodes, to what is written beside it.

Encrypted ones are opened here, with a small AES-GCM of the test's own: the node has no keyring yet and must count them.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest

from federation.gossip.addresses import ip_text
from federation.gossip.counters import Counters, DropReason
from federation.gossip.lzw import decompress
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
from federation.gossip.streams import StreamDecoder, StreamEncrypted
from federation.gossip.wire import is_encrypted, open_packet
from federation.serf import messages as serf_messages
from federation.serf.messages import (
    ConflictResponse,
    JoinIntent,
    LeaveIntent,
    Query,
    QueryResponse,
    RelayMessage,
    SerfState,
    UserEvent,
)
from federation.serf.tags import decode_tags
from lzw_encoder import compress

VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parents[2] / "data" / "gossip-vectors.json").read_text())


def vectors(transport: str) -> list[Any]:
    chosen = [vector for vector in VECTORS if vector["transport"] == transport]
    return [pytest.param(vector, id=vector["name"].replace(" ", "-")) for vector in chosen]


# --- AES-GCM, for the test only


@cache
def aes_tables() -> tuple[list[int], list[int]]:
    """The S-box and multiplication by two in the field of AES."""
    double = [(value << 1 ^ (0x1B if value & 0x80 else 0)) & 0xFF for value in range(256)]
    box = [0] * 256
    p = q = 1
    while True:
        p = p ^ double[p]
        q ^= q << 1
        q ^= q << 2
        q ^= q << 4
        q &= 0xFF
        if q & 0x80:
            q ^= 0x09
        rotated = [(q << n | q >> (8 - n)) & 0xFF for n in range(5)]
        box[p] = rotated[0] ^ rotated[1] ^ rotated[2] ^ rotated[3] ^ rotated[4] ^ 0x63
        if p == 1:
            box[0] = 0x63
            return box, double


def aes_block(key: bytes, block: bytes) -> bytes:
    box, double = aes_tables()
    words = [list(key[i : i + 4]) for i in range(0, len(key), 4)]
    key_words = len(words)
    rounds = key_words + 6
    constant = 1
    for i in range(key_words, 4 * (rounds + 1)):
        word = list(words[i - 1])
        if i % key_words == 0:
            word = [box[value] for value in word[1:] + word[:1]]
            word[0] ^= constant
            constant = double[constant]
        elif key_words > 6 and i % key_words == 4:
            word = [box[value] for value in word]
        words.append([a ^ b for a, b in zip(words[i - key_words], word, strict=True)])
    state = [a ^ b for a, b in zip(block, [value for word in words[:4] for value in word], strict=True)]
    for number in range(1, rounds + 1):
        state = [box[state[(i + 4 * (i % 4)) % 16]] for i in range(16)]
        if number < rounds:
            mixed = []
            for column in range(0, 16, 4):
                a = state[column : column + 4]
                whole = a[0] ^ a[1] ^ a[2] ^ a[3]
                mixed += [a[i] ^ whole ^ double[a[i] ^ a[(i + 1) % 4]] for i in range(4)]
            state = mixed
        state = [
            a ^ b
            for a, b in zip(
                state, [value for word in words[4 * number : 4 * number + 4] for value in word], strict=True
            )
        ]
    return bytes(state)


def ghash(key: int, data: bytes) -> int:
    result = 0
    for at in range(0, len(data), 16):
        factor = result ^ int.from_bytes(data[at : at + 16], "big")
        result, value = 0, key
        for bit in range(127, -1, -1):
            if factor >> bit & 1:
                result ^= value
            value = value >> 1 ^ (0xE1 << 120 if value & 1 else 0)
    return result


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 16)


def open_sealed(keys: list[str], sealed: bytes, aad: bytes) -> bytes:
    """wire-gossip 5.1: version, nonce, ciphertext, tag; the first key that fits."""
    assert sealed[0] == 1
    nonce, ciphertext, tag = sealed[1:13], sealed[13:-16], sealed[-16:]
    for key in map(bytes.fromhex, keys):
        lengths = (len(aad) * 8).to_bytes(8, "big") + (len(ciphertext) * 8).to_bytes(8, "big")
        digest = ghash(int.from_bytes(aes_block(key, bytes(16)), "big"), padded(aad) + padded(ciphertext) + lengths)
        mask = int.from_bytes(aes_block(key, nonce + b"\x00\x00\x00\x01"), "big")
        if (digest ^ mask).to_bytes(16, "big") != tag:
            continue
        stream = b"".join(
            aes_block(key, nonce + (2 + number).to_bytes(4, "big")) for number in range((len(ciphertext) + 15) // 16)
        )
        return bytes(a ^ b for a, b in zip(ciphertext, stream, strict=False))
    raise AssertionError("no key fits")


def test_aes_known_answer() -> None:
    # FIPS 197, appendix C.1 and C.3
    block = bytes.fromhex("00112233445566778899aabbccddeeff")
    assert aes_block(bytes(range(16)), block).hex() == "69c4e0d86a7b0430d8cdb78070b4c55a"
    assert aes_block(bytes(range(32)), block).hex() == "8ea2b7ca516745bfeafc49904b496089"


def keys_of(vector: dict[str, Any]) -> list[str]:
    key = vector["key"]
    return key if isinstance(key, list) else [key]


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
    counters = Counters()
    if "key" in vector:
        if is_encrypted(data):
            assert open_packet(data, counters) == []
            assert counters.dropped[DropReason.ENCRYPTED] == 1
            counters = Counters()
        data = open_sealed(keys_of(vector), data, b"")
    messages = open_packet(data, counters)
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
        with pytest.raises(StreamEncrypted):
            StreamDecoder().receive_data(data)
        data = open_sealed(keys_of(vector), data[5:], data[:5])
    decoder = StreamDecoder()
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
