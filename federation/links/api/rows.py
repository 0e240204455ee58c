"""A link's status as the API shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from broker.message import NEVER
from federation.links.pb.link_status_pb2 import Link, LinkPolicy
from federation.links.status import DOWN_STATES, LinkState, LinkStatus, next_step

DOWN: Final = "down"
"""The word for all states in which a link does not carry what it should."""
STATES: Final = (DOWN, *(state.value for state in LinkState))
NANOSECONDS: Final = 1_000_000_000
# Words, because a newer node may have states that are not known here.
_DOWN_WORDS: Final = frozenset(state.value for state in DOWN_STATES)


def link_row(status: LinkStatus, now: float, wall_time: Callable[[float], float]) -> Link:
    """`wall_time` gives the Unix seconds of a monotonic instant."""

    def timestamp(at: float) -> Timestamp | None:
        if at == NEVER:
            return None
        seconds, nanos = divmod(int(wall_time(at) * NANOSECONDS), NANOSECONDS)
        return Timestamp(seconds=seconds, nanos=nanos)

    return Link(
        id=status.link_id,
        type=status.kind,
        direction=status.direction,
        upstream=status.upstream,
        upstream_name=status.upstream_name,
        mapping=status.mapping,
        policies=[
            LinkPolicy(name=name, pattern=pattern)
            for name, pattern in zip(status.policies, status.patterns, strict=True)
        ],
        status=status.state.value,
        uri=status.uri,
        local_connection=status.local_connection,
        node=status.node,
        epoch=status.epoch,
        since=timestamp(status.since),
        changed=timestamp(status.changed_at),
        deadline=timestamp(status.deadline),
        next_step=next_step(status, now),
        error=status.last_error,
        error_at=timestamp(status.error_at),
        answered=timestamp(status.answered_at),
        round_trip_seconds=_seconds(status.round_trip),
        lag_seconds=_seconds(status.lag),
        waiting=None if status.waiting < 0 else status.waiting,
        oldest_waiting_seconds=_seconds(status.oldest_waiting),
        in_flight=status.in_flight,
        received=status.received,
        sent=status.sent,
        dropped={reason: count for reason, count in status.dropped.items() if count},
        reconnects=status.reconnects,
        sessions_lost=status.sessions_lost,
        subscriptions=status.subscriptions,
        notes=status.notes,
    )


def _seconds(found: float) -> float | None:
    """None for a negative one, which is not known."""
    return None if found < 0 else round(found, 6)


def has_state(row: Link, wanted: str) -> bool:
    """Whether a row is asked for. `wanted`: one of STATES, "" for all."""
    if wanted == DOWN:
        return row.status in _DOWN_WORDS
    return wanted in ("", row.status)


def in_order(rows: Iterable[Link]) -> list[Link]:
    """Sorted by upstream, type, id and node."""
    return sorted(rows, key=lambda row: (row.upstream, row.type, row.id, row.node))
