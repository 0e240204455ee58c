"""A link's status as the API shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from google.protobuf.timestamp_pb2 import Timestamp

from broker.message import NEVER
from federation.links.pb.link_status_pb2 import Link, LinkPolicy
from federation.links.status import DOWN_STATES, FIGURES, TIMES, LinkState, LinkStatus, next_step

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

    fields: dict[str, Any] = {shown: timestamp(getattr(status, field)) for field, shown in TIMES}
    fields |= {figure.shown: _known(getattr(status, figure.field)) for figure in FIGURES}
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
        next_step=next_step(status, now),
        error=status.last_error,
        dropped={reason: count for reason, count in status.dropped.items() if count},
        notes=status.notes,
        **fields,
    )


def _known(figure: float) -> float | None:
    """None for a negative one."""
    if figure < 0:
        return None
    return round(figure, 6) if isinstance(figure, float) else figure


def has_state(row: Link, wanted: str) -> bool:
    """Whether a row is asked for. `wanted`: one of STATES, "" for all."""
    if wanted == DOWN:
        return row.status in _DOWN_WORDS
    return wanted in ("", row.status)


def in_order(rows: Iterable[Link]) -> list[Link]:
    """Sorted by upstream, type, id and node."""
    return sorted(rows, key=lambda row: (row.upstream, row.type, row.id, row.node))
