"""Which links want a filter, and when the other nodes and the observer are told."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from broker.broker import Broker
from broker.codec.packets import SubscribeFilter
from broker.config.settings import MqttSettings
from broker.hooks import Forwarder, InterestObserver
from broker.routing.interest import note_changed
from broker.session.session import Session
from federation.links.bridging.bridging import bridging_of
from federation.links.bridging.headers import INTERESTS_MAX, encode_interest
from federation.links.bridging.routes import NOTE_BYTES_MAX, needs_numbers, parse_note
from link_clients import link_options, named_world
from link_ends import own_end, remote_end


class Observed(InterestObserver):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, ...]] = []

    def interest_added(self, node: str, share_name: bytes, topic_filter: bytes, link_interest: bytes) -> None:
        self.calls.append(("added", node, share_name.decode(), topic_filter.decode(), link_interest.decode()))

    def interest_removed(self, node: str, share_name: bytes, topic_filter: bytes) -> None:
        self.calls.append(("removed", node, share_name.decode(), topic_filter.decode()))

    def note_changed(self, node: str, topic_filter: bytes, link_interest: bytes) -> None:
        self.calls.append(("changed", node, topic_filter.decode(), link_interest.decode()))

    def take(self) -> list[tuple[str, ...]]:
        calls, self.calls = self.calls, []
        return calls


class Told(Forwarder):
    """Another node that is told of interest."""

    def __init__(self) -> None:
        self.changed: list[bytes] = []

    def note_changed(self, share_name: bytes, topic_filter: bytes) -> None:
        self.changed.append(topic_filter)


class World:
    """A broker with sessions of clients and of links."""

    def __init__(self) -> None:
        self.broker = Broker(replace(MqttSettings()), random.Random(1), 0.0)
        self.told = Told()
        self.observed = Observed()
        bridging_of(self.broker)
        self.broker.forwarder = self.told
        self.broker.interest_observer = self.observed

    def session(self, name: str, domain: bytes = b"", max_hops: int = 1) -> Session:
        session = Session(self.broker, name, 0.0)
        self.broker.sessions[name] = session
        if domain:
            session.bridge_end = remote_end(self.broker, domain, max_hops)
        return session

    def subscribe(self, session: Session, topic_filter: bytes = b"a/#") -> None:
        assert self.broker.subscribe_one(session, SubscribeFilter(topic_filter, 1, False, False, 0), 0) == 1

    def wants(self, topic_filter: bytes = b"a/#", share_name: bytes = b"") -> bytes:
        return self.broker.interest_note(share_name, topic_filter)


@pytest.fixture
def world() -> World:
    return World()


def test_filters_of_clients_have_no_links(world: World) -> None:
    first, second = world.session("c1"), world.session("c2")
    world.subscribe(first)
    world.subscribe(second)
    assert world.observed.take() == [("added", "", "", "a/#", "")]
    world.broker.unsubscribe_one(first, b"a/#")
    assert world.observed.take() == []
    world.broker.unsubscribe_one(second, b"a/#")
    assert world.observed.take() == [("removed", "", "", "a/#")]
    assert world.told.changed == []


def test_a_link_beside_clients(world: World) -> None:
    client, link = world.session("c"), world.session("l", b"east", 3)
    header = encode_interest((b"east",), 3).decode()
    world.subscribe(link)
    world.subscribe(client)
    world.broker.unsubscribe_one(link, b"a/#")
    assert world.observed.take() == [
        ("added", "", "", "a/#", "0\n" + header),
        ("changed", "", "a/#", "1\n" + header),
        ("changed", "", "a/#", ""),
    ]
    assert world.told.changed == [b"a/#", b"a/#"]
    world.subscribe(link)
    world.subscribe(world.session("c2"))  # nothing new
    assert world.observed.take() == [("changed", "", "a/#", "1\n" + header)]
    world.broker.unsubscribe_one(client, b"a/#")
    world.broker.unsubscribe_one(world.broker.sessions["c2"], b"a/#")
    assert world.observed.take() == [("changed", "", "a/#", "0\n" + header)]
    world.broker.unsubscribe_one(link, b"a/#")
    assert world.observed.take() == [("removed", "", "", "a/#")]
    assert world.wants() == b""


def test_a_group_counts_as_clients(world: World) -> None:
    link = world.session("l", b"east")
    world.subscribe(link, b"$share/g/a/#")
    assert world.observed.take() == [("added", "", "g", "a/#", "")]
    world.subscribe(link)
    world.broker.unsubscribe_one(link, b"a/#")
    assert world.wants() == b""  # the entry of the filter stays, for the group
    world.subscribe(world.session("c"))
    assert world.wants() == b""


def test_other_wants_of_a_subscription_are_told(world: World) -> None:
    link = world.session("l", b"east")
    world.subscribe(link)
    subscription = link.subscriptions[b"a/#"]
    world.observed.take()
    note_changed(world.broker, world.broker.router.tree, subscription)
    assert world.observed.take() == []
    header = encode_interest((b"west", b"east"), 2)
    subscription.along = (header,)
    note_changed(world.broker, world.broker.router.tree, subscription)
    assert world.observed.take() == [("changed", "", "a/#", "0n\n" + header.decode())]


def test_a_link_of_this_node_asks_for_nothing(world: World) -> None:
    link = world.session("link:north:1", b"north", 3)
    link.bridge_end = own_end(world.broker, b"north", 3)
    world.subscribe(link)
    assert world.observed.take() == [("added", "", "", "a/#", "0")]
    world.subscribe(world.session("c"))
    assert world.observed.take() == [("changed", "", "a/#", "1")]


def test_another_end_of_a_session_is_told() -> None:
    world = named_world()
    observed = world.broker.interest_observer = Observed()
    world.connect("l", **link_options("east"), expiry=100).subscribe(b"a/#")
    observed.take()
    for options, note in (
        (link_options("east"), None),
        (link_options("east", relays=True), "0n\n" + encode_interest((b"east",), 1).decode()),
        (link_options("west"), "0\n" + encode_interest((b"west",), 1).decode()),
        ({}, ""),
    ):
        world.connect("l", **options, clean_start=False, expiry=100)
        assert observed.take() == ([] if note is None else [("changed", "", "a/#", note)])


def test_many_wants_are_cut(world: World) -> None:
    link = world.session("l", b"east")
    world.subscribe(link)
    subscription = link.subscriptions[b"a/#"]
    subscription.along = tuple(encode_interest((b"d%02d" % number, b"east"), 9) for number in range(INTERESTS_MAX + 1))
    note_changed(world.broker, world.broker.router.tree, subscription)
    has_clients, headers = parse_note(world.wants())
    assert (has_clients, headers) == (False, list(subscription.along[:INTERESTS_MAX]))
    long = [b"%02d" % number + b"x" * 60 for number in range(60)]
    subscription.along = tuple(encode_interest((b"y%d" % number, *long), 90) for number in range(INTERESTS_MAX))
    note_changed(world.broker, world.broker.router.tree, subscription)
    assert len(world.wants()) <= NOTE_BYTES_MAX


def test_notes_and_back() -> None:
    assert parse_note(b"") == (True, [])
    assert parse_note(b"0\nx\ny") == (False, [b"x", b"y"])
    assert parse_note(b"1\nx") == (True, [b"x"])
    assert parse_note(b"1n\nx") == (True, [b"x"])
    assert (needs_numbers(b"1\nn"), needs_numbers(b""), needs_numbers(b"0n\nx")) == (False, False, True)
