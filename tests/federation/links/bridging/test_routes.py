"""Link sessions and other nodes: which of them get headers, and what a node takes over from another one."""

from __future__ import annotations

from typing import Any

import pytest

from broker.codec.packets import Publish
from broker.codec.properties import encode_publish_properties
from broker.codec.writer import encode_publish
from broker.hooks import Forwarder, Peer, RemoteRoute
from broker.message import Message
from broker.origin import Origin, decode_origin, property_of
from broker.routing.carried import carried_message
from broker_world import START
from federation.links.bridging.bridging import bridging_of
from federation.links.bridging.headers import encode_interest
from federation.links.bridging.routes import is_relayed
from link_ends import remote_end
from origins import text_of

OTHERS = encode_publish_properties(user_properties=[("a", "b")])
HEADER = property_of(b"1 path=paris")


class Outbox(Peer):
    def __init__(self, name: str) -> None:
        super().__init__(name, True)
        self.messages: list[tuple[bytes, bytes, int]] = []
        self.runs: list[tuple[bytes, int]] = []

    def forward(self, message: Message, groups: tuple[tuple[bytes, bytes], ...], now: float) -> None:
        self.messages.append((message.payload, text_of(message.origin), message.head_version))

    def forward_run(self, data: bytes, count: int, version: int, qos: int, now: float) -> None:
        self.runs.append((data, count))


class Nodes(Forwarder):
    """One node with link sessions, one without."""

    def __init__(self, is_numbered: bool) -> None:
        self.linked = Outbox("linked")
        self.plain = Outbox("plain")
        self.is_numbered = is_numbered

    def route(self, topic: bytes) -> RemoteRoute | None:
        note = b"0n" if self.is_numbered else b"0"
        return RemoteRoute([self.plain, self.linked], [], ((self.linked, note),))

    def peers(self) -> list[Peer]:
        return [self.plain, self.linked]


def join(world: Any, is_numbered: bool = False) -> Nodes:
    nodes = Nodes(is_numbered)
    bridging_of(world.broker)
    world.broker.forwarder = nodes
    return nodes


def linked(world: Any) -> Any:
    client = world.open()
    client.connection.bridge_end = remote_end(world.broker, b"paris", 1)
    client.connect("link")
    return client


def test_a_path_of_two_domains_is_relayed() -> None:
    assert not is_relayed(())
    assert not is_relayed((encode_interest((b"a",), 3),))
    assert not is_relayed((b"1 x=a,b path=a",))
    assert is_relayed((encode_interest((b"a",), 3), encode_interest((b"a", b"b"), 3)))


def test_messages_that_a_domain_does_not_get_are_counted_by_reason(world: Any) -> None:
    client = world.open()
    client.connection.bridge_end = remote_end(world.broker, b"rome", 2)
    client.connect("link")
    client.subscribe(b"#")
    for path in ((b"oslo",), (b"rome",), (b"oslo", b"paris")):
        world.broker.publish(Message(b"t", b"x", 0, False, origin=Origin(path)), world.now)
    bridging = bridging_of(world.broker)
    assert (bridging.home.path_skipped, bridging.home.hops_skipped) == (1, 1)


@pytest.mark.parametrize(
    ("properties", "link", "left"),
    [
        (b"", b"", b""),
        (OTHERS, b"", OTHERS),
        (HEADER, b"1 path=paris", b""),
        (OTHERS + HEADER, b"1 path=paris", OTHERS),
    ],
)
def test_the_header_of_another_node_is_taken_out_of_the_properties(properties: bytes, link: bytes, left: bytes) -> None:
    publish = Publish(b"t", b"x", properties=properties)
    message = carried_message(publish, 0.0)
    assert (text_of(message.origin), message.properties) == (link, left)


@pytest.mark.parametrize("value", [b"", b"nonsense", b"1 path=a,a", b"1 node=n path=a"])
def test_a_header_that_an_older_node_lets_through_is_ignored(value: bytes) -> None:
    publish = Publish(b"t", b"x", properties=OTHERS + property_of(value))
    message = carried_message(publish, 0.0)
    assert (text_of(message.origin), message.properties) == (b"", OTHERS)


def test_origins_of_the_api_are_counted(world: Any) -> None:
    message = Message(b"t", b"", 0, False, OTHERS + HEADER)
    world.broker.publish(message, 0.0)
    assert (message.properties, world.broker.counters.origins_stripped) == (OTHERS, 1)


@pytest.mark.parametrize("qos", [0, 1])
def test_nodes_with_link_sessions_get_headers_and_others_do_not(world: Any, qos: int) -> None:
    nodes = join(world)
    linked(world).publish(b"t", qos=qos)
    assert nodes.linked.messages == [(b"x", b"1 path=paris", 5 if qos else 0)]
    if qos:
        assert nodes.plain.messages == [(b"x", b"", 5)]
    else:
        assert nodes.plain.runs == [(encode_publish(5, b"t", b"x", 0, False, False, 0, b""), 1)]


def test_all_nodes_get_the_headers_of_retained_messages(world: Any) -> None:
    nodes = join(world)
    linked(world).publish(b"t", qos=1, retain=True)
    assert nodes.plain.messages == nodes.linked.messages == [(b"x", b"1 time=1000000 path=paris", 0)]


@pytest.mark.parametrize("names_groups", [True, False])
def test_all_nodes_of_our_kind_learn_the_number_of_a_message_of_which_copies_may_come(
    world: Any, names_groups: bool
) -> None:
    nodes = join(world)
    nodes.plain.names_groups = names_groups
    header = b"1 node=n~1 seq=4 path=oslo,paris"
    client = linked(world)
    client.publish(b"t", qos=1, properties=property_of(header))
    assert nodes.linked.messages == [(b"x", header, 0)]
    assert nodes.plain.messages == [(b"x", header if names_groups else b"", 0)]
    client.publish(b"t", qos=1, properties=property_of(b"1 path=oslo,paris"))
    assert nodes.plain.messages[1:] == [(b"x", b"", 0)]


def test_a_shorter_copy_goes_to_nodes_with_link_sessions_only(world: Any) -> None:
    nodes = join(world)
    client = linked(world)
    for path in (b"oslo,rome,paris", b"oslo,paris"):
        client.publish(b"t", qos=1, properties=property_of(b"1 node=n~1 seq=4 path=" + path))
    assert [link.rpartition(b"=")[2] for _, link, _ in nodes.plain.messages] == [b"oslo,rome,paris"]
    assert [link.rpartition(b"=")[2] for _, link, _ in nodes.linked.messages] == [b"oslo,rome,paris", b"oslo,paris"]


def test_runs_without_headers_stay_runs_for_nodes_with_link_sessions(world: Any) -> None:
    nodes = join(world)
    world.connect("c").send_bytes(3 * encode_publish(5, b"t", b"x", 0, False, False, 0, b""))
    assert [count for _, count in nodes.linked.runs] == [3]
    assert nodes.linked.messages == []


@pytest.mark.parametrize("qos", [0, 1])
def test_messages_get_numbers_for_links_of_other_nodes(world: Any, qos: int) -> None:
    nodes = join(world, is_numbered=True)
    reader = world.connect("reader")
    reader.subscribe(b"#")
    client = world.connect("c")
    if qos:
        for _ in range(3):
            client.publish(b"t", qos=1)
    else:
        client.send_bytes(3 * encode_publish(5, b"t", b"x", 0, False, False, 0, b""))
        assert [count for _, count in nodes.plain.runs] == [3]
    found = [decode_origin(link) for _, link, _ in nodes.linked.messages]
    assert [header.sequence for header in found] == [1, 2, 3]
    assert {(header.path, len(header.node)) for header in found} == {((), 9)}
    assert all(link == b"" for _, link, _ in nodes.plain.messages)
    assert len(reader.take_publishes()) == 3


@pytest.mark.parametrize(
    ("link", "is_sent"), [(b"1 path=oslo", True), (b"1 path=paris", False), (b"1 path=a,b", False), (b"", True)]
)
def test_messages_of_other_nodes_go_to_links_by_their_headers(world: Any, link: bytes, is_sent: bool) -> None:
    client = world.open()
    client.connection.bridge_end = remote_end(world.broker, b"paris", 2)
    client.connect("link")
    client.subscribe(b"#")
    properties = property_of(link) if link else b""
    data = encode_publish(5, b"t", b"x", 1, False, False, 1, properties)
    world.broker.router.publish_block(data, 5, None, START, 0, len(data))
    world.flush()
    assert len(client.take_publishes()) == is_sent
