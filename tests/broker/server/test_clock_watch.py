"""A clock that is set while a node runs: its next start sees the true ages of what is in its store."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.broker import Broker
from broker.config.settings import Settings
from broker.message import Message
from broker.server.clock_watch import STEP_SECONDS, ClockWatch
from broker.server.committed import committed
from broker.server.host import Host
from broker.store.durability import Durability
from broker.store.journal import StoredRecord
from broker.store.kinds import RUN

DAY = 86_400.0


async def expiry_of(settings: Settings) -> float:
    """In how many seconds the retained message expires that the store has."""
    host = Host(settings)
    durability = Durability(host)
    await durability.open()
    (message,) = host.broker.retained.messages()
    await durability.close()
    host.turns.stop()
    return message.expires_at - host.now()


@pytest.mark.parametrize("days", [-3, 3])
async def test_times_in_the_store_follow_a_clock_that_was_set(tmp_path: Path, days: int) -> None:
    settings = Settings(data_dir=str(tmp_path / "data"))
    host = Host(settings)
    host.broker.wall_offset += days * DAY  # the clock at the start
    durability = Durability(host)
    await durability.open()
    host.broker.publish(Message(b"a", b"1", 1, True, expires_at=host.now() + DAY), host.now())
    await committed(host)
    await ClockWatch(host).look()
    await durability.close()
    host.turns.stop()
    assert await expiry_of(settings) == pytest.approx(DAY, abs=600)


async def test_a_clock_that_is_kept_right_changes_nothing(tmp_path: Path) -> None:
    host = Host(Settings(data_dir=str(tmp_path / "data")))
    durability = Durability(host)
    await durability.open()
    broker: Broker = host.broker
    broker.publish(Message(b"a", b"1", 1, True), host.now())
    await committed(host)
    journal = broker.commits.journal
    assert journal is not None
    broker.wall_offset += STEP_SECONDS / 2
    await ClockWatch(host).look()
    assert journal.changes == {}
    await durability.close()
    host.turns.stop()


async def test_copies_of_other_stores_are_not_written_anew(tmp_path: Path) -> None:
    """They have the times of the other node, and may be most of what there is."""
    host = Host(Settings(data_dir=str(tmp_path / "data")))
    durability = Durability(host)
    await durability.open()
    journal = host.broker.commits.journal
    assert journal is not None
    journal.keep(StoredRecord((RUN, 1, 2, b"copied")))
    host.broker.publish(Message(b"a", b"1", 1, True, expires_at=host.now() + DAY), host.now())
    host.broker.publish(Message(b"b", b"2", 1, True), host.now())
    await committed(host)
    assert durability.writer is not None
    records = durability.writer.records
    host.broker.wall_offset -= DAY
    await ClockWatch(host).look()
    assert durability.writer.records == records + 1
    await durability.close()
    host.turns.stop()
