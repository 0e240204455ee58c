"""What clients were promised and what they got, in one federation that is put to the test. Rules without I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

EXAMPLES_MAX: Final = 20


class Unsure(StrEnum):
    """Why a client may get, or publish, a QoS 2 message twice, and out of order.

    CROSSED  it was on both sides of a cut, or at a node that stood still and at another one
    BEGUN    it was let in at a node that could not reach its session's home, and did not know the session
    """

    CROSSED = "on both sides of a cut"
    BEGUN = "let in without their session"


def qos_of(topic: str) -> int:
    """The QoS of all messages of a topic."""
    return int(topic.rpartition("/")[2])


class Ledger:
    """By topic, each of which has one publisher and numbers in rising order:

    sent          how many numbers were published
    acknowledged  those whose PUBACK or PUBREC came
    refused       those that a node did not take; they may have come nevertheless
    unsure        those of QoS 2 that were in flight when the publisher came to a node that could not know of them, and why
    unordered     ranges in which the order is not promised: the publisher changed nodes meanwhile, and the former one was not
                  reached
    delivered     how many had been published when everything that was acknowledged was seen to be delivered, the last time
    places        where it was published: from which number on, and a text that names the node
    """

    def __init__(self) -> None:
        self.sent: dict[str, int] = {}
        self.acknowledged: dict[str, set[int]] = {}
        self.refused: dict[str, set[int]] = {}
        self.unsure: dict[str, dict[int, Unsure]] = {}
        self.unordered: dict[str, list[range]] = {}
        self.delivered: dict[str, int] = {}
        self.places: dict[str, list[tuple[int, str]]] = {}

    def add_topic(self, topic: str) -> None:
        self.sent[topic] = self.delivered[topic] = 0
        self.acknowledged[topic] = set()
        self.refused[topic] = set()
        self.unsure[topic] = {}
        self.unordered[topic] = []
        self.places[topic] = []

    def publisher_moved(self, topic: str, sent: int) -> None:
        """While something goes wrong that has begun behind `delivered`, and is over behind `sent`."""
        self.unordered[topic].append(range(self.delivered[topic], sent))

    def publisher_is(self, topic: str, place: str) -> None:
        """What is published from now on comes from this place."""
        self.places[topic].append((self.sent[topic], place))

    def place(self, topic: str, number: int) -> str:
        """Where the message was published, the first time."""
        return next((place for first, place in reversed(self.places[topic]) if first <= number), "")

    def is_ordered(self, topic: str, number: int) -> bool:
        return not any(number in numbers for numbers in self.unordered[topic])


@dataclass(frozen=True)
class Double:
    """A QoS 2 message that came again.

    unsure  why it may come again at that time; None where it may not
    places  where it came first, and where it came now
    """

    topic: str
    number: int
    unsure: Unsure | None
    places: tuple[str, str]


@dataclass(frozen=True)
class Late:
    """A message that came behind a greater number, where the order is promised.

    is_moving  the client had changed nodes while something went wrong
    places     where the greater number came, and where it came
    """

    topic: str
    number: int
    is_moving: bool
    places: tuple[str, str]


class Receipts:
    """What came to one subscriber.

    qos       of its subscription
    unsure    why it may get something twice now; None otherwise
    is_moving  it changed nodes while something went wrong that is not over yet
    came      by topic and number: which of the places it came to first
    repeated  of QoS 1
    """

    def __init__(self, client_id: str, qos: int) -> None:
        self.client_id = client_id
        self.qos = qos
        self.unsure: Unsure | None = None
        self.is_moving = False
        self.came: dict[str, dict[int, int]] = {}
        self.repeated = 0
        self.doubles: list[Double] = []
        self._places = [""]
        self._settled: dict[str, int] = {}  # by topic, how many had come when it was seen to be well the last time
        # What may wait for it on its node since then: why it was unsure before, and which numbers were published meanwhile.
        self._waiting: tuple[Unsure | None, dict[str, range]] = (None, {})
        self._unsure: dict[str, set[int]] = {}  # those that came first while it was unsure
        self._moving: dict[str, set[int]] = {}  # and those that came while it was moving

    def is_at(self, place: str) -> None:
        """What comes from now on comes there."""
        self._places.append(place)

    def is_well(self, settled: dict[str, int], sent: dict[str, int]) -> None:
        """It has one session, on one node, and got all of the first numbers of each topic in `settled`. sent: how many are
        published by now."""
        numbers = {topic: range(self._settled.get(topic, 0), count) for topic, count in sent.items()}
        self._waiting = self.unsure, numbers
        self._settled = dict(settled)
        self.unsure = None
        self.is_moving = False

    def incident_begins(self) -> None:
        """What waited for it on its node has come."""
        self._waiting = None, {}

    def note(self, topic: str, number: int) -> None:
        came = self.came.setdefault(topic, {})
        if number not in came:
            came[number] = len(self._places) - 1
            if self.unsure is not None:
                self._unsure.setdefault(topic, set()).add(number)
            elif self.is_moving:
                self._moving.setdefault(topic, set()).add(number)
        elif min(self.qos, qos_of(topic)) == 2:
            places = self._places[came[number]], self._places[-1]
            self.doubles.append(Double(topic, number, self._why_again(topic, number), places))
        else:
            self.repeated += 1

    def _why_again(self, topic: str, number: int) -> Unsure | None:
        """Why a QoS 2 message may come again now: the client is unsure, and was not seen to be well since it was published. Or
        the client was unsure, was well then, and no incident has begun since."""
        if self.unsure is not None and number >= self._settled.get(topic, 0):
            return self.unsure
        unsure, numbers = self._waiting
        return unsure if number in numbers.get(topic, ()) else None

    def missing(self, ledger: Ledger) -> dict[str, set[int]]:
        """What was acknowledged and did not come."""
        found: dict[str, set[int]] = {}
        for topic, numbers in ledger.acknowledged.items():
            if lacking := numbers - self.came.get(topic, {}).keys():
                found[topic] = lacking
        return found

    def late(self, ledger: Ledger) -> list[Late]:
        found: list[Late] = []
        for topic, came in self.came.items():
            newest = settled = -1
            unsure, moving = self._unsure.get(topic, set()), self._moving.get(topic, set())
            for number, at in came.items():
                if number in unsure or not ledger.is_ordered(topic, number):
                    continue
                if number < newest:
                    places = self._places[came[newest]], self._places[at]
                    found.append(Late(topic, number, number in moving or number > settled, places))
                newest = max(newest, number)
                if number not in moving:
                    settled = max(settled, number)
        return found


@dataclass
class Account:
    """expected   deliveries: each acknowledged message to each subscriber
    repeated   of QoS 1
    twice      of QoS 2, to and from clients that one node knew at a time
    unsure     of QoS 2, to or from other clients
    late       deliveries out of order, where order is promised
    late_moving  the same, to subscribers that changed nodes while another one did not answer
    """

    published: int = 0
    acknowledged: int = 0
    refused: int = 0
    expected: int = 0
    delivered: int = 0
    repeated: int = 0
    twice: int = 0
    unsure: Counter[Unsure] = field(default_factory=Counter)
    late: int = 0
    late_moving: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def lost(self) -> int:
        return self.expected - self.delivered

    def example(self, text: str) -> None:
        if len(self.examples) < EXAMPLES_MAX:
            self.examples.append(text)


def settle(ledger: Ledger, all_receipts: Iterable[Receipts]) -> Account:
    account = Account(
        published=sum(ledger.sent.values()),
        acknowledged=sum(map(len, ledger.acknowledged.values())),
        refused=sum(map(len, ledger.refused.values())),
    )
    for receipts in all_receipts:
        missing = receipts.missing(ledger)
        lost = sum(map(len, missing.values()))
        account.expected += account.acknowledged
        account.delivered += account.acknowledged - lost
        account.repeated += receipts.repeated
        for topic, numbers in missing.items():
            account.example(f"{receipts.client_id} lacks {len(numbers)} of {topic}: {spans(numbers)}")
        wrong: dict[tuple[str, str, str, tuple[str, str]], set[int]] = {}
        for double in receipts.doubles:
            reason = double.unsure or ledger.unsure[double.topic].get(double.number)
            if reason is not None:
                account.unsure[reason] += 1
            else:
                account.twice += 1
                from_ = ledger.place(double.topic, double.number)
                wrong.setdefault(("twice", double.topic, from_, double.places), set()).add(double.number)
        for late in receipts.late(ledger):
            if late.is_moving:
                account.late_moving += 1
            else:
                account.late += 1
                from_ = ledger.place(late.topic, late.number)
                wrong.setdefault(("too late", late.topic, from_, late.places), set()).add(late.number)
        for (what, topic, from_, (before, then)), numbers in wrong.items():
            order = "first" if what == "twice" else "a later one"
            account.example(
                f"{receipts.client_id} got {len(numbers)} of {topic} {what}: {spans(numbers)} "
                f"[published at {from_}; {order} at {before}; this at {then}]"
            )
    return account


def spans(numbers: Iterable[int]) -> str:
    """Numbers that follow each other as FIRST-LAST."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(f"{first}-{last}" for first, last in found[:5])
