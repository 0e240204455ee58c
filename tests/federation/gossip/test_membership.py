"""The rules of incarnation and state (wire-gossip 6.6): each rule, then properties of all of them together."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.gossip.config import GossipConfig
from federation.gossip.counters import Counters, DropReason
from federation.gossip.delegate import GossipDelegate
from federation.gossip.errors import WireError
from federation.gossip.members import (
    STATE_ALIVE,
    STATE_DEAD,
    STATE_LEFT,
    STATE_SUSPECT,
    FactsPool,
    NodeFacts,
)
from federation.gossip.membership import Membership
from federation.gossip.messages import DEAD, OUR_VERSIONS, SUSPECT, Accusation, Alive, PushPullNode
from federation.gossip.msgpack_fields import ACCUSED_INCARNATION_MAX, encode


class Notes(GossipDelegate):
    """Records the calls of gossip as text."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def node_joined(self, facts: NodeFacts, now: float) -> None:
        self.lines.append(f"joined {facts.name}")

    def node_updated(self, facts: NodeFacts, now: float) -> None:
        self.lines.append(f"updated {facts.name}")

    def node_left(self, facts: NodeFacts, gracefully: bool, now: float) -> None:
        self.lines.append(f"left {facts.name}")

    def node_conflict(self, existing: NodeFacts, other: NodeFacts, now: float) -> None:
        self.lines.append(f"conflict {existing.name} {other.ip}:{other.port}")


class View:
    def __init__(self, config: GossipConfig | None = None) -> None:
        self.notes = Notes()
        self.counters = Counters()
        pool = FactsPool()
        facts = pool.get("me", bytes((10, 0, 0, 1)), 8902, b"", OUR_VERSIONS)
        self.membership = Membership(facts, config or GossipConfig(), Random(1), self.counters, self.notes, pool, 0.0)
        self.sent()

    def alive(
        self, name: str, incarnation: int, host: int = 2, meta: bytes = b"", port: int = 8902, now: float = 0.0
    ) -> None:
        alive = Alive(incarnation, name, bytes((10, 0, 0, host)), port, meta, OUR_VERSIONS)
        self.membership.receive_alive(alive, alive.encode(), now)

    def suspect(self, name: str, incarnation: int, origin: str = "x", now: float = 0.0) -> None:
        accusation = Accusation(incarnation, name, origin)
        self.membership.receive_suspect(accusation, accusation.encode(SUSPECT), now)

    def dead(self, name: str, incarnation: int, origin: str = "x", now: float = 0.0) -> None:
        accusation = Accusation(incarnation, name, origin)
        self.membership.receive_dead(accusation, accusation.encode(DEAD), now)

    def state(self, name: str) -> tuple[int, int]:
        node = self.membership.table.nodes[name]
        return node.incarnation, node.state

    def sent(self) -> list[bytes]:
        """Takes all broadcasts out of the queue."""
        return self.membership.queue.take(0, 1 << 20, 1000, 1)

    def told(self) -> list[str]:
        lines = self.notes.lines
        self.notes.lines = []
        return lines


def test_a_new_member_is_reported_and_broadcast_once() -> None:
    view = View()
    view.alive("a", 1)
    assert view.told() == ["joined a"]
    assert len(view.sent()) == 1
    view.alive("a", 1)
    assert (view.told(), view.sent()) == ([], [])


def test_new_meta_needs_a_higher_incarnation() -> None:
    view = View()
    view.alive("a", 3)
    view.alive("a", 3, meta=b"new")
    assert view.told() == ["joined a"]
    view.alive("a", 4, meta=b"new")
    assert view.told() == ["updated a"]


def test_suspect_refuted_in_time_is_no_event() -> None:
    view = View()
    view.alive("a", 1)
    view.told()
    view.suspect("a", 1)
    assert view.state("a") == (1, STATE_SUSPECT)
    assert view.membership.next_timeout() == 4.0
    view.alive("a", 1)
    assert view.state("a") == (1, STATE_SUSPECT)
    view.alive("a", 2)
    view.membership.handle_timeout(4.0)
    assert view.state("a") == (2, STATE_ALIVE)
    assert view.membership.next_timeout() is None
    assert view.told() == []


def test_a_silent_suspect_is_dead_and_may_come_back() -> None:
    view = View()
    view.alive("a", 1)
    view.suspect("a", 1)
    view.membership.handle_timeout(3.999)
    assert view.state("a") == (1, STATE_SUSPECT)
    view.membership.handle_timeout(4.0)
    assert view.state("a") == (1, STATE_DEAD)
    view.alive("a", 1)
    assert view.state("a") == (1, STATE_DEAD)
    view.alive("a", 2)
    assert view.told() == ["joined a", "left a", "joined a"]


def test_outdated_accusations_and_unknown_names_are_ignored() -> None:
    view = View()
    view.alive("a", 5)
    view.sent()
    view.suspect("a", 4)
    view.dead("a", 4)
    view.suspect("nobody", 9)
    view.dead("nobody", 9)
    assert view.state("a") == (5, STATE_ALIVE)
    assert view.sent() == []
    assert "nobody" not in view.membership.table.nodes


def test_dead_by_itself_is_left() -> None:
    view = View()
    view.alive("a", 1)
    view.dead("a", 1, origin="a")
    assert view.state("a") == (1, STATE_LEFT)
    view.suspect("a", 1)
    assert view.state("a") == (1, STATE_LEFT)


@pytest.mark.parametrize(("accused", "refuted"), [(1, 2), (8, 9)])
@pytest.mark.parametrize("kind", ["suspect", "dead", "alive"])
def test_accusations_of_this_node_are_refuted(kind: str, accused: int, refuted: int) -> None:
    view = View()
    if kind == "suspect":
        view.suspect("me", accused)
    elif kind == "dead":
        view.dead("me", accused)
    else:
        view.alive("me", accused, host=1, meta=b"of a former life")
    assert view.state("me") == (refuted, STATE_ALIVE)
    (news,) = view.sent()
    said = Alive.decode(news[1:])
    assert (said.node, said.incarnation, said.meta) == ("me", refuted, b"")
    assert view.membership.awareness.score == 1


def test_the_highest_accusation_can_be_refuted() -> None:
    accused, other = View(), View()
    accusation = Accusation.decode(Accusation(ACCUSED_INCARNATION_MAX, "me", "x").encode(SUSPECT)[1:])
    accused.membership.receive_suspect(accusation, b"", 0.0)
    (refutation,) = accused.sent()
    alive = Alive.decode(refutation[1:])
    assert alive.incarnation == ACCUSED_INCARNATION_MAX + 1
    with pytest.raises(WireError, match="out of range"):
        Accusation.decode(Accusation(ACCUSED_INCARNATION_MAX + 1, "me", "x").encode(SUSPECT)[1:])
    # nor may the node of a push-pull have a higher one
    other.alive("n", ACCUSED_INCARNATION_MAX + 1)
    for state in (STATE_SUSPECT, STATE_DEAD, STATE_LEFT):
        node = PushPullNode("n", bytes((10, 0, 0, 2)), 8902, b"", ACCUSED_INCARNATION_MAX + 1, state, OUR_VERSIONS)
        other.membership.merge([node], 0.0)
    assert other.state("n") == (ACCUSED_INCARNATION_MAX + 1, STATE_ALIVE)
    assert other.counters.dropped[DropReason.MALFORMED_MESSAGE] == 3


def test_an_incarnation_stays_writable() -> None:
    view = View()
    facts = view.membership.own.facts
    for _ in range(2):
        forged = Alive(0xFFFFFFFF, "me", facts.addr, facts.port, b"other", OUR_VERSIONS)
        view.membership.receive_alive(forged, forged.encode(), 0.0)
        assert Alive.decode(view.sent()[0][1:]).incarnation == 0xFFFFFFFF


def test_broadcasts_of_messages_with_unknown_fields_fit_into_a_packet() -> None:
    view = View()
    junk = bytes(2000)
    fields = {
        "Addr": bytes((10, 0, 0, 2)),
        "Incarnation": 1,
        "Meta": b"m",
        "Node": "a",
        "Port": 8902,
        "Vsn": OUR_VERSIONS,
    }
    for kind, more in ((4, {}), (3, {"From": "x"}), (4, {"Incarnation": 2}), (5, {"From": "x", "Incarnation": 2})):
        long = bytes((kind,)) + encode(fields | more | {"Zzz": junk})
        if kind == 4:
            view.membership.receive_alive(Alive.decode(long[1:]), long, 0.0)
        elif kind == 3:
            view.membership.receive_suspect(Accusation.decode(long[1:]), long, 0.0)
        else:
            view.membership.receive_dead(Accusation.decode(long[1:]), long, 0.0)
        (sent,) = view.sent()
        assert sent[0] == kind
        assert len(sent) < 100


def test_an_echo_of_this_nodes_own_message_is_ignored() -> None:
    view = View()
    view.alive("me", 1, host=1)
    view.suspect("me", 0)
    assert view.state("me") == (1, STATE_ALIVE)
    assert view.sent() == []


def test_a_leave_is_final_until_the_node_rejoins() -> None:
    view = View()
    broadcast = view.membership.leave(0.0)
    assert view.state("me") == (1, STATE_LEFT)
    assert [broadcast.finished] == [False]
    view.sent()
    assert broadcast.finished
    view.alive("me", 9, host=1)
    view.suspect("me", 9)
    assert view.state("me") == (1, STATE_LEFT)
    view.membership.rejoin(1.0)
    assert view.state("me") == (2, STATE_ALIVE)
    assert view.told() == ["left me", "joined me"]


def test_another_address_is_a_conflict_unless_the_member_left() -> None:
    view = View()
    view.alive("a", 1, host=2)
    view.alive("a", 5, host=3)
    view.alive("a", 5, host=2, port=9999)
    assert view.told() == ["joined a", "conflict a 10.0.0.3:8902", "conflict a 10.0.0.2:9999"]
    assert view.counters.dropped[DropReason.NAME_CONFLICT] == 2
    view.suspect("a", 1)
    view.alive("a", 5, host=3)  # it may still live
    assert view.counters.dropped[DropReason.NAME_CONFLICT] == 3
    view.dead("a", 1, origin="a")
    view.alive("a", 1, host=3)
    assert view.state("a") == (1, STATE_ALIVE)
    assert view.membership.table.nodes["a"].facts.ip == "10.0.0.3"


def test_a_dead_member_moves_at_once_when_it_has_heard_of_its_death() -> None:
    view = View()
    view.alive("a", 4, host=2)
    view.dead("a", 4)
    view.alive("a", 4, host=3)
    view.alive("a", 1, host=3)  # a restarted process begins with 1, and hears of its death at its join
    assert view.state("a") == (4, STATE_DEAD)
    view.alive("a", 5, host=3)
    assert view.state("a") == (5, STATE_ALIVE)
    assert view.membership.table.nodes["a"].facts.ip == "10.0.0.3"
    assert view.told() == ["joined a", "left a", "joined a"]


def test_messages_of_the_former_address_that_are_still_on_their_way_are_no_conflict() -> None:
    view = View()
    view.alive("a", 4, host=2)
    view.dead("a", 4)
    view.alive("a", 5, host=3)
    view.alive("a", 4, host=2)
    view.membership.merge([PushPullNode("a", bytes((10, 0, 0, 2)), 8902, b"", 4, STATE_ALIVE, OUR_VERSIONS)], 0.0)
    assert view.counters.dropped[DropReason.NAME_CONFLICT] == 0
    view.alive("a", 1, host=4)  # nobody who was known
    view.alive("a", 6, host=2)  # somebody who speaks from there now
    assert view.counters.dropped[DropReason.NAME_CONFLICT] == 2
    assert view.state("a") == (5, STATE_ALIVE)


def test_a_dead_name_may_move_after_the_reclaim_time() -> None:
    view = View(GossipConfig(dead_node_reclaim_time=30.0))
    view.alive("a", 4)
    view.dead("a", 4, now=10.0)
    view.alive("a", 1, host=3, now=40.0)
    assert view.state("a") == (4, STATE_DEAD)
    view.alive("a", 1, host=3, now=40.1)
    assert view.state("a") == (1, STATE_ALIVE)


@pytest.mark.parametrize(
    ("versions", "reason"),
    [
        (b"", DropReason.MALFORMED_MESSAGE),
        (bytes((0, 5, 2, 2, 5, 4)), DropReason.BAD_VERSION),
        (bytes((3, 2, 2, 2, 5, 4)), DropReason.BAD_VERSION),
    ],
)
def test_alive_without_versions_that_make_sense(versions: bytes, reason: DropReason) -> None:
    view = View()
    alive = Alive(1, "a", bytes((10, 0, 0, 2)), 8902, b"", versions)
    view.membership.receive_alive(alive, alive.encode(), 0.0)
    assert view.counters.dropped[reason] == 1
    assert "a" not in view.membership.table.nodes


@pytest.mark.parametrize("name", ["a\nb", "\x1b[2J", "a\x00", "a\u202eb", "a\x7f"])
def test_a_name_with_control_characters_is_dropped(name: str) -> None:
    view = View()
    alive = Alive(1, name, bytes((10, 0, 0, 2)), 8902, b"", OUR_VERSIONS)
    view.membership.merge([PushPullNode(name, alive.addr, 8902, b"", 1, STATE_ALIVE, OUR_VERSIONS)], 0.0)
    view.membership.receive_alive(alive, alive.encode(), 0.0)
    assert view.counters.dropped[DropReason.BAD_NAME] == 2
    assert name not in view.membership.table.nodes


def test_two_forms_of_this_nodes_address_are_no_conflict() -> None:
    view = View()
    alive = Alive(1, "me", bytes(10) + b"\xff\xff" + bytes((10, 0, 0, 1)), 8902, b"", OUR_VERSIONS)
    view.membership.receive_alive(alive, alive.encode(), 0.0)
    assert view.told() == []


# --- properties. They cover one process of each name. After a leave or death only the member's own alive message with a
# higher incarnation brings it back, and a push-pull of a node that missed it does not carry that.

ENTRIES = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(1, 4), st.sampled_from([STATE_ALIVE, STATE_SUSPECT])), max_size=6
)
LAST_WORD = st.dictionaries(st.sampled_from("abc"), st.just((5, STATE_LEFT)), max_size=2)


def as_nodes(entries: list[tuple[str, int, int]]) -> list[PushPullNode]:
    hosts = {"a": 2, "b": 3, "c": 4}
    return [
        PushPullNode(name, bytes((10, 0, 0, hosts[name])), 8902, b"", incarnation, state, OUR_VERSIONS)
        for name, incarnation, state in entries
    ]


def knowing_all() -> View:
    view = View()
    for name, host in (("a", 2), ("b", 3), ("c", 4)):
        view.alive(name, 1, host=host)
    return view


def merged(*lists: list[PushPullNode]) -> list[tuple[int, int]]:
    view = knowing_all()
    for nodes in lists:
        view.membership.merge(nodes, 0.0)
    return [view.state(name) for name in ("a", "b", "c", "me")]


@given(ENTRIES, ENTRIES, LAST_WORD)
def test_merging_is_commutative_and_idempotent(
    first: list[tuple[str, int, int]], second: list[tuple[str, int, int]], last: dict[str, tuple[int, int]]
) -> None:
    one = as_nodes(first)
    two = as_nodes([*second, *((name, *word) for name, word in last.items())])
    assert merged(one, two) == merged(two, one)
    assert merged(one, one) == merged(one)
    assert merged(two, two) == merged(two)
    assert merged(one, two, one) == merged(one, two)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["alive", "suspect", "dead", "merge"]),
            st.sampled_from(["a", "b", "c", "me"]),
            st.integers(0, 6),
            st.sampled_from(["x", "y", "a", "me"]),
        ),
        max_size=40,
    )
)
def test_an_incarnation_never_goes_back(steps: list[tuple[str, str, int, str]]) -> None:
    view = knowing_all()
    hosts = {"me": 1, "a": 2, "b": 3, "c": 4}
    for number, (kind, name, incarnation, origin) in enumerate(steps):
        before = {known: node.incarnation for known, node in view.membership.table.nodes.items()}
        now = number * 0.5
        if kind == "alive":
            view.alive(name, incarnation, host=hosts[name], now=now)
        elif kind == "suspect":
            view.suspect(name, incarnation, origin, now)
        elif kind == "dead":
            view.dead(name, incarnation, origin, now)
        elif name != "me":
            view.membership.merge(as_nodes([(name, incarnation, incarnation % 4)]), now)
        view.membership.handle_timeout(now)
        for known, older in before.items():
            assert view.membership.table.nodes[known].incarnation >= older
        assert view.state("me")[1] == STATE_ALIVE
