"""Sessions that have arrived, beside a naive look at all of them; what is done in one turn has a bound."""

from __future__ import annotations

from random import Random

import pytest

from broker.session.session import Session
from federation.replication.adopting import HOMES_OF_A_TURN, RelayedAll
from federation.sessions.arriving import HANDING_SECONDS_MAX, LIVING_SECONDS_MAX, Arriving
from federation.sessions.departing import Departing
from federation.sessions.home import Home
from federation.sessions.homes import LOOKS_OF_A_TURN, Homes
from federation.sessions.wire import CLAIM, HAND, HANDED, HEAD_END, SWITCH
from session_home import STORES, SUBSCRIPTION, session_records
from session_home import Home as SessionHome
from simulator.federation import Federation
from stored_node import STORE_ID


class Arrivals:
    """Sessions that come to a node which has another one to tell."""

    def __init__(self, count: int, handing: bool) -> None:
        federation = Federation(2, 2)
        self.node = federation.node(federation.hosts[0]).node
        assert self.node.sessions is not None
        self.homes: Homes = self.node.sessions.homes
        self.outbox = self.node.senders["n2"].outbox
        for number in range(count):
            self.add(str(number), handing)

    def add(self, client_id: str, handing: bool) -> None:
        broker = self.node.broker
        session = broker.sessions[client_id] = Session(broker, client_id, 0.0)
        home = self.homes.by_client[client_id] = self.homes.made(client_id, 1)
        arriving = Arriving(session, self.homes.epoch_of(home), "n1", {"n2": None})
        self.homes.arrives(home, arriving)
        if handing:
            arriving.begin(["n2"], broker.now)
            self.homes.wait_for_hand_over(home, arriving.until)

    def settle(self) -> int:
        """Returns how many turns it took."""
        turns = 1
        before = len(self.homes.arriving)
        while self.homes.settle_arrived():
            assert before - len(self.homes.arriving) <= LOOKS_OF_A_TURN
            before = len(self.homes.arriving)
            turns += 1
        return turns

    def check(self) -> None:
        heard = self.homes.moves_heard()
        for home in self.homes.by_client.values():
            arriving = home.arriving
            if home in self.homes.arriving:
                assert arriving is not None
                assert arriving.waits_for_older() or arriving.waiting or arriving.move_number > heard
                assert arriving.session.sources is arriving
            else:
                assert arriving is None

    def act(self, rng: Random, home: Home) -> None:
        arriving = home.arriving
        if arriving is None:
            return
        what = rng.randrange(3)
        if what == 0:
            arriving.waiting.pop("n2", None)
            self.homes.keep(home)
        elif what == 1:
            arriving.handed("n2", self.node.broker.now)
            self.homes.keep(home)
        else:
            self.homes.tell_move(home)


@pytest.mark.parametrize("seed", range(5))
def test_those_are_whole_that_wait_for_nothing(seed: int) -> None:
    rng = Random(seed)
    arrivals = Arrivals(60, True)
    homes = list(arrivals.homes.by_client.values())
    for _ in range(60):
        for home in rng.sample(homes, 8):
            arrivals.act(rng, home)
        if rng.random() < 0.3:
            arrivals.outbox.moves_told = max(
                arrivals.outbox.moves_told, arrivals.homes.next_number() - rng.randrange(30)
            )
        if rng.random() < 0.1:
            arrivals.outbox.moves_told = 0  # its stream begins anew
        arrivals.settle()
        arrivals.check()
    arrivals.homes.handle_timeout(arrivals.node.broker.now + LIVING_SECONDS_MAX)
    for home in list(arrivals.homes.arriving):
        assert home.arriving is not None
        assert not home.arriving.handing
        home.arriving.waiting.clear()
        arrivals.homes.keep(home)
    arrivals.outbox.moves_told = arrivals.homes.next_number()
    arrivals.settle()
    assert not arrivals.homes.arriving
    assert arrivals.homes.next_timeout() == float("inf")


def test_many_are_looked_at_in_some_turns() -> None:
    arrivals = Arrivals(2 * LOOKS_OF_A_TURN + 1, False)
    assert arrivals.settle() == 3
    assert arrivals.settle() == 1, "nothing has changed"
    for home in arrivals.homes.arriving:
        assert home.arriving is not None
        home.arriving.waiting.clear()
        arrivals.homes.keep(home)
    assert arrivals.settle() == 3
    assert not arrivals.homes.arriving


@pytest.mark.parametrize("lives", [True, False])
def test_a_hand_over_that_goes_on_is_waited_for(lives: bool) -> None:
    arrivals = Arrivals(1, True)
    (home,) = arrivals.homes.arriving
    arriving = home.arriving
    assert arriving is not None
    first = arrivals.homes.next_timeout()
    arriving.goes_on(first - 0.1)
    arrivals.homes.handle_timeout(first)
    assert arriving.handing
    assert arrivals.homes.next_timeout() == pytest.approx(first - 0.1 + HANDING_SECONDS_MAX)
    if not lives:
        arrivals.node.senders["n2"].is_living = False
    arrivals.homes.handle_timeout(arrivals.homes.next_timeout())
    assert bool(arriving.handing) is lives
    arrivals.homes.handle_timeout(first - 0.1 + LIVING_SECONDS_MAX)
    assert not arriving.handing


def test_many_hear_in_some_turns_that_a_node_has_relayed_everything() -> None:
    arrivals = Arrivals(HOMES_OF_A_TURN + 1, True)
    others = list(arrivals.homes.arriving)[::7]
    for home in arrivals.homes.arriving:
        assert home.arriving is not None
        home.arriving.lost["n3"] = "another store" if home in others else "store"
    relayed = RelayedAll(arrivals.homes)
    relayed.add("n2", "store", False)
    turns = 0
    while relayed.is_active():
        relayed.go_on(arrivals.node.broker.now)
        turns += 1
    assert turns == 2
    assert [home for home in arrivals.homes.arriving if home.arriving is not None and home.arriving.handing] == others


@pytest.mark.parametrize("leaves", [False, True])
@pytest.mark.parametrize("how", ["relays", "has another store", "is no member any more"])
def test_an_adopted_session_is_whole_when_a_node_that_was_not_reached_has_relayed_everything(
    how: str, leaves: bool
) -> None:
    """It says that its messages are for the session, and brings what it had for the lost home later
    (homes_begin_anew_while_clients_move 128 lacked four messages)."""
    arrivals = Arrivals(1, False)
    (home,) = arrivals.homes.arriving
    arriving = home.arriving
    assert arriving is not None
    arriving.lost["n3"] = "store"
    arriving.homes["n3"] = None
    arriving.relaying["n2"] = "store"
    arriving.waiting.clear()
    departing = Departing(arriving.session, (5, "2"), 1, "n2", "n1", {}, arriving, None, 0.0)
    relayed = RelayedAll(arrivals.homes)
    now = arrivals.node.broker.now
    relayed.add("n2", "another", False)
    relayed.go_on(now)
    arrivals.homes.keep(home)
    arrivals.settle()
    assert home in arrivals.homes.arriving
    assert departing.take_end([]) if leaves else not departing.take_end(["n2"])
    if how == "relays":
        relayed.add("n2", "store", False)
        relayed.go_on(now)
    elif how == "has another store":
        arrivals.homes.store_replaced("n2")
    else:
        arrivals.homes.peer_removed("n2", now)
    arrivals.settle()
    assert home not in arrivals.homes.arriving
    assert bool(departing.take_end(["n2"])) is not leaves


@pytest.mark.parametrize("has_handed_over", [False, True])
def test_a_home_that_a_node_reaches_again_is_waited_for(has_handed_over: bool) -> None:
    """That node has nothing to relay: the home gets what it had for it, and hands that over."""
    arrivals = Arrivals(1, True)
    (home,) = arrivals.homes.arriving
    arriving = home.arriving
    assert arriving is not None
    arriving.lost["n3"] = "store"
    home.adopts(("store", 9, 1, 2, 15, ()))
    home.include((("store", 15 if has_handed_over else 14),))
    relayed = RelayedAll(arrivals.homes)
    relayed.add("n2", "store", True)
    relayed.go_on(arrivals.node.broker.now)
    assert not arriving.handing
    assert arriving.waits_for_older() is not has_handed_over
    arriving.includes({"store": 15}, arrivals.node.broker.now)
    assert not arriving.waits_for_older()


@pytest.mark.parametrize("has_gone_on", [False, True])
def test_a_home_that_was_it_twice_has_handed_over_after_the_second_time(has_gone_on: bool) -> None:
    """Seed 30 of machines_come_back_to_their_clients: it had a session twice, and the first one waited longer than others did
    for it. The client got what a node sent here directly before what the second session had of that node."""
    here = SessionHome()
    own = (20, STORE_ID)
    session, _ = session_records()
    here.hear("n4", HAND, own, ("n4",), (session, SUBSCRIPTION, (HEAD_END,)), 15)
    arriving = here.sessions.homes.by_client["c"].arriving
    assert arriving is not None
    if has_gone_on:
        here.hear("n2", CLAIM, (25, STORES["n2"]), False, False, False)
        assert [departing.before for departing in here.sessions.moves.departing["c"]] == [arriving]
    here.hear("n4", HAND, own, ("n4",), ((HANDED,),), 12)
    assert arriving.waits_for_older()
    here.hear("n4", HAND, own, ("n4",), ((HANDED,),), 15)
    assert not arriving.waits_for_older()


def test_a_home_that_is_expected_is_waited_for_when_it_hands_over_what_it_had_before() -> None:
    """Seed 60003 of machines_come_back_to_their_clients: n2 had adopted the session of another home, and gave it to this one;
    what it had adopted from the copy of this one came behind that."""
    here = SessionHome()
    own, expected = (20, STORE_ID), (18, STORES["n2"])
    session, _ = session_records()
    here.hear("n4", HAND, own, ("n4",), (session, SUBSCRIPTION, (HEAD_END,), (HANDED,)), 15)
    here.hear("n3", SWITCH, expected)
    arriving = here.sessions.homes.by_client["c"].arriving
    assert arriving is not None
    for since in (10, 18):
        assert arriving.waits_for_older()
        here.hear("n2", HAND, own, ("n2",), (session, SUBSCRIPTION, (HEAD_END,), (HANDED,)), since)
    assert not arriving.waits_for_older()


def test_of_two_sessions_from_a_lost_home_the_one_takes_a_message_that_had_it() -> None:
    """Seed 60003 of machines_come_back_to_their_clients: n4 was lost when the session had left it and come back, and both took
    what n2 had for the second one. n2 may know a claim that the copy lacks."""
    here = SessionHome()
    homes = here.sessions.homes
    older, newer = [Arriving(Session(here.broker, "c", 0.0), (counter, STORE_ID), "n1", {}) for counter in (11, 16)]
    older.lost["n4"] = newer.lost["n4"] = STORES["n4"]
    homes.departing["c"] = [Departing(older.session, (13, STORES["n3"]), 11, "n3", "n1", {}, older, None, 0.0)]
    home = homes.by_client["c"] = homes.made("c", 16)
    home.arriving = newer
    assert homes.relayed_to("c", "n4", "n2") is None
    for counter, expected in ((10, older), (15, newer), (20, newer)):
        here.sessions.moves.relayed_switch("c", "n4", "n2", (counter, STORES["n4"]))
        assert homes.relayed_to("c", "n4", "n2") is expected
