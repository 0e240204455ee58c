"""The Peers service: how the event streams with the other nodes go, over the API and as metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from google.protobuf.empty_pb2 import Empty
from google.protobuf.timestamp_pb2 import Timestamp

from broker.api.tokens import Role
from broker.message import NEVER
from broker.metrics.metric import Kind, Metric, counter, counters, gauge, gauges
from federation.node import Node
from federation.pb.federation_pb2 import ListPeersResponse, Peer
from federation.pb.federation_pb2_grpc import PeersServicer
from federation.stream.sender import PeerSender
from federation.stream.state import State

NANOSECONDS: Final = 1_000_000_000


class PeersService(PeersServicer):
    """`now` returns monotonic seconds, `wall_time` the Unix seconds of a monotonic instant."""

    roles: Final = {"ListPeers": Role.READ}

    def __init__(self, node: Node, now: Callable[[], float], wall_time: Callable[[float], float]) -> None:
        self._node = node
        self._now = now
        self._wall_time = wall_time

    async def ListPeers(self, request: Empty, context: object) -> ListPeersResponse:
        return ListPeersResponse(peers=[self._peer(sender) for sender in self._node.senders.values()])

    def _peer(self, sender: PeerSender) -> Peer:
        found = sender.counters
        stored_blocks, stored_bytes = sender.outbox.stored()
        peer = Peer(
            node_name=sender.name,
            state=sender.state.value,
            reason=sender.reason,
            stream=sender.choice.kind.value,
            addr=sender.addr,
            tls=sender.choice.is_tls,
            outbox_bytes=sender.outbox.size,
            outbox_seconds=outbox_seconds(sender, self._now()),
            congested=sender.congested,
            messages_queued=found.messages_queued,
            events_sent=found.events_sent,
            events_acked=found.events_acked,
            events_resent=found.events_resent,
            events_received=found.events_received,
            bytes_sent=found.bytes_sent,
            bytes_received=found.bytes_received,
            streams_begun=found.connects,
            streams_lost=found.streams_lost,
            dropped={str(reason): count for reason, count in found.dropped.items() if count},
            store_id=sender.peer_store_id,
            behind=sender.is_behind,
            times_behind=found.times_behind,
            stored_blocks=stored_blocks,
            stored_bytes=stored_bytes,
            promises_waiting=0 if sender.promises is None else sender.promises.waiting_for(sender),
        )
        if sender.round_trip >= 0:
            peer.round_trip_seconds = sender.round_trip
        if found.retained_differing >= 0:
            peer.retained_equal = found.retained_differing == 0
        if sender.acked_at != NEVER:
            seconds, nanos = divmod(int(self._wall_time(sender.acked_at) * NANOSECONDS), NANOSECONDS)
            peer.last_acknowledgement.CopyFrom(Timestamp(seconds=seconds, nanos=nanos))
        return peer


def outbox_seconds(sender: PeerSender, now: float) -> float:
    """Age of the oldest message that waits or is not acknowledged; 0.0 for none."""
    oldest_at = sender.outbox.oldest_at()
    return 0.0 if oldest_at == NEVER else max(0.0, now - oldest_at)


# Attributes of StreamCounters that are metrics, with their help.
_TOTALS: Final = {
    "messages_queued": "Messages that were queued for a node.",
    "events_sent": "Events that were sent to a node.",
    "events_acked": "Events that a node acknowledged.",
    "events_resent": "Events that were sent to a node once more after a stream was lost.",
    "events_received": "Events that a node sent.",
    "full_states_sent": "Full states that were sent to a node, because it began anew or could not resume.",
    "retained_mended": "Retained messages that were sent once more: a node had older ones, or an outbox had dropped them.",
    "interest_mended": "Times that what is known of a node's interest differed from its digest, and its full state followed.",
    "copies_chosen_again": "Copies for shared groups that others got, because the node died, failed or was given up.",
    "copies_forgotten": "Copies for shared groups beyond the bound of those that are kept: they are lost if the node dies.",
    "streams_lost": "Event streams to a node that were lost.",
    "times_behind": "Times that a node was away or slow, so that the store here kept what waited for it.",
}


def peer_metrics(node: Node, now: float) -> list[Metric]:
    """Metrics of the event streams, by node."""
    senders = list(node.senders.values())
    dropped: dict[tuple[str, ...], float] = {
        (name, str(reason)): count for name, totals in node.counters.items() for reason, count in totals.dropped.items()
    }
    return [
        gauges(
            "gmqtt_federation_streaming",
            "1 while the event stream to a node is up.",
            "node",
            [(sender.name, float(sender.state is State.STREAMING)) for sender in senders],
        ),
        gauges(
            "gmqtt_federation_outbox_bytes",
            "Bytes that wait for a node or are on their way to it.",
            "node",
            [(sender.name, sender.outbox.size) for sender in senders],
        ),
        gauges(
            "gmqtt_federation_lag_seconds",
            "Age of the oldest message for a node that it has not acknowledged.",
            "node",
            [(sender.name, outbox_seconds(sender, now)) for sender in senders],
        ),
        gauges(
            "gmqtt_federation_behind",
            "1 while a node is away or slow: the store here keeps what waits for it.",
            "node",
            [(sender.name, float(sender.is_behind)) for sender in senders],
        ),
        gauges(
            "gmqtt_federation_retained_differing",
            "Parts, of 1024, of the retained messages that were not those of a node at the last comparison.",
            "node",
            [
                (sender.name, sender.counters.retained_differing)
                for sender in senders
                if sender.counters.retained_differing >= 0
            ],
        ),
        gauges(
            "gmqtt_federation_outbox_stored_bytes",
            "Bytes of the outbox for a node that are in the store here.",
            "node",
            [(sender.name, sender.outbox.stored()[1]) for sender in senders],
        ),
        gauges(
            "gmqtt_federation_copies_kept",
            "Copies for shared groups that were sent to a node and have not ended there.",
            "node",
            [(sender.name, len(sender.kept)) for sender in senders],
        ),
        counter(
            "gmqtt_federation_positions_forgotten_total",
            "Other stores of which it was forgotten how far their events were done, because there were too many.",
            node.positions_forgotten,
        ),
        counter(
            "gmqtt_retained_stamped_anew_total",
            "Retained messages, and deletions, that a wrong clock had stamped, and that were stamped with the present time.",
            node.versions.stamped_anew,
        ),
        gauge(
            "gmqtt_retained_tombstones_current",
            "Deleted retained messages that are remembered.",
            node.versions.tombstones,
        ),
        counter(
            "gmqtt_retained_tombstones_dropped_total",
            "Deletions of retained messages that were forgotten before their time because there were too many.",
            node.versions.tombstones_dropped,
        ),
        gauge(
            "gmqtt_retained_clock_correction_seconds",
            "Seconds that are added to the clock of this node for retained messages, because it differs from the median.",
            node.versions.cluster.correction(),
        ),
        gauges(
            "gmqtt_federation_round_trip_seconds",
            "Time from sending events to their acknowledgement, the last time.",
            "node",
            [(sender.name, sender.round_trip) for sender in senders if sender.round_trip >= 0],
        ),
        *(
            counters(
                f"gmqtt_federation_{name}_total",
                text,
                "node",
                [(sender.name, getattr(sender.counters, name)) for sender in senders],
            )
            for name, text in _TOTALS.items()
        ),
        Metric(
            "gmqtt_federation_dropped_total",
            Kind.COUNTER,
            "Messages to and events from a node that were dropped, by reason (docs/operations.md).",
            ("node", "reason"),
            dropped,
        ),
    ]
