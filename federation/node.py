"""One federated node without I/O: a broker, its place in the membership, and the event streams with each other node.

What the simulator runs and what the plugin puts shells around. Serf's events come in through `member_events`; streams
through the senders (`senders`, `outlets`) and receivers (`hello`, `receivers`); time through `next_timeout` and
`handle_timeout`. After every call the broker may have output, and `outlets` senders with batches.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from broker.broker import Broker
from broker.config.addresses import AddressError, parse_address
from broker.message import NEVER, Message
from federation.serf.events import (
    Event,
    Member,
    MemberFailed,
    MemberJoin,
    MemberLeave,
    MemberReap,
    MemberStatus,
    MemberUpdate,
)
from federation.settings import DEFAULT_FEDERATION_PORT, FederationSettings
from federation.stream.batches import Outlets
from federation.stream.counters import StreamCounters
from federation.stream.full_state import LocalState
from federation.stream.outbox import Outbox
from federation.stream.receiver import PeerReceiver
from federation.stream.retained_changes import RetainedChanges
from federation.stream.sender import PeerSender
from federation.stream.tree import FederationTree

TAG_ADDR: Final = "fed_addr"  # HOST:PORT of the member's stream server
TAG_EXTENSIONS: Final = "fed_ext"  # what it can read beyond the plain stream, joined by commas
EXTENSION_BATCH: Final = "batch1"
EXTENSION_DIRECT: Final = "direct1"


class NotAMember(Exception):
    """Hello from a name that is not in the federation (yet)."""


@dataclass(frozen=True, slots=True)
class BadAddress:
    """A member's tag fed_addr is no address; it gets nothing."""

    name: str
    text: str


def own_tags(advertised: str, batch: bool) -> dict[str, str]:
    """Serf tags of a node whose stream server others reach at `advertised` (HOST:PORT)."""
    tags = {TAG_ADDR: advertised}
    if batch:
        tags[TAG_EXTENSIONS] = f"{EXTENSION_BATCH},{EXTENSION_DIRECT}"
    return tags


class BrokerState(LocalState):
    """The full state of a broker."""

    def __init__(self, broker: Broker, changes: RetainedChanges) -> None:
        self._broker = broker
        self._changes = changes

    def interest(self) -> list[tuple[bytes, bytes]]:
        return self._broker.local_interest()

    def retained(self) -> list[Message]:
        retained = self._broker.retained
        deleted = [topic for topic in self._changes.written_here() if retained.get(topic) is None]
        return retained.messages() + [Message(topic, b"", 0, True) for topic in deleted]

    def retained_message(self, topic: bytes) -> Message | None:
        return self._broker.retained.get(topic)


class Node:
    """`senders`, `receivers` and `counters` are by the name of the other node; `counters` stay until it is reaped."""

    def __init__(self, name: str, broker: Broker, settings: FederationSettings, rng: random.Random) -> None:
        self.name = name
        self.broker = broker
        self.settings = settings
        self._changes = RetainedChanges(name)
        self.tree = FederationTree(broker.router, self._changes)
        self.outlets = Outlets()
        self.senders: dict[str, PeerSender] = {}
        self.receivers: dict[str, PeerReceiver] = {}
        self.counters: dict[str, StreamCounters] = {}
        self.has_left = False
        self._rng = rng
        self._state = BrokerState(broker, self._changes)
        self._given_up_at: dict[str, float] = {}  # failed members: when their outbox is dropped
        self._events: list[BadAddress] = []
        broker.forwarder = self.tree

    # --- membership ---

    def member_events(self, events: Iterable[Event], now: float) -> None:
        """What Serf tells."""
        for event in events:
            if isinstance(event, (MemberJoin, MemberUpdate)):
                self._member_there(event.member, now)
            elif isinstance(event, MemberFailed):
                if event.member.name in self.senders:
                    self._given_up_at[event.member.name] = now + self.settings.outbox_age_max
            elif isinstance(event, (MemberLeave, MemberReap)):
                self._remove(event.member.name, "it left")
                if isinstance(event, MemberReap):
                    self.counters.pop(event.member.name, None)

    def left(self) -> None:
        """This node has left the federation: it serves its own clients only, until `joined`."""
        self.has_left = True
        for name in list(self.senders):
            self._remove(name, "this node left")

    def joined(self, members: Iterable[Member], now: float) -> None:
        """This node is in the federation again, with these members."""
        self.has_left = False
        for member in members:
            # Also one that is said to be leaving: it may object, and that is no event.
            self._member_there(member, now)

    def _member_there(self, member: Member, now: float) -> None:
        name = member.name
        if name == self.name or self.has_left:
            return
        if member.status not in (MemberStatus.ALIVE, MemberStatus.LEAVING):
            return
        text = member.tags.get(TAG_ADDR, "")
        addr = ""
        if text:
            try:
                addr = parse_address(text, DEFAULT_FEDERATION_PORT, unix_allowed=False).host_port
            except AddressError:
                self._events.append(BadAddress(name, text[:100]))
        if not addr:
            # A member of the gossip only, such as a serf agent.
            self._remove(name, "it takes no event streams")
            return
        extensions = member.tags.get(TAG_EXTENSIONS, "").split(",")
        batched = self.settings.batch and EXTENSION_BATCH in extensions
        self._given_up_at.pop(name, None)
        sender = self.senders.get(name)
        if sender is None:
            sender = self._add(name, batched, now)
        sender.set_batched(batched)
        sender.direct = batched and EXTENSION_DIRECT in extensions
        sender.connect(addr, now)

    def _add(self, name: str, batched: bool, now: float) -> PeerSender:
        counters = self.counters.get(name)
        if counters is None:
            counters = self.counters[name] = StreamCounters()
        settings = self.settings
        outbox = Outbox(
            settings.outbox_bytes_max, settings.outbox_age_max, settings.outbox_policy == "drop_oldest", counters
        )
        sender = PeerSender(name, batched, self._state, self.outlets, outbox, self._changes, self._rng)
        self.senders[name] = sender
        self.tree.add_node(sender)
        self.receivers[name] = PeerReceiver(name, self.tree, self.broker.router, counters, self._changes, now)
        return sender

    def _remove(self, name: str, reason: str) -> None:
        self._given_up_at.pop(name, None)
        sender = self.senders.pop(name, None)
        if sender is None:
            return
        sender.stop(reason)
        sender.forget()
        self.tree.remove_node(name)
        self.receivers.pop(name).end(self.broker.now)

    # --- streams of other nodes ---

    def hello(self, name: str, session_id: str) -> tuple[bool, int]:
        """(clean_start, next_event_id) for a Hello of the node `name`. Raises NotAMember, StreamError."""
        return self.receiver(name).hello(session_id)

    def receiver(self, name: str) -> PeerReceiver:
        """Raises NotAMember."""
        receiver = self.receivers.get(name)
        if receiver is None:
            raise NotAMember(f"{name} has not yet joined")
        return receiver

    def ack(self, sender: PeerSender, attempt: int, event_id: int, now: float) -> None:
        """An acknowledgement came; publishers that were held for this node may go on."""
        was_congested = sender.congested
        sender.ack(attempt, event_id, now)
        if was_congested and not sender.congested:
            self.broker.handle_timeout(now)

    # --- time and events ---

    def next_timeout(self) -> float:
        """When to call handle_timeout; NEVER for not at all. The broker has its own."""
        at = NEVER
        for sender in self.senders.values():
            at = min(at, sender.next_timeout())
        for receiver in self.receivers.values():
            at = min(at, receiver.next_timeout())
        for given_up_at in self._given_up_at.values():
            at = min(at, given_up_at)
        return at

    def handle_timeout(self, now: float) -> None:
        """It is that late; harmless when early. Senders that may have batches now stand in `outlets`."""
        for name in [name for name, at in self._given_up_at.items() if at <= now]:
            self._remove(name, f"it was away for more than {self.settings.outbox_age_max:g} s")
        for sender in self.senders.values():
            if sender.next_timeout() <= now:
                sender.handle_timeout(now)
                sender.want_attention()
        for receiver in self.receivers.values():
            receiver.handle_timeout(now)

    def take_events(self) -> list[BadAddress]:
        """What should be logged."""
        events = self._events
        if events:
            self._events = []
        return events
