"""Counters of the broker: messages, connections, sessions, drops by reason."""

from __future__ import annotations

from typing import Final

# Reasons of dropped messages. Every bound has one.
DROP_QUEUE_FULL: Final = "queue_full"
DROP_QUEUE_BYTES: Final = "queue_bytes"
DROP_EXPIRED: Final = "expired"
DROP_INFLIGHT_EXPIRED: Final = "inflight_expired"
DROP_QOS0_OFFLINE: Final = "qos0_offline"
DROP_PACKET_TOO_LARGE: Final = "packet_too_large"
DROP_SESSION_ENDED: Final = "session_ended"
DROP_RETAINED_FULL: Final = "retained_full"
DROP_FROM_PEER_INVALID: Final = "from_peer_invalid"
DROP_GROUP_GONE: Final = "group_gone"
DROP_WILL_REFUSED: Final = "will_refused"
DROP_LOG_FULL: Final = "log_full"
DROP_REASONS: Final = (
    DROP_QUEUE_FULL,
    DROP_QUEUE_BYTES,
    DROP_EXPIRED,
    DROP_INFLIGHT_EXPIRED,
    DROP_QOS0_OFFLINE,
    DROP_PACKET_TOO_LARGE,
    DROP_SESSION_ENDED,
    DROP_RETAINED_FULL,
    DROP_FROM_PEER_INVALID,
    DROP_GROUP_GONE,
    DROP_WILL_REFUSED,
    DROP_LOG_FULL,
)


LOSERS_MAX: Final = 32


class Losers:
    """Names that lost most messages, in bounded memory (Misra and Gries, 1982).

    It contains every name with more than one in LOSERS_MAX + 1 of all losses. Numbers are exact up to LOSERS_MAX names
    and lower bounds above. `add` takes amortized constant time.
    """

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def add(self, name: str, count: int) -> None:
        counts = self._counts
        if name in counts:
            counts[name] += count
        elif len(counts) < LOSERS_MAX:
            counts[name] = count
        else:
            least = min(count, *counts.values())
            for other in list(counts):
                counts[other] -= least
                if counts[other] == 0:
                    del counts[other]
            if count > least:
                counts[name] = count - least

    def take(self, names_max: int) -> dict[str, int]:
        """The names with most losses since the last call, in descending order."""
        counts = self._counts
        self._counts = {}
        return {name: counts[name] for name in sorted(counts, key=counts.__getitem__, reverse=True)[:names_max]}


class Counters:
    """Totals since the start of the process. QoS 0 has counters of its own: compiled, a native integer costs less than an
    item of a list."""

    def __init__(self) -> None:
        self.qos0_received = 0
        self.qos0_sent = 0
        self.messages_from_peers = 0
        self.messages_to_peers = 0
        self.connections_opened = 0
        self.connections_closed = 0
        self.connections_refused = 0
        self.protocol_errors = 0
        self.sessions_created = 0
        self.sessions_resumed = 0
        self.sessions_expired = 0
        self.sessions_taken_over = 0
        self.sessions_terminated = 0
        self._acked_received = [0, 0, 0]  # by QoS; [0] stays 0
        self._acked_sent = [0, 0, 0]
        self.messages_dropped: dict[str, int] = dict.fromkeys(DROP_REASONS, 0)
        self.clients_that_lost = Losers()
        self.topics_that_lost = Losers()
        self.wills_published = 0
        self.publishers_held = 0
        self.routes_forgotten = 0
        self.subscriptions_total = 0
        self.subscriptions_refused = 0

    @property
    def messages_received(self) -> list[int]:
        """By QoS (0, 1, 2)."""
        return [self.qos0_received, *self._acked_received[1:]]

    @property
    def messages_sent(self) -> list[int]:
        """By QoS (0, 1, 2)."""
        return [self.qos0_sent, *self._acked_sent[1:]]

    def count_received(self, qos: int) -> None:
        if qos == 0:
            self.qos0_received += 1
        else:
            self._acked_received[qos] += 1

    def count_sent(self, qos: int) -> None:
        if qos == 0:
            self.qos0_sent += 1
        else:
            self._acked_sent[qos] += 1

    def drop(self, reason: str, count: int) -> None:
        self.messages_dropped[reason] += count

    def drop_for_client(self, reason: str, count: int, client_id: str) -> None:
        self.messages_dropped[reason] += count
        self.clients_that_lost.add(client_id, count)

    def drop_of_topic(self, reason: str, count: int, topic: bytes) -> None:
        self.messages_dropped[reason] += count
        self.topics_that_lost.add(topic.decode("utf-8", "replace"), count)
