"""The plugin `kafka` over its socket: what consumers get, who is let in, and what bad clients cause."""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from auth_plugin import passwd
from broker.event_log.plugin import EventLogPlugin
from broker.kafka import committed_offsets
from broker.kafka import plugin as kafka_plugin
from broker.kafka import reading as kafka_reading
from broker.kafka import server as kafka_server
from broker.kafka.frames import HEADER, SIZE
from broker.kafka.group_messages import (
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    OFFSET_FETCH,
)
from broker.kafka.messages import (
    API_VERSIONS,
    FETCH,
    INIT_PRODUCER_ID,
    METADATA,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
    SASL_HANDSHAKE,
)
from broker.server.lifecycle import Server
from certificates import Authority
from kafka_client import KafkaClient, fetch_request, join_request
from kafka_server import TOPICS, address, plugin, publish, samples, with_kafka
from mqtt_client import Clients
from node_process import Nodes, free_port
from scram_client import final_message
from waiting import DEADLINE, eventually

StartServer = Callable[[dict[str, Any]], Awaitable[Server]]


@pytest.fixture
async def server(start_server: StartServer, tmp_path: Path) -> Server:
    return await start_server(with_kafka(tmp_path, free_port()))


async def test_a_consumer_gets_the_records_of_its_topic_once(server: Server) -> None:
    messages = [(f"{'sensors' if number % 2 else 'other'}/{number % 5}", b"%d" % number) for number in range(100)]
    await publish(server, *messages)
    async with KafkaClient(address(server)) as client:
        found = await client.metadata()
        assert {topic["name"]: topic["error_code"] for topic in found["topics"]} == dict.fromkeys(TOPICS, 0)
        assert [partition["leader_id"] for partition in found["topics"][0]["partitions"]] == [0]
        unknown = (await client.metadata("nothing"))["topics"][0]
        assert (unknown["error_code"], unknown["partitions"]) == (3, [])
        for topic, prefix in (("all", ""), ("sensors", "sensors/")):
            assert await client.rows(topic, 0, 100) == [
                (offset, name.encode(), payload)
                for offset, (name, payload) in enumerate(messages)
                if name.startswith(prefix)
            ]
        # From the middle, in answers of some records each.
        assert len(await client.rows("sensors", 50, 100, partition_max_bytes=200)) == 25
        assert samples(server, "gmqtt_kafka_records_total")[()] >= 175


async def test_offsets_by_time(server: Server) -> None:
    await publish(server, ("a", b"1"), ("b", b"2"))
    async with KafkaClient(address(server)) as client:
        assert await client.list_offset("all", -2) == (0, -1, 0)
        assert await client.list_offset("all", -1) == (0, -1, 2)
        error, time_ms, offset = await client.list_offset("all", 0)
        assert (error, offset) == (0, 0)
        assert await client.list_offset("all", time_ms) == (0, time_ms, 0)
        assert await client.list_offset("all", 2**62 // 10**6) == (0, -1, -1)
        assert (await client.list_offset("all", -1, 5))[0] == 3
        assert (await client.list_offset("nothing", -1))[0] == 3


async def test_leader_epochs_are_the_former_ids_of_the_log(server: Server) -> None:
    """What was read under a former id is valid up to the first offset that may differ (KIP-320)."""
    log = next(each for each in server.plugins if isinstance(each, EventLogPlugin)).log
    assert log is not None
    await publish(server, ("a", b"1"), ("a", b"2"), ("a", b"3"))
    former = log.lineage.number
    log.lineage = log.lineage.child("another", 2)
    async with KafkaClient(address(server)) as client:
        for epoch, end, known in ((former, 2, former), (former + 1, 3, former + 1), (former + 2, -1, -1)):
            each = {"partition": 0, "current_leader_epoch": former + 1, "leader_epoch": epoch}
            topics = [{"topic": "all", "partitions": [each]}]
            answer = await client.call(OFFSET_FOR_LEADER_EPOCH, {"replica_id": -1, "topics": topics})
            found = answer["topics"][0]["partitions"][0]
            assert (found["end_offset"], found["leader_epoch"]) == (end, known)
        errors = [
            (await client.fetch("all", 0, current_leader_epoch=former + later))["error_code"] for later in (0, 1, 2)
        ]
        assert errors == [74, 0, 75]


async def test_producers_are_refused(server: Server) -> None:
    async with KafkaClient(address(server)) as client:
        topics = [{"name": "all", "partition_data": [{"index": 0, "records": b"x" * 100_000}]}]
        values = {"transactional_id": None, "acks": 1, "timeout_ms": 1, "topic_data": topics}
        answer = await client.call(PRODUCE, values)
        found = answer["responses"][0]["partition_responses"][0]
        assert found["error_code"] == 29
        assert "read only" in found["error_message"]
        ids = {"transactional_id": None, "transaction_timeout_ms": 1, "producer_id": -1, "producer_epoch": -1}
        assert (await client.call(INIT_PRODUCER_ID, ids))["error_code"] == 31
        client.send(PRODUCE, values | {"acks": 0})  # it wants no answer, and would not hear of an error
        assert await client.is_closed()
    assert samples(server, "gmqtt_kafka_closed_total")["produces_refused",] == 1


async def test_groups_share_their_partitions(server: Server) -> None:
    async with KafkaClient(address(server), "one") as one, KafkaClient(address(server), "two") as two:
        found = await one.call(FIND_COORDINATOR, {"key": "g", "key_type": 0})
        assert (found["error_code"], found["node_id"]) == (0, 0)
        assert (await one.call(FIND_COORDINATOR, {"key": "g", "key_type": 1}))["error_code"] == 53
        first = await one.join("g")
        assert (first["error_code"], first["leader"]) == (0, first["member_id"])
        assert (await one.sync("g", first, {first["member_id"]: b"all"}))["assignment"] == b"all"
        second = asyncio.create_task(two.join("g"))
        beat = {"group_id": "g", "member_id": first["member_id"], "group_instance_id": None}
        beat["generation_id"] = first["generation_id"]

        async def must_join_again() -> bool:
            return bool((await one.call(HEARTBEAT, beat))["error_code"] == 27)

        await eventually(must_join_again, "the first member hears of the second one")
        again = await one.join("g", first["member_id"])
        joined = await second
        assert again["generation_id"] == joined["generation_id"] == first["generation_id"] + 1
        assert {each["member_id"] for each in again["members"]} == {again["member_id"], joined["member_id"]}
        waiting = asyncio.create_task(two.sync("g", joined, {}))
        shares = {again["member_id"]: b"1", joined["member_id"]: b"2"}
        assert (await one.sync("g", again, shares))["assignment"] == b"1"
        assert (await waiting)["assignment"] == b"2"
        # Only members of this generation commit.
        assert await one.commit("g", "all", 5) == 25
        assert (await one.call(LIST_GROUPS, {"states_filter": ["Empty", "dead"]}))["groups"] == []
        listed = await one.call(LIST_GROUPS, {"states_filter": ["STABLE"]})
        assert listed == await one.call(LIST_GROUPS, {"states_filter": []})
        assert [group["group_id"] for group in listed["groups"]] == ["g"]
        described = await one.call(DESCRIBE_GROUPS, {"groups": ["g", "h", "g"], "include_authorized_operations": False})
        states = [(group["group_state"], len(group["members"])) for group in described["groups"]]
        assert states == [("Stable", 2), ("Dead", 0)]
        leaving = [{"member_id": again["member_id"], "group_instance_id": None}]
        assert (await one.call(LEAVE_GROUP, {"group_id": "g", "members": leaving}))["members"][0]["error_code"] == 0


async def test_committed_offsets(server: Server) -> None:
    await publish(server, ("a", b"1"))
    async with KafkaClient(address(server)) as client:
        assert await client.committed("g/+#", "all") == (-1, "")
        assert await client.commit("g/+#", "all", 7) == 0
        assert await client.committed("g/+#", "all") == (7, "m")
        assert await client.committed("g", "all") == (-1, "")
        assert await client.commit("h", "sensors", 8) == 0
        assert await client.commit("h", "all", 9) == 0
        values = {"group_id": "h", "topics": None, "require_stable": False}
        found = (await client.call(OFFSET_FETCH, values))["topics"]
        offsets = {topic["name"]: [each["committed_offset"] for each in topic["partitions"]] for topic in found}
        assert offsets == {"sensors": [8], "all": [9]}
        assert await client.commit("g", "nothing", 1) == 3
        assert await client.commit("g", "all", 1, 9) == 3
        assert await client.commit("g", "all", 1, committed_metadata="x" * 5_000) == 12
        assert await client.commit("", "all", 1) == 24


async def test_committed_offsets_are_renewed_while_the_group_has_members(
    start_server: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_plugin, "RENEW_SECONDS", 0.01)
    monkeypatch.setattr(committed_offsets, "RENEWAL_SECONDS", 0.0)
    server = await start_server(with_kafka(tmp_path, free_port()))

    def expires_at(group: str) -> float:
        message = server.broker.retained.get(b"$kafka/offsets/%s/all/0" % group.encode())
        assert message is not None
        return message.expires_at

    async with KafkaClient(address(server)) as client:
        assert [await client.commit(group, "all", 7) for group in "gh"] == [0, 0]
        before = {group: expires_at(group) for group in "gh"}
        await client.join("g")
        await eventually(lambda: expires_at("g") > before["g"], "it is renewed")
        assert expires_at("h") == before["h"]
        assert await client.committed("g", "all") == (7, "m")


RULES = """
user reader
topic read sensors/#
"""


async def test_logins_and_rules(start_server: StartServer, tmp_path: Path) -> None:
    accounts, rules = tmp_path / "accounts", tmp_path / "rules"
    assert passwd("-c", "-b", "--scram", str(accounts), "reader", "secret").returncode == 0
    assert passwd("-b", str(accounts), "other", "secret").returncode == 0
    rules.write_text(RULES)
    settings = with_kafka(tmp_path, free_port())
    settings["plugin_order"] = ["auth", "event_log", "kafka"]
    settings["plugins"]["auth"] = {
        "password_file": str(accounts),
        "scram": True,
        "acl_file": str(rules),
        "allow_anonymous": False,
    }
    server = await start_server(settings)
    await publish(server, ("sensors/1", b"seen"), ("other", b"hidden"), ("sensors/2", b"seen"))
    async with KafkaClient(address(server)) as client:
        answer = await client.login("PLAIN", b"\0reader\0secret")
        assert (answer["error_code"], answer["error_message"]) == (0, None)
        assert answer["session_lifetime_ms"] > 0
        assert [row[0] for row in await client.rows("all", 0, 3)] == [0, 2]
    async with KafkaClient(address(server)) as client:
        first = b"n,,n=reader,r=abcdef"
        challenge = (await client.login("SCRAM-SHA-256", first))["auth_bytes"]
        answer = await client.authenticate(final_message(first, challenge, "secret"))
        assert answer["error_code"] == 0
        assert base64.b64decode(answer["auth_bytes"].removeprefix(b"v="))
        assert len(await client.rows("sensors", 0, 3)) == 2
    async with KafkaClient(address(server)) as client:
        await client.login("PLAIN", b"\0other\0secret")  # without rules
        found = await client.metadata("sensors", "all")
        assert [topic["error_code"] for topic in found["topics"]] == [29, 29]
        assert (await client.metadata())["topics"] == []
        assert (await client.fetch("sensors", 0))["error_code"] == 29
        assert await client.commit("g", "sensors", 1) == 29
    for mechanism, data in (("PLAIN", b"\0reader\0wrong"), ("PLAIN", b"nonsense"), ("SCRAM-SHA-256", b"nonsense")):
        async with KafkaClient(address(server)) as client:
            answer = await client.login(mechanism, data)
            assert answer["error_code"] == 58
            assert b"secret" not in answer["error_message"].encode()
            assert await client.is_closed()
    async with KafkaClient(address(server)) as client:
        first = b"n,,n=reader,r=abcdef"
        challenge = (await client.login("SCRAM-SHA-256", first))["auth_bytes"]
        assert (await client.authenticate(final_message(first, challenge, "wrong")))["error_code"] == 58
    async with KafkaClient(address(server)) as client:  # nobody
        client.send(FETCH, fetch_request("sensors", 0))
        assert await client.is_closed()
    async with KafkaClient(address(server)) as client:
        assert (await client.call(SASL_HANDSHAKE, {"mechanism": "GSSAPI"}))["error_code"] == 33
        assert (await client.authenticate(b""))["error_code"] == 34
    assert samples(server, "gmqtt_kafka_closed_total")["logins_refused",] == 5


async def test_certificates_of_clients(start_server: StartServer, tmp_path: Path) -> None:
    """The name in a verified certificate is the user, as over MQTT."""
    authority = Authority(tmp_path / "certificates")
    own, reader = authority.pair("localhost"), authority.pair("reader")
    rules = tmp_path / "rules"
    rules.write_text(RULES)
    settings = with_kafka(tmp_path, free_port())
    settings["plugin_order"] = ["auth", "event_log", "kafka"]
    settings["plugins"]["auth"] = {"use_identity_as_username": True, "acl_file": str(rules), "allow_anonymous": False}
    tls = {"cert": own.cert, "key": own.key, "cacert": authority.cacert}
    settings["plugins"]["kafka"]["tls"] = tls
    server = await start_server(settings)
    await publish(server, ("sensors/1", b"seen"), ("other", b"hidden"))
    context = ssl.create_default_context(cafile=authority.cacert)
    context.check_hostname = False
    async with KafkaClient(address(server), tls=context) as client:
        client.send(FETCH, fetch_request("all", 0))
        assert await client.is_closed()
    context.load_cert_chain(reader.cert, reader.key)
    async with KafkaClient(address(server), tls=context) as client:
        assert [row[2] for row in await client.rows("all", 0, 2)] == [b"seen"]
        client.send(FETCH, fetch_request("all", 2, max_wait_ms=2 * round(DEADLINE) * 1000))
        client.writer.close()
        async with asyncio.timeout(DEADLINE):
            await client.writer.wait_closed()  # the end of TLS ends what waits, too
    await plugin(server).reload()


async def test_one_request_of_a_connection_in_a_turn(server: Server) -> None:
    """However many have arrived."""
    loop = asyncio.get_running_loop()
    answered = [0.0]

    def look() -> None:
        """In each turn."""
        answered.append(samples(server, "gmqtt_kafka_requests_total").get(("Metadata",), 0.0))
        if answered[-1] < 50:
            loop.call_soon(look)

    async with KafkaClient(address(server)) as client:
        values = {"topics": [{"name": "all"}]}
        versions = [client.send(METADATA, values, 0) for _ in range(50)]
        loop.call_soon(look)
        await eventually(lambda: answered[-1] == 50, "all are answered")
        assert max(later - before for before, later in pairwise(answered)) == 1.0
        assert versions == [0] * 50


async def test_a_client_that_goes_while_it_waits_leaves_nothing(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_reading, "WAIT_SECONDS_MAX", 3_600.0)

    def open_connections() -> float:
        return samples(server, "gmqtt_kafka_connections")[()]

    async with KafkaClient(address(server), "one") as one, KafkaClient(address(server), "two") as two:
        joined = await one.join("g")
        await one.sync("g", joined, {})
        told = await two.call(JOIN_GROUP, join_request("g", ""))
        two.send(JOIN_GROUP, join_request("g", told["member_id"]))  # waits until the first one has joined again
        await eventually(lambda: samples(server, "gmqtt_kafka_group_members")[()] == 2, "the second one waits")
        async with KafkaClient(address(server)) as three:
            three.send(FETCH, fetch_request("sensors", 0, max_wait_ms=3_600_000))
            await eventually(lambda: open_connections() == 3, "the third one waits")
            # With this option the kernel sends a reset.
            linger = struct.pack("ii", 1, 0)
            three.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            three.writer.transport.abort()
            await eventually(lambda: open_connections() == 2, "the one that was reset is closed")
    await eventually(lambda: open_connections() == 0, "all connections are closed")


@pytest.mark.parametrize(
    "data",
    [
        SIZE.pack(2**31 - 1),
        SIZE.pack(-1),
        SIZE.pack(0),
        SIZE.pack(3) + b"abc",
        SIZE.pack(14) + HEADER.pack(FETCH, 99, 1) + b"\xff\xff" + bytes(4),
        SIZE.pack(14) + HEADER.pack(999, 0, 1) + b"\xff\xff" + bytes(4),
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
async def test_bad_requests_end_their_connection_only(server: Server, data: bytes) -> None:
    async with KafkaClient(address(server)) as good, KafkaClient(address(server)) as bad:
        bad.writer.write(data)
        assert await bad.is_closed()
        assert samples(server, "gmqtt_kafka_closed_total")["requests_bad",] == 1
        assert (await good.call(API_VERSIONS, {"client_software_name": "t", "client_software_version": "1"}))[
            "api_keys"
        ]


async def clients_that_never_read(server: Server, count: int) -> list[KafkaClient]:
    """Each sends one Fetch behind the other: the node answers them one after the other."""
    clients = [KafkaClient(address(server)) for _ in range(count)]
    for client in clients:
        await client.__aenter__()
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(8):
            client.send(FETCH, fetch_request("sensors", 0))
    return clients


async def test_a_consumer_that_never_reads_is_closed_before_others_wait(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_server, "UNSENT_BYTES_MAX", 150_000)
    await publish(server, *(("sensors/1", b"x" * 100_000) for _ in range(60)))
    lazy = await clients_that_never_read(server, 12)
    closed = len(lazy) - 1  # an answer, of one record at least, has more than half of the bytes
    await eventually(
        lambda: samples(server, "gmqtt_kafka_closed_total")["answers_not_taken",] == closed, "all but one are closed"
    )
    async with KafkaClient(address(server)) as client:
        assert len(await client.rows("sensors", 0, 60)) == 60
    for client in lazy:
        client.writer.transport.abort()


async def test_consumers_that_take_all_are_not_closed_for_the_turns_of_the_node(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_server, "UNSENT_BYTES_MAX", 30_000)
    await publish(server, *(("sensors/1", b"x" * 20_000) for _ in range(10)))
    async with AsyncExitStack() as stack:
        consumers = [await stack.enter_async_context(KafkaClient(address(server))) for _ in range(8)]
        found = await asyncio.gather(*(consumer.rows("sensors", 0, 10) for consumer in consumers))
    assert [len(rows) for rows in found] == [10] * len(consumers)
    assert samples(server, "gmqtt_kafka_closed_total")["answers_not_taken",] == 0


async def test_a_client_that_never_reads_costs_little(server: Server) -> None:
    """Until the kernel has no room for it: less than one whole answer of Fetch."""
    await publish(server, *(("sensors/1", b"x" * 10_000) for _ in range(150)))
    lazy = await clients_that_never_read(server, 3)
    kafka, reading = plugin(server)._server, plugin(server)._reading
    assert kafka is not None
    assert reading is not None
    await eventually(lambda: len(kafka._unsent) == len(lazy), "the node waits for all of them")
    answered, made = kafka.requests["Fetch"], reading.bytes
    assert answered < 8 * len(lazy)
    assert made < kafka_reading.FETCH_BYTES_MAX * len(lazy)
    async with KafkaClient(address(server)) as client:
        assert len(await client.rows("sensors", 0, 150)) == 150
        assert kafka.requests["Fetch"] == answered + client._number
    for client in lazy:
        client.writer.transport.abort()
    await eventually(lambda: len(kafka) == 0, "the connections have ended")


async def test_connections_are_bounded(start_server: StartServer, tmp_path: Path) -> None:
    settings = with_kafka(tmp_path, free_port())
    settings["plugins"]["kafka"]["max_connections"] = 2
    server = await start_server(settings)
    clients = [KafkaClient(address(server)) for _ in range(4)]
    async with clients[0] as silent, clients[1] as other, clients[2] as one, clients[3] as two:
        for client in (one, two):
            assert (await client.metadata())["topics"]
        for client in (silent, other):  # they made room
            assert await client.is_closed()
        async with KafkaClient(address(server)) as three:
            assert await three.is_closed()
    assert samples(server, "gmqtt_kafka_closed_total")["connections_refused",] == 3


@pytest.mark.one_process("reads partition 0 at the first worker; each worker leads the partition of its own log")
async def test_a_consumer_goes_on_after_a_kill(nodes: Nodes, clients: Clients, tmp_path: Path) -> None:
    """What was committed is on disk, where the node has a store."""
    port = free_port()
    settings = with_kafka(tmp_path, port) | {"data_dir": str(tmp_path / "data"), "persistence": {"type": "sqlite"}}
    node = await nodes.start(settings)
    publisher = await clients.connect(node.port, "p")
    for number in range(20):
        await publisher.publish("sensors/1", b"%d" % number, 1)
    async with KafkaClient(f"127.0.0.1:{port}") as client:
        rows = await client.rows("sensors", 0, 20)
        assert await client.commit("g", "sensors", rows[11][0] + 1) == 0
    await node.kill()
    await node.start()
    async with KafkaClient(f"127.0.0.1:{port}") as client:
        offset, _ = await client.committed("g", "sensors")
        assert [row[2] for row in await client.rows("sensors", offset, 20)] == [b"%d" % n for n in range(12, 20)]
