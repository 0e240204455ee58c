"""A store and its copy on another node: two brokers, and a connection that brings bytes when the test says so."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.broker import Broker
from broker.config.settings_mqtt import MqttSettings
from broker.message import NEVER
from broker.store.identity import StoreIdentity
from broker.store.journal import Content, Journal
from broker.store.kinds import ENDED
from broker.store.records import encode_changes
from federation.replication.keeper import KEEPER_SECONDS, Keeper, KeeperOutlet
from federation.replication.keeper_server import KeeperServer
from federation.replication.placement import Candidate
from federation.replication.replicas import Replicas
from federation.replication.replication import Replication
from federation.replication.wire import (
    ACK,
    BATCHES_BYTES_MAX,
    HELLO,
    PREFACE,
    FrameReader,
    WireError,
    encode_batch,
    encode_frame,
)
from federation.settings import ReplicationSettings
from federation.stream.state import State

HOME_STORE = "a" * 32
KEEPER_STORE = "b" * 32


class Note(Content):
    """A record of the test."""

    def __init__(self, text: str) -> None:
        self.text = text

    def values(self, wall_offset: float) -> tuple[object, ...]:
        return ENDED, self.text, 1


class Station:
    """A broker with a store that writes when `commit` says so."""

    def __init__(self, store_id: str) -> None:
        self.broker = Broker(MqttSettings(), random.Random(1), 0.0)
        self.broker.identity = StoreIdentity(store_id, 1, True)
        self.journal = Journal()
        self.broker.set_journal(self.journal)
        self._begun: list[int] = []

    def begin(self, now: float = 0.0) -> None:
        self._begun.append(self.journal.commit or self.broker.commits.begin())
        self.broker.commits.written(encode_changes(self.journal.take(), 0.0), now)

    def end(self) -> None:
        begun, self._begun = self._begun, []
        self.broker.commits.stored(begun)

    def commit(self, now: float = 0.0) -> None:
        self.begin(now)
        self.end()


class Pair(KeeperOutlet):
    """The home n1 and its keeper n2; `pass_on` brings what was sent."""

    def __init__(self, holds: bool = False) -> None:
        self.now = 0.0
        self.home = Station(HOME_STORE)
        self.there = Station(KEEPER_STORE)
        self.replication = Replication(
            "n1",
            self.home.broker,
            self.home.journal,
            ReplicationSettings(copies=2, when_short="hold" if holds else "serve"),
            "",
            random.Random(1),
        )
        self.home.broker.commits.replicator = self.replication
        self.replicas = Replicas()
        self.replicas.restore(self.there.journal)
        self.replicas.members = {"n1": HOME_STORE}
        self.sent: list[bytes] = []
        self.replication.choose({"n2": Candidate(KEEPER_STORE)}, [], 1, self.now)
        self.keeper = self.replication.keepers["n2"]
        self.connect()

    def connect(self) -> None:
        if self.keeper.state is State.BACKOFF:
            self.now = self.keeper.next_timeout()
            self.keeper.handle_timeout(self.now)
        else:
            self.keeper.connect("127.0.0.1:1", False, self.now)
        self.server = KeeperServer(self.replicas, 1 << 20, self.now)
        self.keeper.outlet = self
        self.keeper.connected(self.keeper.attempt, self.now)

    def flush_at(self, now: float) -> None:
        self.sent.append(self.keeper.data_to_send(now))

    def pass_on(self) -> None:
        """Until nobody has anything to say; the keeper's store writes when it has to."""
        while True:
            data = b"".join([*self.sent, self.keeper.data_to_send(self.now)])
            self.sent.clear()
            if data:
                self.server.receive_data(data, self.now)
            answer = self.server.data_to_send(self.now)
            if answer:
                self.keeper.receive_data(self.keeper.attempt, answer, self.now)
            if not data and not answer:
                self.replication.settle()
                return

    def until_stored(self) -> None:
        self.pass_on()
        while self.there.journal.changes:
            self.there.commit()
            self.pass_on()

    def is_acknowledged(self) -> bool:
        """Whether what waits for the store of the home has left."""
        return self.home.broker.commits.begun() == 0

    def is_held(self) -> bool:
        """Whether the home takes nothing that must be stored."""
        return self.home.broker.commits.next_packet()

    def copied(self) -> dict[int, Any]:
        replica = self.replicas.by_store[HOME_STORE]
        return {number: record[1] for number, record in replica.records().items()}


def whole() -> Pair:
    pair = Pair()
    pair.until_stored()
    assert pair.keeper.is_whole
    return pair


def test_an_acknowledgement_waits_for_the_store_of_the_keeper() -> None:
    pair = whole()
    pair.home.journal.keep(Note("one"))
    pair.home.commit()
    pair.pass_on()
    assert not pair.is_acknowledged()
    pair.there.begin()
    pair.pass_on()
    assert not pair.is_acknowledged(), "it is not in the store yet"
    pair.there.end()
    pair.pass_on()
    assert pair.is_acknowledged()
    assert list(pair.copied().values()) == ["one"]


@pytest.mark.parametrize("is_again", [False, True])
def test_a_keeper_knows_what_is_not_on_the_disk_of_the_home(is_again: bool) -> None:
    """is_again: its copy comes anew while the home writes. Where that is killed now, it may lack just these records."""
    pair = whole()
    pair.home.journal.keep(Note("one"))
    pair.home.commit()
    pair.until_stored()
    number = pair.home.journal.keep(Note("two"))
    pair.home.begin()
    if is_again:
        pair.replicas.by_store[HOME_STORE].is_complete = False
        pair.keeper.connection_lost(pair.keeper.attempt, "of the test", pair.now)
        pair.sent.clear()
        pair.connect()
    pair.until_stored()
    assert list(pair.copied().values()) == ["one", "two"]
    replica = pair.replicas.by_store[HOME_STORE]
    assert (replica.stored_below, replica.values(0.0)[-1]) == (number, number)
    pair.home.end()
    number = pair.home.journal.keep(Note("three"))
    pair.home.begin()
    pair.until_stored()
    assert replica.stored_below == number


@pytest.mark.parametrize("holds", [False, True])
def test_the_last_changes_of_a_node_that_stops_wait_for_its_own_store_alone(holds: bool) -> None:
    pair = Pair(holds)
    pair.until_stored()
    pair.home.journal.keep(Note("one"))
    pair.home.commit()
    assert not pair.is_acknowledged()
    pair.replication.stop(pair.now)
    assert pair.is_acknowledged()
    assert not pair.is_held()
    pair.home.journal.keep(Note("two"))
    pair.home.commit()
    assert pair.is_acknowledged()


def test_a_keeper_that_was_answered_by_its_own_disk_first_is_enough_with_that_of_the_home() -> None:
    pair = whole()
    pair.home.journal.keep(Note("one"))
    pair.home.begin()
    pair.until_stored()
    assert not pair.is_acknowledged()
    pair.home.end()
    assert pair.is_acknowledged()


def test_a_slow_keeper_is_not_waited_for_until_it_has_caught_up() -> None:
    pair = whole()
    number = pair.home.journal.keep(Note("one"))
    pair.home.commit()
    pair.now = KEEPER_SECONDS
    pair.replication.handle_timeout(pair.now)
    assert pair.is_acknowledged()
    assert (pair.replication.whole(), pair.replication.short_since()) == (0, pair.now)
    pair.home.journal.drop(number)
    pair.home.journal.keep(Note("two"))
    pair.home.commit(pair.now)
    assert pair.is_acknowledged()
    pair.until_stored()
    assert (pair.replication.whole(), pair.replication.short_since()) == (1, NEVER)
    assert list(pair.copied().values()) == ["two"]
    assert pair.keeper.bases == 1


def test_the_first_batch_of_a_node_that_was_idle_waits_for_its_keeper() -> None:
    """No client has told the broker the time for long."""
    pair = whole()
    pair.now = 10 * KEEPER_SECONDS
    pair.home.journal.keep(Note("one"))
    pair.home.commit(pair.now)
    pair.replication.handle_timeout(pair.now)
    assert pair.replication.whole() == 1
    assert not pair.is_acknowledged()
    pair.until_stored()
    assert pair.is_acknowledged()
    assert pair.keeper.times_short == 0


def test_a_keeper_goes_on_where_it_was() -> None:
    pair = whole()
    pair.home.journal.keep(Note("one"))
    pair.home.commit()
    pair.sent.clear()  # lost on the way
    pair.keeper.connection_lost(pair.keeper.attempt, "broken", pair.now)
    pair.connect()
    pair.until_stored()
    assert list(pair.copied().values()) == ["one"]
    assert pair.is_acknowledged()
    assert pair.keeper.bases == 1


def test_a_keeper_that_lacks_forgotten_batches_gets_the_store_anew() -> None:
    pair = whole()
    pair.keeper.connection_lost(pair.keeper.attempt, "broken", pair.now)
    for number in range(3):
        pair.home.journal.keep(Note(f"{number}" * (BATCHES_BYTES_MAX // 2)))
        pair.home.commit()
    assert (pair.replication.whole(), pair.replication.short_since()) == (1, NEVER)
    pair.connect()
    pair.server = KeeperServer(pair.replicas, BATCHES_BYTES_MAX, pair.now)
    pair.pass_on()
    assert (pair.replication.whole(), pair.replication.short_since()) == (0, pair.now)
    assert pair.keeper.times_short == 1
    pair.until_stored()
    assert pair.keeper.bases == 2
    assert len(pair.copied()) == 3


def test_a_keeper_that_was_none_for_a_while_gets_what_was_written_meanwhile() -> None:
    """A node that is cut off from all others has no keeper, and the same one afterwards."""
    pair = whole()
    number = pair.home.journal.keep(Note("one"))
    pair.home.commit()
    pair.until_stored()
    pair.replication.choose({}, [], 1, pair.now)
    assert not pair.replication.keepers
    pair.home.journal.drop(number)
    pair.home.journal.keep(Note("two"))
    pair.home.commit()
    assert pair.is_acknowledged()
    pair.replication.choose({"n2": Candidate(KEEPER_STORE)}, [], 1, pair.now)
    pair.keeper = pair.replication.keepers["n2"]
    pair.connect()
    pair.until_stored()
    assert list(pair.copied().values()) == ["two"]
    assert pair.replication.whole() == 1


def test_a_store_that_must_have_a_copy_takes_nothing_without_it() -> None:
    pair = Pair(holds=True)
    assert pair.is_held()
    pair.until_stored()
    assert not pair.is_held()
    pair.home.journal.keep(Note("one"))
    pair.home.commit()
    pair.now = KEEPER_SECONDS
    pair.replication.handle_timeout(pair.now)
    assert pair.is_held()
    assert not pair.is_acknowledged()
    pair.until_stored()
    assert pair.is_acknowledged()
    assert not pair.is_held()


def test_a_keeper_whose_last_acknowledgement_was_lost_is_whole_when_it_is_back() -> None:
    """It has nothing more to acknowledge: a store that must have a copy would take nothing any more."""
    pair = Pair(holds=True)
    pair.until_stored()
    pair.home.journal.keep(Note("one"))
    pair.home.commit()
    pair.server.receive_data(b"".join([*pair.sent, pair.keeper.data_to_send(pair.now)]), pair.now)
    pair.sent.clear()
    pair.there.commit()
    pair.now = KEEPER_SECONDS
    pair.replication.handle_timeout(pair.now)
    assert pair.is_held()
    pair.keeper.connection_lost(pair.keeper.attempt, "broken", pair.now)
    pair.connect()
    pair.pass_on()
    assert pair.keeper.is_whole
    assert pair.is_acknowledged()
    assert not pair.is_held()
    assert pair.keeper.bases == 1


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (("n1", KEEPER_STORE, 1, 1, ("n2",)), "has not yet joined with this store"),
        (("n3", HOME_STORE, 1, 1, ("n2",)), "has not yet joined"),
        (("n1", HOME_STORE, "1", 1, ("n2",)), "no int"),
        (None, "HELLO"),
    ],
)
def test_a_stranger_is_refused(body: object, why: str) -> None:
    pair = Pair()
    server = KeeperServer(pair.replicas, 1 << 20, 0.0)
    server.receive_data(PREFACE + encode_frame(HELLO, body), 0.0)
    assert server.is_over
    assert why in server.refused
    assert HOME_STORE not in pair.replicas.by_store


@pytest.mark.parametrize(
    "data", [b"GMQX", PREFACE + encode_frame(ACK, 1), PREFACE + b"\xff\xff\xff\xff\1", PREFACE + b"\0\0\0\2\1\xc1"]
)
def test_what_is_no_stream_ends_the_connection(data: bytes) -> None:
    server = KeeperServer(Pair().replicas, 1 << 20, 0.0)
    server.receive_data(data, 0.0)
    assert server.is_over
    assert server.refused


@given(st.lists(st.tuples(st.integers(1, 9), st.integers() | st.text()), max_size=20), st.data())
def test_frames_are_read_wherever_they_are_cut(frames: list[tuple[int, Any]], data: st.DataObject) -> None:
    frames = [(kind, body) for kind, body in frames if not isinstance(body, int) or abs(body) < 2**63]
    whole = b"".join([encode_frame(kind, body) for kind, body in frames])
    reader = FrameReader(1 << 20)
    found: list[tuple[int, Any]] = []
    at = 0
    while at < len(whole):
        end = data.draw(st.integers(at + 1, len(whole)))
        reader.receive(whole[at:end])
        while reader.next_frame():
            found.append((reader.kind, reader.body))
        at = end
    assert found == frames


def test_a_frame_that_is_too_large_is_refused_before_it_comes() -> None:
    reader = FrameReader(100)
    reader.receive((101).to_bytes(4, "big") + b"\1")
    with pytest.raises(WireError, match="101 bytes"):
        reader.next_frame()


def test_the_time_without_an_answer_ends_a_connection() -> None:
    pair = whole()
    keeper: Keeper = pair.keeper
    while keeper.state is State.STREAMING:
        pair.now = keeper.next_timeout()
        keeper.handle_timeout(pair.now)
    assert "ping" in keeper.reason
    assert pair.server.next_timeout() > pair.now
    pair.server.handle_timeout(pair.server.next_timeout())
    assert pair.server.is_over


def test_a_batch_of_which_a_part_has_come_is_not_taken() -> None:
    """The home ends between both parts. What it has handed over is in a later record than where it was before."""
    pair = Pair()
    before = pair.home.journal.keep(Note("in the queue"))
    pair.home.commit()
    pair.until_stored()
    (replica,) = pair.replicas.by_store.values()
    assert before in replica.records()
    pair.home.journal.drop(before)
    after = [pair.home.journal.keep(Note("x" * 200_000)) for _ in range(8)]
    pair.home.begin()
    data = b"".join(pair.sent)
    first = 4 + int.from_bytes(data[:4], "big")
    assert first < len(data)
    pair.server.receive_data(data[:first], pair.now)
    assert list(replica.records()) == [before]
    pair.server.receive_data(data[first:], pair.now)
    assert list(replica.records()) == after


def test_a_batch_that_is_larger_than_any_ends_the_connection() -> None:
    pair = Pair()
    pair.until_stored()
    batch = encode_batch(1, dict.fromkeys(range(BATCHES_BYTES_MAX // 200000 + 8), (ENDED, "x" * 200000, 1)))
    pair.server.receive_data(b"".join(batch[:-1]), pair.now)
    assert pair.server.is_over
    assert str(BATCHES_BYTES_MAX) in pair.server.end_text
