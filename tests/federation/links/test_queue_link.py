"""One link for queues against scripted answers of an upstream: what it asks for, what it refuses, what it shows."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.authorization import DENY, Authorizer, ClientIdentity, Verdict
from broker.broker import Broker
from broker.codec import properties as props
from broker.codec.packets import (
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PingResp,
    PubAck,
    Publish,
    SubAck,
    Subscribe,
    SubscribeFilter,
    Unsubscribe,
)
from broker.codec.properties import encode_publish_properties
from broker.codec.reader import PacketReader
from broker.codec.writer import encode_packet
from broker.config.settings import MqttSettings
from broker.errors import ProtocolViolation
from broker.message import Message
from broker.session.connection import Connection
from federation.definitions.policy import parse_policy
from federation.definitions.resolution import QUEUE_EXPIRES_MAX, Resolution
from federation.definitions.upstream import parse_upstream
from federation.links.bridging.bridging import bridging_of
from federation.links.bridging.group_consumers import OFFER_TOPIC
from federation.links.bridging.headers import NO_QUEUE, LinkWelcome, encode_welcome, job, offer, parse_limit, quoted
from federation.links.links import Links
from federation.links.queue_link import NO_QUEUES, NO_ROLE, OTHER_KIND, Credit
from federation.links.queues import Demand
from federation.links.status import LinkState
from link_clients import NAME
from link_world import Shell, handle_timeout
from wording import check_named


def test_a_downstream_asks_for_its_credit_and_no_more_than_is_offered() -> None:
    demand = Demand()
    demand.credits = {"a": Credit(100), "b": Credit(2)}
    assert demand.plan(0, 10) == []
    demand.credits["a"].offer(4)
    demand.credits["b"].offer(50)
    assert sorted(demand.plan(0, 10)) == ["a", "b"]
    assert {name: credit.asked() for name, credit in demand.credits.items()} == {"a": 4, "b": 2}
    assert demand.plan(0, 10) == []
    demand.plan(0, 3)
    assert sum(credit.asked() for credit in demand.credits.values()) == 3


def test_a_queue_with_jobs_asks_for_none() -> None:
    demand = Demand()
    credit = demand.credits["a"] = Credit(10)
    credit.offer(5)
    demand.plan(0, 5)
    assert demand.plan(1, 5) == ["a"]
    assert credit.asked() == 0
    for _ in range(5):
        credit.receive(JOBS)  # they were on the way
    with pytest.raises(ProtocolViolation, match="sent 6 jobs, was asked for 5"):
        credit.receive(JOBS)
    credit.begin()
    with pytest.raises(ProtocolViolation):
        credit.receive(JOBS)


def test_an_upstream_that_was_asked_stays_asked() -> None:
    demand = Demand()
    demand.credits = {"a": Credit(10), "b": Credit(10)}
    for credit in demand.credits.values():
        credit.offer(5)
    (first,) = demand.plan(0, 1)
    assert [demand.plan(0, 1) for _ in range(4)] == [[]] * 4
    demand.credits[first].offer(0)  # its own consumers have taken the jobs
    assert len(demand.plan(0, 1)) == 2
    assert demand.credits[first].asked() == 0


def test_an_upstream_without_a_queue_is_asked_for_nothing() -> None:
    demand = Demand()
    credit = demand.credits["a"] = Credit(10)
    credit.offer(NO_QUEUE)
    assert credit.is_missing
    assert demand.plan(0, 5) == []
    credit.offer(1)
    assert not credit.is_missing


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 20)), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40)), max_size=10),
)
def test_limits_never_exceed_credit_and_offers(upstreams: list[tuple[int, int]], places: list[tuple[int, int]]) -> None:
    demand = Demand()
    for number, (offered, prefetch) in enumerate(upstreams):
        credit = demand.credits[str(number)] = Credit(prefetch)
        credit.offer(offered)
    for waiting, room in places:
        demand.plan(waiting, room)
        asked = [credit.asked() for credit in demand.credits.values()]
        possible = sum(min(credit.offered, credit.prefetch) for credit in demand.credits.values())
        assert sum(asked) == (0 if waiting else min(room, possible))


def test_jobs_that_an_offer_has_overtaken_are_no_part_of_it() -> None:
    credit = Credit(10)
    credit.offer(1)
    credit.ask(1)
    credit.offer(2, sent=1)  # it leaves at once, while the job waits for the store of the upstream
    credit.receive(JOBS)
    assert credit.offered == 2


JOBS = b"$share/workers/jobs/#"


class Upstream:
    """The scripted domain paris, and a broker of berlin with one link to it."""

    def __init__(self, upstream: dict[str, Any] | None = None, pattern: str = JOBS.decode()) -> None:
        self.now = 100.0
        self.sequence = 0
        self.broker = Broker(MqttSettings(), random.Random(1), self.now)
        bridging_of(self.broker).home.name = b"berlin"
        self.links = Links(b"berlin", self.broker, random.Random(1))
        self.links.interest.observe(self.broker)
        body = {"uri": "mqtt://paris.example.com", "reconnect-delay": 1, **(upstream or {})}
        policy = {"pattern": pattern, "definition": {"federation-upstream": "paris"}}
        self.links.resolve(Resolution([parse_upstream("paris", body)], [], [parse_policy("p", policy)]), self.now)
        (self.link,) = self.links.by_id.values()
        self.shell = Shell(self.link)

    def turn(self) -> None:
        while self.links.turn_ended(self.now) or self.broker.dirty:
            for connection in self.broker.take_dirty():
                connection.owner.carry_out(connection)  # type: ignore[attr-defined]

    def sent(self) -> list[Packet]:
        self.turn()
        data, self.shell.out = self.shell.out, b""
        return PacketReader(5).receive_data(data)

    def receive(self, *packets: Packet) -> None:
        data = b"".join(encode_packet(packet, 5) for packet in packets)
        self.link.receive_data(self.link.attempt, data, self.now)
        self.turn()

    def accept(self, welcome: LinkWelcome | None, present: bool = False) -> list[Packet]:
        self.link.connected(self.link.attempt, self.now)
        value = [] if welcome is None else [(NAME, encode_welcome(welcome).decode())]
        self.receive(ConnAck(present, 0, {props.USER_PROPERTY: value} if value else {}))
        return self.sent()

    def run(self, present: bool = False) -> list[Packet]:
        """Accept the link, answer what it asks. Returns what it has sent."""
        packets = self.accept(LinkWelcome(b"paris", 1, "", 10, 10, True), present)
        for packet in packets:
            if isinstance(packet, Subscribe):
                self.receive(SubAck(packet.packet_id, [1] * len(packet.filters)))
        self.receive(PingResp())
        return packets

    def limits(self) -> list[tuple[bytes, int]]:
        """What the link asks for now. The upstream answers."""
        found: list[tuple[bytes, int]] = []
        for packet in self.sent():
            if isinstance(packet, Subscribe):
                ((_, value),) = props.get_user_properties(packet.properties)
                found += [(each.topic_filter, parse_limit(value.encode())) for each in packet.filters]
                self.receive(SubAck(packet.packet_id, [1] * len(packet.filters)))
        return found

    def offer(self, count: int, queue: bytes = JOBS) -> None:
        link = offer(quoted(queue), count, self.sequence).passed(b"paris").encode()
        self.receive(Publish(OFFER_TOPIC, b"", properties=header(link)))

    def job(self, packet_id: int, payload: bytes, dup: bool = False, queue: bytes = JOBS, sequence: int = 0) -> None:
        self.sequence += 1
        link = job(quoted(queue), 1, b"n1~00000001", sequence or self.sequence).passed(b"paris").encode()
        self.receive(Publish(b"jobs/a", payload, 1, False, dup, packet_id, header(link)))

    def come(self, window: int) -> Client:
        """A consumer with so much room."""
        return Client(self, window)

    def state(self) -> LinkState:
        self.turn()
        return self.link.status(self.now).state


class Client:
    """A consumer in berlin that acknowledges when it is told to."""

    def __init__(self, upstream: Upstream, window: int, topic_filter: bytes = JOBS) -> None:
        self._upstream = upstream
        self._reader = PacketReader(5)
        self.jobs: list[Publish] = []
        self._connection = Connection(upstream.broker, self, "127.0.0.1:1", "127.0.0.1:2", upstream.now)
        self._send(Connect(f"client {topic_filter!r}", 5, properties={props.RECEIVE_MAXIMUM: window}))
        self._send(Subscribe(1, [SubscribeFilter(topic_filter, 1)]))

    def _send(self, packet: Packet) -> None:
        self._connection.receive_data(encode_packet(packet, 5), self._upstream.now)
        self._upstream.turn()

    def carry_out(self, connection: Any) -> None:
        packets = self._reader.receive_data(connection.take_output())
        self.jobs += [packet for packet in packets if isinstance(packet, Publish)]

    def finish(self) -> bytes:
        job = self.jobs.pop(0)
        self._send(PubAck(job.packet_id))
        return job.payload


def header(link: bytes) -> bytes:
    return encode_publish_properties(user_properties=[(NAME, link.decode())])


def acks(packets: list[Packet]) -> list[tuple[int, int]]:
    return [(packet.packet_id, packet.reason_code) for packet in packets if isinstance(packet, PubAck)]


def test_a_link_asks_for_the_credit_of_consumers() -> None:
    upstream = Upstream()
    packets = upstream.run()
    assert [packet.filters[0].topic_filter for packet in packets if isinstance(packet, Subscribe)] == [JOBS]
    assert upstream.state() is LinkState.PAUSED
    upstream.offer(10)
    assert upstream.limits() == []
    worker = upstream.come(2)
    assert upstream.limits() == [(JOBS, 2)]
    assert upstream.state() is LinkState.RUNNING
    upstream.job(1, b"1")
    upstream.job(2, b"2")
    assert acks(upstream.sent()) == [(1, 0), (2, 0)]
    assert [job.payload for job in worker.jobs] == [b"1", b"2"]
    assert upstream.state() is LinkState.PAUSED
    assert worker.finish() == b"1"
    assert upstream.limits() == [(JOBS, 3)]


def test_jobs_of_the_domain_come_first() -> None:
    upstream = Upstream()
    upstream.run()
    upstream.come(1)
    upstream.offer(5)
    assert upstream.limits() == [(JOBS, 1)]
    upstream.broker.publish(Message(b"jobs/a", b"own", 1, False), upstream.now)
    assert upstream.limits() == [(JOBS, 0)]
    upstream.job(1, b"on its way")
    assert acks(upstream.sent()) == [(1, 0)]
    (row,) = upstream.links.queues.rows(upstream.now)
    assert row.messages == 1


def test_a_job_goes_to_the_group_alone() -> None:
    upstream = Upstream()
    upstream.run()
    worker = upstream.come(1)
    reader = Client(upstream, 10, b"jobs/#")
    upstream.offer(1)
    assert upstream.limits() == [(JOBS, 1)]
    upstream.job(1, b"1")
    assert [job.payload for job in worker.jobs] == [b"1"]
    assert reader.jobs == []


def test_a_job_that_comes_again_is_dropped_and_acknowledged() -> None:
    upstream = Upstream()
    upstream.run()
    worker = upstream.come(5)
    upstream.offer(2)
    assert upstream.limits() == [(JOBS, 2)]
    upstream.job(1, b"1", sequence=7)
    upstream.link.connection_lost(upstream.link.attempt, "reset", upstream.now)
    upstream.now = upstream.link.next_timeout()
    handle_timeout(upstream.links, upstream.now)
    upstream.run(present=True)
    upstream.job(1, b"1", dup=True, sequence=7)
    assert acks(upstream.sent()) == [(1, 0)]
    assert [job.payload for job in worker.jobs] == [b"1"]
    assert upstream.link.status(upstream.now).dropped == {"link_duplicate": 1}


def test_a_packet_in_one_piece_with_connack_may_end_the_connection() -> None:
    upstream = Upstream()
    upstream.link.connected(upstream.link.attempt, upstream.now)
    value = encode_welcome(LinkWelcome(b"paris", 1, "", 10, 10, True)).decode()
    upstream.receive(ConnAck(False, 0, {props.USER_PROPERTY: [(NAME, value)]}), Publish(b"jobs/a", b"no job"))
    assert (upstream.state(), upstream.link.wants_connection) == (LinkState.ERROR, False)
    assert "neither a job nor an offer" in upstream.link.last_error


def test_a_job_that_was_refused_is_refused_again() -> None:
    """The answer may have been lost with the connection: the job is not here."""
    upstream = Upstream()
    upstream.run()
    worker = upstream.come(5)
    upstream.offer(1)
    assert upstream.limits() == [(JOBS, 1)]
    upstream.broker.add_authorizer(Closed())
    upstream.job(1, b"1", sequence=7)
    assert acks(upstream.sent()) == [(1, 0x87)]
    upstream.job(1, b"1", dup=True, sequence=7)
    assert acks(upstream.sent()) == [(1, 0x87)]
    assert worker.jobs == []


class Closed(Authorizer):
    """Nobody may publish."""

    def may_publish(self, client: ClientIdentity, topic: bytes) -> Verdict:
        return DENY


@pytest.mark.parametrize("present", [False, True])
def test_limits_begin_anew_with_each_connection(present: bool) -> None:
    upstream = Upstream()
    upstream.run()
    upstream.come(5)
    upstream.offer(3)
    assert upstream.limits() == [(JOBS, 3)]
    upstream.link.connection_lost(upstream.link.attempt, "reset", upstream.now)
    upstream.now = upstream.link.next_timeout()
    handle_timeout(upstream.links, upstream.now)
    packets = upstream.run(present)
    subscribe = next(packet for packet in packets if isinstance(packet, Subscribe))
    ((_, value),) = props.get_user_properties(subscribe.properties)
    assert parse_limit(value.encode()) == 0
    upstream.offer(1)
    assert upstream.limits() == [(JOBS, 1)]


def test_a_job_of_another_group_goes_back() -> None:
    upstream = Upstream()
    upstream.run()
    upstream.job(1, b"1", queue=b"$share/other/jobs")
    assert acks(upstream.sent()) == [(1, 0x83)]


def test_more_jobs_than_were_asked_for_end_the_connection() -> None:
    upstream = Upstream()
    upstream.run()
    upstream.job(1, b"1")
    assert any(isinstance(packet, Disconnect) for packet in upstream.sent())
    assert upstream.link.state is LinkState.ERROR
    check_named(upstream.link.last_error, ["$share/workers/jobs/#", "sent 1", "asked for 0"])


@pytest.mark.parametrize(
    "packet",
    [
        Publish(b"jobs/a", b"x", 1, packet_id=1),
        Publish(b"jobs/a", b"x"),
        Publish(b"jobs/a", b"x", 2, packet_id=1),
        Publish(b"jobs/a", b"x", properties=header(b"1 queue=q offer=x path=paris")),
        PubAck(1),
    ],
)
def test_other_messages_end_the_connection(packet: Packet) -> None:
    upstream = Upstream()
    upstream.run()
    upstream.receive(packet)
    assert upstream.link.state is LinkState.ERROR


@pytest.mark.parametrize(
    ("welcome", "state", "error"),
    [
        (None, LinkState.INVALID, OTHER_KIND),
        (LinkWelcome(b"-", 1, "role", -1, -1), LinkState.ERROR, NO_ROLE),
        (LinkWelcome(b"paris", 1, "", 10, 10), LinkState.ERROR, NO_QUEUES),
    ],
)
def test_upstreams_that_offer_nothing(welcome: LinkWelcome | None, state: LinkState, error: str) -> None:
    upstream = Upstream()
    upstream.accept(welcome)
    assert (upstream.link.state, upstream.link.last_error) == (state, error)
    upstream.link.restart(upstream.now)
    assert upstream.link.state is LinkState.STARTING


def test_an_upstream_without_mqtt_5_is_no_upstream_of_queues() -> None:
    upstream = Upstream()
    upstream.link.connected(upstream.link.attempt, upstream.now)
    upstream.receive(ConnAck(False, 0x84))
    assert (upstream.link.state, upstream.link.last_error) == (LinkState.INVALID, OTHER_KIND)


def test_a_connection_that_breaks_before_the_answer_is_tried_again_with_mqtt_5() -> None:
    upstream = Upstream()
    for _ in range(3):
        upstream.link.connected(upstream.link.attempt, upstream.now)
        (connect,) = upstream.sent()
        assert isinstance(connect, Connect)
        assert connect.protocol_version == 5
        upstream.link.connection_lost(upstream.link.attempt, "reset", upstream.now)
        upstream.now = upstream.link.next_timeout()
        handle_timeout(upstream.links, upstream.now)


def test_an_upstream_without_the_queue_is_named() -> None:
    upstream = Upstream()
    upstream.run()
    upstream.offer(NO_QUEUE)
    (note,) = upstream.link.status(upstream.now).notes
    check_named(note.text, ["$share/workers/jobs/#", "policy"])
    upstream.offer(0)
    assert upstream.link.status(upstream.now).notes == ()


def test_another_name_at_the_upstream() -> None:
    there = b"$share/crew/tasks/#"
    upstream = Upstream({"queue": there.decode()})
    packets = upstream.run()
    assert [packet.filters[0].topic_filter for packet in packets if isinstance(packet, Subscribe)] == [there]
    worker = upstream.come(1)
    upstream.offer(1, there)
    assert upstream.limits() == [(there, 1)]
    upstream.job(1, b"1", queue=there)
    assert [job.payload for job in worker.jobs] == [b"1"]


def test_a_group_with_another_name_at_the_upstream_gives_way_to_the_first_one() -> None:
    there = b"$share/crew/tasks/#"
    upstream = Upstream({"queue": there.decode()}, "$share/+/jobs/#")
    Client(upstream, 2, b"$share/workers/jobs/#")
    upstream.run()
    upstream.offer(5, there)
    assert upstream.limits() == [(there, 2)]
    upstream.job(1, b"1", queue=there)
    assert [limit for _, limit in upstream.limits()] == []
    first = Client(upstream, 3, b"$share/first/jobs/#")
    assert upstream.limits() == [(there, 4)], "with the job that has come for the other group"
    upstream.job(2, b"2", queue=there)
    assert [job.payload for job in first.jobs] == [b"2"]


def test_the_session_of_a_link_is_its_own() -> None:
    upstream = Upstream({"consumer-tag": "berlin", "expires": 3_600_000})
    assert upstream.link.client_id == "berlin-queues"
    upstream.link.connected(upstream.link.attempt, upstream.now)
    (connect,) = upstream.sent()
    assert isinstance(connect, Connect)
    assert connect.properties[props.SESSION_EXPIRY_INTERVAL] == QUEUE_EXPIRES_MAX


def test_a_link_without_groups_is_idle() -> None:
    upstream = Upstream(pattern="$share/+/jobs/#")
    assert upstream.state() is LinkState.IDLE
    upstream.come(1)
    assert upstream.state() is LinkState.STARTING
    upstream.links.resolve(Resolution([], [], []), upstream.now)
    assert upstream.links.by_id == {}


def test_a_link_that_pushes_has_no_queues() -> None:
    upstream = Upstream({"direction": "out"})
    assert upstream.state() is LinkState.INVALID
    assert "direction out" in upstream.link.last_error


def test_a_group_that_is_gone_is_unsubscribed() -> None:
    upstream = Upstream()
    upstream.run()
    assert upstream.link.status(upstream.now).subscriptions == 1
    upstream.links.queues.set_links({}, upstream.now)
    upstream.link.set_groups([], upstream.now)  # type: ignore[attr-defined]
    assert [packet for packet in upstream.sent() if isinstance(packet, Unsubscribe)] != []
