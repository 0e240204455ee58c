"""The state that the requests of all consumers share: the log, its topics, the partitions of the federation, offsets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote, unquote

from broker.authorization import ClientIdentity
from broker.event_log.log import EventLog
from broker.event_log.selection import Selection
from broker.kafka import error_codes as errors
from broker.kafka.batches import TopicJudge
from broker.kafka.committed_offsets import CommittedOffsets
from broker.kafka.heard_offsets import HeardOffsets
from broker.kafka.partitions import (
    PARTITIONS_MAX,
    Entry,
    KnownNodes,
    Partition,
    coordinator_of,
    decode_entry,
    encode_entry,
    partitions_of,
)
from broker.kafka.retained_messages import RetainedMessages

if TYPE_CHECKING:
    from broker.server.host import Host

NODES: Final = "$kafka/nodes/"
PARTITIONS_SECONDS: Final = 0.5
EPOCH_MAX: Final = 2**31 - 1
ALIVE: Final = "ALIVE"
LOCAL_NAME: Final = "node"  # of a node without a federation


class KafkaTopic(NamedTuple):
    name: str
    topic_filter: bytes
    selection: Selection


class FirstStart(NamedTuple):
    """The first start of a node in its folder of the log.

    since  Unix nanoseconds; of its first start ever where the folder was emptied
    epoch  that of the partition is so much above the number of the log's id: 0, unless other nodes knew a higher one then
    """

    since: int
    epoch: int


class KafkaNode:
    """topics   by name
    offsets  that groups have committed
    """

    def __init__(self, server: Host, log: EventLog, filters: dict[str, bytes]) -> None:
        self.server = server
        self.log = log
        self.topics = {name: KafkaTopic(name, each, Selection([each])) for name, each in filters.items()}
        self.name = server.members.node_name or LOCAL_NAME
        self._retained = RetainedMessages(server)
        self._known = KnownNodes({})
        heard = HeardOffsets(server.members, self._retained, self.now)
        self.offsets = CommittedOffsets(server, self._retained, heard, self.coordinates)
        self._first_epoch = 0  # above the number of the log's id
        self._own: Entry | None = None
        self._settles_until = 0.0  # monotonic seconds
        self._partitions: list[Partition] = []
        self._own_partition: int | None = None  # its number
        self._partitions_until = 0.0  # monotonic seconds

    def now(self) -> float:
        """Monotonic seconds."""
        return self.server.now()

    @property
    def epoch(self) -> int:
        """Leader epoch of this node's partition: it rises with each id that its log gets."""
        return min(self._first_epoch + self.log.lineage.number, EPOCH_MAX)

    def epoch_end(self, epoch: int) -> int:
        """The first offset that may differ from what was read under a former epoch, which may be one that the log does not
        know: of an end that was lost, or of before the folder was emptied, with nothing in common. Of ids without a known
        number it may have been any."""
        number = epoch - self._first_epoch
        former = [parent for parent in self.log.lineage.parents if parent.number <= number]
        if not former:
            return 0
        return former[-1].end_offset if former[-1].number else former[0].end_offset

    @property
    def rules(self) -> int:
        """A number that changes with the rules of who may read what."""
        authorization = self.server.broker.authorization
        return 0 if authorization is None else authorization.number

    # --- partitions ---

    def first_start(self, now_ns: int) -> FirstStart:
        """Of this node in this folder: after what other nodes know of it, else at a time behind that of all nodes."""
        entries = self.entries()
        if self.name in entries:
            known = entries[self.name]
            return FirstStart(known.since, max(0, known.epoch + 1 - self.log.lineage.number))
        return FirstStart(max([now_ns, *(entry.since + 1 for entry in entries.values())]), 0)

    def know(self, entries: dict[str, Entry]) -> None:
        """What `entries` gave before this start: a store in memory has forgotten it, and the others may not be there."""
        self._known = KnownNodes(entries)
        self.entries()  # what the store has now may be deleted before the first one asks

    def entries(self) -> dict[str, Entry]:
        """Return what the nodes of the federation have announced, by their names."""
        if not self.server.members.node_name:
            return {}
        heard: dict[str, Entry] = {}
        for message in self._retained.below(NODES, PARTITIONS_MAX):
            entry = decode_entry(message.payload)
            if entry is not None:
                heard[unquote(message.topic.decode().removeprefix(NODES))] = entry
        return self._known.hear(heard)

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
        known = self._retained.get(topic)
        if known is None or known.payload != payload:
            self._retained.put(topic, payload)

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
        entries = self.entries()
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

    def coordinates(self, group: str, has_members: bool = False) -> bool:
        """Return whether this node coordinates the group. While others are asked for their offsets it begins with no group,
        and goes on with one that has members here: `has_members`."""
        if self.offsets.heard.waiting and not has_members:
            return False
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
