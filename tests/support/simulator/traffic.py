"""Schedules with messages on their way all the time, and the oracle for them.

Each node publishes to topics of its own: m/NODE for ordinary subscribers on every node, g/NODE for a shared group whose
members are on several nodes, b/NODE for both (so that every node gets the message, and one of them for the group), r/NODE/...
retained. What a topic brought to one subscriber must be what was published, in
order; a group gets one copy; retained messages are the same everywhere in the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from federation.stream.counters import DropReason
from simulator.client import Client
from simulator.federation import RETURN_LIMIT, ROUGH, Federation
from simulator.world import Host

RETAINED_TOPICS: Final = 3  # of each node
LARGE_BYTES: Final = 100_000
DIRECT_BLOCKS: Final = ("closed", "silent", "http2")


class Station:
    """One life of a node: who publishes and who subscribes there."""

    def __init__(self, federation: Federation, host: Host) -> None:
        self.host = host
        self.node = federation.node(host)
        self.name = f"{self.node.name}.{host.life}"
        now = federation.world.now
        self.publisher = self.node.add_client("publisher", now)
        self.reader = self.node.add_client("reader", now)
        self.member = self.node.add_client("member", now)
        self.sent: dict[bytes, list[bytes]] = {}
        self.since: dict[
            bytes, int
        ] = {}  # how many messages of a topic there were before the reader's interest was known
        self.reads = False
        self.reader.subscribe("m/#", now)
        self.reader.subscribe("b/#", now)
        self.reader.subscribe("r/#", now)
        host.settle()

    @property
    def lives(self) -> bool:
        return self.host.process is self.node

    def retained(self, origin: str) -> dict[bytes, bytes]:
        prefix = f"r/{origin}/".encode()
        messages = self.node.broker.retained.messages()
        return {message.topic: message.payload for message in messages if message.topic.startswith(prefix)}


class Traffic:
    """The first three nodes have members of the group; all publish and read."""

    def __init__(
        self, seed: int, count: int, direct_block: str = "", seeds: list[int] | None = None, **options: Any
    ) -> None:
        federation = Federation(seed, count, seeds, ROUGH, direct_block, **options)
        self.federation = federation
        self.world = federation.world
        self.rng = federation.rng
        self.stations: list[Station] = []
        self.kinds = "mmmgbr"
        self.groups_may_repeat = False
        """QoS 1 for a group: a node that is taken for failed, and lives, may deliver what is given to another member."""
        self.acknowledged: set[tuple[bytes, bytes]] = set()  # topics and payloads of QoS 1
        for host in federation.hosts:
            self.add(host)
        for station in self.stations[:3]:
            station.member.subscribe("$share/s/g/#", self.world.now)
            station.member.subscribe("$share/t/b/#", self.world.now)
            station.host.settle()
        self.begin()

    def add(self, host: Host) -> None:
        self.stations.append(Station(self.federation, host))

    def begin(self) -> None:
        """Interest of new stations is known everywhere from here on."""
        self.federation.until_agreement(RETURN_LIMIT, "the subscriptions")
        for station in self.living:
            if not station.reads:
                station.reads = True
                station.since = {topic: len(sent) for other in self.stations for topic, sent in other.sent.items()}

    @property
    def living(self) -> list[Station]:
        return [station for station in self.stations if station.lives]

    def publish(self, count: int) -> None:
        """By any node that runs, to any of its topics."""
        stations = [station for station in self.living if not station.host.is_still]
        for _ in range(count if stations else 0):
            station = self.rng.choice(stations)
            self.publish_by(station, self.rng.choice(self.kinds))

    def publish_by(self, station: Station, kind: str) -> None:
        topic = f"{kind}/{station.name}"
        if kind == "r":
            topic += f"/{self.rng.randrange(RETAINED_TOPICS)}"
        sent = station.sent.setdefault(topic.encode(), [])
        payload = b"%d" % len(sent)
        if kind == "r" and self.rng.random() < 0.2:
            payload = b""
        elif self.rng.random() < 0.01:
            payload += b"-" * LARGE_BYTES
        sent.append(payload)
        qos = self.rng.choice((0, 1, 1))
        if qos:
            self.acknowledged.add((topic.encode(), payload))
        station.publisher.publish(topic, payload, self.world.now, qos, kind == "r")
        station.host.settle()

    def run(self, seconds: float, rate: float) -> None:
        """Time passes while `rate` messages a second are published, some of them in bursts."""
        end = self.world.now + seconds
        while self.world.now < end:
            self.federation.run(min(self.rng.random() * 0.4, end - self.world.now))
            if self.rng.random() < 0.5:
                self.publish(int(rate * 0.4) + 1)

    # --- the oracle

    def check(self, lost: Callable[[], int] | None = None, complete: bool = True) -> None:
        """Between nodes that live nothing is lost (`lost` tells how many messages were dropped and counted; where it is not
        `complete` nobody counts), doubled or out of order. Called when everything works again."""
        self.federation.until_agreement(RETURN_LIMIT, "the faults")
        self.federation.until_nothing_differs(
            lambda: self.difference(0 if lost is None else lost(), complete), RETURN_LIMIT, 2.0
        )

    def difference(self, lost: int, complete: bool) -> str:
        living = self.living
        missing = 0
        for station in living:
            for origin in self.stations:
                for topic, sent in origin.sent.items():
                    if topic.startswith(b"g"):
                        continue
                    got = [payload for name, payload in station.reader.received if name == topic]
                    found = _out_of_order(got, sent)
                    # One that came later gets the retained message first, then what the others' outboxes still have.
                    if found and not (station.since and topic.startswith(b"r")):
                        return f"{station.name} got of {topic!r} {found}"
                    if origin.lives:
                        missing += _missing(got, sent, station.since.get(topic, 0))
            found = self._retained_difference(station, living)
            if found:
                return found
        copies, found = self._group_copies()
        if found:
            return found
        for origin in living:
            for topic, sent in origin.sent.items():
                if topic.startswith((b"g", b"b")):
                    missing += sum(copies[(topic, payload)] == 0 for payload in sent)
        if complete and missing != lost:
            return f"{missing} messages are missing, {lost} were dropped and counted"
        return ""

    def _group_copies(self) -> tuple[Counter[tuple[bytes, bytes]], str]:
        copies: Counter[tuple[bytes, bytes]] = Counter()
        for station in self.stations:
            copies.update(station.member.received)
        for key, count in copies.items():
            if count > 1 and not (self.groups_may_repeat and key in self.acknowledged):
                return copies, f"the group got {count} copies of {key!r:.100}"
        return copies, ""

    def _retained_difference(self, station: Station, living: list[Station]) -> str:
        for origin in living:
            if station.retained(origin.name) != origin.retained(origin.name):
                held, wanted = station.retained(origin.name), origin.retained(origin.name)
                return f"{station.name} holds {held!r:.300} of {origin.name}, which holds {wanted!r:.300}"
        return ""


def _out_of_order(got: list[bytes], sent: list[bytes]) -> str:
    """ "" when `got` is a part of `sent` in its order. Deletions are all alike, so that a first fit is looked for."""
    at = 0
    for payload in got:
        while at < len(sent) and sent[at] != payload:
            at += 1
        if at == len(sent):
            return f"{payload[:20]!r} twice or out of order"
        at += 1
    return ""


def _missing(got: list[bytes], sent: list[bytes], since: int) -> int:
    """How many of sent[since:] did not come."""
    if since == 0:
        return len(sent) - len(got)
    wanted = Counter(sent[since:])
    wanted.subtract(got)
    return sum(count for count in wanted.values() if count > 0)


# --- schedules


def _pair(traffic: Traffic) -> tuple[Host, Host]:
    first, second = traffic.rng.sample([host for host in traffic.federation.hosts if host.process is not None], 2)
    return first, second


def streams_break(seed: int, direct_block: str = "") -> None:
    """Connections between living nodes break, with what is on them; one end or none may notice."""
    traffic = Traffic(seed, 4, direct_block)
    for _ in range(15):
        traffic.run(traffic.rng.random() * 4.0, 100.0)
        first, second = _pair(traffic)
        seen_by = traffic.rng.choice(([first, second], [first, second], [first], [second], []))
        traffic.world.break_streams(first, second, seen_by)
    traffic.run(1.0, 100.0)
    traffic.check()


def nodes_stand_still(seed: int, direct_block: str = "") -> None:
    """Up to a minute, so that others take them for failed; what happened before and meanwhile arrives once."""
    traffic = Traffic(seed, 4, direct_block)
    traffic.groups_may_repeat = True
    for _ in range(4):
        traffic.run(traffic.rng.random() * 4.0, 40.0)
        host, other = _pair(traffic)
        if not host.is_still:
            host.stand_still(traffic.rng.choice((0.1, 2.0, 10.0, 60.0)) * (0.5 + traffic.rng.random()))
        if traffic.rng.random() < 0.3:
            traffic.world.break_streams(host, other, [other])
    traffic.run(2.0, 40.0)
    traffic.federation.run(90.0)
    traffic.check()


def splits_with_traffic(seed: int, direct_block: str = "") -> None:
    traffic = Traffic(seed, 4, direct_block, [1, 2])
    traffic.groups_may_repeat = True
    for _ in range(3):
        traffic.world.partition(traffic.rng.sample(traffic.federation.hosts, 2))
        traffic.run(1.0 + traffic.rng.random() * 40.0, 15.0)
        traffic.world.heal()
        traffic.run(traffic.rng.random() * 20.0, 15.0)
    traffic.check()


def kills_with_traffic(seed: int, direct_block: str = "") -> None:
    """Among the others nothing is lost; of a killed node's messages nothing is doubled."""
    traffic = Traffic(seed, 5, direct_block)
    for _ in range(3):
        traffic.run(traffic.rng.random() * 5.0, 60.0)
        victim = traffic.rng.choice(traffic.federation.hosts[3:])
        if victim.process is not None:
            victim.crash()
            traffic.run(traffic.rng.choice((0.1, 2.0, 30.0)) * traffic.rng.random(), 60.0)
        victim.start()
        traffic.run(1.0, 60.0)
    for host in traffic.federation.hosts[3:]:
        if not any(station.host is host and station.lives for station in traffic.stations):
            traffic.add(host)
    traffic.begin()
    traffic.run(1.0, 60.0)
    traffic.check()


def slow_readers(seed: int, direct_block: str = "") -> None:
    """Readers pause for less than `publisher_hold_max` while bursts come: publishers wait, nothing is lost."""
    traffic = Traffic(seed, 3, direct_block)
    for _ in range(10):
        station = traffic.rng.choice(traffic.stations)
        client: Client = traffic.rng.choice((station.reader, station.member))
        traffic.federation.do(station.host, lambda _, now, client=client: client.set_taking(False, now))  # type: ignore[misc]
        origin = traffic.rng.choice(traffic.stations)
        for _ in range(traffic.rng.randrange(2500)):
            traffic.publish_by(origin, traffic.rng.choice("mg"))
        if traffic.rng.random() < 0.3:
            first, second = _pair(traffic)
            traffic.world.break_streams(first, second, [first, second])
        traffic.federation.run(traffic.rng.random() * 0.15)
        traffic.federation.do(station.host, lambda _, now, client=client: client.set_taking(True, now))  # type: ignore[misc]
        traffic.federation.run(1.0)
    traffic.check()


def outboxes_overflow(seed: int, direct_block: str = "") -> None:
    """What an outbox drops is counted, to the message; retained messages are the same everywhere afterwards all the same."""
    policy = ("drop_oldest", "drop_newest")[seed % 4 // 2]
    traffic = Traffic(seed, 3, direct_block, outbox_bytes_max=30_000, outbox_policy=policy)
    traffic.groups_may_repeat = True
    traffic.kinds = "mmmgr"  # one message of b that is dropped may be missing twice
    for _ in range(3):
        lone, _ = _pair(traffic)
        traffic.world.partition([lone])
        traffic.run(5.0 + traffic.rng.random() * 40.0, 40.0)
        traffic.world.heal()
        traffic.run(traffic.rng.random() * 40.0, 2.0)

    def is_empty() -> bool:
        return not any(
            sender.outbox.size for station in traffic.living for sender in station.node.node.senders.values()
        )

    # A value that replaces dropped ones may fill an outbox once more, which drops what else comes then.
    traffic.world.run_until(is_empty, RETURN_LIMIT, "the outboxes are empty")

    def dropped() -> int:
        total = 0
        for station in traffic.stations:
            for counters in station.node.node.counters.values():
                total += counters.dropped[DropReason.OUTBOX_FULL] + counters.dropped[DropReason.TOO_LARGE]
        return total

    traffic.check(dropped)


def nodes_are_given_up(seed: int, direct_block: str = "") -> None:
    """Nodes are apart for longer than `outbox_age_max`, on one side or on both: what was dropped is lost, retained messages
    are not."""
    traffic = Traffic(seed, 3, direct_block, outbox_age_max=10.0 + seed % 3 * 10.0)
    traffic.groups_may_repeat = True
    for _ in range(3):
        lone, other = _pair(traffic)
        if traffic.rng.random() < 0.7:
            traffic.world.partition([lone])
            traffic.run(5.0 + traffic.rng.random() * 60.0, 20.0)
            traffic.world.heal()
        else:
            lone.stand_still(5.0 + traffic.rng.random() * 40.0)
            traffic.world.break_streams(lone, other, [other])
            traffic.run(20.0, 20.0)
        traffic.run(traffic.rng.random() * 40.0, 2.0)
    traffic.check(None, complete=False)


def direct_streams_are_blocked_and_freed(seed: int) -> None:
    """In the middle of sessions, which go on over the other kind of stream: each group gets one copy all the same."""
    traffic = Traffic(seed, 4)
    for _ in range(8):
        traffic.run(traffic.rng.random() * 4.0, 100.0)
        traffic.world.direct_block = traffic.rng.choice(("", *DIRECT_BLOCKS))
        for _ in range(3):
            first, second = _pair(traffic)
            traffic.world.break_streams(first, second, traffic.rng.choice(([first, second], [first], [])))
        # So long that a probe may find the way free again.
        traffic.run(traffic.rng.choice((1.0, 40.0)) * traffic.rng.random(), 30.0)
    traffic.check()


def over_grpc(schedule: Callable[[int, str], None]) -> Callable[[int], None]:
    """The schedule where no direct stream gets through from the start."""

    def run(seed: int) -> None:
        schedule(seed, DIRECT_BLOCKS[seed % len(DIRECT_BLOCKS)])

    run.__name__ = f"{schedule.__name__}_over_grpc"
    return run


_BOTH_STREAMS: Final = (
    streams_break,
    nodes_stand_still,
    splits_with_traffic,
    kills_with_traffic,
    slow_readers,
    outboxes_overflow,
    nodes_are_given_up,
)
TRAFFIC_SCHEDULES: Final[tuple[Callable[[int], None], ...]] = (
    *_BOTH_STREAMS,
    *(over_grpc(schedule) for schedule in _BOTH_STREAMS),
    direct_streams_are_blocked_and_freed,
)
