"""In-flight messages: packet identifiers, the window, acknowledgements, sending again."""

from __future__ import annotations

import random

import pytest

from broker.errors import ProtocolViolation
from broker.message import Message
from broker.session.inflight import OLD_LOOK_MAX, PACKET_ID_MAX, Inflight
from broker.session.outgoing import AWAIT_PUBACK, AWAIT_PUBCOMP, AWAIT_PUBREC, Outgoing


def sent(inflight: Inflight, qos: int = 1, now: float = 0.0) -> Outgoing:
    outgoing = Outgoing(Message(b"t", b"x", qos, False), qos, False, ())
    inflight.add(outgoing, inflight.free_packet_id(), now)
    return outgoing


def packet_ids(inflight: Inflight) -> list[int]:
    return [outgoing.packet_id for outgoing in inflight.messages()]


def sent_again(inflight: Inflight, window: int) -> list[int]:
    found = []
    while (outgoing := inflight.next_resend(window)) is not None:
        found.append(outgoing.packet_id)
    return found


def test_packet_identifiers_are_free_and_wrap_around() -> None:
    """1 to 65535, none that is in use [MQTT-2.2.1-4]."""
    inflight = Inflight()
    sent(inflight)
    inflight.next_packet_id = PACKET_ID_MAX
    for _ in range(3):
        sent(inflight)
    assert packet_ids(inflight) == [1, PACKET_ID_MAX, 2, 3]


@pytest.mark.parametrize(
    ("qos", "packets", "left"),
    [
        (1, "PUBACK=1 PUBACK=0 PUBREC=0 PUBCOMP=0", 0),
        (1, "PUBREC=fault failed=fault PUBCOMP=fault", AWAIT_PUBACK),
        (2, "PUBACK=fault PUBCOMP=fault", AWAIT_PUBREC),
        (2, "PUBREC=1 PUBACK=fault", AWAIT_PUBCOMP),
        (2, "PUBREC=1 PUBREC=1", AWAIT_PUBCOMP),  # sent again by a client that got no PUBREL
        (2, "PUBREC=1 PUBCOMP=1 PUBCOMP=0 PUBACK=0", 0),
        (2, "failed=1 PUBCOMP=0", 0),
        (2, "PUBREC=1 failed=1", 0),
    ],
)
def test_acknowledgements(qos: int, packets: str, left: int) -> None:
    """Each with its result; `left` is the state of the message, 0 when it is gone. One of the wrong kind changes nothing."""
    inflight = Inflight()
    outgoing = sent(inflight, qos)
    calls = {
        "PUBACK": inflight.acknowledge,
        "PUBREC": lambda packet_id: inflight.received(packet_id, False),
        "failed": lambda packet_id: inflight.received(packet_id, True),
        "PUBCOMP": inflight.completed,
    }
    for word in packets.split():
        name, result = word.split("=")
        if result == "fault":
            with pytest.raises(ProtocolViolation, match=f"packet identifier 1, a QoS {qos} message"):
                calls[name](outgoing.packet_id)
        else:
            assert calls[name](outgoing.packet_id) is bool(int(result)), word
        assert calls[name](77) is False
    assert len(inflight) == (left > 0)
    if left:
        assert outgoing.state == left
        assert (outgoing.message is None) is (left == AWAIT_PUBCOMP), "the payload is not kept after PUBREC"


def test_the_window() -> None:
    inflight = Inflight()
    sent(inflight)
    assert inflight.has_room(2)
    sent(inflight)
    assert not inflight.has_room(2)
    inflight.acknowledge(1)
    assert inflight.has_room(2)
    inflight.begin_resend()
    assert not inflight.has_room(2), "new messages wait behind those that are sent again"
    inflight.end_resend()
    assert inflight.has_room(2)


def test_sending_again_keeps_to_the_window() -> None:
    """Messages that are not sent again yet take no place in the window of a client that came back with a smaller one."""
    inflight = Inflight()
    for _ in range(6):
        sent(inflight)
    inflight.begin_resend()
    assert sent_again(inflight, 2) == [1, 2]
    assert inflight.is_resending()
    inflight.acknowledge(1)
    assert sent_again(inflight, 2) == [3]
    inflight.discard(3)  # it was too large
    assert sent_again(inflight, 2) == [4]
    inflight.acknowledge(2)
    inflight.acknowledge(4)
    assert sent_again(inflight, 2) == [5, 6]
    assert not inflight.is_resending()
    assert packet_ids(inflight) == [5, 6]


def test_acknowledgements_of_messages_that_were_not_sent_again() -> None:
    """The client knows them from its last connection. They add to the send quota, but never above the window [MQTT5 4.9]."""
    inflight = Inflight()
    for _ in range(9):
        sent(inflight)
    inflight.begin_resend()
    for packet_id in (7, 8, 9):
        inflight.acknowledge(packet_id)
    assert sent_again(inflight, 2) == [1, 2]
    inflight.acknowledge(5)
    assert sent_again(inflight, 2) == [3]


def test_restored_messages_are_sent_again_in_their_order() -> None:
    first = Inflight()
    for qos in (1, 2, 1, 2):
        sent(first, qos)
    first.received(2, False)
    first.acknowledge(1)
    second = Inflight()
    for outgoing in first.messages():
        second.restore(outgoing)
    second.begin_resend()
    assert sent_again(second, 10) == [2, 3, 4]
    assert sent(second).packet_id == 5


def test_a_message_is_given_up_by_its_age() -> None:
    inflight = Inflight()
    for now in (1.0, 2.0, 3.0):
        sent(inflight, now=now)
    assert not inflight.give_up_one(1.0)
    assert inflight.give_up_one(2.5)
    assert packet_ids(inflight) == [2, 3]
    assert inflight.give_up_one(2.5)
    assert not inflight.give_up_one(2.5)
    assert packet_ids(inflight) == [3]


@pytest.mark.parametrize(("qos", "answers"), [(1, "PUBACK"), (2, "PUBREC PUBCOMP"), (2, "failed")])
def test_a_message_that_was_given_up_keeps_its_identifier_and_its_place(qos: int, answers: str) -> None:
    """Until the client acknowledges it, as an unknown one [MQTT-3.3.4-9], or connects again."""
    inflight = Inflight()
    sent(inflight, qos)
    assert inflight.give_up_one(1.0)
    assert len(inflight) == 0
    inflight.next_packet_id = 1
    assert inflight.free_packet_id() == 2
    assert not inflight.has_room(1)
    for answer in answers.split():
        assert not inflight.has_room(1)
        if answer == "PUBACK":
            assert not inflight.acknowledge(1)
        elif answer == "PUBCOMP":
            assert not inflight.completed(1)
        else:
            assert not inflight.received(1, answer == "failed")
    assert inflight.has_room(1)
    assert inflight.free_packet_id() == 1


def test_a_new_connection_forgets_messages_that_were_given_up() -> None:
    inflight = Inflight()
    sent(inflight)
    inflight.give_up_one(1.0)
    inflight.begin_resend()
    assert sent_again(inflight, 10) == []
    assert inflight.has_room(1)


def test_messages_that_are_not_given_up() -> None:
    """After PUBREC, while messages are still to be sent again, and behind the oldest ones that are looked at."""
    inflight = Inflight()
    for _ in range(OLD_LOOK_MAX):
        inflight.received(sent(inflight, 2).packet_id, False)
    sent(inflight)
    assert not inflight.give_up_one(1.0)
    inflight.completed(1)
    inflight.begin_resend()
    assert not inflight.give_up_one(1.0)
    inflight.end_resend()
    assert inflight.give_up_one(1.0)


@pytest.mark.parametrize("seed", range(20))
def test_any_sequence_of_calls(seed: int) -> None:
    """No packet identifier is given twice, and the send quota is never below zero [MQTT5 4.9]."""
    rng = random.Random(seed)
    inflight = Inflight()
    inflight.next_packet_id = rng.choice([1, PACKET_ID_MAX - 3])
    open_ids: dict[int, int] = {}  # packet identifier -> QoS, in order
    sent_here: set[int] = set()  # on this connection
    given_up_ids: set[int] = set()
    window = quota = 4
    for _ in range(500):
        action = rng.randrange(6)
        if action == 5 and inflight.give_up_one(float("inf")):
            given_up = next(iter(open_ids))
            del open_ids[given_up]
            given_up_ids.add(given_up)
        elif action < 2 and inflight.has_room(window):
            outgoing = sent(inflight, rng.choice([1, 2]))
            assert outgoing.packet_id not in open_ids
            assert outgoing.packet_id not in given_up_ids
            open_ids[outgoing.packet_id] = outgoing.qos
            sent_here.add(outgoing.packet_id)
            quota -= 1
        elif action == 2 and open_ids:
            packet_id = rng.choice(list(open_ids))
            if open_ids.pop(packet_id) == 1:
                assert inflight.acknowledge(packet_id)
            else:
                assert inflight.received(packet_id, False)
                assert inflight.completed(packet_id)
            quota = min(window, quota + 1)
        elif action == 2 and given_up_ids:
            inflight.acknowledge(given_up_ids.pop())
            quota = min(window, quota + 1)
        elif action == 3:
            again = inflight.next_resend(window)
            if again is not None:
                assert again.packet_id in open_ids
                assert again.packet_id not in sent_here
                sent_here.add(again.packet_id)
                quota -= 1
        elif rng.random() < 0.1:
            inflight.end_resend()
            inflight.begin_resend()
            sent_here.clear()
            given_up_ids.clear()
            window = quota = rng.randrange(1, 6)
        assert packet_ids(inflight) == list(open_ids)
        assert quota >= 0
    inflight.end_resend()
    inflight.begin_resend()
    assert sent_again(inflight, PACKET_ID_MAX) == list(open_ids)
