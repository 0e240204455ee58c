"""Who keeps a copy of which store is known to all members, also to one that has started again."""

from __future__ import annotations

import pytest

from federation.replication.copies import ADOPTED_SECONDS_MAX
from federation.replication.relay import Relay
from federation.serf.events import Member, MemberFailed, MemberJoin, MemberStatus
from federation.sessions.wire import (
    ADOPTED,
    ADOPTED_SESSIONS,
    ALL,
    KEEPERS,
    RELAY,
    RELAYED,
    REST_OF,
    SessionFrame,
    encode_session_frame,
)
from federation.tags import own_tags
from simulator.federation import Federation
from simulator.node_store import Disk
from stored_node import Station

OTHER_STORE = "0d" * 16
THIRD_STORE = "0e" * 16
NEW_STORE = "0f" * 16


class TakenFrames:
    """The sessions that a receiver gives frames to."""

    def __init__(self, taken: list[bytes]) -> None:
        self._taken = taken

    def receive(self, name: str, body: bytes, now: float) -> None:
        self._taken.append(body)


def test_a_node_that_has_started_again_waits_for_the_adoption_of_a_lost_store() -> None:
    """Without that it would send what it has for the lost store to the new one, which has no sessions."""
    federation = Federation(2, 3, each=[{"disk": Disk()} for _ in range(3)])
    federation.until_agreement(30.0, "the start")
    federation.run(5.0)
    copies = federation.node(federation.hosts[0]).node.copies
    assert copies is not None
    (keeper,) = copies.replication.listed.names
    other = next(host for host in federation.hosts[1:] if federation.node(host).name != keeper)
    other.crash()
    federation.run(1.0)
    other.start()
    federation.until_agreement(60.0, "the restart")
    federation.run(5.0)
    node = federation.node(other).node
    assert node.copies is not None
    assert node.copies.holds_back(node.senders["n1"], OTHER_STORE, federation.world.now)
    sender = node.senders[keeper]
    sender.is_living = False  # it may be back soon
    assert node.copies.holds_back(node.senders["n1"], OTHER_STORE, federation.world.now)
    assert not node.copies.holds_back(node.senders["n1"], OTHER_STORE, federation.world.now + ADOPTED_SECONDS_MAX)


def test_a_worker_of_the_same_node_hears_of_adoptions_and_keeps_no_copies() -> None:
    """It is lost with the same machine, and has messages for the lost home as any other member."""
    node = Station({}).node
    node.siblings["n2"] = "unix:///run/n2"
    for name in ("n2", "n3"):
        member = Member(name, "127.0.0.1", 8902, own_tags("127.0.0.1:8901", True), MemberStatus.ALIVE)
        node.member_events([MemberJoin(member)], 0.0)
    assert [(name, sender.knows_adoptions, sender.keeps_copies) for name, sender in node.senders.items()] == [
        ("n2", True, False),
        ("n3", True, True),
    ]


def test_a_store_that_is_back_is_replaced_no_more() -> None:
    node = Station({}).node
    node.added("n2", 0.0)
    sender = node.senders["n2"]
    sender.peer_store_id = THIRD_STORE
    assert node.copies is not None
    node.copies.holds_back(sender, OTHER_STORE, 0.0)
    assert THIRD_STORE in node.copies._replaced
    sender.peer_store_id = OTHER_STORE
    node.copies.holds_back(sender, THIRD_STORE, 1.0)
    assert list(node.copies._replaced) == [OTHER_STORE]


def test_keepers_are_known_that_a_node_tells_before_its_store_is() -> None:
    """Of two that start at the same time one may hear so of the other. It sent what it had for the lost store of that to the
    next one (two_homes_are_lost 1 lost 56 messages)."""
    node = Station({}).node
    for name in ("n2", "n3"):
        node.added(name, 0.0)
    assert node.copies is not None
    node.copies.receive("n2", SessionFrame(KEEPERS, "", (1, OTHER_STORE), ("n3",)), 1.0)
    sender = node.senders["n2"]
    sender.peer_store_id = OTHER_STORE
    assert node.copies.holds_back(sender, NEW_STORE, 2.0)
    node.copies.receive("n2", SessionFrame(KEEPERS, "", (1, THIRD_STORE), ("n3",)), 3.0)  # of a block of long ago
    sender.peer_store_id = THIRD_STORE
    assert not node.copies.holds_back(sender, NEW_STORE, 4.0)


@pytest.mark.parametrize("is_away", [False, True])
@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_late_word_of_an_adoption_leaves_the_keepers_of_a_home_that_is_back(is_away: bool, is_replaced: bool) -> None:
    """A store that is lost later is waited for until they have adopted it, and not when they have."""
    node = Station({}).node
    for name, store_id in (("n2", OTHER_STORE), ("n3", THIRD_STORE)):
        tags = {**own_tags("127.0.0.1:8901", True), "store": store_id}
        member = Member(name, "127.0.0.1", 8902, tags, MemberStatus.ALIVE)
        node.member_events([MemberJoin(member)], 0.0)
        if name == "n2":
            home = member
    copies = node.copies
    assert copies is not None
    copies.receive("n2", SessionFrame(KEEPERS, "", (1, OTHER_STORE), ("n3",)), 1.0)
    if is_away:
        node.member_events([MemberFailed(home)], 2.0)
    if is_replaced:
        assert copies.holds_back(node.senders["n2"], NEW_STORE, 3.0)
    copies.receive("n3", SessionFrame(ADOPTED, "", (0, OTHER_STORE), ("n2", (), 9)), 4.0)
    is_earlier = not is_away and not is_replaced
    assert copies.holds_back(node.senders["n2"], NEW_STORE, 5.0) == is_earlier


@pytest.mark.interpreted
@pytest.mark.parametrize(
    ("operation", "more"),
    [
        (KEEPERS, ()),
        (REST_OF, ("w", 1, 0, 1, b"")),
        (RELAY, ("w", ADOPTED_SESSIONS, b"", 0)),
        (ADOPTED, ("w", (), 0)),
        (RELAYED, (False,)),
    ],
)
def test_what_a_lost_home_had_told_is_taken_from_who_has_adopted_its_sessions(
    operation: int, more: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    station = Station({})
    station.node.added("n2", 0.0)
    taken: list[bytes] = []
    sessions = station.node.sessions
    assert sessions is not None
    receiver = station.node.receivers.by_name["n2"]
    monkeypatch.setattr(receiver, "sessions", TakenFrames(taken))
    frame = encode_session_frame(operation, "", (0, OTHER_STORE), more)
    Relay(station.broker, sessions, "n2", "n2", ALL, receiver, {}).apply(frame, 0, 0.0)
    assert len(taken) == 1
