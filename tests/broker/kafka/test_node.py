"""What a node knows of the others, and of committed offsets: retained messages, as all nodes have them."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import cast

import pytest

from broker.config.settings import Settings
from broker.event_log.contents import LogContents
from broker.event_log.lineage import Lineage, Parent
from broker.event_log.log import EventLog
from broker.hooks import Members, OtherNode
from broker.kafka import committed_offsets
from broker.kafka import error_codes as errors
from broker.kafka import node as kafka_node
from broker.kafka.asked_partitions import Asked
from broker.kafka.committed import Committed, decode_committed
from broker.kafka.fields import Reader, decode, encode
from broker.kafka.group_messages import OFFSET_FETCH_RESPONSE
from broker.kafka.grouping import Grouping
from broker.kafka.node import NODES, FirstStart, KafkaNode
from broker.kafka.partitions import decode_entries, encode_entries
from broker.kafka.plugin import read_first_start
from broker.message import Message
from broker.server.host import Host


class OfTest(Members):
    def others(self) -> list[OtherNode]:
        return [OtherNode("a", "ALIVE", {}), OtherNode("c", "FAILED", {})]


def nobody(_group: str) -> bool:
    return False


@pytest.fixture
async def host() -> Host:
    return Host(Settings())


def member(host: Host, name: str) -> KafkaNode:
    """A node; all of them have the same retained messages here."""
    host.members = OfTest(name)
    return KafkaNode(host, cast(EventLog, LogContents(name)), {"all": b"#"})


async def test_partitions_are_those_that_were_announced(host: Host) -> None:
    for name, since in (("a", 100), ("c", 300), ("b", 200)):
        member(host, name).announce(FirstStart(since, 0), f"{name}:9092")
    node = member(host, "b")
    assert node.partitions() == member(host, "b").partitions()
    node.announce(FirstStart(200, 0), "b:9093")
    found = [(each.number, each.node, each.port, each.is_alive) for each in node.partitions()]
    assert found == [(0, "a", 9092, True), (1, "b", 9093, True), (2, "c", 9092, False)]
    assert node.own_partition() == 1
    # Somebody wrote over the entry: it is written again.
    host.broker.publish(Message(f"{NODES}b".encode(), b"nonsense", 1, True), host.now())
    node.announce(FirstStart(200, 0), "b:9093")
    assert [each.node for each in member(host, "a").partitions()] == ["a", "b", "c"]


async def test_a_node_that_has_started_waits_until_it_has_heard_of_the_others(host: Host) -> None:
    class Heard(Members):
        found: tuple[OtherNode, ...] = ()

        def others(self) -> list[OtherNode]:
            return list(self.found)

    for name, since in (("a", 100), ("c", 300)):
        member(host, name).announce(FirstStart(since, 0), f"{name}:1")
    members = host.members = Heard("b")
    host.now = lambda: 10.0  # type: ignore[method-assign]
    a, c, c_failed = OtherNode("a", "ALIVE", {}), OtherNode("c", "ALIVE", {}), OtherNode("c", "FAILED", {})
    for heard, seconds, is_settled in (
        ((), 50, False),
        ((a,), 50, False),
        ((a, c_failed), 50, False),
        ((a, c), 50, True),
        ((), 0, True),
    ):
        node = KafkaNode(host, cast(EventLog, LogContents("b")), {"all": b"#"})
        node.settle(seconds)
        node.announce(FirstStart(200, 0), "b:1")
        members.found = heard
        assert [each.node for each in node.partitions()] == (["a", "b", "c"] if is_settled else [])
        assert any(node.coordinates(f"g{number}") for number in range(10)) == is_settled


async def test_the_number_of_a_first_start(host: Host) -> None:
    """Behind all others, also with a clock that is behind; an emptied node gets its former one, and a later epoch."""
    assert member(host, "a").first_start(1_000) == FirstStart(1_000, 0)
    member(host, "a").announce(FirstStart(1_000, 4), "a:1")
    assert member(host, "b").first_start(2_000) == FirstStart(2_000, 0)
    assert member(host, "b").first_start(500) == FirstStart(1_001, 0)
    again = member(host, "a").first_start(9_000)
    assert again == FirstStart(1_000, 5)
    node = member(host, "a")
    node.announce(again, "a:1")
    assert [each.epoch for each in member(host, "b").partitions()] == [node.epoch] == [5]
    node.log.lineage = node.log.lineage.child("another", 7)
    assert node.epoch == 6
    assert [node.epoch_end(epoch) for epoch in (0, 4, 5)] == [0, 0, 7]


async def test_a_node_that_hears_nobody_keeps_its_number(host: Host) -> None:
    """A store in memory has forgotten the others, who are not there; one that is deleted later does not come back."""
    for name, since in (("a", 100), ("b", 200), ("c", 300)):
        member(host, name).announce(FirstStart(since, 0), f"{name}:1")
    kept = encode_entries(member(host, "b").entries())
    host = Host(host.settings)
    node = member(host, "b")
    node.know(decode_entries(kept))
    node.announce(FirstStart(200, 0), "b:1")
    assert [each.node for each in node.partitions()] == ["a", "b", "c"]
    assert node.own_partition() == 1
    member(host, "a").announce(FirstStart(100, 0), "a:2")
    assert node.entries()["a"].address == "a:2"
    host.broker.publish(Message(f"{NODES}a".encode(), b"", 1, True), host.now())
    assert node.entries().keys() == {"b", "c"}
    assert decode_entries(encode_entries(node.entries())) == node.entries()


async def test_an_entry_that_was_deleted_while_the_node_was_away_goes_before_any_client_asks(host: Host) -> None:
    """The store has it at the start; that it is deleted comes from the others, at once."""
    for name, since in (("a", 100), ("b", 200)):
        member(host, name).announce(FirstStart(since, 0), f"{name}:1")
    kept = encode_entries(member(host, "b").entries())
    node = member(host, "b")
    node.know(decode_entries(kept))
    host.broker.publish(Message(f"{NODES}a".encode(), b"", 1, True), host.now())
    node.announce(FirstStart(200, 0), "b:1")
    assert [each.node for each in node.partitions()] == ["b"]


async def test_the_epoch_rises_where_the_log_knows_nothing_of_its_ids_before(host: Host) -> None:
    """The number of its id is that of the clock; that of the id before may be lost, and where it ended is known."""
    node = member(host, "a")
    node.log.lineage = Lineage("1", (), 50).child("2", 10, 60).child("3", 20, 70)
    node.announce(FirstStart(1, 0), "a:1")
    assert [node.epoch, *map(node.epoch_end, (40, 50, 59, 60, 69))] == [70, 0, 10, 10, 20, 20]
    node.log.lineage = Lineage("2", (Parent("1", 10),)).child("4", 15, 80)  # from a copy without log.json
    assert [node.epoch, *map(node.epoch_end, (50, 60, 70))] == [80, 10, 10, 10]
    node.announce(FirstStart(1, 0), "a:1")
    node.log.lineage = Lineage("5", (), 90)  # an emptied folder
    assert node.first_start(9) == FirstStart(1, 0)
    node.log.lineage = Lineage("5", (), 7)  # with a clock that is behind
    again = node.first_start(9)
    node.announce(again, "a:1")
    assert (node.epoch, node.epoch_end(80)) == (81, 0)


@pytest.mark.parametrize(("text", "first"), [("12", FirstStart(12, 0)), ("12 3", FirstStart(12, 3))])
def test_the_file_of_a_first_start(tmp_path: Path, text: str, first: FirstStart) -> None:
    path = tmp_path / "first"
    assert read_first_start(path) is None
    path.write_text(text)
    assert read_first_start(path) == first
    path.write_text("nonsense")
    with pytest.raises(ValueError, match="nonsense"):
        read_first_start(path)


async def test_offsets_are_kept_by_group_topic_and_partition(host: Host) -> None:
    node = member(host, "a")
    node.announce(FirstStart(1, 0), "a:1")
    assert await node.offsets.commit("g", {("all", 0): Committed(5, 1, "m"), ("all", 3): Committed(6, -1, "")}, nobody)
    assert member(host, "b").offsets.committed("g", "all", 0) == Committed(5, 1, "m")
    assert (node.offsets.committed("g", "all", 1), node.offsets.committed("h", "all", 0)) == (None, None)
    host.broker.publish(Message(b"$kafka/offsets/g/all/0", b"nonsense", 1, True), host.now())
    assert node.offsets.committed("g", "all", 0) is None


async def test_committed_offsets_are_bounded(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest one of a group without members makes room, also of those that were there at the start."""
    monkeypatch.setattr(committed_offsets, "OFFSETS_MAX", 3)
    node = member(host, "a")
    node.announce(FirstStart(1, 0), "a:1")

    async def commit(group: str, *living: str) -> bool:
        return await node.offsets.commit(group, {("all", 0): Committed(1, 1, "")}, lambda name: name in living)

    def kept() -> list[str]:
        return [group for group in "ghijk" if node.offsets.committed(group, "all", 0) is not None]

    for group in ("g", "h", "i", "g"):
        assert await commit(group)
    assert await commit("j", "h")
    assert kept() == ["g", "h", "j"]
    assert not await commit("k", "g", "h", "j")
    assert node.offsets.refused == 1
    node = member(host, "a")
    node.announce(FirstStart(1, 0), "a:1")
    node.offsets.count_kept()
    assert await commit("k", "h", "j")
    assert kept() == ["h", "j", "k"]


async def test_an_offset_that_another_coordinator_has_renewed_is_not_the_oldest(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committed_offsets, "OFFSETS_MAX", 3)
    clock = itertools.count(host.now())
    monkeypatch.setattr(host, "now", lambda: next(clock))
    offset = {("all", 0): Committed(1, 1, "")}
    other, node = member(host, "b"), member(host, "a")
    node.announce(FirstStart(1, 0), "a:1")
    for group in "ghi":
        assert await node.offsets.commit(group, offset, nobody)
    assert await other.offsets.commit("g", {("all", 0): Committed(7, 1, "")}, nobody)
    assert await node.offsets.commit("j", offset, nobody)
    assert [group for group in "ghij" if node.offsets.committed(group, "all", 0) is not None] == ["g", "i", "j"]
    for group in "klm":
        assert await node.offsets.commit(group, offset, nobody)
    assert node.offsets.committed("g", "all", 0) is None, "now it is"


async def test_committed_offsets_age_from_the_end_of_their_group_on(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those that a former coordinator has kept; what somebody else wrote there is left alone."""
    began_at, day = host.now(), 86_400.0
    elapsed = 0.0
    monkeypatch.setattr(host, "now", lambda: began_at + elapsed)
    committed = Committed(7, 1, "m")
    for group in ("g", "h", "%2F"):
        assert await member(host, "b").offsets.commit(group, {("all", 0): committed}, nobody)
    node = member(host, "a")
    node.announce(FirstStart(1, 0), "a:1")
    nonsense = Message(b"$kafka/offsets/g/all/1", b"nonsense", 1, True)
    nonsense.expires_at = began_at + 40 * day
    host.broker.publish(nonsense, host.now())
    living = {"g", "%2F"}

    def kept() -> list[str]:
        return [group for group in ("g", "h", "%2F") if node.offsets.committed(group, "all", 0) == committed]

    for number in range(4 * 100):
        elapsed = number * day / 4
        await node.offsets.renew(living.__contains__)
        assert kept() == (["g", "h", "%2F"] if elapsed < 30 * day else ["g", "%2F"])
    living.remove("g")
    ended_at = elapsed
    for days, is_kept in ((28.9, True), (30, False)):
        elapsed = ended_at + days * day
        await node.offsets.renew(living.__contains__)
        assert kept() == (["g", "%2F"] if is_kept else ["%2F"])
    assert node.offsets.committed("g", "all", 1) is None
    assert nonsense.expires_at == began_at + 40 * day


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"[" * 10_000,
        b'{"offset": 1e999, "epoch": 1, "metadata": ""}',
        b'{"offset": 9223372036854775808, "epoch": 1, "metadata": ""}',
        b'{"offset": 1, "epoch": 2147483648, "metadata": ""}',
        b'{"offset": 1, "epoch": 1, "metadata": "\\ud800"}',
        b'{"offset": 1, "epoch": 1, "metadata": "%s"}' % (b"x" * 5_000),
        b'{"offset": 1, "epoch": 1, "metadata": 5}',
    ],
)
def test_what_somebody_else_wrote_is_no_committed_offset(data: bytes) -> None:
    assert decode_committed(data) is None


def test_committed_offsets_come_back() -> None:
    for known in (Committed(2**63 - 1, 2**31 - 1, "\x7f" * 4_096), Committed(0, -1, "ä" * 2_048)):
        assert decode_committed(json.dumps(known._asdict()).encode()) == known


async def test_the_walk_over_entries_ends(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_node, "PARTITIONS_MAX", 5)
    for number in range(20):
        host.broker.publish(Message(f"{NODES}x{number}".encode(), b"nonsense", 1, True), host.now())
    node = member(host, "a")
    node.announce(FirstStart(1, 0), "a:1")
    assert len(list(node._retained.below(NODES, 5))) == 5
    assert [each.node for each in node.partitions()] == ["a"]


@pytest.mark.parametrize("version", [1, 2])
async def test_who_does_not_coordinate_says_so_beside_each_offset(host: Host, version: int) -> None:
    """Before version 2 there is no other place for it; a partition that is missing has no offset."""
    grouping = Grouping(member(host, "b"), Random(0))  # not announced: it coordinates nothing
    values = {"group_id": "g", "topics": [{"name": "all", "partition_indexes": [0, 1]}]}
    answer = await grouping.committed(cast(Asked, SimpleNamespace(values=values)))
    read = decode(OFFSET_FETCH_RESPONSE, version, Reader(encode(OFFSET_FETCH_RESPONSE, version, answer)))
    (topic,) = read["topics"]
    assert [(each["partition_index"], each["error_code"]) for each in topic["partitions"]] == [
        (0, errors.NOT_COORDINATOR),
        (1, errors.NOT_COORDINATOR),
    ]
    if version >= 2:
        assert read["error_code"] == errors.NOT_COORDINATOR
