"""Requests and answers as they stand on the connection: their headers, and which versions of which request are answered."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from broker.kafka.error_codes import NONE, UNSUPPORTED_VERSION
from broker.kafka.fields import KafkaFault, Message, Reader, Values, decode, encode_parts
from broker.kafka.group_messages import (
    DESCRIBE_GROUPS,
    DESCRIBE_GROUPS_REQUEST,
    DESCRIBE_GROUPS_RESPONSE,
    FIND_COORDINATOR,
    FIND_COORDINATOR_REQUEST,
    FIND_COORDINATOR_RESPONSE,
    HEARTBEAT,
    HEARTBEAT_REQUEST,
    HEARTBEAT_RESPONSE,
    JOIN_GROUP,
    JOIN_GROUP_REQUEST,
    JOIN_GROUP_RESPONSE,
    LEAVE_GROUP,
    LEAVE_GROUP_REQUEST,
    LEAVE_GROUP_RESPONSE,
    LIST_GROUPS,
    LIST_GROUPS_REQUEST,
    LIST_GROUPS_RESPONSE,
    OFFSET_COMMIT,
    OFFSET_COMMIT_REQUEST,
    OFFSET_COMMIT_RESPONSE,
    OFFSET_FETCH,
    OFFSET_FETCH_REQUEST,
    OFFSET_FETCH_RESPONSE,
    SYNC_GROUP,
    SYNC_GROUP_REQUEST,
    SYNC_GROUP_RESPONSE,
)
from broker.kafka.messages import (
    API_VERSIONS,
    API_VERSIONS_REQUEST,
    API_VERSIONS_RESPONSE,
    FETCH,
    FETCH_REQUEST,
    FETCH_RESPONSE,
    INIT_PRODUCER_ID,
    INIT_PRODUCER_ID_REQUEST,
    INIT_PRODUCER_ID_RESPONSE,
    LIST_OFFSETS,
    LIST_OFFSETS_REQUEST,
    LIST_OFFSETS_RESPONSE,
    METADATA,
    METADATA_REQUEST,
    METADATA_RESPONSE,
    OFFSET_FOR_LEADER_EPOCH,
    OFFSET_FOR_LEADER_EPOCH_REQUEST,
    OFFSET_FOR_LEADER_EPOCH_RESPONSE,
    PRODUCE,
    PRODUCE_REQUEST,
    PRODUCE_RESPONSE,
    SASL_AUTHENTICATE,
    SASL_AUTHENTICATE_REQUEST,
    SASL_AUTHENTICATE_RESPONSE,
    SASL_HANDSHAKE,
    SASL_HANDSHAKE_REQUEST,
    SASL_HANDSHAKE_RESPONSE,
)

SIZE: Final = struct.Struct(">i")  # of what follows
HEADER: Final = struct.Struct(">hhi")  # API key, version, correlation id
CLIENT_ID_SIZE: Final = struct.Struct(">h")


class Api(NamedTuple):
    """A kind of requests, and the versions of it that are answered."""

    name: str
    first_version: int
    last_version: int
    request: Message
    answer: Message

    def has(self, version: int) -> bool:
        return self.first_version <= version <= self.last_version


APIS: Final[Mapping[int, Api]] = {
    PRODUCE: Api("Produce", 3, 9, PRODUCE_REQUEST, PRODUCE_RESPONSE),
    FETCH: Api("Fetch", 4, 12, FETCH_REQUEST, FETCH_RESPONSE),
    LIST_OFFSETS: Api("ListOffsets", 1, 6, LIST_OFFSETS_REQUEST, LIST_OFFSETS_RESPONSE),
    METADATA: Api("Metadata", 0, 9, METADATA_REQUEST, METADATA_RESPONSE),
    OFFSET_COMMIT: Api("OffsetCommit", 1, 8, OFFSET_COMMIT_REQUEST, OFFSET_COMMIT_RESPONSE),
    OFFSET_FETCH: Api("OffsetFetch", 1, 7, OFFSET_FETCH_REQUEST, OFFSET_FETCH_RESPONSE),
    FIND_COORDINATOR: Api("FindCoordinator", 0, 3, FIND_COORDINATOR_REQUEST, FIND_COORDINATOR_RESPONSE),
    JOIN_GROUP: Api("JoinGroup", 0, 7, JOIN_GROUP_REQUEST, JOIN_GROUP_RESPONSE),
    HEARTBEAT: Api("Heartbeat", 0, 4, HEARTBEAT_REQUEST, HEARTBEAT_RESPONSE),
    LEAVE_GROUP: Api("LeaveGroup", 0, 4, LEAVE_GROUP_REQUEST, LEAVE_GROUP_RESPONSE),
    SYNC_GROUP: Api("SyncGroup", 0, 5, SYNC_GROUP_REQUEST, SYNC_GROUP_RESPONSE),
    DESCRIBE_GROUPS: Api("DescribeGroups", 0, 5, DESCRIBE_GROUPS_REQUEST, DESCRIBE_GROUPS_RESPONSE),
    LIST_GROUPS: Api("ListGroups", 0, 4, LIST_GROUPS_REQUEST, LIST_GROUPS_RESPONSE),
    SASL_HANDSHAKE: Api("SaslHandshake", 0, 1, SASL_HANDSHAKE_REQUEST, SASL_HANDSHAKE_RESPONSE),
    API_VERSIONS: Api("ApiVersions", 0, 3, API_VERSIONS_REQUEST, API_VERSIONS_RESPONSE),
    INIT_PRODUCER_ID: Api("InitProducerId", 0, 4, INIT_PRODUCER_ID_REQUEST, INIT_PRODUCER_ID_RESPONSE),
    OFFSET_FOR_LEADER_EPOCH: Api(
        "OffsetForLeaderEpoch", 2, 4, OFFSET_FOR_LEADER_EPOCH_REQUEST, OFFSET_FOR_LEADER_EPOCH_RESPONSE
    ),
    SASL_AUTHENTICATE: Api("SaslAuthenticate", 0, 2, SASL_AUTHENTICATE_REQUEST, SASL_AUTHENTICATE_RESPONSE),
}


class Request(NamedTuple):
    """values  None for ApiVersions of a version that is not answered: the answer of version 0 tells the client"""

    key: int
    version: int
    correlation_id: int
    client_id: str
    values: Values | None


def decode_request(data: bytes, answered: Iterable[int] = APIS) -> Request:
    """A request without its size. `answered`: the API keys. Raises KafkaFault, also for a version that is not answered: the
    connection is closed then, as Kafka does."""
    reader = Reader(data)
    key, version, correlation_id = HEADER.unpack(reader.take(HEADER.size))
    api = APIS.get(key)
    if api is None or key not in answered:
        raise KafkaFault(f"a request of the API key {key}, which is not served")
    size = CLIENT_ID_SIZE.unpack(reader.take(CLIENT_ID_SIZE.size))[0]
    try:
        client_id = reader.take(size).decode() if size > 0 else ""
    except UnicodeDecodeError:
        raise KafkaFault("the client id is not UTF-8") from None
    if not api.has(version):
        if key == API_VERSIONS:
            return Request(key, 0, correlation_id, client_id, None)
        raise KafkaFault(f"{api.name} of version {version}; served are {api.first_version} to {api.last_version}")
    if version >= api.request.flexible:
        reader.skip_tags()
    return Request(key, version, correlation_id, client_id, decode(api.request, version, reader))


def encode_answer(request: Request, values: Values) -> list[bytes]:
    """The answer with its size, in parts. Its header has tagged fields in flexible versions, but that of ApiVersions has
    never."""
    message = APIS[request.key].answer
    parts = encode_parts(message, request.version, values)
    tags = b"\0" if request.version >= message.flexible and request.key != API_VERSIONS else b""
    header = SIZE.pack(request.correlation_id) + tags
    return [SIZE.pack(len(header) + sum(map(len, parts))) + header, *parts]


def api_versions(request: Request, answered: Iterable[int]) -> Values:
    """The answer to ApiVersions."""
    return {
        "error_code": UNSUPPORTED_VERSION if request.values is None else NONE,
        "api_keys": [
            {"api_key": key, "min_version": APIS[key].first_version, "max_version": APIS[key].last_version}
            for key in answered
        ],
    }
