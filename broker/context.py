"""What all cores of one node share: settings, counters, the clock of the present call, who has output, who is to wait.

`Broker` is the only subclass. The cores below it know no more of the broker than what stands here.
"""

from __future__ import annotations

import random

from broker.codec.packets import Will
from broker.config.settings_mqtt import MqttSettings
from broker.counters import Counters
from broker.hooks import Forwarder, Peer, Tap
from broker.publisher import Publisher
from broker.routing.retained import RetainedStore
from broker.slices import SLICE_STEPS, Slices, Work
from broker.timers import TimerWheel


class Context:
    """now               of the last call at a door, for what is called without a time
    dirty             connections with output or a close to carry out, each once
    reading_changes   publishers whose `held` went to or from zero: pause or resume reading
    peer_holds        by node: the node, until when it may hold publishers, and those that it holds
    """

    def __init__(self, settings: MqttSettings, rng: random.Random, now: float) -> None:
        self.counters = Counters()
        self.dirty: list[Publisher] = []
        self.reading_changes: list[Publisher] = []
        self.peer_holds: dict[str, tuple[Peer, float, dict[Publisher, None]]] = {}
        self.timers = TimerWheel()
        self.slices = Slices()
        self.now = now
        self.rng = rng
        self.forwarder = Forwarder()
        self.tap: Tap | None = None
        self.retained = RetainedStore()
        self.take_limits(settings)

    def take_limits(self, settings: MqttSettings) -> None:
        """Limits that are read for every packet are kept as plain attributes."""
        self.settings = settings
        self.max_packet_size = settings.max_packet_size
        self.maximum_qos = settings.maximum_qos
        self.write_buffer_high = settings.write_buffer_high
        self.overlap = settings.delivery_mode == "overlap"
        self.retained.messages_max = settings.max_retained_messages
        self.retained.bytes_max = settings.max_retained_bytes

    # --- publishers that are too fast ---

    def hold(self, publisher: Publisher) -> None:
        publisher.held += 1
        if publisher.held == 1:
            self.counters.publishers_held += 1
            self.reading_changes.append(publisher)

    def release(self, publisher: Publisher) -> None:
        publisher.held -= 1
        if publisher.held == 0:
            self.reading_changes.append(publisher)

    def rest(self, publisher: Publisher) -> None:
        """Its slice is over: it is held until a later turn."""
        publisher.held += 1
        if publisher.held == 1:
            self.reading_changes.append(publisher)
        self.slices.later(Rest(self, publisher))

    def hold_for_peer(self, peer: Peer, publisher: Publisher, now: float) -> None:
        """The peer's outbox is past its half: the publisher waits, at most publisher_hold_max for one backlog."""
        entry = self.peer_holds.get(peer.name)
        if entry is None:
            entry = (peer, now + self.settings.publisher_hold_max, {})
            self.peer_holds[peer.name] = entry
        elif now >= entry[1] or not entry[2]:
            return
        if publisher not in entry[2]:
            entry[2][publisher] = None
            self.hold(publisher)

    # --- what the broker does for the cores below it ---

    def session_expired(self, client_id: str, now: float) -> None:
        """The session has been away for longer than its Session Expiry Interval."""
        raise AssertionError("a context without a broker")

    def publish_will(self, will: Will, client_id: str, now: float) -> None:
        """The will of a client is due."""
        raise AssertionError("a context without a broker")


class Rest(Work):
    """The end of `Context.rest`. The publisher has a slice of its own when it is read again."""

    __slots__ = ("_context", "_publisher")

    def __init__(self, context: Context, publisher: Publisher) -> None:
        self._context = context
        self._publisher = publisher

    def go_on(self, now: float) -> bool:
        self._context.slices.steps += SLICE_STEPS
        self._context.release(self._publisher)
        return True
