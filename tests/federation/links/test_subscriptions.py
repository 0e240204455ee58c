"""The subscriptions of a link against a session that answers, forgets, or loses answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.codec.packets import Packet, SubAck, Subscribe, UnsubAck, Unsubscribe
from broker.codec.properties import get_user_properties
from broker.errors import ProtocolViolation
from broker.origin import NAME
from federation.links.bridging.headers import ONLY_ASKED
from federation.links.subscriptions import BATCH_BYTES_MAX, BATCH_FILTERS_MAX, ON_WAY_MAX, Headers, Subscriptions


class Session:
    """The session at an upstream, which answers in order."""

    def __init__(self) -> None:
        self.filters: dict[bytes, list[tuple[str, str]]] = {}

    def answer(self, packet: Packet) -> SubAck | UnsubAck:
        if isinstance(packet, Subscribe):
            headers = get_user_properties(packet.properties)
            self.filters.update({entry.topic_filter: headers for entry in packet.filters})
            return SubAck(packet.packet_id, [entry.qos for entry in packet.filters])
        assert isinstance(packet, Unsubscribe)
        codes = [0 if name in self.filters else 0x11 for name in packet.topic_filters]
        for name in packet.topic_filters:
            self.filters.pop(name, None)
        return UnsubAck(packet.packet_id, codes)


def settle(subscriptions: Subscriptions, session: Session) -> None:
    while packets := subscriptions.take_packets(1):
        for packet in packets:
            subscriptions.answered(session.answer(packet))


names = st.sampled_from([b"a", b"b/#", b"c/+"])
paths = st.sampled_from([(), (("gmqttd-link", "1 hops=1 path=a"),), (("gmqttd-link", "1 hops=2 path=a"),)])
steps = st.one_of(
    st.tuples(st.just("want"), names, paths),
    st.tuples(st.just("drop"), names, paths),
    st.tuples(st.just("settle"), names, paths),
    st.tuples(st.just("send"), names, paths),  # and lose the answers
    st.tuples(st.just("lost"), names, paths),
    st.tuples(st.just("lost session"), names, paths),
)


@given(st.lists(steps))
def test_a_session_has_all_wanted_filters(run: list[tuple[str, bytes, Headers]]) -> None:
    subscriptions = Subscriptions()
    session = Session()
    subscriptions.begin(False)
    lost_answers = False
    for step, name, headers in run:
        if step == "want":
            subscriptions.change({name: headers}, [])
        elif step == "drop":
            subscriptions.change({}, [name])
        elif step == "settle" and not lost_answers:
            settle(subscriptions, session)
        elif step == "lost session":
            session = Session()
            lost_answers = False
            subscriptions.begin(False)
        elif step == "send":
            lost_answers = True
            for packet in subscriptions.take_packets(1):
                session.answer(packet)  # the session has the change, the link does not know
        else:
            lost_answers = False
            subscriptions.begin(True)
    subscriptions.begin(True)
    settle(subscriptions, session)
    assert subscriptions.is_settled()
    assert session.filters == {name: list(headers) for name, headers in subscriptions.wanted.items()}


def test_filters_travel_in_batches() -> None:
    subscriptions = Subscriptions()
    subscriptions.begin(False)
    count = BATCH_FILTERS_MAX * (ON_WAY_MAX + 2)
    subscriptions.change({b"%d" % number: () for number in range(count)}, [])
    packets = subscriptions.take_packets(1)
    assert [len(packet.filters) for packet in packets if isinstance(packet, Subscribe)] == [1000] * ON_WAY_MAX
    session = Session()
    subscriptions.answered(session.answer(packets.pop(0)))
    packets += subscriptions.take_packets(1)
    assert len(packets) == ON_WAY_MAX
    for packet in packets:
        subscriptions.answered(session.answer(packet))
    settle(subscriptions, session)
    assert (subscriptions.there(), len(session.filters)) == (count, count)
    long = Subscriptions()
    long.begin(False)
    long.change({bytes([65 + number]) * BATCH_BYTES_MAX: () for number in range(3)}, [])
    assert [len(packet.filters) for packet in long.take_packets(1) if isinstance(packet, Subscribe)] == [1, 1, 1]


def test_new_filters_are_there_before_old_ones_go() -> None:
    subscriptions = Subscriptions()
    subscriptions.begin(False)
    subscriptions.change({b"a/#": ()}, [])
    session = Session()
    settle(subscriptions, session)
    subscriptions.change({b"a/b": ()}, [b"a/#"])
    kinds = [type(packet) for packet in subscriptions.take_packets(1)]
    subscriptions.begin(True)  # on another connection
    assert [type(packet) for packet in subscriptions.take_packets(1)] == kinds == [Subscribe, Unsubscribe]


def test_new_filters_come_first_also_where_the_old_one_was_to_be_asked_for_again() -> None:
    subscriptions = Subscriptions()
    subscriptions.begin(False)
    subscriptions.change({b"a/#": ()}, [])
    session = Session()
    settle(subscriptions, session)
    for number in range(ON_WAY_MAX):
        subscriptions.change({b"%d" % number: (("n", str(number)),)}, [])
    on_way = subscriptions.take_packets(1)
    subscriptions.change({b"a/#": (("n", "v"),)}, [])
    subscriptions.change({b"a/b": ()}, [b"a/#"])
    for packet in on_way:
        subscriptions.answered(session.answer(packet))
    assert [type(packet) for packet in subscriptions.take_packets(1)] == [Subscribe, Unsubscribe]


def test_an_inherited_session_keeps_only_filters_that_are_wanted() -> None:
    subscriptions = Subscriptions()
    subscriptions.change({b"a": ()}, [])
    subscriptions.begin(False, is_inherited=True)
    (subscribe,) = subscriptions.take_packets(1)
    assert isinstance(subscribe, Subscribe)
    subscriptions.answered(SubAck(subscribe.packet_id, [1]))
    (unsubscribe,) = subscriptions.take_packets(1)
    assert isinstance(unsubscribe, Unsubscribe)
    assert get_user_properties(unsubscribe.properties) == [(NAME.decode(), ONLY_ASKED.decode())]
    subscriptions.answered(UnsubAck(unsubscribe.packet_id, [0x11]))
    assert (subscriptions.is_settled(), subscriptions.there(), subscriptions.take_packets(1)) == (True, 1, [])


def test_filters_have_the_options_of_a_link() -> None:
    subscriptions = Subscriptions()
    subscriptions.begin(False)
    subscriptions.change({b"a": (), b"$share/g/b": ()}, [])
    (packet,) = subscriptions.take_packets(1)
    assert isinstance(packet, Subscribe)
    plain, shared = packet.filters
    assert (plain.qos, plain.no_local, plain.retain_as_published, plain.retain_handling) == (1, True, True, 1)
    assert not shared.no_local


def test_a_refused_filter_is_known_and_asked_for_again() -> None:
    subscriptions = Subscriptions()
    subscriptions.begin(False)
    subscriptions.change({b"a": (), b"b": ()}, [])
    (packet,) = subscriptions.take_packets(1)
    assert isinstance(packet, Subscribe)
    subscriptions.answered(SubAck(packet.packet_id, [1, 0x87]))
    assert subscriptions.refused == {b"b": 0x87}
    subscriptions.begin(True)
    (packet,) = subscriptions.take_packets(1)
    assert isinstance(packet, Subscribe)
    assert [entry.topic_filter for entry in packet.filters] == [b"b"]


@pytest.mark.parametrize("answer", [SubAck(9, [0]), UnsubAck(1, [0]), SubAck(1, [0, 0])])
def test_an_answer_to_nothing_is_a_fault(answer: SubAck | UnsubAck) -> None:
    subscriptions = Subscriptions()
    subscriptions.begin(False)
    subscriptions.change({b"a": ()}, [])
    subscriptions.take_packets(1)
    with pytest.raises(ProtocolViolation):
        subscriptions.answered(answer)
