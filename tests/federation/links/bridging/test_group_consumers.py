"""Jobs for other domains: who gets how many, what is offered, and what comes back."""

from __future__ import annotations

from typing import Any

import pytest

from broker.codec.packets import PubAck, Publish, SubscribeFilter
from broker.codec.properties import RECEIVE_MAXIMUM
from broker.message import Message
from broker.origin import decode_origin
from broker_world import Client
from federation.links.bridging.group_consumers import CONSUMERS_MAX, OFFER_TOPIC, REST_SECONDS, VISITS_MAX
from federation.links.bridging.headers import NO_QUEUE, encode_limit, offer_of, queue_of, quoted, visits_of
from link_clients import JOBS, NAME, JobsUpstream, headers, link_options

IMPLEMENTATION_SPECIFIC_ERROR = 0x83


class Upstream(JobsUpstream):
    def link(self, domain: str = "paris", clean_start: bool = True, **options: Any) -> Client:
        found = link_options(domain)
        found["properties"] |= options.pop("properties", {})
        return self.world.connect(
            f"link-{domain}", auto=False, expiry=1_000, clean_start=clean_start, **found, **options
        )

    def publish(self, *payloads: bytes, qos: int = 1) -> None:
        for payload in payloads:
            self.world.publish(b"jobs/a", payload, qos=qos)
        self.turn()

    def waiting(self) -> list[bytes]:
        return [outgoing.message.payload for outgoing in self.session.queued() if outgoing.message is not None]


@pytest.fixture
def upstream() -> Upstream:
    return Upstream()


def published(link: Client) -> list[Publish]:
    return [packet for packet in link.packets if isinstance(packet, Publish)]


def jobs(link: Client) -> list[Publish]:
    return [packet for packet in published(link) if packet.qos]


def offers(link: Client) -> list[int]:
    return [
        offer_of(decode_origin(headers(packet)[0].encode()))[0]
        for packet in published(link)
        if packet.topic == OFFER_TOPIC
    ]


def test_a_link_that_asks_for_nothing_is_told_whether_there_are_jobs(upstream: Upstream) -> None:
    link = upstream.link()
    upstream.consume(link, 0)
    for number in range(5):
        upstream.publish(b"%d" % number)
    assert offers(link) == [0, 1]
    upstream.consume(link, 1)
    assert [job.payload for job in jobs(link)] == [b"0"]
    assert offers(link) == [0, 1, 4], "the one that it knew of came"
    upstream.consume(link, 5)
    assert [job.payload for job in jobs(link)] == [b"0", b"1", b"2", b"3", b"4"]
    assert offers(link) == [0, 1, 4]


def test_jobs_are_offered_and_go_to_the_link_that_takes_them(upstream: Upstream) -> None:
    link = upstream.link()
    assert upstream.consume(link, 0) == [1]
    upstream.publish(b"1", b"2", b"3")
    assert (jobs(link), offers(link)) == ([], [0, 3])
    upstream.consume(link, 2)
    assert [job.payload for job in jobs(link)] == [b"1", b"2"]
    assert upstream.waiting() == [b"3"]
    assert offers(link)[-1] == 3, "the link counts the jobs that came"
    header = headers(jobs(link)[0])[0].encode()
    assert (queue_of(decode_origin(header)), visits_of(decode_origin(header))) == (quoted(JOBS), 1)
    assert header.endswith(b" path=berlin")
    assert upstream.consumers.sent == 2


def test_members_here_come_first(upstream: Upstream) -> None:
    link = upstream.link()
    upstream.consume(link, 5)
    worker = upstream.world.connect("w", auto=False, properties={RECEIVE_MAXIMUM: 1})
    worker.subscribe(JOBS)
    upstream.turn()
    upstream.publish(b"1", b"2")
    assert [job.payload for job in jobs(worker)] == [b"1"]
    assert [job.payload for job in jobs(link)] == [b"2"]
    upstream.consume(link, 1)
    upstream.publish(b"3")
    worker.send(PubAck(jobs(worker)[0].packet_id))
    upstream.turn()
    assert [job.payload for job in jobs(worker)] == [b"1", b"3"]
    assert len(jobs(link)) == 1


def test_a_lower_limit_ends_the_credit(upstream: Upstream) -> None:
    link = upstream.link()
    upstream.consume(link, 2)
    upstream.consume(link, 0)
    upstream.publish(b"1")
    assert jobs(link) == []
    assert upstream.waiting() == [b"1"]


def test_two_links_get_jobs_in_turn(upstream: Upstream) -> None:
    paris, oslo = upstream.link("paris"), upstream.link("oslo")
    upstream.consume(paris, 10)
    upstream.consume(oslo, 10)
    upstream.publish(*[b"%d" % number for number in range(4)])
    assert (len(jobs(paris)), len(jobs(oslo))) == (2, 2)
    assert upstream.consumers.count(JOBS) == 2


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_jobs_travel_with_qos_1(upstream: Upstream, qos: int) -> None:
    link = upstream.link()
    upstream.consume(link, 1)
    upstream.publish(b"1", qos=qos)
    assert [job.qos for job in jobs(link)] == [1]


def test_unacknowledged_jobs_come_again_to_the_session_and_stay_with_it(upstream: Upstream) -> None:
    link = upstream.link()
    upstream.consume(link, 5)
    upstream.publish(b"1", b"2")
    link.send(PubAck(jobs(link)[0].packet_id))
    link.cut()
    upstream.turn()
    assert upstream.waiting() == []
    upstream.publish(b"3")
    again = upstream.link(clean_start=False)
    assert [(job.payload, job.dup) for job in jobs(again)] == [(b"2", True)]
    assert headers(jobs(again)[0]) == headers(jobs(link)[1]), "the same number"
    upstream.consume(again, 1)
    assert [job.payload for job in jobs(again)] == [b"2", b"3"], "limits are of a connection"


def test_jobs_go_back_when_the_session_ends(upstream: Upstream) -> None:
    link = upstream.link(properties={RECEIVE_MAXIMUM: 400})
    upstream.consume(link, 400)
    upstream.publish(*[b"%d" % number for number in range(90)])
    link.cut()
    upstream.world.advance(1_001)
    upstream.turn()
    assert len(upstream.waiting()) == 90
    other = upstream.link("oslo")
    upstream.consume(other, 1)
    assert [visits_of(decode_origin(headers(job)[0].encode())) for job in jobs(other)] == [2]


def test_a_refused_job_goes_back_and_the_link_rests(upstream: Upstream) -> None:
    link = upstream.link()
    upstream.consume(link, 5)
    upstream.publish(b"1")
    link.send(PubAck(jobs(link)[0].packet_id, IMPLEMENTATION_SPECIFIC_ERROR))
    upstream.turn()
    assert upstream.waiting() == [b"1"]
    assert (upstream.consumers.requeued, len(jobs(link)), offers(link)[-1]) == (1, 1, 0)
    assert upstream.consumers.again_at == upstream.world.now + REST_SECONDS
    upstream.world.advance(REST_SECONDS)
    upstream.consume(link, 6)
    assert len(jobs(link)) == 2


def test_a_link_learns_that_there_is_no_queue_and_that_there_is_one(upstream: Upstream) -> None:
    link = upstream.link()
    upstream.queues.remove(b"workers", b"jobs/#", upstream.world.now)
    upstream.consume(link, 0)
    assert offers(link) == [NO_QUEUE]
    upstream.session = upstream.queues.declare(b"workers", b"jobs/#", 100, 10**6, 0.0, upstream.world.now)
    upstream.publish(b"1")
    assert offers(link)[-1] == 1


def test_a_link_that_consumes_no_more_gets_nothing(upstream: Upstream) -> None:
    link = upstream.link()
    upstream.consume(link, 5)
    assert link.unsubscribe(JOBS) == [0]
    upstream.publish(b"1")
    assert jobs(link) == []
    assert upstream.consumers.count(JOBS) == 0
    assert upstream.consumers.total == 0


def test_a_window_that_is_full_takes_nothing(upstream: Upstream) -> None:
    link = upstream.link(properties={RECEIVE_MAXIMUM: 2})
    upstream.consume(link, 5)
    upstream.publish(b"1", b"2", b"3")
    assert len(jobs(link)) == 2
    link.send(PubAck(jobs(link)[0].packet_id))
    upstream.turn()
    assert len(jobs(link)) == 3


def test_a_job_above_the_maximum_packet_size_stays(upstream: Upstream) -> None:
    link = upstream.link(properties={39: 5_000})  # Maximum Packet Size
    upstream.consume(link, 5)
    upstream.publish(b"x" * 4_000)
    assert jobs(link) == []
    assert len(upstream.waiting()) == 1
    upstream.publish(b"small", b"next")
    assert [job.payload for job in jobs(link)] == [b"small", b"next"]
    assert len(upstream.waiting()) == 1


def test_a_job_that_came_far_stays(upstream: Upstream) -> None:
    link = upstream.link()
    upstream.consume(link, 5)
    message = Message(b"jobs/a", b"far", 1, False, origin=decode_origin(b"1 queue=q visits=%d path=oslo" % VISITS_MAX))
    upstream.world.broker.publish(message, upstream.world.now)
    upstream.turn()
    assert jobs(link) == []
    assert upstream.waiting() == [b"far"]
    upstream.publish(b"near", qos=0)
    upstream.publish(b"next")
    assert [job.payload for job in jobs(link)] == [b"near", b"next"]
    assert upstream.waiting() == [b"far"]


@pytest.mark.thorough
def test_links_consume_of_a_limited_number_of_groups(upstream: Upstream) -> None:
    upstream.consume(upstream.link(), 1)
    session = upstream.world.broker.sessions["link-paris"]
    names = [b"$share/%d/jobs" % number for number in range(CONSUMERS_MAX)]
    codes = [upstream.consumers.consume(session, name, 1) for name in names]
    assert codes == [1] * (CONSUMERS_MAX - 1) + [0x97]
    assert upstream.consumers.consume(session, names[0], 2) == 1
    assert upstream.consumers.end(session, names[0])
    assert [upstream.consumers.consume(session, name, 1) for name in names[-2:]] == [1, 1]
    assert upstream.consumers.consume(session, names[0], 1) == 0x97
    session.connection = None
    upstream.consumers.dispatch(JOBS, upstream.world.now)
    assert upstream.consumers.consume(session, names[0], 1) == 1


@pytest.mark.parametrize("topic_filter", [b"jobs/#", b"$share/" + b"g" * 1_100 + b"/jobs"])
def test_only_groups_with_a_short_name_are_offered(upstream: Upstream, topic_filter: bytes) -> None:
    link = upstream.link()
    codes = link.subscribe(SubscribeFilter(topic_filter, 1), pairs=[(NAME, encode_limit(1).decode())])
    assert codes == [0x8F]


def test_ordinary_clients_are_no_consumers_of_jobs(upstream: Upstream) -> None:
    client = upstream.world.connect("c", auto=False)
    client.subscribe(JOBS, pairs=[(NAME, encode_limit(5).decode())])
    upstream.publish(b"1")
    assert [job.payload for job in jobs(client)] == [b"1"], "it is a member"
    assert upstream.consumers.total == 0


def test_a_limit_that_is_no_number_ends_the_connection(upstream: Upstream) -> None:
    link = upstream.link()
    with pytest.raises(AssertionError, match="no SUBACK"):
        link.subscribe(JOBS, pairs=[(NAME, "1 limit=many")])
    assert link.closed
