"""The messages of memberlist: one type byte, then a map (wire-gossip 2)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from federation.gossip.errors import WireError
from federation.gossip.message_fields import Message, MessageMap, uint16_field, uint32_field, wire
from federation.gossip.msgpack_fields import (
    ACCUSED_INCARNATION_MAX,
    Fields,
    bool_field,
    bytes_field,
    bytes_or_nil_field,
    encode,
    name_field,
    text_field,
    uint_field,
)

PING: Final = 0
INDIRECT_PING: Final = 1
ACK: Final = 2
SUSPECT: Final = 3
ALIVE: Final = 4
DEAD: Final = 5
PUSH_PULL: Final = 6
COMPOUND: Final = 7
USER: Final = 8
COMPRESS: Final = 9
ENCRYPT: Final = 10
NACK: Final = 11
HAS_CRC: Final = 12
ERROR: Final = 13
LABEL: Final = 244

META_BYTES_MAX: Final = 512
VERSION_BYTES: Final = 6

# [PMin, PMax, PCur, DMin, DMax, DCur] (wire-gossip 2.1): the defaults of the Serf library.
OUR_VERSIONS: Final = bytes((1, 5, 2, 2, 5, 4))


def _addr_field(fields: Fields, key: bytes) -> bytes:
    addr = bytes_field(fields, key)
    if len(addr) not in (0, 4, 16):
        raise WireError(f"{key!r} is an address of {len(addr)} bytes instead of 4 or 16")
    return addr


def _meta_field(fields: Fields, key: bytes) -> bytes:
    meta = bytes_field(fields, key)
    if len(meta) > META_BYTES_MAX:
        raise WireError(f"Meta is longer than {META_BYTES_MAX} bytes")
    return meta


@dataclass(slots=True)
class Ping(Message):
    TYPE = PING

    sequence: int = wire("SeqNo", uint32_field)
    node: str = wire("Node", name_field)
    source_addr: bytes = wire("SourceAddr", _addr_field, optional=True)
    source_port: int = wire("SourcePort", uint16_field, optional=True)
    source_node: str = wire("SourceNode", name_field, optional=True)


@dataclass(slots=True)
class IndirectPing(Message):
    TYPE = INDIRECT_PING

    sequence: int = wire("SeqNo", uint32_field)
    target: bytes = wire("Target", _addr_field)
    port: int = wire("Port", uint16_field)
    node: str = wire("Node", name_field)
    nack: bool = wire("Nack", bool_field)
    source_addr: bytes = wire("SourceAddr", _addr_field, optional=True)
    source_port: int = wire("SourcePort", uint16_field, optional=True)
    source_node: str = wire("SourceNode", name_field, optional=True)


@dataclass(slots=True)
class Ack(Message):
    TYPE = ACK

    sequence: int = wire("SeqNo", uint32_field)
    payload: bytes | None = wire("Payload", bytes_or_nil_field)


@dataclass(slots=True)
class Nack(Message):
    TYPE = NACK

    sequence: int = wire("SeqNo", uint32_field)


@dataclass(slots=True)
class Accusation(MessageMap):
    """A suspect or a dead message: `origin` accuses `node` at `incarnation`."""

    incarnation: int = wire("Incarnation", partial(uint_field, maximum=ACCUSED_INCARNATION_MAX))
    node: str = wire("Node", name_field)
    origin: str = wire("From", name_field)

    def encode(self, message_type: int) -> bytes:
        """`message_type` is SUSPECT or DEAD."""
        return bytes((message_type,)) + self.encode_map()


@dataclass(slots=True)
class Alive(Message):
    TYPE = ALIVE

    incarnation: int = wire("Incarnation", uint32_field)
    node: str = wire("Node", name_field)
    addr: bytes = wire("Addr", _addr_field)
    port: int = wire("Port", uint16_field)
    meta: bytes = wire("Meta", _meta_field)
    versions: bytes = wire("Vsn", bytes_field)


@dataclass(slots=True)
class PushPullNode(MessageMap):
    """One node of a push-pull. `state` is one of STATE_* (wire-gossip 2)."""

    name: str = wire("Name", name_field)
    addr: bytes = wire("Addr", _addr_field)
    port: int = wire("Port", uint16_field)
    meta: bytes = wire("Meta", _meta_field)
    incarnation: int = wire("Incarnation", uint32_field)
    state: int = wire("State", partial(uint_field, maximum=3))
    versions: bytes = wire("Vsn", bytes_field)


@dataclass(slots=True)
class PushPull:
    """The full state of one side (wire-gossip 4.1)."""

    join: bool
    nodes: list[PushPullNode]
    user_state: bytes

    def encode(self) -> bytes:
        return encode_push_pull(self.join, [node.encode_map() for node in self.nodes], self.user_state)


def encode_push_pull(join: bool, nodes: list[bytes], user_state: bytes) -> bytes:
    """A push-pull of nodes that are encoded already."""
    header = encode({"Join": join, "Nodes": len(nodes), "UserStateLen": len(user_state)})
    return b"".join((b"\x06", header, *nodes, user_state))


def encode_error(text: str) -> bytes:
    return b"\x0d" + encode({"Error": text})


def decode_error(fields: Fields) -> str:
    return text_field(fields, b"Error")
