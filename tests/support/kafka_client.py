"""A consumer of Kafka's protocol for tests, on the tables of the product: requests out, answers in, one after the other."""

from __future__ import annotations

import asyncio
import ssl
import struct
from types import TracebackType
from typing import Any

from broker.kafka.fields import Reader, decode, encode
from broker.kafka.frames import APIS, HEADER, SIZE
from broker.kafka.group_messages import JOIN_GROUP, OFFSET_COMMIT, OFFSET_FETCH, SYNC_GROUP
from broker.kafka.messages import API_VERSIONS, FETCH, LIST_OFFSETS, METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE
from waiting import DEADLINE

Row = tuple[int, bytes, bytes]  # offset, key, value


class KafkaClient:
    """Use it as an asynchronous context."""

    def __init__(self, address: str, client_id: str = "test", tls: ssl.SSLContext | None = None) -> None:
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._client_id = client_id
        self._tls = tls
        self._number = 0

    async def __aenter__(self) -> KafkaClient:
        self.reader, self.writer = await asyncio.open_connection(self._host, self._port, ssl=self._tls)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.writer.close()

    def send(self, key: int, values: dict[str, Any], version: int | None = None) -> int:
        """Returns the version."""
        api = APIS[key]
        version = api.last_version if version is None else version
        self._number += 1
        client_id = self._client_id.encode()
        tags = b"\0" if version >= api.request.flexible else b""
        data = HEADER.pack(key, version, self._number) + struct.pack(">h", len(client_id)) + client_id + tags
        data += encode(api.request, version, values)
        self.writer.write(SIZE.pack(len(data)) + data)
        return version

    async def receive(self, key: int, version: int, sent_since: int = 0) -> dict[str, Any]:
        """The answer to the last request, or to one with so many behind it."""
        async with asyncio.timeout(DEADLINE):
            size = SIZE.unpack(await self.reader.readexactly(4))[0]
            data = await self.reader.readexactly(size)
        assert SIZE.unpack(data[:4])[0] == self._number - sent_since
        message = APIS[key].answer
        has_tags = version >= message.flexible and key != API_VERSIONS
        reader = Reader(data[5:] if has_tags else data[4:])
        values = decode(message, version, reader)
        assert reader.left == 0
        return values

    async def call(self, key: int, values: dict[str, Any], version: int | None = None) -> dict[str, Any]:
        return await self.receive(key, self.send(key, values, version))

    async def is_closed(self) -> bool:
        """Wait for the end of the connection, which the node closes."""
        async with asyncio.timeout(DEADLINE):
            try:
                return await self.reader.read() == b""
            except ConnectionError:
                return True

    # --- requests

    async def metadata(self, *topics: str) -> dict[str, Any]:
        values = {
            "topics": [{"name": topic} for topic in topics] if topics else None,
            "allow_auto_topic_creation": False,
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": False,
        }
        return await self.call(METADATA, values)

    async def list_offset(self, topic: str, timestamp: int, partition: int = 0) -> tuple[int, int, int]:
        """(error, milliseconds, offset)."""
        asked = {"partition_index": partition, "current_leader_epoch": -1, "timestamp": timestamp}
        values = {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [{"name": topic, "partitions": [asked]}],
        }
        found = (await self.call(LIST_OFFSETS, values))["topics"][0]["partitions"][0]
        return found["error_code"], found["timestamp"], found["offset"]

    async def fetch(self, topic: str, offset: int, partition: int = 0, **changed: Any) -> dict[str, Any]:
        """The answer about one partition."""
        answer = await self.call(FETCH, fetch_request(topic, offset, partition, **changed))
        assert answer["error_code"] == 0
        found: dict[str, Any] = answer["responses"][0]["partitions"][0]
        return found

    async def rows(self, topic: str, offset: int, end: int, partition: int = 0, **changed: Any) -> list[Row]:
        """All records of start..end - 1, in as many answers as it takes."""
        found: list[Row] = []
        while offset < end:
            answer = await self.fetch(topic, offset, partition, **changed)
            assert answer["error_code"] == 0, answer
            part, following = read_rows(answer["records"])
            found += [row for row in part if row[0] >= offset]
            offset = max(following, offset)
        return found

    async def login(self, mechanism: str, data: bytes) -> dict[str, Any]:
        await self.call(SASL_HANDSHAKE, {"mechanism": mechanism})
        return await self.authenticate(data)

    async def authenticate(self, data: bytes) -> dict[str, Any]:
        return await self.call(SASL_AUTHENTICATE, {"auth_bytes": data})

    async def commit(self, group: str, topic: str, offset: int, partition: int = 0, **changed: Any) -> int:
        """Returns the error."""
        each = {
            "partition_index": partition,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "m",
        }
        values = {
            "group_id": group,
            "generation_id": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [{"name": topic, "partitions": [each | changed]}],
        }
        answer = await self.call(OFFSET_COMMIT, values)
        return int(answer["topics"][0]["partitions"][0]["error_code"])

    async def committed(self, group: str, topic: str, partition: int = 0) -> tuple[int, str]:
        """(offset, metadata)."""
        topics = [{"name": topic, "partition_indexes": [partition]}]
        answer = await self.call(OFFSET_FETCH, {"group_id": group, "topics": topics, "require_stable": False})
        assert answer["error_code"] == 0, answer
        found = answer["topics"][0]["partitions"][0]
        return found["committed_offset"], found["metadata"]

    async def join(self, group: str, member_id: str = "") -> dict[str, Any]:
        answer = await self.call(JOIN_GROUP, join_request(group, member_id))
        if answer["error_code"] == 79:
            answer = await self.call(JOIN_GROUP, join_request(group, answer["member_id"]))
        return answer

    async def sync(self, group: str, joined: dict[str, Any], assignments: dict[str, bytes]) -> dict[str, Any]:
        values = {
            "group_id": group,
            "generation_id": joined["generation_id"],
            "member_id": joined["member_id"],
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [{"member_id": key, "assignment": value} for key, value in assignments.items()],
        }
        return await self.call(SYNC_GROUP, values)


def join_request(
    group: str, member_id: str, session_ms: int = 10_000, instance_id: str | None = None
) -> dict[str, Any]:
    return {
        "group_id": group,
        "session_timeout_ms": session_ms,
        "rebalance_timeout_ms": 60_000,
        "member_id": member_id,
        "group_instance_id": instance_id,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"meta"}],
    }


def fetch_request(topic: str, offset: int, partition: int = 0, **changed: Any) -> dict[str, Any]:
    each = {
        "partition": partition,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 2**20,
    }
    values = {
        "replica_id": -1,
        "max_wait_ms": 500,
        "min_bytes": 1,
        "max_bytes": 2**20,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [each]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    for name, value in changed.items():
        (values if name in values else each)[name] = value
    return values


def read_rows(parts: list[bytes]) -> tuple[list[Row], int]:
    """The records of batches, and the offset behind them."""
    data = b"".join(parts)
    found: list[Row] = []
    at = following = 0
    while at < len(data):
        base, size = struct.unpack_from(">qi", data, at)
        last, count = struct.unpack_from(">i", data, at + 23)[0], struct.unpack_from(">i", data, at + 57)[0]
        following = base + last + 1
        position = at + 61
        for _ in range(count):
            length, position = _varint(data, position)
            end = position + length
            _, position = _varint(data, position + 1)
            delta, position = _varint(data, position)
            key, position = _sized(data, position)
            value, position = _sized(data, position)
            found.append((base + delta, key, value))
            position = end
        at += 12 + size
    return found, following


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at


def _sized(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = _varint(data, at)
    return data[at : at + size], at + size
