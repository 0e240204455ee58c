"""The messages of Serf: one type byte, then a map (wire-gossip 7)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from federation.gossip.errors import WireError
from federation.gossip.message_fields import Message, uint8_field, uint16_field, uint32_field, wire
from federation.gossip.msgpack_fields import (
    INT64_MAX,
    LAMPORT_TIME_MAX,
    LEAVE_TIME_MAX,
    UINT8_MAX,
    UINT16_MAX,
    Fields,
    as_fields,
    bool_field,
    bytes_field,
    bytes_or_nil_field,
    decode,
    decode_prefix,
    encode,
    list_field,
    map_field,
    name_field,
    text_field,
    texts_field,
    uint_field,
)

LEAVE: Final = 0
JOIN: Final = 1
PUSH_PULL: Final = 2
USER_EVENT: Final = 3
QUERY: Final = 4
QUERY_RESPONSE: Final = 5
CONFLICT_RESPONSE: Final = 6
KEY_REQUEST: Final = 7
KEY_RESPONSE: Final = 8
RELAY: Final = 9

FLAG_ACK: Final = 1
FLAG_NO_BROADCAST: Final = 2

FILTER_NODE: Final = 0
FILTER_TAG: Final = 1

time_field: Final = partial(uint_field, maximum=LAMPORT_TIME_MAX)

EVENTS_MAX: Final = 512
"""Slots of the event buffer, in memory and in a push-pull."""


def _filters_field(fields: Fields, key: bytes) -> tuple[bytes, ...] | None:
    filters: list[bytes] = []
    for item in list_field(fields, key):
        if not isinstance(item, bytes):
            raise WireError("a query's filter is not binary")
        filters.append(item)
    return tuple(filters) or None


@dataclass(slots=True)
class LeaveIntent(Message):
    """`forced`: another node says it, by which the member is given up. Serf does not write that."""

    TYPE = LEAVE

    lamport_time: int = wire("LTime", partial(uint_field, maximum=LEAVE_TIME_MAX))
    node: str = wire("Node", name_field)
    prune: bool = wire("Prune", bool_field)
    forced: bool = wire("Forced", bool_field, optional=True)


@dataclass(slots=True)
class JoinIntent(Message):
    TYPE = JOIN

    lamport_time: int = wire("LTime", time_field)
    node: str = wire("Node", name_field)


@dataclass(slots=True)
class UserEvent(Message):
    """`coalesce`: of several events of this name a receiver may keep the latest."""

    TYPE = USER_EVENT

    lamport_time: int = wire("LTime", time_field)
    name: str = wire("Name", text_field)
    payload: bytes = wire("Payload", bytes_field)
    coalesce: bool = wire("CC", bool_field)


RecentEvent = tuple[int, str, bytes]
"""A user event of a push-pull: Lamport time, name and payload."""


@dataclass(slots=True)
class Query(Message):
    """`filters` are encoded filters, each with its type byte; None for none. `timeout_ns` begins when the query arrives."""

    TYPE = QUERY

    lamport_time: int = wire("LTime", time_field)
    query_id: int = wire("ID", uint32_field)
    addr: bytes = wire("Addr", bytes_field)
    port: int = wire("Port", uint16_field)
    source_node: str = wire("SourceNode", name_field)
    filters: tuple[bytes, ...] | None = wire("Filters", _filters_field)
    flags: int = wire("Flags", uint32_field)
    relay_factor: int = wire("RelayFactor", uint8_field)
    timeout_ns: int = wire("Timeout", partial(uint_field, maximum=INT64_MAX))
    name: str = wire("Name", text_field)
    payload: bytes | None = wire("Payload", bytes_or_nil_field)


@dataclass(slots=True)
class QueryResponse(Message):
    TYPE = QUERY_RESPONSE

    lamport_time: int = wire("LTime", time_field)
    query_id: int = wire("ID", uint32_field)
    origin: str = wire("From", name_field)
    flags: int = wire("Flags", uint32_field)
    payload: bytes | None = wire("Payload", bytes_or_nil_field)


@dataclass(slots=True)
class ConflictResponse:
    """The member that a node knows by a name in conflict."""

    name: str
    addr: bytes
    port: int
    tags: dict[str, str]
    status: int
    versions: bytes

    @staticmethod
    def decode(body: bytes) -> ConflictResponse | None:
        """None when the other node does not know the name."""
        value = decode(body)
        if value is None:
            return None
        fields = as_fields(value)
        return ConflictResponse(
            name_field(fields, b"Name"),
            bytes_field(fields, b"Addr"),
            uint_field(fields, b"Port", UINT16_MAX),
            {},
            uint_field(fields, b"Status", UINT8_MAX),
            b"",
        )

    def encode(self) -> bytes:
        return b"\x06" + encode(
            {
                "Addr": self.addr,
                "DelegateCur": self.versions[5],
                "DelegateMax": self.versions[4],
                "DelegateMin": self.versions[3],
                "Name": self.name,
                "Port": self.port,
                "ProtocolCur": self.versions[2],
                "ProtocolMax": self.versions[1],
                "ProtocolMin": self.versions[0],
                "Status": self.status,
                "Tags": self.tags,
            }
        )


def encode_unknown_name() -> bytes:
    """The conflict response of a node that does not know the name."""
    return b"\x06\xc0"


@dataclass(slots=True)
class KeyRequest(Message):
    """In the payload of a key query. `key` is empty for a list."""

    TYPE = KEY_REQUEST

    key: bytes = wire("Key", bytes_field)


@dataclass(slots=True)
class KeyResponse(Message):
    """In the payload of the response. Keys are base64; `keys` and `primary_key` belong to a list alone."""

    TYPE = KEY_RESPONSE

    keys: tuple[str, ...] | None = wire("Keys", texts_field)
    message: str = wire("Message", text_field)
    primary_key: str = wire("PrimaryKey", text_field)
    result: bool = wire("Result", bool_field)


@dataclass(slots=True)
class RelayMessage:
    """A request to send `message` unchanged to an address (wire-gossip 8.8)."""

    addr: bytes
    port: int
    message: bytes

    def encode(self, name: str) -> bytes:
        """`name`: that of the node at the address."""
        address = {"IP": self.addr, "Port": self.port, "Zone": ""}
        return b"\x09" + encode({"DestAddr": address, "DestName": name}) + self.message

    @staticmethod
    def decode(body: bytes) -> RelayMessage:
        header, message = decode_prefix(body)
        destination: Fields = map_field(as_fields(header), b"DestAddr")
        addr = bytes_field(destination, b"IP")
        if len(addr) not in (4, 16):
            raise WireError("relay without an address")
        return RelayMessage(addr, uint_field(destination, b"Port", UINT16_MAX), message)
