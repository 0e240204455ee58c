"""Links of other domains on several nodes of one domain: headers and numbers reach every node, clients see none."""

from __future__ import annotations

import re

import pytest

from broker.codec.packets import Connect, Packet, Publish, Subscribe, SubscribeFilter
from broker.codec.properties import (
    USER_PROPERTY,
    encode_publish_properties,
    get_user_properties,
    publish_properties_to_dict,
)
from broker.codec.writer import encode_publish
from broker.origin import NAME, decode_origin
from federation.links.bridging.bridging import bridging_of
from federation.links.bridging.headers import encode_connect, encode_interest
from federation_world import Client, World

NAME_TEXT = NAME.decode()


class LinkClient(Client):
    """A link of another domain."""

    def __init__(self, world: World, node: str, domain: str, max_hops: int = 1, relays: bool = False) -> None:
        self.header = encode_connect(domain.encode(), max_hops, relays).decode()
        super().__init__(world, node, f"link-{domain}")

    def send(self, packet: Packet) -> None:
        if isinstance(packet, Connect):
            packet.properties[USER_PROPERTY] = [(NAME_TEXT, self.header)]
        super().send(packet)

    def want(self, topic_filter: str, *path: str) -> None:
        want = encode_interest(tuple(domain.encode() for domain in path), 9).decode()
        request = SubscribeFilter(topic_filter.encode(), 1)
        self.send(Subscribe(self.packet_id(), [request], {USER_PROPERTY: [(NAME_TEXT, want)]}))

    def pass_on(self, topic: str, header: str, qos: int = 1, retain: bool = False) -> None:
        properties = encode_publish_properties(user_properties=[(NAME_TEXT, header)])
        packet_id = self.packet_id() if qos else 0
        self.send(Publish(topic.encode(), b"x", qos, retain, packet_id=packet_id, properties=properties))


def link(world: World, node: str, domain: str, max_hops: int = 1, relays: bool = False) -> LinkClient:
    client = LinkClient(world, node, domain, max_hops, relays)
    world.clients.append(client)
    return client


def headers(publish: Publish) -> list[str]:
    pairs = get_user_properties(publish_properties_to_dict(publish.properties))
    return [text for name, text in pairs if name == NAME_TEXT]


def named(count: int, go_only: tuple[str, ...] = ()) -> World:
    world = World(count, go_only=go_only)
    for node in world.nodes.values():
        bridging_of(node.broker).home.name = b"berlin"
    world.run(1)
    return world


def untimed(publish: Publish) -> list[str]:
    """The headers without the time that retained messages have."""
    return [re.sub(" time=[0-9]+", "", header) for header in headers(publish)]


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("retain", [False, True])
def test_paths_and_hops_hold_on_every_node(qos: int, retain: bool) -> None:
    world = named(2)
    incoming = link(world, "n1", "paris", 9)
    receivers = [link(world, "n2", domain, hops) for domain, hops in (("rome", 9), ("paris-2", 2), ("oslo", 9))]
    reader = world.client("n2", "reader")
    for receiver in receivers:
        receiver.subscribe("#")
    reader.subscribe("#")
    world.run(1)
    incoming.pass_on("a", "1 path=oslo,paris", qos, retain)
    incoming.publish("b", b"x", qos, retain)
    world.run(1)
    rome, second, oslo = ([(p.topic, untimed(p)) for p in receiver.received] for receiver in receivers)
    assert rome == [(b"a", ["1 path=oslo,paris,berlin"]), (b"b", ["1 path=paris,berlin"])]
    assert second == oslo == [(b"b", ["1 path=paris,berlin"])]
    assert [(publish.topic, publish.properties) for publish in reader.received] == [(b"a", b""), (b"b", b"")]


@pytest.mark.parametrize("how", ["wants", "relays"])
@pytest.mark.parametrize("qos", [0, 1])
def test_copies_that_leave_at_two_nodes_have_the_same_number(how: str, qos: int) -> None:
    world = named(3)
    links = [link(world, node, domain, 2, how == "relays") for node, domain in (("n1", "paris"), ("n2", "rome"))]
    for number, each in enumerate(links):
        if how == "relays" or number:
            each.subscribe("#")
        else:
            each.want("#", "oslo", "paris")
    reader = world.client("n2", "reader")
    reader.subscribe("#")
    world.run(1)
    publisher = world.client("n3", "publisher")
    data = encode_publish(5, b"t", b"x", qos, False, False, 1 if qos else 0, b"")
    publisher.connection.receive_data(data + data, world.now)
    world.run(1)
    found = [[headers(publish) for publish in each.received] for each in links]
    assert found[0] == found[1]
    assert len(found[0]) == 2
    numbers = [decode_origin(header.encode()) for [header] in found[0]]
    assert [header.path for header in numbers] == [(b"berlin",), (b"berlin",)]
    assert len({(header.node, header.sequence) for header in numbers}) == 2
    assert [publish.properties for publish in reader.received] == [b"", b""]


def test_runs_stay_runs_for_links_of_other_nodes_that_need_no_header() -> None:
    world = named(2)
    receiver = link(world, "n2", "paris")
    receiver.subscribe("#")
    world.run(1)
    world.client("n1", "publisher").connection.receive_data(
        5 * encode_publish(5, b"t", b"x", 0, False, False, 0, b""), world.now
    )
    world.run(1)
    assert [publish.properties for publish in receiver.received] == [b""] * 5


@pytest.mark.parametrize("go_only", [(), ("n1", "n2")], ids=["direct", "plain"])
def test_a_retained_message_does_not_come_to_its_domain_from_a_node_that_joins_later(go_only: tuple[str, ...]) -> None:
    world = named(1, go_only)
    incoming = link(world, "n1", "paris", 9)
    incoming.pass_on("kept", "1 path=oslo,paris", 1, retain=True)
    world.start("n2")
    world.introduce("n2")
    bridging_of(world.nodes["n2"].broker).home.name = b"berlin"
    world.run(5)
    receivers = [link(world, "n2", domain, 9) for domain in ("oslo", "paris-2")]
    for receiver in receivers:
        receiver.subscribe("#")
    world.run(1)
    assert [untimed(publish) for publish in receivers[0].received] == []
    assert [untimed(publish) for publish in receivers[1].received] == [["1 path=oslo,paris,berlin"]]


def test_a_forged_header_of_a_client_reaches_no_node() -> None:
    world = named(2)
    receiver = link(world, "n2", "paris", 9, relays=True)
    receiver.subscribe("#")
    world.run(1)
    publisher = world.client("n1", "publisher")
    properties = encode_publish_properties(user_properties=[(NAME_TEXT, "1 path=paris"), ("a", "b")])
    publisher.send(Publish(b"t", b"x", 1, packet_id=7, properties=properties))
    world.run(1)
    [publish] = receiver.received
    assert decode_origin(headers(publish)[0].encode()).path == (b"berlin",)
