"""A node starts with what a node of an earlier commit has left (tests/data/earlier/README.md), and has all of it."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest
import redis

from broker.codec import properties as props
from broker.codec.packets import MQTT_311, PubAck, PubComp, Publish, PubRec, PubRel, Will
from broker.event_log.settings import EventLogSettings
from broker.message import NEVER
from broker.server.lifecycle import Server
from event_log_reader import AppendingLog, read_all
from federation.links.plugin import LinksPlugin
from mqtt_client import Clients, MqttClient
from redis_process import REDIS_MISSING, REDIS_SERVER, RedisServer
from repository import ROOT
from waiting import eventually

EARLIER: Final = ROOT / "tests" / "data" / "earlier"
LINK: Final = "federation-link-lima-berlin-12ab34cd"  # the client identifier of the link of another domain
HEADER: Final = {props.USER_PROPERTY: [("gmqttd-link", "1 domain=lima max-hops=2 relays=0")]}
EXPIRY: Final = {props.SESSION_EXPIRY_INTERVAL: 0xFFFFFFFF}
IN_GROUP: Final = [b"released", b"sent", b"queued1", b"queued2", b"unreleased"]

StartServer = Callable[[dict[str, Any]], Awaitable[Server]]


def folder_with(tmp_path: Path, *names: str) -> Path:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    for name in names:
        shutil.copy(EARLIER / name, folder)
    return folder


def settings(folder: Path, **others: Any) -> dict[str, Any]:
    hours = "1000000h"
    return {
        "data_dir": str(folder),
        "mqtt": {"session_expiry": hours, "message_expiry": hours, "link_session_expiry": hours},
        "plugin_order": ["links"],
        "plugins": {"links": {"domain": "berlin"}},
        **others,
    }


@pytest.fixture
async def opened() -> Any:
    clients = Clients()
    yield clients
    await clients.close()


async def resumed(clients: Clients, port: int, client_id: str, **options: Any) -> MqttClient:
    client = await clients.connect(port, client_id, clean_start=False, **options)
    assert client.connack is not None
    assert client.connack.session_present
    return client


async def payloads(client: MqttClient, count: int) -> list[bytes]:
    return [publish.payload for publish in await client.take(count)]


async def check_links(server: Server) -> None:
    """They have the client identifiers of before, so that their queues at upstreams are not lost."""
    links = next(plugin.links for plugin in server.plugins if isinstance(plugin, LinksPlugin))
    await eventually(lambda: len(links.by_id) == 2, "both links run here")
    assert {link.plan.link_id: link.client_id for link in links.by_id.values()} == {
        "d9b871ec": "federation-link-berlin-north-d9b871ec",
        "42fc1fd0": "federation-link-berlin-south-42fc1fd0",
    }
    north = links.by_id["d9b871ec"].plan.upstream
    assert (north.uris[0].username, north.uris[0].password) == ("link", "pa55/word")
    assert (north.max_hops, north.prefetch_count, north.reconnect_delay) == (2, 7, 60.0)


async def check(server: Server, clients: Clients) -> None:
    """The node has everything that the node before it had."""
    broker = server.broker
    names = ["five", "three", "member", "worker", "publisher", "dying", "delayed", LINK]
    assert set(broker.sessions) == {*names, "link:south:42fc1fd0", "$queue/workers/jobs/#"}
    await check_links(server)
    assert broker.sessions["link:south:42fc1fd0"].queue_length() == 1
    wills = {name: session.will for name, session in broker.sessions.items() if session.will is not None}
    reason = props.encode_publish_properties(user_properties=[("why", "test")])
    assert {name: pending.will for name, pending in wills.items()} == {
        "dying": Will(b"wills/dying", b"gone", 1, True, reason, None, 3_600),
        "delayed": Will(b"wills/delayed", b"later", 2, False, b"", None, 4_000_000),
    }
    assert NEVER not in [pending.at for pending in wills.values()]
    port = int(server.listeners.addresses[0].rpartition(":")[2])
    await check_qos_2(clients, port)
    three = await resumed(clients, port, "three", version=MQTT_311)
    assert await payloads(three, 1) == [b"queued1"]
    member = await resumed(clients, port, "member", properties=EXPIRY)
    assert await payloads(member, 5) == IN_GROUP
    worker = await resumed(clients, port, "worker", properties=EXPIRY)
    assert await payloads(worker, 3) == [b"job0", b"job1", b"job2"]
    lima = await resumed(clients, port, LINK, properties=EXPIRY | HEADER)
    copies = await lima.take(5)
    assert [copy.payload for copy in copies] == IN_GROUP
    assert b"path=berlin" in copies[0].properties
    reader = await clients.connect(port, "reader")
    await reader.subscribe("kept/#")
    kept = {publish.topic: publish for publish in await reader.take(2)}
    assert {topic: publish.payload.decode() for topic, publish in kept.items()} == {
        b"kept/one": "1",
        b"kept/two": "zwölf",
    }
    assert kept[b"kept/two"].properties == props.encode_publish_properties(1, user_properties=[("unit", "C")])
    await reader.ping()
    assert reader.messages.empty()


async def check_qos_2(clients: Clients, port: int) -> None:
    """Exchanges in both directions go on where they were, and what waited follows."""
    five = await resumed(clients, port, "five", properties=EXPIRY)
    first = await five.take(1)
    assert [(each.payload, each.qos, each.dup, each.packet_id) for each in first] == [(b"sent", 2, True, 2)]
    waited = await five.take(4)
    assert [each.payload for each in waited] == [b"queued1", b"queued2", b"unreleased", b"21.5"]
    assert waited[0].properties == props.encode_publish_properties(
        None, "text/plain", b"answer", b"\x01\x02", [("k", "v"), ("k", "w")]
    )
    assert 0 < waited[1].message_expiry_interval < 4_000_000_000
    assert waited[0].subscription_identifiers == (9,)
    publisher = await resumed(clients, port, "publisher", properties=EXPIRY)
    publisher.send(Publish(b"a/c", b"unreleased", 2, False, True, 7))
    assert (await publisher.answer(PubRec)).packet_id == 7
    publisher.send(PubRel(7))
    await publisher.answer(PubComp)
    publisher.send(Publish(b"a/c", b"new", 1, False, False, 8))
    assert (await publisher.answer(PubAck)).packet_id == 8
    assert await payloads(five, 1) == [b"new"]  # and no second `unreleased`
    await publisher.close()


async def test_a_sqlite_store(start_server: StartServer, opened: Clients, tmp_path: Path) -> None:
    folder = folder_with(tmp_path, "store.db", "definitions.json")
    server = await start_server(settings(folder))
    await check(server, opened)
    await server.stop()
    await check_links(await start_server(settings(folder)))


@pytest.mark.skipif(REDIS_SERVER is None, reason=REDIS_MISSING)
async def test_the_records_of_a_redis(start_server: StartServer, opened: Clients, tmp_path: Path) -> None:
    folder = folder_with(tmp_path, "definitions.json")
    place = tmp_path / "redis"
    place.mkdir()
    server = RedisServer(place)
    server.start()
    try:
        with redis.Redis(port=server.port) as client:
            for key, value in json.loads((EARLIER / "redis.json").read_text()).items():
                if isinstance(value, str):
                    client.set(key, value)
                else:
                    client.hset(key, mapping={field: base64.b64decode(text) for field, text in value.items()})
        store = {"type": "redis", "redis": {"addr": f"127.0.0.1:{server.port}"}}
        node = await start_server(settings(folder, persistence=store))
        await check(node, opened)
        await node.stop()
    finally:
        server.kill()


async def test_an_event_log(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    shutil.copytree(EARLIER / "event_log", folder)
    before = json.loads((folder / "log.json").read_text())["log_id"]
    log = AppendingLog(EventLogSettings(dir=str(folder)), "n1")
    await log.start()
    records = await read_all(log)
    assert log.log_id == before
    log.append(b"t", b"new")
    await log.flush()
    assert [record.payload for record in await read_all(log, len(records))] == [b"new"]
    await log.stop()
    assert [record.offset for record in records] == list(range(len(records)))
    assert [record.payload for record in records[:5]] == IN_GROUP
    assert {record.topic for record in records} == {
        *(b"a/b", b"a/c", b"jobs/0", b"jobs/1", b"jobs/2", b"pushed/x", b"sensors/1"),
        *(b"kept/one", b"kept/two", b"kept/deleted"),
    }
    assert {record.client_id for record in records} == {"publisher"}
