"""A keeper of the store of a node that has failed."""

from __future__ import annotations

from broker.store.kinds import REPLICA, RUN, SESSION
from federation.replication.wire import pack_records
from federation.serf.events import Member, MemberFailed, MemberJoin, MemberStatus
from federation.tags import own_tags
from stored_node import Station

LOST = "0c" * 16


def session(client_id: str) -> tuple[object, ...]:
    times = (0.0, 0.0, 3600, 0.0, None, 0.0)
    return SESSION, client_id, "", None, 5, 60, "127.0.0.1:1", "127.0.0.1:2", *times


def kept_in_runs(*records: tuple[object, ...]) -> Station:
    """A keeper of the store of n2, which has failed: each record has come in a run of its own."""
    runs: list[tuple[object, ...]] = []
    for number, record in enumerate(records, 1):
        (packed,) = pack_records({number: record})
        runs.append((RUN, 1, packed))
    station = Station({1: (REPLICA, "n2", LOST, 1, 1, 7, True, ("n1",)), **dict(enumerate(runs, 2))})
    tags = {**own_tags("127.0.0.1:8901", True), "store": LOST}
    member = Member("n2", "127.0.0.1", 8902, tags, MemberStatus.ALIVE)
    station.node.member_events([MemberJoin(member)], 0.0)
    station.node.member_events([MemberFailed(member)], 2.0)
    station.node.handle_timeout(2.0)
    return station
