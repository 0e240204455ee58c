"""Fetch sessions (KIP-227): a consumer names only what has changed since its last Fetch, and is told only that."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from random import Random
from typing import Final, NamedTuple

from broker.kafka.error_codes import FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, NONE
from broker.kafka.fields import Values

SESSIONS_MAX: Final = 1_000
"""Policy: a new session takes the place of one that was unused for IDLE_SECONDS. Where there is none, the consumer fetches
without a session."""
IDLE_SECONDS: Final = 120.0
PARTITIONS_MAX: Final = 1_000  # of a session; a consumer with more fetches without one
NO_SESSION: Final = 0
FINAL_EPOCH: Final = -1
FIRST_EPOCH: Final = 0
EPOCH_MAX: Final = 2**31 - 1

TopicPartition = tuple[str, int]


class Wanted(NamedTuple):
    """The question of a consumer to one partition. leader_epoch: -1 for a consumer that does not know it."""

    offset: int
    bytes_max: int
    leader_epoch: int


class Session:
    """wanted    by partition, in the order in which they were added
    told      (high watermark, log start offset) of the last answer
    """

    def __init__(self, number: int, wanted: dict[TopicPartition, Wanted], now: float) -> None:
        self.number = number
        self.epoch = 1  # of the next request
        self.wanted = wanted
        self.told: dict[TopicPartition, tuple[int, int]] = {}
        self.used_at = now

    def must_tell(self, partition: TopicPartition, error: int, watermark: int, start: int, has_records: bool) -> bool:
        """Return whether an incremental answer has the partition. It counts as told then."""
        known = self.told.get(partition)
        if partition in self.wanted:
            self.told[partition] = (watermark, start)
        return has_records or error != NONE or known != (watermark, start)


class FetchAsked(NamedTuple):
    """error      of the whole request
    wanted     by partition
    session    None without one
    is_full    the answer has all partitions
    """

    error: int
    wanted: dict[TopicPartition, Wanted]
    session: Session | None
    is_full: bool


class FetchSessions:
    """evicted, refused  totals, for metrics"""

    def __init__(self, rng: Random, topics: Collection[str]) -> None:
        """topics: those that the node has, as long as it runs. A session keeps no other names."""
        self._topics = topics
        self.evicted = 0
        self.refused = 0
        self._rng = rng
        self._sessions: dict[int, Session] = {}  # the least recently used first

    def __len__(self) -> int:
        return len(self._sessions)

    def asked(self, request: Values, now: float) -> FetchAsked:
        """Return what a Fetch asks for, after what it changes of its session."""
        number = request.get("session_id", NO_SESSION)
        epoch = request.get("session_epoch", FINAL_EPOCH)
        wanted = wanted_of(request)
        if epoch in (FINAL_EPOCH, FIRST_EPOCH):
            self._sessions.pop(number, None)
            session = self._open(self._known(wanted), now) if epoch == FIRST_EPOCH else None
            return FetchAsked(NONE, wanted, session, True)
        session = self._sessions.pop(number, None)
        if session is None:
            return FetchAsked(FETCH_SESSION_ID_NOT_FOUND, {}, None, True)
        self._sessions[number] = session
        if epoch != session.epoch:
            return FetchAsked(INVALID_FETCH_SESSION_EPOCH, {}, None, True)
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        session.used_at = now
        known = self._known(wanted)
        for partition, each in known.items():
            if partition in session.wanted or len(session.wanted) < PARTITIONS_MAX:
                session.wanted[partition] = each
        for partition in forgotten_of(request):
            session.wanted.pop(partition, None)
            session.told.pop(partition, None)
        return FetchAsked(
            NONE, session.wanted if len(known) == len(wanted) else wanted | session.wanted, session, False
        )

    def _known(self, wanted: dict[TopicPartition, Wanted]) -> dict[TopicPartition, Wanted]:
        return {partition: each for partition, each in wanted.items() if partition[0] in self._topics}

    def _open(self, wanted: dict[TopicPartition, Wanted], now: float) -> Session | None:
        if not wanted or len(wanted) > PARTITIONS_MAX:
            return None
        if len(self._sessions) >= SESSIONS_MAX:
            oldest = next(iter(self._sessions.values()))
            if now - oldest.used_at < IDLE_SECONDS:
                self.refused += 1
                return None
            del self._sessions[oldest.number]
            self.evicted += 1
        number = 0
        while not number or number in self._sessions:
            number = self._rng.randint(1, 2**31 - 1)
        session = self._sessions[number] = Session(number, dict(wanted), now)
        return session


def wanted_of(request: Values) -> dict[TopicPartition, Wanted]:
    return {
        (topic["topic"], partition["partition"]): Wanted(
            partition["fetch_offset"], partition["partition_max_bytes"], partition.get("current_leader_epoch", -1)
        )
        for topic in request["topics"]
        for partition in topic["partitions"]
    }


def forgotten_of(request: Values) -> Iterable[TopicPartition]:
    for topic in request.get("forgotten_topics_data", ()):
        for partition in topic["partitions"]:
            yield topic["topic"], partition
