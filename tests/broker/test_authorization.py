"""Who may read a topic: receivers, shared groups, messages of other nodes. Several authorizers, and faults."""

from __future__ import annotations

from typing import Any

import pytest

from broker.authorization import (
    ALLOW,
    DENY,
    NO_OPINION,
    QUESTION_STEPS,
    Authorization,
    Authorizer,
    ClientIdentity,
    TopicAccess,
    Verdict,
)
from broker.codec.packets import SubscribeFilter
from broker.counters import Counters
from broker.faults import Faults
from broker.hooks import Forwarder, Peer, RemoteGroup, RemoteRoute
from broker.message import Message
from broker.slices import Slices
from topic_rights import NOT_AUTHORIZED, TopicRights


class Recorded(Faults):
    def __init__(self) -> None:
        self.failed: list[tuple[str, str]] = []

    def plugin_failed(self, call: str, error: Exception) -> None:
        self.failed.append((call, str(error)))


def client(name: str = "u") -> ClientIdentity:
    return ClientIdentity("c", name, "127.0.0.1:1")


# --- reading ---


@pytest.mark.parametrize("version", [4, 5])
def test_each_receiver_gets_the_topics_that_it_may_read(world: Any, version: int) -> None:
    TopicRights(world, one="a", two="ab", sender="AB")
    readers = [world.connect(name, version, username=name) for name in ("one", "two", "three")]
    for reader in readers:
        reader.subscribe(b"#", qos=1)
    sender = world.connect("sender", username="sender")
    for topic in (b"a", b"b"):
        for qos in (0, 1):
            sender.publish(topic, topic, qos)
        sender.send_bytes(b"\x30\x05\0\x01%s\0%s" % (topic, topic) * 3)
    assert [reader.take_payloads() for reader in readers] == [[b"a"] * 5, [b"a"] * 5 + [b"b"] * 5, []]
    assert world.drops() == {}


def test_an_unreadable_message_has_no_receivers(world: Any) -> None:
    TopicRights(world, one="a", sender="B")
    world.connect("one", username="one").subscribe(b"#")
    sender = world.connect("sender", username="sender")
    sender.publish(b"b", b"", 1)
    assert [packet.reason_code for packet in sender.take_packets()] == [0x10]
    assert world.broker.counters.without_receivers == 1


@pytest.mark.parametrize("version", [4, 5])
def test_a_subscribe_is_refused_when_nothing_of_it_may_be_read(world: Any, version: int) -> None:
    TopicRights(world, u="aB")
    reader = world.connect("c", version, username="u")
    refused = NOT_AUTHORIZED if version == 5 else 0x80
    assert reader.subscribe(b"a", b"b", b"+", b"$share/g/b", b"$share/g/a") == [2, refused, 2, refused, 2]
    assert sorted(world.broker.sessions["c"].subscriptions) == [b"$share/g/a", b"+", b"a"]
    assert world.broker.counters.subscriptions_refused == 2
    world.check()


def test_subscriptions_are_judged_again_after_a_reload(world: Any) -> None:
    users = TopicRights(world, u="a", sender="AB")
    reader = world.connect("c", username="u")
    reader.subscribe(b"#")
    sender = world.connect("sender", username="sender")
    sender.publish(b"a", b"1")
    sender.publish(b"b", b"2")
    users.change(u="b", sender="AB")
    sender.publish(b"a", b"3")
    sender.publish(b"b", b"4")
    assert reader.take_payloads() == [b"1", b"4"]


# --- shared groups ---


def test_members_that_may_not_read_are_skipped(world: Any) -> None:
    users = TopicRights(world, one="ab", two="b", three="c", sender="AB")
    members = [world.connect(f"{name}{n}", username=name) for n in range(2) for name in ("one", "two", "three")]
    for member in members:
        member.subscribe(b"$share/g/+", qos=1)
    sender = world.connect("sender", username="sender")
    for number in range(6):
        sender.publish(b"a", b"%d" % number, number % 2)
    assert [len(member.take_payloads()) for member in members] == [3, 0, 0, 3, 0, 0]
    for _ in range(8):
        sender.publish(b"b", b"x", 1)
    assert [len(member.take_payloads()) for member in members] == [2, 2, 0, 2, 2, 0]
    assert world.drops() == {}
    users.change(three="a", sender="A")
    sender.publish(b"a", b"x")
    assert [len(member.take_payloads()) for member in members] in ([0, 0, 1, 0, 0, 0], [0, 0, 0, 0, 0, 1])


def test_a_message_is_redelivered_to_a_member_that_may_read_it(world: Any) -> None:
    TopicRights(world, one="a", two="b", three="a", sender="A")
    one, two, three = (world.connect(name, username=name, auto=False) for name in ("one", "two", "three"))
    for member in (one, two, three):
        member.subscribe(b"$share/g/+", qos=1)
    world.connect("sender", username="sender").publish(b"a", b"x", 1)
    got, other = (one, three) if one.take_payloads() else (three, one)
    got.take_payloads()
    got.disconnect()
    assert (two.take_payloads(), other.take_payloads()) == ([], [b"x"])
    other.disconnect()
    assert two.take_payloads() == []
    assert world.drops() == {"group_gone": 1}


class OtherNode(Peer):
    def __init__(self) -> None:
        super().__init__("other", True)
        self.got: list[tuple[bytes, Any]] = []

    def forward(self, message: Message, groups: tuple[tuple[bytes, bytes], ...], now: float) -> None:
        self.got.append((message.payload, groups))


class TwoNodes(Forwarder):
    """The other node has a member of the group `g`."""

    def __init__(self, peer: OtherNode) -> None:
        self.peer = peer

    def route(self, topic: bytes) -> RemoteRoute | None:
        return RemoteRoute([], [RemoteGroup(b"g", b"+", [self.peer])])


def test_another_node_gets_a_message_that_its_local_members_may_not_read(world: Any) -> None:
    other = OtherNode()
    world.broker.forwarder = TwoNodes(other)
    TopicRights(world, one="b", sender="AB")
    member = world.connect("one", username="one")
    member.subscribe(b"$share/g/+")
    sender = world.connect("sender", username="sender")
    sender.publish(b"a", b"1")
    sender.publish(b"b", b"2")
    assert other.got == [(b"1", ((b"g", b"+"),))]
    assert member.take_payloads() == [b"2"]


def test_messages_of_other_nodes_are_judged_by_their_receivers(world: Any) -> None:
    TopicRights(world, one="a", two="b")
    readers = [world.connect(name, username=name) for name in ("one", "two")]
    for reader in readers:
        reader.subscribe(b"+", SubscribeFilter(b"$share/g/+", 1))
    router = world.broker.router
    block = b"\x30\x05\0\x01a\0x" * 2
    router.publish_block(block, 5, None, world.now, 0, len(block))
    router.publish_remote(Message(b"b", b"y", 1, False), ((b"g", b"+"),), None, world.now)
    router.publish_remote(Message(b"c", b"z", 1, False), ((b"g", b"+"),), None, world.now)
    world.flush()
    assert [reader.take_payloads() for reader in readers] == [[b"x", b"x"], [b"y", b"y"]]
    assert world.drops() == {"group_gone": 1}


# --- several authorizers, and faults ---


class Fixed(Authorizer):
    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict

    def may_publish(self, client: ClientIdentity, topic: bytes) -> Verdict:
        return self.verdict

    def may_read(self, client: ClientIdentity, topic: bytes) -> Verdict:
        return self.verdict

    def may_subscribe(self, client: ClientIdentity, share_name: bytes, topic_filter: bytes) -> Verdict:
        return self.verdict


@pytest.mark.parametrize(
    ("verdicts", "allowed"),
    [
        ((ALLOW,), True),
        ((DENY,), False),
        ((NO_OPINION,), False),
        ((NO_OPINION, ALLOW), True),
        ((ALLOW, NO_OPINION), True),
        ((ALLOW, DENY), False),
        ((DENY, ALLOW), False),
        ((NO_OPINION, NO_OPINION), False),
    ],
)
def test_a_refusal_is_final_and_no_opinion_denies(verdicts: tuple[Verdict, ...], allowed: bool) -> None:
    authorization = Authorization([Fixed(verdict) for verdict in verdicts], 1, Counters(), Faults(), Slices())
    assert authorization.may_publish(client(), b"a") is allowed
    assert authorization.may_read(client(), b"a") is allowed
    assert authorization.may_subscribe(client(), b"", b"a") is allowed


def test_an_authorizer_without_methods_has_no_opinion() -> None:
    authorization = Authorization([Authorizer()], 1, Counters(), Faults(), Slices())
    assert not authorization.may_publish(client(), b"a")
    assert not authorization.may_read(client(), b"a")
    assert authorization.may_subscribe(client(), b"", b"a"), "each message is judged all the same"


def test_questions_are_a_part_of_the_slice() -> None:
    class Slow(Fixed):
        def take_steps(self) -> int:
            return 100

    slices = Slices()
    authorization = Authorization([Slow(ALLOW), Fixed(ALLOW)], 1, Counters(), Faults(), slices)
    for count in range(1, 4):
        authorization.may_read(client(), b"a")
        assert slices.steps == count * (100 + 2 * QUESTION_STEPS)
    authorization.may_publish(client(), b"a")
    authorization.may_subscribe(client(), b"", b"a")
    assert slices.steps == 5 * (100 + 2 * QUESTION_STEPS)


def test_an_authorizer_that_raises_denies(world: Any) -> None:
    class Faulty(Authorizer):
        is_faulty = True

        def may_publish(self, client: ClientIdentity, topic: bytes) -> Verdict:
            if self.is_faulty:
                raise KeyError("publish")
            return ALLOW

        def may_read(self, client: ClientIdentity, topic: bytes) -> Verdict:
            if self.is_faulty:
                raise KeyError("read")
            return ALLOW

        def may_subscribe(self, client: ClientIdentity, share_name: bytes, topic_filter: bytes) -> Verdict:
            if self.is_faulty:
                raise KeyError("subscribe")
            return ALLOW

    faults = world.broker.faults = Recorded()
    faulty = Faulty()
    world.broker.add_authorizer(Fixed(ALLOW))
    world.broker.add_authorizer(faulty)
    c = world.connect("c")
    assert c.subscribe(b"#") == [NOT_AUTHORIZED]
    c.publish(b"a", b"1", 1)
    assert [packet.reason_code for packet in c.take_packets()] == [NOT_AUTHORIZED]
    assert faults.failed == [("Authorizer.may_subscribe", "'subscribe'"), ("Authorizer.may_publish", "'publish'")]
    assert world.broker.counters.plugin_faults == 2
    faulty.is_faulty = False
    assert c.subscribe(b"#") == [2]
    faulty.is_faulty = True
    world.broker.publish(Message(b"a", b"2", 1, False), world.now)
    faulty.is_faulty = False
    world.broker.publish(Message(b"a", b"3", 1, False), world.now)
    c.publish(b"a", b"4", 1)
    world.flush()
    assert c.take_payloads() == [b"3", b"4"], "the answer to a question that failed is not kept"


def test_an_identity_has_the_access_of_the_credentials(world: Any) -> None:
    seen: list[ClientIdentity] = []

    class Seeing(Authorizer):
        def may_publish(self, client: ClientIdentity, topic: bytes) -> Verdict:
            seen.append(client)
            return ALLOW

    world.broker.add_authorizer(Seeing())
    sender = world.connect("c", username="u")
    sender.connection.access = (TopicAccess("a", True, False),)
    world.broker.identify(world.broker.sessions["c"], sender.connection)
    sender.publish(b"a")
    (found,) = seen
    assert (found.client_id, found.username, found.remote_addr) == ("c", "u", "127.0.0.1:1")
    assert found.access == (TopicAccess("a", True, False),)


def test_routes_are_not_judged_without_authorizers(world: Any) -> None:
    sender = world.connect("c")
    sender.publish(b"a")
    assert world.broker.authorization is None
    assert not world.broker.router.lookup(b"a").is_judged
