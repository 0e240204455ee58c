"""The messages of memberlist: one type byte, then a map (wire-gossip 2). Fields are written in ascending order of names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from federation.gossip.errors import WireError
from federation.gossip.msgpack_fields import (
    ACCUSED_INCARNATION_MAX,
    UINT16_MAX,
    UINT32_MAX,
    Fields,
    bool_field,
    bytes_field,
    decode_fields,
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


def _meta_field(fields: Fields) -> bytes:
    meta = bytes_field(fields, b"Meta")
    if len(meta) > META_BYTES_MAX:
        raise WireError(f"Meta is longer than {META_BYTES_MAX} bytes")
    return meta


@dataclass(slots=True)
class Ping:
    sequence: int
    node: str
    source_addr: bytes
    source_port: int
    source_node: str

    @staticmethod
    def decode(body: bytes) -> Ping:
        return Ping.from_fields(decode_fields(body))

    @staticmethod
    def from_fields(fields: Fields) -> Ping:
        return Ping(
            uint_field(fields, b"SeqNo", UINT32_MAX),
            name_field(fields, b"Node"),
            _addr_field(fields, b"SourceAddr"),
            uint_field(fields, b"SourcePort", UINT16_MAX),
            name_field(fields, b"SourceNode"),
        )

    def encode(self) -> bytes:
        fields: dict[str, object] = {"Node": self.node, "SeqNo": self.sequence}
        if self.source_addr:
            fields["SourceAddr"] = self.source_addr
        if self.source_node:
            fields["SourceNode"] = self.source_node
        if self.source_port:
            fields["SourcePort"] = self.source_port
        return b"\x00" + encode(fields)


@dataclass(slots=True)
class IndirectPing:
    sequence: int
    target: bytes
    port: int
    node: str
    nack: bool
    source_addr: bytes
    source_port: int
    source_node: str

    @staticmethod
    def decode(body: bytes) -> IndirectPing:
        fields = decode_fields(body)
        return IndirectPing(
            uint_field(fields, b"SeqNo", UINT32_MAX),
            _addr_field(fields, b"Target"),
            uint_field(fields, b"Port", UINT16_MAX),
            name_field(fields, b"Node"),
            bool_field(fields, b"Nack"),
            _addr_field(fields, b"SourceAddr"),
            uint_field(fields, b"SourcePort", UINT16_MAX),
            name_field(fields, b"SourceNode"),
        )

    def encode(self) -> bytes:
        fields: dict[str, object] = {"Nack": self.nack, "Node": self.node, "Port": self.port, "SeqNo": self.sequence}
        if self.source_addr:
            fields["SourceAddr"] = self.source_addr
        if self.source_node:
            fields["SourceNode"] = self.source_node
        if self.source_port:
            fields["SourcePort"] = self.source_port
        fields["Target"] = self.target
        return b"\x01" + encode(fields)


@dataclass(slots=True)
class Ack:
    sequence: int
    payload: bytes | None

    @staticmethod
    def decode(body: bytes) -> Ack:
        return Ack.from_fields(decode_fields(body))

    @staticmethod
    def from_fields(fields: Fields) -> Ack:
        payload = None if fields.get(b"Payload") is None else bytes_field(fields, b"Payload")
        return Ack(uint_field(fields, b"SeqNo", UINT32_MAX), payload)

    def encode(self) -> bytes:
        return b"\x02" + encode({"Payload": self.payload, "SeqNo": self.sequence})


@dataclass(slots=True)
class Nack:
    sequence: int

    @staticmethod
    def decode(body: bytes) -> Nack:
        return Nack(uint_field(decode_fields(body), b"SeqNo", UINT32_MAX))

    def encode(self) -> bytes:
        return b"\x0b" + encode({"SeqNo": self.sequence})


@dataclass(slots=True)
class Accusation:
    """A suspect or a dead message: `origin` accuses `node` at `incarnation`."""

    incarnation: int
    node: str
    origin: str

    @staticmethod
    def decode(body: bytes) -> Accusation:
        fields = decode_fields(body)
        return Accusation(
            uint_field(fields, b"Incarnation", ACCUSED_INCARNATION_MAX),
            name_field(fields, b"Node"),
            name_field(fields, b"From"),
        )

    def encode(self, message_type: int) -> bytes:
        """`message_type` is SUSPECT or DEAD."""
        return bytes((message_type,)) + encode(
            {"From": self.origin, "Incarnation": self.incarnation, "Node": self.node}
        )


@dataclass(slots=True)
class Alive:
    incarnation: int
    node: str
    addr: bytes
    port: int
    meta: bytes
    versions: bytes

    @staticmethod
    def decode(body: bytes) -> Alive:
        fields = decode_fields(body)
        return Alive(
            uint_field(fields, b"Incarnation", UINT32_MAX),
            name_field(fields, b"Node"),
            _addr_field(fields, b"Addr"),
            uint_field(fields, b"Port", UINT16_MAX),
            _meta_field(fields),
            bytes_field(fields, b"Vsn"),
        )

    def encode(self) -> bytes:
        return b"\x04" + encode(
            {
                "Addr": self.addr,
                "Incarnation": self.incarnation,
                "Meta": self.meta,
                "Node": self.node,
                "Port": self.port,
                "Vsn": self.versions,
            }
        )


@dataclass(slots=True)
class PushPullNode:
    """One node of a push-pull. `state` is one of STATE_* (wire-gossip 2)."""

    name: str
    addr: bytes
    port: int
    meta: bytes
    incarnation: int
    state: int
    versions: bytes

    @staticmethod
    def from_fields(fields: Fields) -> PushPullNode:
        return PushPullNode(
            name_field(fields, b"Name"),
            _addr_field(fields, b"Addr"),
            uint_field(fields, b"Port", UINT16_MAX),
            _meta_field(fields),
            uint_field(fields, b"Incarnation", UINT32_MAX),
            uint_field(fields, b"State", 3),
            bytes_field(fields, b"Vsn"),
        )

    def encode(self) -> bytes:
        return encode(
            {
                "Addr": self.addr,
                "Incarnation": self.incarnation,
                "Meta": self.meta,
                "Name": self.name,
                "Port": self.port,
                "State": self.state,
                "Vsn": self.versions,
            }
        )


@dataclass(slots=True)
class PushPull:
    """The full state of one side (wire-gossip 4.1)."""

    join: bool
    nodes: list[PushPullNode]
    user_state: bytes

    def encode(self) -> bytes:
        header = encode({"Join": self.join, "Nodes": len(self.nodes), "UserStateLen": len(self.user_state)})
        return b"\x06" + header + b"".join([node.encode() for node in self.nodes]) + self.user_state


def encode_error(text: str) -> bytes:
    return b"\x0d" + encode({"Error": text})


def decode_error(fields: Fields) -> str:
    return text_field(fields, b"Error")
