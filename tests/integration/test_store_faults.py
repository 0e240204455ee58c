"""A store whose sync is delayed, and one whose sync fails: nothing durable is acknowledged, all else goes on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from broker.codec import properties as props
from broker.codec.packets import Packet, PubAck, PubComp, Publish, PubRec, PubRel, SubAck, Subscribe, SubscribeFilter
from broker.errors import NotCommitted
from broker.message import Message
from broker.server.committed import committed
from broker.server.lifecycle import Server
from broker.store.sqlite_store import SqliteStore
from broker.store.store import StoreFault
from mqtt_client import Clients
from waiting import DEADLINE, eventually

EXPIRY: Final = {props.SESSION_EXPIRY_INTERVAL: 3600}
QUOTA_EXCEEDED: Final = 0x97


class GatedStore(SqliteStore):
    """Each commit waits for the gate. `fault` is what its sync raises then, None for nothing."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.gate = threading.Event()
        self.gate.set()
        self.waits = 0
        self.fault: str | None = None

    def commit(self, batch: Sequence[tuple[int, bytes | None]]) -> None:
        self.waits += 1
        assert self.gate.wait(DEADLINE)
        if self.fault is not None:
            raise StoreFault(self.fault)
        super().commit(batch)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GatedStore:
    made = GatedStore(tmp_path / "data")
    monkeypatch.setattr("broker.store.durability.make_store", lambda _settings, _folder: made)
    return made


@pytest.fixture
async def server(
    store: GatedStore, start_server: Callable[[dict[str, Any]], Awaitable[Server]]
) -> AsyncIterator[Server]:
    yield await start_server({})
    store.fault = None
    store.gate.set()


def port_of(server: Server) -> int:
    return int(server.listeners.addresses[0].rsplit(":", 1)[1])


@pytest.fixture
async def clients() -> AsyncIterator[Clients]:
    opened = Clients()
    yield opened
    await opened.close()


async def test_a_delayed_sync_delays_all_that_speaks_of_durable_state(
    server: Server, store: GatedStore, clients: Clients
) -> None:
    port = port_of(server)
    member = await clients.connect(port, "member", clean_start=False, properties=EXPIRY)
    await member.subscribe("kept", qos=2)
    sender = await clients.connect(port, "sender", properties=EXPIRY)
    plain = await clients.connect(port, "plain")
    await plain.subscribe("plain", qos=1)
    sender.send(Publish(b"kept", b"received before", 2, packet_id=3))
    await sender.answer(PubRec)
    await member.message()
    session = server.broker.sessions["member"]
    await eventually(lambda: session.inflight_length() == 0, "the QoS 2 exchange is over")
    await eventually(lambda: server.broker.commits.begun() == 0, "everything is stored")
    store.gate.clear()
    waits = store.waits
    sender.send(
        Publish(b"kept", b"1", 1, packet_id=1),
        Publish(b"kept", b"2", 2, packet_id=2),
        PubRel(3),
        Subscribe(4, [SubscribeFilter(b"x", 1)]),
    )
    joining = await clients.open(port)
    joining.send_bytes(b"\x10\x13\x00\x04MQTT\x05\x00\x00\x00\x05\x11\x00\x00\x00\x64\x00\x01j")
    await sender.ping()  # the loop has turns
    await joining.drain()
    await eventually(lambda: store.waits > waits, "a commit waits")
    for _ in range(3):
        await plain.publish("plain", b"nothing durable", qos=1)
        await sender.ping()
    assert joining.answers.empty()
    assert member.messages.qsize() == 1, "QoS 1 may come again, QoS 2 must not"
    store.gate.set()
    answers = [await sender.answer(Packet) for _ in range(4)]
    assert answers == [PubAck(1), PubRec(2), PubComp(3), SubAck(4, [1])]
    assert (await joining.answer(Packet)).__class__.__name__ == "ConnAck"
    assert [message.payload for message in await member.take(2)] == [b"1", b"2"]


async def test_a_failed_sync_acknowledges_nothing_durable(server: Server, store: GatedStore, clients: Clients) -> None:
    port = port_of(server)
    member = await clients.connect(port, "member", clean_start=False, properties=EXPIRY)
    await member.subscribe("kept", qos=1)
    await member.close()
    sender = await clients.connect(port, "sender")
    old = await clients.connect(port, "old", version=4)
    store.gate.clear()
    store.fault = "the sync failed"
    waits = store.waits
    sender.send(Publish(b"kept", b"1", 1, packet_id=1))
    old.send(Publish(b"kept", b"2", 1, packet_id=2))
    await eventually(lambda: store.waits > waits, "a commit waits")
    store.gate.set()
    assert await sender.answer(PubAck) == PubAck(1, QUOTA_EXCEEDED)
    await old.wait_closed()
    assert old.answers.empty()
    sender.send(Publish(b"kept", b"3", 1, packet_id=3))
    assert await sender.answer(PubAck) == PubAck(3, QUOTA_EXCEEDED)
    assert server.not_ready() == ["the store takes no changes: the sync failed"]
    store.fault = None
    await eventually(lambda: not server.not_ready(), "the store takes changes again")
    await sender.publish("kept", b"4", qos=1)
    assert server.broker.counters.publishes_not_stored == 3
    back = await clients.connect(port, "member", clean_start=False, properties=EXPIRY)
    payloads = [(await back.message()).payload]
    while payloads[-1] != b"4":
        payloads.append((await back.message()).payload)
    metrics = {metric.name: metric for metric in server.metrics()}
    assert "gmqtt_store_commits_total" in metrics


async def test_an_answer_of_the_api_waits_for_the_store(
    server: Server, store: GatedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await committed(server)  # nothing has changed
    store.gate.clear()
    server.broker.publish(Message(b"kept", b"x", 0, True), server.now())
    answer = asyncio.create_task(committed(server))
    waits = store.waits
    await eventually(lambda: store.waits > waits, "a commit waits")
    assert not answer.done()
    monkeypatch.setattr("broker.server.committed.COMMIT_SECONDS_MAX", 0.01)
    with pytest.raises(NotCommitted, match="the store takes no changes"):
        await committed(server)
    store.gate.set()
    await answer
