"""The part of a broker that sessions, connections and the router use: settings, counters, time, output, holds.

`Broker` is the only subclass. These cores import this module, and never the broker.
"""

# compiled with mypyc
from __future__ import annotations

import random
from typing import Final

from broker.bridging import Bridging
from broker.codec.packets import Will
from broker.config.settings_mqtt import MqttSettings
from broker.hook_points import HookPoints
from broker.hooks import Forwarder, Peer
from broker.memory_limit import MEMORY_FREE
from broker.message import NEVER
from broker.origin import split_properties
from broker.ownership import Elsewhere, Ownership
from broker.publisher import Publisher
from broker.routing.retained import RetainedStore
from broker.routing.shared import SharedGroup
from broker.routing.strategy import STRATEGIES
from broker.routing.subscriber import Subscriber
from broker.slices import Work
from broker.store.identity import new_identity
from broker.timers import TimerWheel

DIRTY_MAX: Final = 2**31
NO_STORE: Final = -1


STOOD_STILL: Final = "this process stood still: what was sent to it before is sent again"


class Context(HookPoints):
    """now              monotonic seconds of the last call from the shell, for calls without a time
    dirty            connections that have output or are to be closed, each once
    reading_changes  publishers whose `held` went to or from zero: the shell pauses or resumes reading
    sys_retained     retained messages below $SYS, which are about this node and stay on it
    bridging         connections to other brokers, None without an implementation
    ownership        other nodes that may have the session of a client, None for none
    elsewhere        this node takes no new clients: they are to connect to another node; None while it takes them
    wall_offset      how much Unix time is ahead of `now`, in seconds
    changed_groups   shared groups with a queue: what waits there has changed, or the credit of a member
    acks_awaited     acknowledgements that wait for those of other nodes: each of these ends in a flush
    identity         of the store, or of the process without one
    memory_level     what the node takes (broker/memory_limit.py); the shell measures
    node_hash        strategy.hash_of the node's name
    peer_holds       by node: the node, until when it may hold publishers, and the publishers that it holds
    still_at         input that comes later than this comes from before a time in which the process stood still (Copies)
    refusal          why the last filter of a SUBSCRIBE was refused, for its Reason String; "" where the code says it
    unheard          publishers of QoS 1 and 2 that wait until this node knows what others subscribe to; None when it does
    """

    def __init__(self, settings: MqttSettings, rng: random.Random, now: float) -> None:
        super().__init__()
        self.dirty: list[Publisher] = []
        self.reading_changes: list[Publisher] = []
        self.peer_holds: dict[str, tuple[Peer, float, dict[Publisher, None]]] = {}
        self.refusal = ""
        self.unheard: dict[Publisher, None] | None = None
        self.timers = TimerWheel()
        self.now = now
        self.rng = rng
        self.forwarder = Forwarder()
        self.retained = RetainedStore()
        self.sys_retained = RetainedStore()
        self.bridging: Bridging | None = None
        self.ownership: Ownership | None = None
        self.elsewhere: Elsewhere | None = None
        self.wall_offset = 0.0
        self.changed_groups: dict[SharedGroup, None] = {}
        self.acks_awaited = 0
        self.node_hash = 1
        self.identity = new_identity(rng, False)
        self.memory_level = MEMORY_FREE
        self.still_at = NEVER
        self.take_limits(settings)

    def take_limits(self, settings: MqttSettings) -> None:
        """Take over settings. Limits that are read for every packet are attributes of the context."""
        self.settings = settings
        self.max_packet_size = settings.max_packet_size
        self.maximum_qos = settings.maximum_qos
        self.write_buffer_high = settings.write_buffer_high
        self.overlap = settings.delivery_mode == "overlap"
        self.group_strategy = STRATEGIES.index(settings.shared_subscription_strategy)
        self.retained.messages_max = settings.max_retained_messages
        self.retained.bytes_max = settings.max_retained_bytes

    # --- for the shell ---

    def take_dirty(self, count_max: int = DIRTY_MAX) -> list[Publisher]:
        """At most `count_max` connections that have output or are to be closed, each once."""
        dirty = self.dirty
        if len(dirty) > count_max:
            self.dirty = dirty[count_max:]
            return dirty[:count_max]
        if dirty:
            self.dirty = []
        return dirty

    def take_reading_changes(self) -> list[Publisher]:
        """Connections whose `held` went to or from zero: pause or resume reading."""
        changes = self.reading_changes
        if changes:
            self.reading_changes = []
        return changes

    def drain_groups(self, groups: dict[SharedGroup, None] | None) -> None:
        """A member of these groups has credit: give it what waits in their queues."""
        raise AssertionError("a subclass implements this")

    # --- other brokers ---

    def interest_note(self, share_name: bytes, topic_filter: bytes) -> bytes:
        """Return what the interest in a filter says along (Bridging.note)."""
        return b"" if self.bridging is None or share_name else self.bridging.note(topic_filter)

    def stripped(self, properties: bytes) -> bytes:
        """Properties of a message without the origin that its sender may not say."""
        kept, found = split_properties(properties)
        self.counters.origins_stripped += len(found)
        return kept

    # --- publishers that are too fast ---

    def hold(self, publisher: Publisher) -> None:
        """Read a publisher that is too fast no more, until each hold has its `release`."""
        if publisher.held == 0:
            self.counters.publishers_held += 1
        self.pause(publisher)

    def pause(self, publisher: Publisher) -> None:
        """Read the publisher no more, until each pause has its `release`."""
        publisher.held += 1
        if publisher.held == 1:
            self.reading_changes.append(publisher)

    def release(self, publisher: Publisher) -> None:
        publisher.held -= 1
        if publisher.held == 0:
            self.reading_changes.append(publisher)

    def rest(self, publisher: Publisher) -> None:
        """Pause the publisher until a later turn: its slice is over."""
        self.pause(publisher)
        self.slices.later(Rest(self, publisher))

    def hold_unheard(self, publisher: Publisher) -> None:
        """Pause a publisher of QoS 1 and 2 until `has_heard`."""
        assert self.unheard is not None
        self.unheard[publisher] = None
        self.pause(publisher)

    def has_heard(self) -> None:
        """The interest of other nodes is known, or was waited for long enough."""
        unheard = self.unheard
        if unheard is not None:
            self.unheard = None
            for publisher in unheard:
                self.release(publisher)

    def hold_for_peer(self, peer: Peer, publisher: Publisher, now: float) -> None:
        """Hold a publisher because the peer's outbox is past its half, for at most publisher_hold_max for each backlog."""
        entry = self.peer_holds.get(peer.name)
        if entry is None:
            entry = (peer, now + self.settings.publisher_hold_max, {})
            self.peer_holds[peer.name] = entry
        elif now >= entry[1] or not entry[2]:
            return
        if publisher not in entry[2]:
            entry[2][publisher] = None
            self.hold(publisher)

    def next_peer_timeout(self) -> float:
        """Return when to call `release_for_peers`; NEVER while no publisher is held for a peer."""
        at = NEVER
        for peer, until, held in self.peer_holds.values():
            # The publishers of an outbox that has room again are released at once.
            at = min(at, self.now if held and not peer.congested else until)
        return at

    def release_for_peers(self, now: float) -> None:
        """Release the publishers of outboxes that have room again, and those that were held long enough."""
        for name in list(self.peer_holds):
            peer, until, held = self.peer_holds[name]
            if now >= until or not peer.congested:
                # The empty entry stays while the peer is congested: publishers are held once for each backlog.
                for publisher in held:
                    self.release(publisher)
                held.clear()
                if not peer.congested:
                    del self.peer_holds[name]
                else:
                    self.peer_holds[name] = (peer, now + 1.0, held)

    # --- implemented by the broker ---

    def session_expired(self, client_id: str, now: float) -> None:
        """End a session whose Session Expiry Interval has passed."""
        raise AssertionError("the broker implements this")

    def write_after_commit(self, connection: Publisher, data: bytes) -> None:
        """Write a packet to a client when what has happened so far is in the store."""
        raise AssertionError("the broker implements this")

    def begun_commit(self) -> int:
        """Number of the commit that holds all durable changes so far; 0 when the store has them, NO_STORE without a store."""
        raise AssertionError("the broker implements this")

    def is_committed(self, number: int) -> bool:
        """Return whether the store has the changes of a commit."""
        raise AssertionError("the broker implements this")

    def publish_will(self, will: Will, session: Subscriber, now: float) -> None:
        """Publish the will of a client, whose session this is or was."""
        raise AssertionError("the broker implements this")


class Rest(Work):
    """The end of `Context.rest`. It uses up its slice, because the publisher gets one of its own when it is read again."""

    __slots__ = ("_context", "_publisher")

    def __init__(self, context: Context, publisher: Publisher) -> None:
        self._context = context
        self._publisher = publisher

    def go_on(self, now: float) -> bool:
        slices = self._context.slices
        slices.steps += slices.steps_max
        self._context.release(self._publisher)
        return True
