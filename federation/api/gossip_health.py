"""The gossip in the API: its members with estimates and suspicions, and its health."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from broker.config.addresses import Address
from federation.pb.federation_pb2 import GossipHealth, Member, Status
from federation.serf import events
from federation.serf.serf import Serf
from federation.tags import TAG_WORKER_OF, TAG_ZONE

NANOSECONDS: Final = 1_000_000_000
PCUR: Final = 2
DCUR: Final = 5
"""Places of the current protocol versions of memberlist and Serf in `Member.versions`."""


def member_shown(member: events.Member, serf: Serf, wall_time: Callable[[float], float]) -> Member:
    """`wall_time` returns the Unix seconds of a monotonic instant."""
    shown = Member(
        name=member.name,
        addr=Address("tcp", member.ip, member.port).host_port,
        tags=member.tags,
        status=Status.ValueType(member.status),
        suspected=serf.is_suspected(member.name),
        gossip_version=member.versions[PCUR],
        serf_version=member.versions[DCUR],
        zone=member.tags.get(TAG_ZONE, ""),
        node_name=member.tags.get(TAG_WORKER_OF) or member.name,
        since=_timestamp(wall_time(member.since)),
    )
    round_trip = serf.coordinates.round_trip(member.name)
    if round_trip is not None:
        shown.round_trip_seconds = round_trip
    return shown


def queue_lengths(serf: Serf) -> dict[str, int]:
    """Messages that wait to be sent to other members, by queue."""
    return {
        "memberlist": len(serf.gossip.membership.queue),
        "intents": len(serf.broadcasts.intents),
        "queries": len(serf.broadcasts.queries),
        "events": len(serf.broadcasts.events),
    }


def suspected_count(serf: Serf) -> int:
    return sum(serf.is_suspected(name) for name in serf.gossip.table.nodes)


def health_shown(serf: Serf, wall_time: Callable[[float], float]) -> GossipHealth:
    shown = GossipHealth(
        node_name=serf.local_member.name,
        awareness=serf.gossip.membership.awareness.score,
        queues=queue_lengths(serf),
        suspected=suspected_count(serf),
        queries=len(serf.asked_queries),
        coordinate_error=serf.coordinates.own.error,
        encrypted=serf.keyring is not None,
    )
    merged_at = serf.gossip.exchanges.merges.merged_at
    if merged_at is not None:
        shown.last_push_pull.CopyFrom(_timestamp(wall_time(merged_at)))
    return shown


def _timestamp(unix_seconds: float) -> Timestamp:
    seconds, nanos = divmod(int(unix_seconds * NANOSECONDS), NANOSECONDS)
    return Timestamp(seconds=seconds, nanos=nanos)
