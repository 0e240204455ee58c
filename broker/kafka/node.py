"""The state that the requests of all consumers share: the log, its topics, the partitions of the federation, offsets."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote, unquote

from broker.authorization import ClientIdentity
from broker.errors import MqttError, NotCommitted
from broker.event_log.log import EventLog
from broker.event_log.selection import Selection
from broker.kafka import error_codes as errors
from broker.kafka.asked_partitions import in_turns
from broker.kafka.batches import TopicJudge
from broker.kafka.partitions import (
    PARTITIONS_MAX,
    Entry,
    Partition,
    coordinator_of,
    decode_entry,
    encode_entry,
    partitions_of,
)
from broker.message import Message
from broker.routing.retained import RetainedWalk
from broker.server.committed import committed

if TYPE_CHECKING:
    from broker.server.host import Host

# Retained messages, because all nodes of the federation have them, also those that come later, and stores keep them.
NODES: Final = "$kafka/nodes/"
OFFSETS: Final = "$kafka/offsets/"
COMMIT_SECONDS: Final = 30 * 86_400.0  # that a committed offset is kept after its last commit
OFFSETS_MAX: Final = 10_000
"""That one node keeps for different partitions and groups. Policy: the oldest one of a group without members makes room; where
all groups have members a further one is refused."""
METADATA_BYTES_MAX: Final = 4_096  # of a committed offset, as Kafka allows
COMMITTED_BYTES_MAX: Final = 6 * METADATA_BYTES_MAX + 256  # of it in JSON, which writes a byte as six at most
PARTITIONS_SECONDS: Final = 0.5
WALK_STEPS: Final = 1_000
EPOCH_MAX: Final = 2**31 - 1
ALIVE: Final = "ALIVE"
LOCAL_NAME: Final = "node"  # of a node without a federation


class KafkaTopic(NamedTuple):
    name: str
    topic_filter: bytes
    selection: Selection


class Committed(NamedTuple):
    """epoch  leader epoch that the consumer knew, -1 for none"""

    offset: int
    epoch: int
    metadata: str


def decode_committed(data: bytes) -> Committed | None:
    """None for bytes that are no committed offset: somebody else may write to the same place."""
    if len(data) > COMMITTED_BYTES_MAX:
        return None
    try:
        content = json.loads(data)
        offset, epoch, metadata = content["offset"], content["epoch"], content["metadata"]
        if not (isinstance(offset, int) and isinstance(epoch, int) and -1 <= epoch < 2**31 and -1 <= offset < 2**63):
            return None
        if len(metadata.encode()) > METADATA_BYTES_MAX:
            return None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return Committed(offset, epoch, metadata)


class Kept(NamedTuple):
    """A committed offset that counts. expires_at: monotonic seconds."""

    group: str
    expires_at: float


class FirstStart(NamedTuple):
    """The first start of a node in its folder of the log.

    since  Unix nanoseconds; of its first start ever where the folder was emptied
    epoch  leader epoch then: 0, or above that of the former log
    """

    since: int
    epoch: int


class KafkaNode:
    """topics   by name
    offsets_refused  commits beyond OFFSETS_MAX, or that the store did not take
    """

    def __init__(self, server: Host, log: EventLog, filters: dict[str, bytes]) -> None:
        self.server = server
        self.log = log
        self.topics = {name: KafkaTopic(name, each, Selection([each])) for name, each in filters.items()}
        self.name = server.members.node_name or LOCAL_NAME
        self.offsets_refused = 0
        self._first_epoch = 0  # of the first id of the log
        self._own: Entry | None = None
        self._settles_until = 0.0  # monotonic seconds
        self._partitions: list[Partition] = []
        self._own_partition: int | None = None  # its number
        self._partitions_until = 0.0  # monotonic seconds
        self._kept: dict[bytes, Kept] = {}  # committed offsets by their topics, the oldest first

    def now(self) -> float:
        """Monotonic seconds."""
        return self.server.now()

    @property
    def epoch(self) -> int:
        """Leader epoch of this node's partition: it rises with each id that its log gets."""
        return min(self._first_epoch + len(self.log.lineage.parents), EPOCH_MAX)

    def epoch_end(self, epoch: int) -> int:
        """The first offset that may differ from what was read under a former epoch: the log of those before the folder was
        emptied has nothing in common with this one."""
        return 0 if epoch < self._first_epoch else self.log.lineage.parents[epoch - self._first_epoch].end_offset

    # --- partitions ---

    def first_start(self, now_ns: int) -> FirstStart:
        """Of this node in this folder: after what other nodes know of it, else at a time behind that of all nodes."""
        entries = self._entries()
        if self.name in entries:
            known = entries[self.name]
            return FirstStart(known.since, min(known.epoch + 1, EPOCH_MAX))
        return FirstStart(max([now_ns, *(entry.since + 1 for entry in entries.values())]), 0)

    def _entries(self) -> dict[str, Entry]:
        """Return what the nodes of the federation have announced, by their names."""
        entries: dict[str, Entry] = {}
        for message in self._retained(NODES, PARTITIONS_MAX) if self.server.members.node_name else ():
            entry = decode_entry(message.payload)
            if entry is not None:
                entries[unquote(message.topic.decode().removeprefix(NODES))] = entry
        return entries

    def settle(self, seconds: float) -> None:
        """The node has started and does not know yet who else lives: for so long there are no partitions and it coordinates
        nothing, unless all nodes that have an entry are heard of before."""
        self._settles_until = self.now() + seconds

    def announce(self, first: FirstStart, address: str) -> None:
        """Tell all nodes of this one."""
        self._first_epoch = first.epoch
        self._own = Entry(first.since, address, self.epoch)
        self._partitions_until = 0.0
        self._keep_announced()

    def _keep_announced(self) -> None:
        """Write the entry again when it is not the retained one: a node that shared its name, or an emptied store."""
        own = self._own
        if own is None or not self.server.members.node_name:
            return
        topic = (NODES + quote(self.name, safe="")).encode()
        payload = encode_entry(own)
        known = self.server.broker.retained.get(topic)
        if known is None or known.payload != payload:
            self._retain(topic, payload)

    def partitions(self) -> list[Partition]:
        """In the order of their numbers, as they were PARTITIONS_SECONDS ago at most; without this node before it is
        announced, and none before it has settled."""
        if self.now() >= self._partitions_until:
            found = self._partitions = self._partitions_now()
            self._own_partition = next((each.number for each in found if each.node == self.name), None)
            self._partitions_until = self.now() + PARTITIONS_SECONDS
        return self._partitions

    def _partitions_now(self) -> list[Partition]:
        self._keep_announced()
        entries = self._entries()
        alive = {other.name for other in self.server.members.others() if other.status == ALIVE}
        if self.now() < self._settles_until:
            if not alive or alive != entries.keys() - {self.name}:
                return []
            self._settles_until = 0.0
        if self._own is not None:
            entries[self.name] = self._own
        return partitions_of(entries, alive | {self.name})

    def own_partition(self) -> int | None:
        self.partitions()
        return self._own_partition

    def coordinates(self, group: str) -> bool:
        """Return whether this node coordinates the group."""
        found = coordinator_of(self.partitions(), group)
        return found is not None and found.node == self.name

    def topic_error(self, name: str, identity: ClientIdentity) -> int:
        """The error of a request about a topic, NONE where the consumer may read some of it."""
        topic = self.topics.get(name)
        if topic is None:
            return errors.UNKNOWN_TOPIC_OR_PARTITION
        return errors.NONE if Consumer(self, identity, topic).may_ask() else errors.TOPIC_AUTHORIZATION_FAILED

    def topic_errors(self, names: Iterable[str], identity: ClientIdentity) -> dict[str, int]:
        """`topic_error` by name: the rules are asked once for each."""
        return {name: self.topic_error(name, identity) for name in dict.fromkeys(names)}

    # --- committed offsets ---

    def count_kept(self) -> None:
        """Count what the store has. Once, before any commit."""
        now = self.now()
        found = sorted(self._retained(OFFSETS, OFFSETS_MAX), key=lambda message: message.expires_at)
        for message in found:
            group = message.topic.decode().removeprefix(OFFSETS).partition("/")[0]
            self._kept[message.topic] = Kept(unquote(group), min(message.expires_at, now + COMMIT_SECONDS))

    def _make_room(self, has_members: Callable[[str], bool]) -> bool:
        """Forget the oldest committed offset that may go, where OFFSETS_MAX are kept. False where none may go."""
        if len(self._kept) < OFFSETS_MAX:
            return True
        now = self.now()
        while topic := self._oldest(has_members, now):
            kept = self._kept.pop(topic)
            message = self.server.broker.retained.get(topic)
            expires_at = 0.0 if message is None else min(message.expires_at, now + COMMIT_SECONDS)
            if expires_at > kept.expires_at:  # another node has coordinated the group meanwhile
                self._kept[topic] = Kept(kept.group, expires_at)
                continue
            if self.coordinates(kept.group):  # else it is another node's
                self._retain(topic, b"")
            return True
        return False

    def _oldest(self, has_members: Callable[[str], bool], now: float) -> bytes | None:
        """The topic of the oldest committed offset that may go, as far as this node knows."""
        return next(
            (topic for topic, kept in self._kept.items() if kept.expires_at <= now or not has_members(kept.group)), None
        )

    async def commit(
        self, group: str, offsets: dict[tuple[str, int], Committed], has_members: Callable[[str], bool]
    ) -> bool:
        """Keep the offsets of a group by (topic, partition), on disk where the node has a store. False when they are not
        kept. has_members: says which groups have members here."""
        async for (topic, partition), committed_offset in in_turns(offsets.items()):
            key = _offset_topic(group, topic, partition)
            self._kept.pop(key, None)
            expires_at = self.now() + COMMIT_SECONDS
            payload = json.dumps(committed_offset._asdict()).encode()
            if not (self._make_room(has_members) and self._retain(key, payload, expires_at)):
                self.offsets_refused += 1
                return False
            self._kept[key] = Kept(group, expires_at)
        try:
            await committed(self.server)
        except NotCommitted:
            self.offsets_refused += 1
            return False
        return True

    def committed(self, group: str, topic: str, partition: int) -> Committed | None:
        message = self.server.broker.retained.get(_offset_topic(group, topic, partition))
        if message is None or message.expires_at <= self.now():
            return None
        return decode_committed(message.payload)

    # --- retained messages ---

    def _retain(self, topic: bytes, payload: bytes, expires_at: float | None = None) -> bool:
        message = Message(topic, payload, 1, True)
        if expires_at is not None:
            message.expires_at = expires_at
        refused = self.server.broker.retained.refused
        try:
            self.server.broker.publish(message, self.now())
        except MqttError:
            return False
        finally:
            self.server.flush_soon()
        return self.server.broker.retained.refused == refused

    def _retained(self, prefix: str, count_max: int) -> list[Message]:
        """The messages below the prefix, not more than so many: clients may publish there, too."""
        walk = RetainedWalk(self.server.broker.retained, f"{prefix}#".encode())
        found: list[Message] = []
        while not walk.is_done() and len(found) < count_max:
            walk.advance(WALK_STEPS)
            if walk.found is not None:
                found.append(walk.found)
        return found


def _offset_topic(group: str, topic: str, partition: int) -> bytes:
    return f"{OFFSETS}{quote(group, safe='')}/{topic}/{partition}".encode()


class Consumer(TopicJudge):
    """The rights of one connection: which MQTT topics of a Kafka topic it gets."""

    def __init__(self, node: KafkaNode, identity: ClientIdentity, topic: KafkaTopic) -> None:
        self._broker = node.server.broker
        self._identity = identity
        self._topic = topic

    def gets(self, topic: bytes) -> bool:
        if not self._topic.selection.has(topic):
            return False
        authorization = self._broker.authorization
        return authorization is None or authorization.may_read(self._identity, topic)

    def may_ask(self) -> bool:
        """Return whether there may be a message that the consumer gets."""
        authorization = self._broker.authorization
        return authorization is None or authorization.may_subscribe(self._identity, b"", self._topic.topic_filter)
