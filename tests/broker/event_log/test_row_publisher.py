"""Rows of a block: all at once where only the log gets them, one by one where somebody else does."""

from __future__ import annotations

import asyncio

import pytest

from broker.codec.packets import SubscribeFilter
from broker.config.settings import Settings
from broker.errors import MqttError
from broker.event_log.appender import Appender, State
from broker.event_log.block import read_header
from broker.event_log.records import Record, records
from broker.event_log.row_publisher import ROWS_OF_STEP, RowPublisher
from broker.event_log.selection import Selection
from broker.event_log.staged_block import StagedBlock
from broker.event_log.staged_rows import MARKER, RowSet, marker_prefix
from broker.event_log.tap import LogTap
from broker.hooks import Tap
from broker.message import Message
from broker.publisher import Publisher
from broker.server.host import Host
from broker.session.session import Session
from row_blocks import Row, a_row, block_of

NOW = 100.0
FIRST = 40  # number of the first row


class World:
    def __init__(self) -> None:
        self.broker = Host(Settings()).broker
        self.appender = Appender(0)
        self.tap = LogTap(self.broker, self.appender, Selection([b"other/#"]), lambda: 5_000, lambda: None, waits=True)
        self.broker.add_tap(self.tap)
        self.publisher = Publisher(None)

    def rows(self, *given: Row, logged: RowSet | None = None, routed: int = 1_000) -> RowPublisher:
        data = block_of(given)
        header = read_header(data)
        assert header is not None
        return RowPublisher(StagedBlock(data, 0, header), marker_prefix("q", 1), FIRST, logged or RowSet(), routed)

    def publish_all(self, rows: RowPublisher) -> None:
        rows.publish_all(self.broker, self.tap, self.publisher, NOW)

    def publish_some(self, rows: RowPublisher) -> None:
        rows.publish_some(self.broker, self.tap, self.publisher, NOW)

    def logged(self) -> list[Record]:
        return [record for block in self.appender.take() for record in records(block.take(0))]


@pytest.fixture
async def world() -> World:
    await asyncio.sleep(0)
    return World()


def row_numbers(found: list[Record]) -> list[int]:
    markers = [dict(record.user_properties)[MARKER] for record in found]
    return [int(marker.removeprefix(marker_prefix("q", 1))) for marker in markers]


ROWS = [a_row("a", b"1", 1), a_row("b", b"22", 2, False, [("k", "v")]), a_row("a", b"333")]


async def test_rows_without_receivers_are_logged_as_one_block(world: World) -> None:
    rows = world.rows(*ROWS)
    world.publish_all(rows)
    assert rows.is_done
    assert world.appender.is_urgent
    assert world.broker.counters.messages_received == [1, 1, 1]
    (block,) = world.appender.take()
    found = list(records(block.take(7)))
    assert [(record.offset, record.topic, record.payload, record.qos) for record in found] == [
        (7, "a", b"1", 1),
        (8, "b", b"22", 2),
        (9, "a", b"333", 0),
    ]
    assert found[1].user_properties == [("k", "v"), (MARKER, "q/1/41")]


async def test_records_before_the_block_keep_their_place(world: World) -> None:
    world.appender.append(b"before", b"", 0, ("", "", ""), b"")
    world.publish_all(world.rows(*ROWS))
    world.appender.append(b"after", b"", 0, ("", "", ""), b"")
    assert world.appender.records == 5
    assert [record.topic for record in world.logged()] == ["before", "a", "b", "a", "after"]


async def test_both_ways_log_the_same(world: World) -> None:
    world.publish_all(world.rows(*ROWS))
    at_once = world.logged()
    rows = world.rows(*ROWS)
    world.publish_some(rows)
    assert rows.is_done
    one_by_one = world.logged()
    assert [record[2:] for record in at_once] == [record[2:] for record in one_by_one]


async def test_rows_that_are_logged_are_left_out(world: World) -> None:
    logged = RowSet()
    logged.add(FIRST + 1)
    rows = world.rows(*ROWS, logged=logged)
    world.publish_all(rows)
    assert rows.row == FIRST, "some of the block are there"
    world.publish_some(rows)
    found = world.logged()
    assert row_numbers(found) == [FIRST, FIRST + 2]
    assert [record.payload for record in found] == [b"1", b"333"]


async def test_logged_rows_that_subscribers_may_lack_go_to_these_alone(world: World) -> None:
    session = world.broker.sessions["c"] = Session(world.broker, "c", NOW)
    world.broker.subscribe("c", [SubscribeFilter(b"a", 1, False, False, 0)], 0, NOW)
    logged = RowSet()
    for row in range(FIRST, FIRST + 4):
        logged.add(row)
    given = [a_row("a", b"%d" % number, 0 if number == 2 else 1) for number in range(5)]
    world.publish_some(world.rows(*given, logged=logged, routed=FIRST + 1))
    payloads = [one.message.payload for one in session.queued() if one.message is not None]
    assert payloads == [b"1", b"3", b"4"], "not the one below, and not that of QoS 0"
    assert row_numbers(world.logged()) == [FIRST + 4]
    world.tap.published(Message(b"other/x", b"", 1, False), None, NOW)
    assert len(world.logged()) == 1, "messages of clients are logged as before"


async def test_retained_rows_are_published_one_by_one(world: World) -> None:
    rows = world.rows(a_row("a", b"kept", 1, True), a_row("b"))
    world.publish_all(rows)
    assert rows.row == FIRST
    world.publish_some(rows)
    assert rows.is_done
    kept = world.broker.retained.get(b"a")
    assert kept is not None
    assert kept.payload == b"kept"


async def test_a_step_has_a_bound_and_ends_when_the_publisher_is_held(world: World) -> None:
    rows = world.rows(*[a_row("a", b"%d" % number) for number in range(ROWS_OF_STEP + 1)])
    world.publish_some(rows)
    assert rows.row == FIRST + ROWS_OF_STEP
    world.publisher.held = 1
    world.publish_some(rows)
    assert rows.row == FIRST + ROWS_OF_STEP
    assert not world.tap.is_forced


async def test_a_topic_that_the_settings_no_longer_allow_is_named_by_its_row(world: World) -> None:
    rows = world.rows(a_row("a"), a_row("/".join("x" * 200)))
    world.publish_all(rows)
    assert rows.row == FIRST
    with pytest.raises(MqttError, match="levels"):
        world.publish_some(rows)
    assert rows.row == FIRST + 1
    assert not world.tap.is_forced


async def test_another_tap_sees_each_row(world: World) -> None:
    world.broker.add_tap(Tap())
    rows = world.rows(*ROWS)
    world.publish_all(rows)
    assert rows.row == FIRST


async def test_a_log_without_room_refuses_rows(world: World) -> None:
    rows = world.rows(*ROWS)
    world.appender.state = State.REFUSING
    world.publish_all(rows)
    assert rows.row == FIRST


async def test_a_log_that_is_stopped_counts_the_rows_as_lost(world: World) -> None:
    world.appender.state = State.DROPPING
    world.publish_all(world.rows(*ROWS))
    assert world.appender.lost == 3
    assert world.logged() == []
