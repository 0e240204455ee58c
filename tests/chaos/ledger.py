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
    """

    def __init__(self) -> None:
        self.sent: dict[str, int] = {}
        self.acknowledged: dict[str, set[int]] = {}
        self.refused: dict[str, set[int]] = {}
        self.unsure: dict[str, dict[int, Unsure]] = {}
        self.unordered: dict[str, list[range]] = {}
        self.delivered: dict[str, int] = {}

    def add_topic(self, topic: str) -> None:
        self.sent[topic] = self.delivered[topic] = 0
        self.acknowledged[topic] = set()
        self.refused[topic] = set()
        self.unsure[topic] = {}
        self.unordered[topic] = []

    def publisher_moved(self, topic: str, sent: int) -> None:
        """While something goes wrong that has begun behind `delivered`, and is over behind `sent`."""
        self.unordered[topic].append(range(self.delivered[topic], sent))

    def is_ordered(self, topic: str, number: int) -> bool:
        return not any(number in numbers for numbers in self.unordered[topic])


class Receipts:
    """What came to one subscriber.

    qos       of its subscription
    unsure    why it may get something twice now; None otherwise
    is_moving  it changed nodes while something went wrong that is not over yet
    came      the numbers by topic
    repeated  of QoS 1
    doubles   of QoS 2, as (topic, number, unsure)
    """

    def __init__(self, client_id: str, qos: int) -> None:
        self.client_id = client_id
        self.qos = qos
        self.unsure: Unsure | None = None
        self.is_moving = False
        self.came: dict[str, set[int]] = {}
        self.repeated = 0
        self.doubles: list[tuple[str, int, Unsure | None]] = []
        self._firsts: dict[str, list[int]] = {}  # numbers, in the order in which they came first
        self._unsure: dict[str, set[int]] = {}  # of these, those that came while it was unsure
        self._moving: dict[str, set[int]] = {}  # and those that came while it was moving

    def note(self, topic: str, number: int) -> None:
        came = self.came.setdefault(topic, set())
        if number not in came:
            came.add(number)
            self._firsts.setdefault(topic, []).append(number)
            if self.unsure is not None:
                self._unsure.setdefault(topic, set()).add(number)
            elif self.is_moving:
                self._moving.setdefault(topic, set()).add(number)
        elif min(self.qos, qos_of(topic)) == 2:
            self.doubles.append((topic, number, self.unsure))
        else:
            self.repeated += 1

    def missing(self, ledger: Ledger) -> dict[str, set[int]]:
        """What was acknowledged and did not come."""
        found: dict[str, set[int]] = {}
        for topic, numbers in ledger.acknowledged.items():
            if lacking := numbers - self.came.get(topic, set()):
                found[topic] = lacking
        return found

    def late(self, ledger: Ledger) -> list[tuple[str, int, bool]]:
        """(topic, number, is_moving) of what came behind a greater number, where the order is promised."""
        found: list[tuple[str, int, bool]] = []
        for topic, firsts in self._firsts.items():
            newest = settled = -1
            unsure, moving = self._unsure.get(topic, set()), self._moving.get(topic, set())
            for number in firsts:
                if number in unsure or not ledger.is_ordered(topic, number):
                    continue
                if number < newest:
                    found.append((topic, number, number in moving or number > settled))
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
        twice: dict[str, set[int]] = {}
        for topic, number, unsure in receipts.doubles:
            reason = unsure or ledger.unsure[topic].get(number)
            if reason is not None:
                account.unsure[reason] += 1
            else:
                account.twice += 1
                twice.setdefault(topic, set()).add(number)
        for topic, numbers in twice.items():
            account.example(f"{receipts.client_id} got {len(numbers)} of {topic} twice: {spans(numbers)}")
        late: dict[str, set[int]] = {}
        for topic, number, is_moving in receipts.late(ledger):
            if is_moving:
                account.late_moving += 1
            else:
                late.setdefault(topic, set()).add(number)
        for topic, numbers in late.items():
            account.late += len(numbers)
            account.example(f"{receipts.client_id} got {len(numbers)} of {topic} too late: {spans(numbers)}")
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
