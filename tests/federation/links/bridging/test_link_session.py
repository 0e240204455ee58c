"""Sessions of links of other domains: who may be one, and which messages and headers it gets."""

from __future__ import annotations

import pytest

from broker.codec import properties as props
from broker.codec.packets import Publish, Will
from broker.codec.properties import encode_publish_properties
from broker.codec.writer import encode_publish
from broker.message import Message
from broker.origin import decode_origin
from broker_world import START, Client
from federation.links.bridging.bridging import bridging_of
from federation.links.bridging.headers import encode_interest, parse_welcome
from link_clients import NAME, RoleDecider, headers, link_options, linked, named_world, with_header
from link_ends import own_end, remote_end

FORGED = encode_publish_properties(user_properties=[("a", "1"), (NAME, "1 path=rome"), ("b", "2")])
CLEAN = encode_publish_properties(user_properties=[("a", "1"), ("b", "2")])
HEADERS_OF_FORGERS = [
    "1 path=rome",
    "1 path=",
    "1 node=n~1 seq=1 path=berlin",
    "",
    "nonsense",
    "1 path=rome,rome",
    "9 path=rome",
    "1 path=" + "x" * 20_000,
]


# --- who is a link ---


def test_no_client_takes_over_the_local_session_of_a_link() -> None:
    world = named_world()
    client = world.open()
    connack = client.connect("link:paris:1c8e36f1", clean_start=False)
    assert connack is not None
    assert connack.reason_code == 0x85
    assert world.broker.sessions == {}


def test_connack_tells_a_link_the_domain_and_its_limits() -> None:
    world = named_world(link_max_queued_messages=7, link_max_inflight=5, link_max_queued_bytes=4096)
    client = linked(world)
    assert client.connack is not None
    pairs = props.get_user_properties(client.connack.properties)
    welcome = parse_welcome(dict(pairs)[NAME].encode())
    assert (welcome.domain, welcome.version, welcome.refused) == (b"berlin", 1, "")
    assert (welcome.queue_messages, welcome.queue_bytes) == (7, 4096)


def test_connack_of_an_ordinary_client_has_no_header() -> None:
    client = named_world().connect(properties={props.USER_PROPERTY: [("a", "b")]})
    assert client.connack is not None
    assert props.USER_PROPERTY not in client.connack.properties


@pytest.mark.parametrize(("username", "is_link"), [("link", True), ("someone", False), (None, False)])
def test_a_link_needs_the_role_of_its_account(username: str | None, is_link: bool) -> None:
    world = named_world(session_expiry=60, link_session_expiry=6000)
    world.broker.add_connect_decider(RoleDecider())
    client = linked(world, username=username, expiry=5000)
    assert client.connack is not None
    welcome = parse_welcome(dict(props.get_user_properties(client.connack.properties))[NAME].encode())
    assert welcome.refused == ("" if is_link else "role")
    assert (client.connection.bridge_end is not None) == is_link
    assert bridging_of(world.broker).refused == (0 if is_link else 1)
    assert world.broker.sessions["link-paris"].expiry_interval == (5000 if is_link else 60)
    assert client.connack.properties.get(props.SESSION_EXPIRY_INTERVAL) == (None if is_link else 60)
    client.subscribe(b"#")
    world.publish(b"t", properties=CLEAN)
    assert client.take_publishes()[0].properties == CLEAN


@pytest.mark.parametrize(
    ("value", "reason_code", "part"),
    [
        ("nonsense", 0x82, "does not begin with its version"),
        ("1 domain=a,b", 0x82, "domain name 'a,b'"),
        ("1 max-hops=0", 0x82, "may be 1 to 65535"),
        ("1 domain=berlin", 0x83, "give one of the two another `plugins.links.domain`"),
    ],
)
def test_faulty_claims_are_refused_with_a_reason(value: str, reason_code: int, part: str) -> None:
    world = named_world()
    client = world.open()
    connack = client.connect(properties={props.USER_PROPERTY: [(NAME, value)]})
    assert connack is not None
    assert connack.reason_code == reason_code
    assert part in str(connack.properties[props.REASON_STRING])
    assert client.closed


def test_a_second_claim_in_one_connect_is_refused() -> None:
    connack = named_world().open().connect(properties={props.USER_PROPERTY: [(NAME, "1"), (NAME, "1")]})
    assert connack is not None
    assert connack.reason_code == 0x82


# --- clients that are no links ---


@pytest.mark.parametrize("value", HEADERS_OF_FORGERS)
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("retain", [False, True])
def test_headers_of_ordinary_clients_are_stripped_and_counted(value: str, qos: int, retain: bool) -> None:
    world = named_world()
    reader = world.connect("reader")
    reader.subscribe(b"#")
    link = linked(world, max_hops=5)
    link.subscribe(b"#")
    forged = encode_publish_properties(user_properties=[("a", "1"), (NAME, value), ("b", "2"), (NAME, value)])
    world.publish(b"t", qos=qos, retain=retain, properties=forged)
    assert [publish.properties for publish in reader.take_publishes()] == [CLEAN]
    sent = link.take_publishes()
    assert [publish.payload for publish in sent] == [b"x"]
    if qos < 2 and not retain:
        assert sent[0].properties == CLEAN
    else:
        assert decode_origin(headers(sent[0])[0].encode()).path == (b"berlin",)
    assert world.broker.counters.origins_stripped == 2
    late = world.connect("late")
    late.subscribe(b"#")
    assert [publish.properties for publish in late.take_publishes()] == ([CLEAN] if retain else [])


def test_the_header_of_a_will_is_stripped() -> None:
    world = named_world()
    reader = world.connect("reader")
    reader.subscribe(b"#")
    world.connect("dying", will=Will(b"will", b"gone", properties=FORGED)).cut()
    assert [publish.properties for publish in reader.take_publishes()] == [CLEAN]
    assert world.broker.counters.origins_stripped == 1


def test_the_header_of_a_publish_of_the_server_is_stripped() -> None:
    world = named_world()
    reader = world.connect("reader")
    reader.subscribe(b"#")
    world.broker.publish(Message(b"t", b"x", 0, False, FORGED), START)
    world.flush()
    assert [publish.properties for publish in reader.take_publishes()] == [CLEAN]


def test_ordinary_clients_see_no_header_of_a_message_that_came_over_a_link() -> None:
    world = named_world()
    readers = [world.connect(f"reader{version}", version) for version in (4, 5)]
    for reader in readers:
        reader.subscribe(b"#")
    late = world.connect("late", 5, expiry=60)
    late.subscribe(b"#")
    late.cut()
    link = linked(world)
    link.publish(b"t", b"1", qos=1)
    link.publish(b"t", b"2", qos=1, properties=with_header("1 path=rome,paris"))
    link.publish(b"t", b"3", qos=0)
    link.publish(b"t", b"4", qos=2, retain=True, properties=CLEAN)
    for reader in readers:
        assert [publish.payload for publish in reader.packets if isinstance(publish, Publish)] == [
            b"1",
            b"2",
            b"3",
            b"4",
        ]
    assert [publish.properties for publish in readers[1].take_publishes()] == [b"", b"", b"", CLEAN]
    again = world.connect("late", 5, clean_start=False, expiry=60)
    assert [publish.properties for publish in again.take_publishes()] == [b"", b"", b"", CLEAN]


# --- which messages a domain gets ---


@pytest.mark.parametrize(
    ("header", "domain", "max_hops", "expected"),
    [
        (None, "rome", 1, None),  # a link does not pass on more than max-hops allow
        (None, "rome", 2, ["1 path=paris,berlin"]),
        ("1 path=oslo,paris", "rome", 2, None),
        ("1 path=oslo,paris", "rome", 3, ["1 path=oslo,paris,berlin"]),
        ("1 path=rome,paris", "rome", 9, None),
        ("1 path=rom,paris", "rome", 9, ["1 path=rom,paris,berlin"]),
        ("1 node=n~1 seq=3 path=oslo,paris", "rome", 9, ["1 node=n~1 seq=3 path=oslo,paris,berlin"]),
        ("1 new=field path=oslo,paris", "rome", 9, ["1 new=field path=oslo,paris,berlin"]),
    ],
)
@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("retain", [False, True])
def test_path_and_hops_decide_which_domains_get_a_message(
    header: str | None, domain: str, max_hops: int, expected: list[str] | None, qos: int, retain: bool
) -> None:
    world = named_world()
    publisher = linked(world, "paris", max_hops=9)
    receiver = linked(world, domain, max_hops)
    receiver.subscribe(b"#")
    properties = b"" if header is None else with_header(header)
    publisher.publish(b"t", qos=qos, retain=retain, properties=properties)
    if expected and retain:
        expected = [text.replace("1 ", "1 time=1000000 ", 1) for text in expected]  # that of its publication here
    sent = receiver.take_publishes()
    assert [headers(publish) for publish in sent] == ([] if expected is None else [expected])
    late = linked(world, domain, max_hops)
    late.subscribe(b"#")
    assert [headers(publish) for publish in late.take_publishes()] == ([expected] if sent and retain else [])
    bridging = bridging_of(world.broker)
    skipped = bridging.home.path_skipped + bridging.home.hops_skipped
    assert skipped == (1 if expected is None else 0)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_that_was_here_before_is_dropped_and_answered(qos: int) -> None:
    world = named_world()
    reader = world.connect("reader")
    reader.subscribe(b"#")
    link = linked(world)
    link.publish(b"t", qos=qos, properties=with_header("1 path=berlin,paris"))
    assert reader.take_publishes() == []
    if qos:
        assert [getattr(packet, "reason_code", None) for packet in link.take_packets()][:1] == [0x83]
    else:
        assert world.drops() == {"link_path": 1}
    assert not link.closed


@pytest.mark.parametrize("value", ["1 path=rome", "1 path=", "nonsense", "1 path=rome,rome,paris", "1 path=paris,rome"])
def test_forged_headers_of_a_link_are_dropped_and_counted(value: str) -> None:
    world = named_world()
    reader = world.connect("reader")
    reader.subscribe(b"#")
    link = linked(world)
    link.publish(b"t", b"bad", properties=with_header(value))
    link.publish(b"t", b"good", properties=with_header("1 path=rome,paris"))
    assert reader.take_payloads() == [b"good"]
    assert world.drops() == {"link_header": 1}


def test_the_will_of_a_link_does_not_go_back_to_its_domain() -> None:
    world = named_world()
    other = world.connect("other", **link_options("paris", 9))
    other.subscribe(b"#")
    further = linked(world, "rome", 9)
    further.subscribe(b"#")
    linked(world, will=Will(b"will", b"gone")).cut()
    assert other.take_publishes() == []
    assert [headers(publish) for publish in further.take_publishes()] == [["1 path=paris,berlin"]]


def test_a_link_whose_other_end_is_of_another_kind_gets_a_header_with_every_message() -> None:
    world = named_world()
    client = world.open()
    client.connection.bridge_end = own_end(world.broker, b"-", 1, is_explicit=True)
    client.connect("link-out")
    client.subscribe(b"#")
    publisher = world.connect("publisher")
    publisher.send_bytes(3 * encode_publish(5, b"t", b"x", 0, False, False, 0, b""))
    assert [headers(publish) for publish in client.take_publishes()] == [["1 path=berlin"]] * 3


def test_a_link_of_mqtt_3_1_1_gets_no_headers() -> None:
    world = named_world()
    client = world.open(4)
    client.connection.bridge_end = remote_end(world.broker, b"-", 9)
    client.connect("link-out")
    client.subscribe(b"#", qos=1)
    publisher = linked(world)
    for qos in (0, 1):
        publisher.publish(b"t", qos=qos)
    sent = client.take_publishes()
    assert [(publish.qos, publish.payload, publish.properties) for publish in sent] == [(0, b"x", b""), (1, b"x", b"")]


# --- numbers ---


def numbers(client: Client) -> list[int]:
    found = [decode_origin(header.encode()) for publish in client.take_publishes() for header in headers(publish)]
    return [header.sequence for header in found if header.node]


@pytest.mark.parametrize("qos", [0, 1])
def test_messages_get_numbers_where_a_link_relays_them(qos: int) -> None:
    world = named_world()
    plain = linked(world, "rome")
    plain.subscribe(b"#")
    relaying = linked(world, "paris", 2, relays=True)
    relaying.subscribe(b"a/#")
    publisher = world.connect("publisher")
    for topic in (b"a/b", b"c", b"a/c"):
        publisher.publish(topic, qos=qos)
    assert numbers(plain) == numbers(relaying) == [1, 2]


def test_messages_get_numbers_where_domains_behind_a_link_want_them() -> None:
    world = named_world()
    link = linked(world, "paris", 2)
    link.subscribe(b"a", pairs=[(NAME, encode_interest((b"paris",), 2).decode())])
    link.subscribe(b"b", pairs=[(NAME, encode_interest((b"oslo", b"paris"), 2).decode())])
    publisher = world.connect("publisher")
    for topic in (b"a", b"b"):
        publisher.publish(topic)
    assert numbers(link) == [1]
    link.subscribe(b"b")
    publisher.publish(b"b")
    assert numbers(link) == []


def test_two_copies_of_a_message_have_the_same_number_and_two_messages_do_not() -> None:
    world = named_world()
    links = [linked(world, domain, relays=True) for domain in ("paris", "rome")]
    for link in links:
        link.subscribe(b"#")
    publisher = world.connect("publisher")
    publisher.send_bytes(5 * encode_publish(5, b"t", b"x", 0, False, False, 0, b""))
    publisher.publish(b"t", qos=1)
    found = [[headers(publish) for publish in link.take_publishes()] for link in links]
    assert found[0] == found[1]
    assert len({header for each in found[0] for header in each}) == 6


def test_messages_of_qos_2_always_have_numbers() -> None:
    world = named_world()
    link = linked(world)
    link.subscribe(b"#", qos=1)
    publisher = world.connect("publisher")
    publisher.publish(b"t", qos=2)
    publisher.publish(b"t", qos=1)
    assert numbers(link) == [1]


def test_a_number_of_another_domain_stays() -> None:
    world = named_world()
    receiver = linked(world, "rome", 9, relays=True)
    receiver.subscribe(b"#")
    linked(world).publish(b"t", properties=with_header("1 node=n~1 seq=77 path=paris"))
    assert numbers(receiver) == [77]


# --- runs ---


def test_a_run_reaches_a_link_as_it_came() -> None:
    world = named_world()
    reader = world.connect("reader")
    reader.subscribe(b"#")
    link = linked(world)
    link.subscribe(b"#", no_local=True)
    publisher = world.connect("publisher")
    link.output = reader.output = b""
    data = 5 * encode_publish(5, b"t", b"x", 0, False, False, 0, b"")
    publisher.send_bytes(data)
    assert link.output == data
    assert reader.output == data


def test_a_run_of_a_link_does_not_come_back_to_it() -> None:
    world = named_world()
    link = linked(world, max_hops=9)
    link.subscribe(b"#", no_local=True)
    own = world.connect("own")
    own.subscribe(b"#", no_local=True)
    further = linked(world, "rome", 9)
    further.subscribe(b"#")
    data = 3 * encode_publish(5, b"t", b"x", 0, False, False, 0, b"")
    own.send_bytes(data)
    assert own.take_publishes() == []
    assert [headers(publish) for publish in link.take_publishes()] == [[]] * 3
    link.send_bytes(data)
    assert link.take_publishes() == []
    assert [headers(publish) for publish in further.take_publishes()] == [[]] * 3 + [["1 path=paris,berlin"]] * 3
    assert len(own.take_publishes()) == 3


def test_a_run_gets_identifiers_where_a_link_subscribes_with_one() -> None:
    world = named_world()
    link = linked(world)
    link.subscribe(b"#", identifier=9)
    world.connect("publisher").send_bytes(2 * encode_publish(5, b"t", b"x", 0, False, False, 0, b""))
    assert [publish.subscription_identifiers for publish in link.take_publishes()] == [(9,), (9,)]


def test_overlapping_filters_of_a_link_bring_one_copy() -> None:
    world = named_world(delivery_mode="overlap")
    link = linked(world)
    link.subscribe(b"#", b"t/#", b"t/+")
    world.publish(b"t/1")
    assert link.take_payloads() == [b"x"]
