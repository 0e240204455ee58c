"""Counters of the broker: messages, connections, sessions, drops by reason."""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from broker.codec.packets import PUBACK

# Reasons of dropped messages. Every bound has one.
DROP_QUEUE_FULL: Final = "queue_full"
DROP_QUEUE_BYTES: Final = "queue_bytes"
DROP_EXPIRED: Final = "expired"
DROP_INFLIGHT_EXPIRED: Final = "inflight_expired"
DROP_QOS0_OFFLINE: Final = "qos0_offline"
DROP_MEMORY_SHORT: Final = "memory_short"
DROP_PACKET_TOO_LARGE: Final = "packet_too_large"
DROP_SESSION_ENDED: Final = "session_ended"
DROP_RETAINED_FULL: Final = "retained_full"
DROP_FROM_PEER_INVALID: Final = "from_peer_invalid"
DROP_FROM_PEER_EXPIRED: Final = "from_peer_expired"
DROP_GROUP_GONE: Final = "group_gone"
DROP_WILL_REFUSED: Final = "will_refused"
DROP_LOG_FULL: Final = "log_full"
DROP_PUBLISH_NOT_AUTHORIZED: Final = "publish_not_authorized"
DROP_READ_NOT_AUTHORIZED: Final = "read_not_authorized"
DROP_REFUSED_BY_PLUGIN: Final = "refused_by_plugin"
# Of copies, which are messages for one client each.
COPY_DROP_REASONS: Final = (
    DROP_QUEUE_FULL,
    DROP_QUEUE_BYTES,
    DROP_EXPIRED,
    DROP_INFLIGHT_EXPIRED,
    DROP_QOS0_OFFLINE,
    DROP_MEMORY_SHORT,
    DROP_PACKET_TOO_LARGE,
    DROP_SESSION_ENDED,
    DROP_READ_NOT_AUTHORIZED,
)
DROP_REASONS: Final = (
    *COPY_DROP_REASONS,
    DROP_RETAINED_FULL,
    DROP_FROM_PEER_INVALID,
    DROP_FROM_PEER_EXPIRED,
    DROP_GROUP_GONE,
    DROP_WILL_REFUSED,
    DROP_LOG_FULL,
    DROP_PUBLISH_NOT_AUTHORIZED,
    DROP_REFUSED_BY_PLUGIN,
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


PACKET_TYPES: Final = 16  # numbers of packet types [MQTT5 2.1.2]
SHORT_PUBACK_BYTES: Final = 4  # of one without a reason code


def _with_pubacks(by_type: list[int], more: int) -> list[int]:
    found = list(by_type)
    found[PUBACK] += more
    return found


class Counters:
    """Totals since the start of the process. Each QoS and PUBACK of 4 bytes have counters of their own: compiled, a native
    integer costs less than an item of a list.

    copies             messages for one session each, with those of a run: every delivery to a session is one. Each is written
                       (QoS 0), acknowledged, dropped for the client, queued or in flight, or was redelivered to another member
                       of its shared group, which makes another copy
    acknowledged       copies of QoS 1 and 2 whose exchange the client has ended
    without_receivers  messages that were published here and had no receiver on any node
    answers_received   packets by type, without PUBLISH; answer_bytes_received are their bytes. `sent` likewise
    origins_stripped   origins in packets of clients that may say none, and in publishes of the API
    packets_received   of all types; bytes_received have packets that are not whole yet. `sent` likewise
    """

    def __init__(self) -> None:
        self.packets_received = 0
        self.bytes_received = 0
        self.packets_sent = 0
        self.bytes_sent = 0
        self.short_pubacks_received = 0
        self.short_pubacks_sent = 0
        self._answers_received = [0] * PACKET_TYPES
        self._answer_bytes_received = [0] * PACKET_TYPES
        self._answers_sent = [0] * PACKET_TYPES
        self._answer_bytes_sent = [0] * PACKET_TYPES
        self.copies = 0
        self.acknowledged = 0
        self.redelivered = 0
        self.without_receivers = 0
        self.qos0_received = 0
        self.qos0_sent = 0
        self.messages_from_peers = 0
        self.messages_to_peers = 0
        self.connections_opened = 0
        self.connections_taken_over = 0  # by another one with the same client id
        self.connections_refused = 0
        self.handshakes_failed = 0
        self.protocol_errors = 0
        self.publishes_not_stored = 0  # refused, because the store takes nothing
        self.publishes_without_memory = 0  # refused, because the process has too much memory
        self.sessions_without_memory = 0  # likewise
        self.clients_connected = 0
        self.clients_disconnected = 0
        self.plugin_faults = 0
        self.sessions_created = 0
        self.sessions_resumed = 0
        self.sessions_expired = 0
        self.sessions_replaced = 0  # ended because their client asked for a new session
        self.sessions_terminated = 0
        self.qos1_received = 0
        self.qos1_sent = 0
        self.qos2_received = 0
        self.qos2_sent = 0
        self.drops: dict[str, list[int]] = {reason: [0, 0, 0] for reason in DROP_REASONS}  # by reason and QoS
        self.clients_that_lost = Losers()
        self.topics_that_lost = Losers()
        self.wills_published = 0
        self.publishers_held = 0
        self.routes_cleared = 0
        self.publishers_slowed = 0
        self.publishes_refused = 0
        self.subscriptions_total = 0
        self.subscriptions = 0  # now
        self.subscriptions_refused = 0
        self.origins_stripped = 0

    @property
    def messages_received(self) -> list[int]:
        """By QoS (0, 1, 2)."""
        return [self.qos0_received, self.qos1_received, self.qos2_received]

    @property
    def messages_sent(self) -> list[int]:
        """By QoS (0, 1, 2)."""
        return [self.qos0_sent, self.qos1_sent, self.qos2_sent]

    def count_received(self, qos: int, count: int = 1) -> None:
        if qos == 1:
            self.qos1_received += count
        elif qos == 0:
            self.qos0_received += count
        else:
            self.qos2_received += count

    def count_sent(self, qos: int) -> None:
        if qos == 1:
            self.qos1_sent += 1
        elif qos == 0:
            self.qos0_sent += 1
        else:
            self.qos2_sent += 1

    def count_answer_received(self, packet_type: int, size: int) -> None:
        """One packet other than PUBLISH."""
        self._answers_received[packet_type] += 1
        self._answer_bytes_received[packet_type] += size

    def count_answer_sent(self, packet_type: int, size: int) -> None:
        """One packet other than PUBLISH."""
        self._answers_sent[packet_type] += 1
        self._answer_bytes_sent[packet_type] += size

    @property
    def answers_received(self) -> list[int]:
        """Packets by type, without PUBLISH."""
        return _with_pubacks(self._answers_received, self.short_pubacks_received)

    @property
    def answer_bytes_received(self) -> list[int]:
        return _with_pubacks(self._answer_bytes_received, SHORT_PUBACK_BYTES * self.short_pubacks_received)

    @property
    def answers_sent(self) -> list[int]:
        return _with_pubacks(self._answers_sent, self.short_pubacks_sent)

    @property
    def answer_bytes_sent(self) -> list[int]:
        return _with_pubacks(self._answer_bytes_sent, SHORT_PUBACK_BYTES * self.short_pubacks_sent)

    @property
    def messages_dropped(self) -> dict[str, int]:
        """By reason."""
        return {reason: sum(by_qos) for reason, by_qos in self.drops.items()}

    def drop(self, reason: str, count: int, qos: int) -> None:
        self.drops[reason][qos] += count

    def drop_for_client(self, reason: str, count: int, qos: int, client_id: str) -> None:
        """Copies for one client."""
        self.drops[reason][qos] += count
        self.clients_that_lost.add(client_id, count)

    def drop_of_topic(self, reason: str, count: int, qos: int, topic: bytes) -> None:
        """Messages before they are copied for receivers."""
        self.drops[reason][qos] += count
        self.topics_that_lost.add(topic.decode("utf-8", "replace"), count)
