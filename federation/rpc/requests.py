"""The commands of the RPC and the bodies of their requests (wire-gossip 11.2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from federation.gossip.errors import WireError
from federation.gossip.message_fields import MessageMap, uint8_field, wire
from federation.gossip.msgpack_fields import (
    INT64_MAX,
    Fields,
    as_text,
    bool_field,
    bytes_field,
    map_field,
    text_field,
    texts_field,
    uint_field,
)

SEQUENCE_MAX: Final = (1 << 64) - 1
sequence_field: Final = partial(uint_field, maximum=SEQUENCE_MAX)


def _text_map_field(fields: Fields, key: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in map_field(fields, key).items():
        found[as_text(name, key)] = as_text(value, key)
    return found


@dataclass(slots=True)
class RequestHeader(MessageMap):
    command: str = wire("Command", text_field)
    sequence: int = wire("Seq", sequence_field)


@dataclass(slots=True)
class Handshake(MessageMap):
    version: int = wire("Version", partial(uint_field, maximum=INT64_MAX))


@dataclass(slots=True)
class Auth(MessageMap):
    key: str = wire("AuthKey", text_field)


@dataclass(slots=True)
class MembersFiltered(MessageMap):
    """Regular expressions that match whole texts; an empty name or status is no filter."""

    name: str = wire("Name", text_field)
    status: str = wire("Status", text_field)
    tags: Mapping[str, str] = wire("Tags", _text_map_field)


@dataclass(slots=True)
class Join(MessageMap):
    """`replay`: user events of before the join are delivered, too."""

    existing: tuple[str, ...] | None = wire("Existing", texts_field)
    replay: bool = wire("Replay", bool_field)


@dataclass(slots=True)
class ForceLeave(MessageMap):
    node: str = wire("Node", text_field)
    prune: bool = wire("Prune", bool_field)


@dataclass(slots=True)
class SendEvent(MessageMap):
    name: str = wire("Name", text_field)
    payload: bytes = wire("Payload", bytes_field)
    coalesce: bool = wire("Coalesce", bool_field)


@dataclass(slots=True)
class SendQuery(MessageMap):
    filter_nodes: tuple[str, ...] | None = wire("FilterNodes", texts_field)
    filter_tags: Mapping[str, str] = wire("FilterTags", _text_map_field)
    request_ack: bool = wire("RequestAck", bool_field)
    relay_factor: int = wire("RelayFactor", uint8_field)
    timeout_ns: int = wire("Timeout", partial(uint_field, maximum=INT64_MAX))
    name: str = wire("Name", text_field)
    payload: bytes = wire("Payload", bytes_field)


@dataclass(slots=True)
class Respond(MessageMap):
    query_id: int = wire("ID", sequence_field)
    payload: bytes = wire("Payload", bytes_field)


@dataclass(slots=True)
class Stream(MessageMap):
    filter: str = wire("Type", text_field)


@dataclass(slots=True)
class Monitor(MessageMap):
    level: str = wire("LogLevel", text_field)


@dataclass(slots=True)
class Stop(MessageMap):
    sequence: int = wire("Stop", sequence_field)


@dataclass(slots=True)
class SetTags(MessageMap):
    tags: Mapping[str, str] = wire("Tags", _text_map_field)
    delete: tuple[str, ...] | None = wire("DeleteTags", texts_field)


@dataclass(slots=True)
class GetCoordinate(MessageMap):
    node: str = wire("Node", text_field)


@dataclass(slots=True)
class KeyRequest(MessageMap):
    key: str = wire("Key", text_field)


NO_KEYS: Final[dict[str, object]] = {"Keys": None, "Messages": {}, "NumErr": 0, "NumNodes": 0, "NumResp": 0}
NO_COORDINATE: Final[dict[str, object]] = {
    "Coord": {"Adjustment": 0.0, "Error": 0.0, "Height": 0.0, "Vec": None},
    "Ok": False,
}


@dataclass(frozen=True, slots=True)
class Command:
    """`body`: of the request, None for none. `empty`: the body that stands behind an error, None where responses have no
    body."""

    body: type[MessageMap] | None = None
    empty: object = None


COMMANDS: Final[dict[str, Command]] = {
    "handshake": Command(Handshake),
    "auth": Command(Auth),
    "members": Command(None, {"Members": []}),
    "members-filtered": Command(MembersFiltered, {"Members": []}),
    "join": Command(Join, {"Num": 0}),
    "leave": Command(),
    "force-leave": Command(ForceLeave),
    "event": Command(SendEvent),
    "query": Command(SendQuery),
    "respond": Command(Respond),
    "stream": Command(Stream),
    "monitor": Command(Monitor),
    "stop": Command(Stop),
    "tags": Command(SetTags),
    "stats": Command(None, {}),
    "get-coordinate": Command(GetCoordinate, NO_COORDINATE),
    "install-key": Command(KeyRequest, NO_KEYS),
    "use-key": Command(KeyRequest, NO_KEYS),
    "remove-key": Command(KeyRequest, NO_KEYS),
    "list-keys": Command(None, NO_KEYS),
}


def decode_body(command: Command, value: object) -> MessageMap:
    """Raises WireError for fields of another type."""
    if not isinstance(value, dict):
        raise WireError("the body of the request is no map")
    assert command.body is not None
    return command.body.from_fields(value)
