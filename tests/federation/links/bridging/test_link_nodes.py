"""Other nodes of the cluster as links: which connections are taken for one, and what one may do."""

from __future__ import annotations

from typing import Any

import pytest

from broker.authorization import Authorizer, ClientIdentity, Verdict
from broker.codec import properties as props
from broker.codec.packets import ConnAck, Disconnect, PubAck, Publish, Subscribe, SubscribeFilter
from broker.codec.reason_codes import NOT_AUTHORIZED
from broker.hooks import ConnectDecider, ConnectRequest
from broker.listener_facts import ListenerFacts
from broker.origin import decode_origin
from broker.routing.subscriber import NODE_PREFIX
from broker_world import Client, World
from federation.links.bridging.headers import JOBS_TAG, encode_connect, parse_welcome, queue_of, quoted
from link_clients import JOBS, NAME, JobsUpstream, headers, link_options, named_world

NODES = ListenerFacts("nodes", "tcp", is_node=True)


class Nobody(ConnectDecider):
    """Refuses everybody."""

    def decide(self, request: ConnectRequest, now: float) -> None:
        request.refuse(0x87, "nobody")


class Publishers(Authorizer):
    """Clients may publish, and nobody may read."""

    def may_publish(self, client: ClientIdentity, topic: bytes) -> Verdict:
        return Verdict.ALLOW

    def may_read(self, client: ClientIdentity, topic: bytes) -> Verdict:
        return Verdict.DENY

    def may_subscribe(self, client: ClientIdentity, share_name: bytes, topic_filter: bytes) -> Verdict:
        return Verdict.DENY


def node_connect(
    world: World, value: str | None, client_id: str = f"{NODE_PREFIX}a", listener: ListenerFacts = NODES
) -> tuple[Client, ConnAck]:
    client = world.open()
    client.connection.listener = listener
    properties: dict[int, Any] = {} if value is None else {props.USER_PROPERTY: [(NAME, value)]}
    connack = client.connect(client_id, properties=properties, expiry=60)
    assert connack is not None
    return client, connack


def node(world: World) -> Client:
    client, connack = node_connect(world, encode_connect(b"berlin", 1, False).decode())
    assert connack.reason_code == 0
    return client


def jobs(link: Client) -> list[Publish]:
    return [packet for packet in link.packets if isinstance(packet, Publish) and packet.qos]


@pytest.mark.parametrize(
    ("value", "reason_code", "part"),
    [
        (None, 0x87, "for the other nodes of the cluster"),
        ("1 domain=paris", 0x83, "a node of this cluster has the domain paris, this one berlin"),
        ("1", 0x83, "has the domain -, this one berlin"),
    ],
)
def test_only_nodes_of_the_domain_connect_where_nodes_do(value: str | None, reason_code: int, part: str) -> None:
    client, connack = node_connect(named_world(), value)
    assert connack.reason_code == reason_code
    assert part in str(connack.properties[props.REASON_STRING])
    assert client.closed


def test_sessions_of_nodes_are_for_nodes() -> None:
    world = named_world()
    connack = world.connect(f"{NODE_PREFIX}a").connack
    assert connack is not None
    assert connack.reason_code == 0x85
    _, connack = node_connect(world, encode_connect(b"berlin", 1, False).decode(), "someone")
    assert connack.reason_code == 0x85


def test_no_decider_is_asked_about_a_node() -> None:
    upstream = JobsUpstream()
    upstream.world.broker.add_connect_decider(Nobody())
    client = node(upstream.world)
    assert client.connack is not None
    welcome = parse_welcome(dict(props.get_user_properties(client.connack.properties))[NAME].encode())
    assert (welcome.domain, welcome.refused, welcome.has_queues) == (b"berlin", "", True)


def test_a_node_gets_jobs_that_no_authorizer_lets_it_read() -> None:
    upstream = JobsUpstream()
    upstream.world.broker.add_authorizer(Publishers())
    client = node(upstream.world)
    upstream.world.publish(b"jobs/a", b"1", qos=1)
    assert upstream.consume(client, 5) == [1]
    (job,) = jobs(client)
    header = headers(job)[0].encode()
    assert (job.payload, queue_of(decode_origin(header))) == (b"1", quoted(JOBS))
    assert header.endswith(b" path=berlin")


def test_a_node_comes_before_other_domains() -> None:
    upstream = JobsUpstream()
    other = upstream.world.connect("link-paris", **link_options("paris"))
    upstream.consume(other, 5)
    client = node(upstream.world)
    upstream.consume(client, 2)
    for number in range(3):
        upstream.world.publish(b"jobs/a", b"%d" % number, qos=1)
    upstream.turn()
    assert [job.payload for job in jobs(client)] == [b"0", b"1"]
    assert [job.payload for job in jobs(other)] == [b"2"]


def test_a_node_publishes_nothing() -> None:
    world = named_world()
    reader = world.connect("reader")
    reader.subscribe(b"#")
    client = node(world)
    client.publish(b"t", b"1", qos=1)
    assert [packet.reason_code for packet in client.packets if isinstance(packet, PubAck)] == [0x83]
    client.publish(b"t", b"2")
    assert reader.take_publishes() == []


def test_a_node_subscribes_to_nothing() -> None:
    client = node(named_world())
    client.send(Subscribe(1, [SubscribeFilter(b"t", 1)]))
    (packet,) = client.packets
    assert isinstance(packet, Disconnect)
    assert packet.reason_code == 0x82


@pytest.mark.parametrize(
    ("client_id", "code"),
    [
        (f"{JOBS_TAG}-n1", 0),
        (f"{JOBS_TAG}-n1.local", 0),
        (f"{JOBS_TAG}-n1/1", 0),
        (f"{JOBS_TAG}-n2/1", NOT_AUTHORIZED),
        (f"x{JOBS_TAG}-n1", NOT_AUTHORIZED),
        (f"{JOBS_TAG}-n2", NOT_AUTHORIZED),
        (f"{JOBS_TAG}-x-n1", NOT_AUTHORIZED),
        (f"{NODE_PREFIX}n1", NOT_AUTHORIZED),
        ("n1", NOT_AUTHORIZED),
    ],
)
def test_a_node_with_a_certificate_connects_under_its_own_name(client_id: str, code: int) -> None:
    listener = ListenerFacts("nodes", "tls", is_node=True, node_names=("n1", "n1.local"))
    _, connack = node_connect(named_world(), encode_connect(b"berlin", 1, False).decode(), client_id, listener)
    assert connack.reason_code == code
