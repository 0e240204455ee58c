"""This domain, as the sessions of links on this node know it: its name and numbers, and what it has seen of messages.

DuplicateWindow  which numbered messages of other domains came already, so that one that comes on several ways is published once
Deletions        when retained messages were deleted, so that an older one that waited for a link does not come back, and a
                 domain that was not there then learns of the deletion with its next subscription
"""

# compiled with mypyc
from __future__ import annotations

from collections import OrderedDict
from typing import Final

from broker.broker import Broker
from broker.message import NEVER, Message
from broker.origin import NO_DOMAIN, Origin, decode_origin
from broker.routing.retained import TopicMessages
from broker.store.journal import Content, Journal, StoredRecord, checked
from broker.store.kinds import DELETION
from federation.links.bridging.headers import origin_node

PAGE_NUMBERS: Final = 1_024
PAGES_MAX: Final = 16_384  # 16 MiB
NEW: Final = 0
SEEN: Final = -1
LATE: Final = b"late"
"""Field of a deletion that a subscription has brought: it is nothing to a domain that has no older message of the topic."""
TOPICS_MAX: Final = 65_536
TOPIC_BYTES_MAX: Final = 16 * 2**20  # of all topics together

_HOPS: Final = 0x7F
_IS_OWN: Final = 0x80  # a link of this node brought the first copy


class DuplicateWindow:
    """It is asked about the copies that links of this node bring, and about those that other nodes of the domain have published
    and pass on. The numbers of one origin are kept in pages of PAGE_NUMBERS bytes. Bounds: pages of all origins together.
    Policy: the page that was not used for the longest time goes; a message of such a page counts as new, so that nothing is
    lost. `evicted` counts pages that went."""

    def __init__(self, pages_max: int = PAGES_MAX) -> None:
        self.pages_max = pages_max
        self.evicted = 0
        self._pages: OrderedDict[tuple[bytes, bytes, int], bytearray] = OrderedDict()

    def judge(self, origin: Origin, is_resent: bool) -> int:
        """NEW for a copy of a message that did not come before, has no number or is of this domain; SEEN, when one came over as
        few links; otherwise the number of links of the best copy before, which has passed more of them. `note` follows for a
        copy that is published.

        is_resent  its upstream has sent it before. Then a copy that another node has published does not count: that node may
                   have died before all others had it
        """
        if not origin.may_come_again():
            return NEW
        key = _key(origin)
        page = self._pages.get(key)
        if page is None:
            return NEW
        self._pages.move_to_end(key)
        known = page[origin.sequence % PAGE_NUMBERS]
        if known == 0 or (is_resent and known < _IS_OWN):
            return NEW
        before = known & _HOPS
        return before if len(origin.path) < before else SEEN

    def note(self, origin: Origin, hops_before: int, is_own: bool) -> None:
        """A copy is published. One that is refused does not count: the next one may come over a link that has more rights.

        hops_before  what `judge` has said, not SEEN
        is_own       a link of this node brings it, not another node of the domain
        """
        if not origin.may_come_again():
            return
        key = _key(origin)
        page = self._pages.get(key)
        if page is None:
            if len(self._pages) >= self.pages_max:
                self._pages.popitem(last=False)
                self.evicted += 1
            page = self._pages[key] = bytearray(PAGE_NUMBERS)
        at = origin.sequence % PAGE_NUMBERS
        known = page[at]
        hops = len(origin.path)
        page[at] = min(hops, known & _HOPS or hops) | known & _IS_OWN
        if is_own and hops_before == NEW:
            page[at] |= _IS_OWN


def _key(origin: Origin) -> tuple[bytes, bytes, int]:
    return origin.path[0], origin.node, origin.sequence // PAGE_NUMBERS


class Deletion(Content):
    """The record of a deletion."""

    __slots__ = ("origin", "topic")

    def __init__(self, topic: bytes, origin: Origin) -> None:
        self.topic = topic
        self.origin = origin

    def values(self, wall_offset: float) -> tuple[object, ...]:
        return DELETION, self.topic, self.origin.encode()


class Deletions(TopicMessages):
    """Bounds: topics and their bytes. Policy: past either the oldest deletion is forgotten, which `forgotten` counts. With a
    store they outlive the process (`restore`)."""

    def __init__(self, topics_max: int = TOPICS_MAX, bytes_max: int = TOPIC_BYTES_MAX) -> None:
        super().__init__()
        self.forgotten = 0
        self._topics_max = topics_max
        self._bytes_max = bytes_max
        self._bytes = 0
        self._messages: OrderedDict[bytes, Message] = OrderedDict()
        self._journal: Journal | None = None
        self._records: dict[bytes, int] = {}  # numbers, by topic

    def restore(self, journal: Journal) -> None:
        """Take the deletions of the store, and keep them there from now on. Raises ValueError and TypeError for a record that
        no node has written."""
        self._journal = journal
        for number, content in list(journal.kept.items()):
            if isinstance(content, StoredRecord) and content.stored[0] == DELETION:
                _, topic, origin = content.stored
                journal.drop(number)
                self.note(checked(bytes, topic), decode_origin(checked(bytes, origin)))

    def __len__(self) -> int:
        return len(self._messages)

    def get(self, topic: bytes) -> Message | None:
        """The message that has deleted that of the topic, the last one."""
        return self._messages.get(topic)

    def note(self, topic: bytes, origin: Origin) -> None:
        """The topic has no retained message since the time of the origin."""
        messages = self._messages
        if topic in messages:
            messages.move_to_end(topic)
        else:
            self._bytes += len(topic)
        late = origin.with_others({**(origin.others or {}), LATE: b"1"})
        message = messages[topic] = Message(topic, b"", 1, True, b"", NEVER, "", late)
        self.topics.set(topic, message)
        if self._journal is not None:
            self._forget_record(topic)
            self._records[topic] = self._journal.keep(Deletion(topic, origin))
        while len(messages) > self._topics_max or self._bytes > self._bytes_max:
            oldest, _ = messages.popitem(last=False)
            self.topics.delete(oldest)
            self._bytes -= len(oldest)
            self._forget_record(oldest)
            self.forgotten += 1

    def _forget_record(self, topic: bytes) -> None:
        if self._journal is not None and topic in self._records:
            self._journal.drop(self._records.pop(topic))

    def time_of(self, topic: bytes) -> int:
        """Milliseconds since 1970; 0 for a topic of which no deletion is known."""
        message = self._messages.get(topic)
        return 0 if message is None or message.origin is None else message.origin.published_at_ms


class OwnDomain:
    """name          of the domain among those that links join; NO_DOMAIN without one
    node_name     name of the node in the headers of messages
    no_origin     that of a message without one
    path_skipped  messages that no link session got because its domain was in their path
    hops_skipped  because they had passed as many links as the domain allows
    """

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.name = NO_DOMAIN
        self.node_name = ""
        self.no_origin = Origin()
        self.duplicates = DuplicateWindow()
        self.deletions = Deletions()
        self.path_skipped = 0
        self.hops_skipped = 0
        self._origin_node = b""
        self._sequence = 0

    def next_number(self) -> tuple[bytes, int]:
        """(node, sequence) of one more message that gets a number."""
        if not self._origin_node:
            self._origin_node = origin_node(self.node_name, self.broker.rng.getrandbits(32))
        self._sequence += 1
        return self._origin_node, self._sequence
