"""A client waits for a session that a node has said to hand over, and not for one that has come, or has ended, by now."""

from __future__ import annotations

import random
from itertools import permutations

import pytest

from broker.broker import Broker
from broker.codec.packets import Disconnect
from broker.codec.properties import SESSION_EXPIRY_INTERVAL
from broker.config.settings_mqtt import MqttSettings
from broker.hooks import NO_GROUPS
from broker.message import Message
from broker.ownership import Claimant
from broker.store.identity import StoreIdentity
from federation.serf.events import Member, MemberJoin, MemberStatus
from federation.sessions.answers import HEAD_SECONDS_MAX
from federation.sessions.counters import SessionCounters
from federation.sessions.promised import (
    GONE_MAX,
    INCLUDES_MAX,
    UNNAMED,
    Claims,
    Over,
    Promised,
    claims_of,
    told_claims,
)
from federation.sessions.wire import (
    ANSWER,
    HAND,
    HANDED,
    HANDING,
    HEAD_END,
    NOTHING,
    REFUSED,
    SWITCH,
    encode_session_frame,
)
from federation.stream.frames import HEADER_SIZE
from federation.tags import TAG_WORKER_OF, own_tags
from session_home import STORES, SUBSCRIPTION, Home, session_records
from simulator.client import Client
from simulator.federation import Federation
from simulator.node_store import Disk
from stored_node import Station


class Siblings:
    """Two workers of one node that have just started."""

    def __init__(self, is_starting: bool) -> None:
        self.federation = Federation(2, 2, each=[{"disk": Disk()}, {"disk": Disk()}])
        self.federation.until_agreement(30.0, "the start")
        for host in self.federation.hosts:
            sessions = self.federation.node(host).node.sessions
            assert sessions is not None
            sessions.siblings = dict.fromkeys({"n1", "n2"} - {host.name.replace("h", "n")}, "")
            if is_starting:
                sessions.homes.starting_until = self.federation.world.now + 30.0

    def connect(self, at: int) -> Client:
        host = self.federation.hosts[at]
        node = self.federation.node(host)
        client = Client(node.broker, "c", self.federation.world.now, expiry=3600)
        node.clients.append(client)
        host.settle()
        return client

    def end(self, at: int, client: Client) -> None:
        client.send(Disconnect(0, {SESSION_EXPIRY_INTERVAL: 0}), self.federation.world.now)
        self.federation.hosts[at].settle()

    def until_served(self, client: Client, seconds: float) -> None:
        world = self.federation.world
        world.run_until(lambda: client._is_welcome, seconds, "the client is served")


def broker_of(identity: StoreIdentity) -> Broker:
    broker = Broker(MqttSettings(), random.Random(1), 0.0)
    broker.identity = identity
    return broker


@pytest.mark.parametrize("is_starting", [False, True])
@pytest.mark.parametrize("moves", ["01", "0100", "10"])
@pytest.mark.parametrize("pause", [0.0, 0.3])
@pytest.mark.parametrize("ends", [False, True])
def test_a_client_that_moves_often_waits_for_no_session_that_it_has(
    moves: str, pause: float, ends: bool, is_starting: bool
) -> None:
    siblings = Siblings(is_starting)
    places = [int(place) for place in moves]
    for at in places:
        client = siblings.connect(at)
        siblings.until_served(client, 1.0)
        siblings.federation.run(pause)
    if ends:
        siblings.end(places[-1], client)
        for at in (places[-1], 1 - places[-1]):
            siblings.until_served(siblings.connect(at), 1.0)


class Waiting(Claimant):
    """A client that notes when it is let in."""

    def __init__(self) -> None:
        self.is_let_in = False

    def is_open(self) -> bool:
        return True

    def claimed(self) -> None:
        self.is_let_in = True


@pytest.mark.parametrize(("starting_until", "waits"), [(5.0, True), (0.0, False)])
@pytest.mark.parametrize("has_others", [False, True])
def test_a_worker_that_has_just_started_waits_for_another_one_that_it_does_not_know_yet(
    has_others: bool, starting_until: float, waits: bool
) -> None:
    """The other one has no interest that the store of this one keeps, and perhaps the session of the client."""
    home = Home() if has_others else Station({})
    sessions = home.node.sessions
    assert sessions is not None
    sessions.siblings = {"n1/1": ""}
    sessions.homes.starting_until = starting_until
    client = Waiting()
    if not sessions.claim(client, "c", "", False, 0.0):
        sessions.handle_timeout(sessions.claim_wait)
    else:
        client.is_let_in = True
    assert client.is_let_in is not waits
    tags = {**own_tags("127.0.0.1:8901", True), TAG_WORKER_OF: "n1"}
    home.node.member_events([MemberJoin(Member("n1/1", "127.0.0.1", 8901, tags, MemberStatus.ALIVE))], 0.0)
    for name in ("n2", "n3", "n4") if has_others else ():
        sessions.receive(name, answer(sessions.homes.by_client["c"].counter, home), 0.0)
    assert client.is_let_in is not waits
    if waits:
        sessions.receive("n1/1", answer(sessions.homes.by_client["c"].counter, home), 0.0)
    assert client.is_let_in


@pytest.mark.parametrize("is_late", [False, True])
def test_what_comes_directly_waits_for_each_home_that_has_said_to_hand_over(is_late: bool) -> None:
    """The client is let in with the session of one of them, before the other one has answered or after that."""
    home = Home()
    client = Waiting()
    assert not home.sessions.claim(client, "c", "", False, 0.0)
    of_client = home.sessions.homes.by_client["c"]
    epoch = home.sessions.homes.epoch_of(of_client)
    home.hear("n2", ANSWER, epoch, HANDING, *epoch, STORES["n2"], 5)
    if not is_late:
        home.hear("n3", ANSWER, epoch, HANDING, *epoch, STORES["n3"], 6)
    head, _ = session_records()
    home.hear("n2", HAND, epoch, ("n2",), (head, SUBSCRIPTION, (HEAD_END,), (HANDED,)), 5)
    assert client.is_let_in
    if is_late:
        home.hear("n3", ANSWER, epoch, HANDING, *epoch, STORES["n3"], 6)
    arriving = of_client.arriving
    assert arriving is not None
    assert arriving.expected == {STORES["n3"]: 6}
    home.hear("n4", SWITCH, epoch)
    home.node.receivers.by_name["n4"].publish(Message(b"t", b"newer", 2, False), NO_GROUPS, 0.0)
    assert home.broker.sessions["c"].queue_length() == 0
    home.hear("n3", HAND, epoch, ("n3",), (head, SUBSCRIPTION, (HEAD_END,), (HANDED,)), 6)
    assert not arriving.waits_for_older()
    assert home.broker.sessions["c"].queue_length() == 1


@pytest.mark.parametrize("is_heard", [False, True])
def test_a_client_waits_longer_for_a_home_that_has_refused_its_claim(is_heard: bool) -> None:
    """That has its session, by a claim that was not heard here. Its next answer may be late."""
    home = Home()
    sender = home.node.senders["n2"]
    sender.reachable = sender.is_living = True
    client = Waiting()
    assert not home.sessions.claim(client, "c", "", False, 0.0)
    of_client = home.sessions.homes.by_client["c"]
    claim = home.sessions.homes.epoch_of(of_client)
    later = (claim[0] + 60_000, STORES["n2"])
    sender.reachable = is_heard
    home.hear("n2", ANSWER, claim, REFUSED, *later)
    home.sessions.handle_timeout(home.sessions.claim_wait)
    assert client.is_let_in is not is_heard
    home.sessions.handle_timeout(HEAD_SECONDS_MAX)
    assert client.is_let_in


@pytest.mark.parametrize("ends", [False, True])
def test_the_end_of_an_earlier_hand_over_that_comes_before_the_session_ends_none_of_a_later_one(ends: bool) -> None:
    """A home that has started again ends an older one first (workers_of_one_node_die 3, out of order)."""
    home = Home()
    assert not home.sessions.claim(Waiting(), "c", "", False, 0.0)
    epoch = home.sessions.homes.epoch_of(home.sessions.homes.by_client["c"])
    home.hear("n2", HAND, epoch, ("n2",), ((HANDED,),), 7 if ends else 3)
    head, _ = session_records()
    home.hear("n2", HAND, epoch, ("n2",), (head, SUBSCRIPTION, (HEAD_END,)), 7)
    arriving = home.sessions.homes.by_client["c"].arriving
    assert arriving is not None
    assert arriving.handing == ({} if ends else {"n2": 7})


def answer(counter: int, home: Station) -> bytes:
    """The body of a frame: there is no session of the client."""
    epoch = counter, home.broker.identity.store_id
    return encode_session_frame(ANSWER, "c", epoch, (NOTHING, *epoch))[HEADER_SIZE:]


OTHERS: tuple[tuple[bool, Claims], ...] = ((True, {"b": 7}), (False, {"b": 7, "c": 1}))


@pytest.mark.parametrize("others", [(), OTHERS, OTHERS[::-1]])
@pytest.mark.parametrize(
    ("on_way", "includes", "over", "left"),
    [
        ({"a": 3}, None, {}, {"a": 3}),
        ({"a": 3}, {"a": 2, "z": 9}, {"a": 2}, {"a": 3}),
        ({"a": 3}, {"a": 3}, {}, {}),
        ({"a": 3}, None, {"a": 4}, {}),
        ({}, {"a": 3}, {"a": 3}, {UNNAMED: 0}),  # the build before does not say its claim
    ],
)
def test_what_a_session_has_had_is_not_waited_for(
    on_way: Claims, includes: Claims | None, over: Claims, left: Claims, others: tuple[tuple[bool, Claims], ...]
) -> None:
    """In whatever order the nodes answer."""
    for is_known_here in (False, True):
        promised = Promised(over if is_known_here else {})
        for is_on_way, claims in (*others, (True, on_way), (False, {} if is_known_here else over)):
            promised.says(is_on_way, claims_of(list(told_claims(claims))))
        assert promised.waited_for(includes) == left


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_of_two_claims_of_one_home_the_newer_counts(order: tuple[int, ...]) -> None:
    """In whatever order nodes say them."""
    said: list[tuple[bool, Claims]] = [(True, {"a": 4}), (False, {"a": 2, "x": 3}), (False, {"a": 4, "y": 5})]
    promised, newer = Promised({}), Promised({})
    counters = SessionCounters()
    over = Over(broker_of(StoreIdentity("own", 1, True)), counters)
    for at in order:
        promised.says(*said[at])
        newer.says(not said[at][0], said[at][1])
        over.note("c", said[at][1], 9 - at)
    assert promised.waited_for(None) == {}
    assert newer.waited_for({"x": 3, "y": 4}) == {"y": 5}
    assert over.of("c") == {"a": 4, "x": 3, "y": 5, "own": 9}


def test_the_claims_of_one_client_are_bounded() -> None:
    """However many stores are named, that of this node is among those that are known."""
    over = Over(broker_of(StoreIdentity("own", 1, True)), SessionCounters())
    promised = Promised({})
    for number in range(3 * INCLUDES_MAX):
        over.note("c", {f"{number}": 1, f"{number} too": 1}, 1 + number)
        promised.says(True, {f"{number}": 1})
        promised.says(False, {f"{number} too": 1})
    assert len(over.of("c")) == len(promised.on_way) == len(promised.over) == INCLUDES_MAX
    assert over.counter_of("c") == 3 * INCLUDES_MAX


def test_the_oldest_sessions_that_have_ended_are_forgotten() -> None:
    counters = SessionCounters()
    identity = StoreIdentity("own", 1, True)
    over = Over(broker_of(identity), counters)
    over.note("alone", None, 1)
    over.note("c", {"a": 1}, 2)
    over.note("c", {"b": 1}, 5)
    assert over.of("alone") == {}
    assert over.of("c") == {"a": 1, "b": 1, "own": 5}
    assert (over.on_way("c", 5), over.on_way("c", 6)) == ({}, {"own": 6})
    for number in range(GONE_MAX):
        over.note(str(number), {"a": 1}, 2)
    assert over.of("c") == {}
    assert counters.passed_forgotten == 1
