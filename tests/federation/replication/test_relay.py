"""Blocks for a lost home, which come from their node and from who had adopted the sessions of that one."""

from __future__ import annotations

import pytest

from broker.message import Message
from broker.store.kinds import HOME, SUBSCRIPTION
from federation.sessions.wire import ADOPTED_SESSIONS, BLOCK, RELAY, REST_OF, SessionFrame, encode_session_frame
from federation.settings import FederationSettings
from lost_homes import kept_in_runs, session

OTHER = "0d" * 16


@pytest.mark.parametrize("is_direct_first", [False, True])
def test_a_block_comes_once_from_its_node_and_from_who_had_adopted_that(is_direct_first: bool) -> None:
    """n3 had a block for n2, died, and was adopted by n4; n2 lost its disk, and n3 is back with its own."""
    station = kept_in_runs(
        session("c"), (SUBSCRIPTION, 1, b"a/#", 1, False, False, 0, 0), (HOME, "c", 1_000, False, None)
    )
    for name in ("n3", "n4"):
        station.node.added(name, 2.0)
    station.node.handle_timeout(2.0 + FederationSettings().replication.adopt_after)
    while station.node.turn_ended(40.0):
        station.commit()
    sender = station.node.senders["n3"]
    for payload in (b"x", b"y"):
        sender.forward(Message(b"a/b", payload, 1, False), (), 40.0)
    sender.outbox.close_block()
    data = b"".join(sender.outbox.waiting[-1].encode(40.0))
    epoch = 0, OTHER
    direct = encode_session_frame(BLOCK, "", epoch, (7, 0, 2)) + data
    rest = encode_session_frame(REST_OF, "", epoch, ("n3", 7, 0, 2, data))
    relayed = [("n3", direct), ("n4", encode_session_frame(BLOCK, "", (0, "0e" * 16), (3, 0, 1)) + rest)]
    assert station.node.copies is not None
    for name, frames in relayed if is_direct_first else reversed(relayed):
        more = "n2", ADOPTED_SESSIONS, frames, 0
        station.node.copies.adoptions.receive(name, SessionFrame(RELAY, "", epoch, more), 41.0)
    assert station.broker.sessions["c"].queue_length() == 2
