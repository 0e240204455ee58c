"""Copies for shared groups between two nodes: what is kept, told, bounded, and read."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.broker import Broker
from broker.config.settings_mqtt import MqttSettings
from broker.message import Message
from broker.routing.group_copy import GroupCopy
from federation.node import Node
from federation.serf.events import Member, MemberFailed, MemberJoin, MemberLeave, MemberStatus, MemberUpdate
from federation.settings import FederationSettings
from federation.stream import group_peer
from federation.stream.frames import (
    HEADER_SIZE,
    FrameError,
    decode_copy_head,
    decode_copy_numbers,
    encode_copies_ended,
    encode_copy_head,
)
from federation.stream.sender import PeerSender
from federation.tags import own_tags
from work import executed_lines

NAMES = ("n2", "n3")


class Ending(GroupCopy):
    """A copy that counts its end."""

    def __init__(self) -> None:
        super().__init__(b"g", b"t")
        self.ends = 0

    def end(self) -> None:
        self.ends += 1


class Chooser:
    """A node without members of the group; n2 and n3 have some."""

    def __init__(self, process: str = "a") -> None:
        self.broker = Broker(MqttSettings(), random.Random(1), 0.0)
        self.node = Node("n1", self.broker, FederationSettings(node_name="n1"), random.Random(1))
        for name in NAMES:
            self.node.member_events([MemberJoin(member(name, process))], 0.0)
            self.sender(name).reachable = True
            self.node.tree.add_interest(name, b"g", b"t")

    def sender(self, name: str) -> PeerSender:
        return self.node.senders[name]

    def choose(self, name: str, count: int, qos: int = 1) -> None:
        for number in range(count):
            self.sender(name).forward_copy(Message(b"t", b"%d" % number, qos, False), GroupCopy(b"g", b"t"), 0.0)

    def acknowledge(self, name: str) -> None:
        """The node has taken everything."""
        outbox = self.sender(name).outbox
        outbox.close_block()
        while (block := outbox.take_waiting()) is not None:
            block.first_id = 0
            block.events = block.count
            outbox.sent(block)
        outbox.acknowledge(1 << 40)

    def kept(self) -> list[int]:
        return [len(self.sender(name).kept) if name in self.node.senders else 0 for name in NAMES]


def member(name: str, process: str) -> Member:
    tags = own_tags("127.0.0.1:8901", True)
    if process:
        tags["process"] = process
    return Member(name, "127.0.0.1", 8902, tags, MemberStatus.ALIVE)


def test_a_copy_is_kept_until_its_end_is_told() -> None:
    chooser = Chooser()
    chooser.choose("n2", 3)
    numbers = list(chooser.sender("n2").kept)
    chooser.acknowledge("n2")
    assert chooser.kept() == [3, 0], "the node has them, and its members may not"
    data = encode_copies_ended([numbers[0], numbers[2], 12345])[6:]
    chooser.sender("n2").receive_ended(data, 0, len(data))
    assert list(chooser.sender("n2").kept) == [numbers[1]]


@pytest.mark.parametrize("qos", [0, 2])
def test_others_than_qos_1_are_not_kept(qos: int) -> None:
    chooser = Chooser()
    chooser.choose("n2", 1, qos)
    assert chooser.kept() == [0, 0]


@pytest.mark.parametrize("taken", [True, False])
def test_another_process_has_no_copies_any_more(taken: bool) -> None:
    """What the former one had taken is chosen for again; what it had not taken waits in the outbox."""
    chooser = Chooser()
    chooser.choose("n2", 3)
    if taken:
        chooser.acknowledge("n2")
    chooser.node.member_events([MemberUpdate(member("n2", "b"))], 1.0)
    chooser.node.handle_timeout(1.0)
    assert sum(chooser.kept()) == 3
    assert chooser.sender("n2").counters.copies_chosen_again == (3 if taken else 0)
    assert (chooser.sender("n3").outbox.size > 0) is taken, "the nodes get them in turn"


def test_a_failed_node_keeps_what_nobody_else_takes() -> None:
    chooser = Chooser()
    chooser.node.tree.remove_interest("n3", b"g", b"t")
    chooser.choose("n2", 2)
    chooser.acknowledge("n2")
    chooser.node.member_events([MemberFailed(member("n2", "a"))], 1.0)
    chooser.node.handle_timeout(1.0)
    assert chooser.kept() == [2, 0]
    chooser.node.tree.add_interest("n3", b"g", b"t")
    chooser.node.handle_timeout(1.0 + 2.0)
    assert chooser.kept() == [0, 2]
    assert chooser.sender("n2").counters.copies_chosen_again == 2


def test_what_waits_for_a_node_that_leaves_goes_to_others_and_is_not_counted_as_dropped() -> None:
    chooser = Chooser()
    chooser.choose("n2", 2)
    counters = chooser.sender("n2").counters
    chooser.node.member_events([MemberLeave(member("n2", "a"))], 1.0)
    chooser.node.handle_timeout(1.0)
    assert chooser.kept() == [0, 2]
    assert sum(counters.dropped.values()) == 0
    chooser.broker.now = 2.0
    chooser.node.member_events([MemberLeave(member("n3", "a"))], 2.0)
    chooser.node.handle_timeout(2.0)
    counters_here = chooser.broker.counters
    assert counters_here.messages_dropped["group_gone"] == 0, "nodes may not have been heard since the start"
    chooser.node.handle_timeout(60.0)
    assert counters_here.messages_dropped["group_gone"] == 2, "nobody is left"


@pytest.mark.interpreted  # it shortens a constant
def test_the_copies_for_one_node_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_peer, "KEPT_MAX", 10)
    chooser = Chooser()
    sender = chooser.sender("n2")
    first = Ending()
    sender.forward_copy(Message(b"t", b"first", 1, False), first, 0.0)
    chooser.choose("n2", 12)
    assert len(sender.kept) == 10
    assert sender.counters.copies_forgotten == 3
    assert first.ends == 1
    assert sender.kept_bytes > 0


@pytest.mark.interpreted  # it shortens a constant
def test_the_oldest_copy_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also behind thousands that have ended, where a search in the order of the dict would look at each of their places; and a
    copy that nobody else has taken is as old as it is."""
    monkeypatch.setattr(group_peer, "KEPT_MAX", 3_000)
    chooser = Chooser()
    sender = chooser.sender("n2")
    chooser.choose("n2", 3_000)
    numbers = list(sender.kept)
    put_back = sender.kept[numbers[0]]
    ended = encode_copies_ended(numbers[:2_990])
    sender.receive_ended(ended, HEADER_SIZE, len(ended))
    sender.put_back(numbers[0], put_back)
    chooser.choose("n2", 2_989)
    assert sender.counters.copies_forgotten == 0
    chooser.choose("n2", 1)
    assert numbers[0] not in sender.kept
    assert executed_lines(lambda: chooser.choose("n2", 5)) < 30_000
    assert sender.counters.copies_forgotten == 6
    assert [number for number in numbers if number in sender.kept] == numbers[2_995:]


def test_so_many_ends_are_told_at_once() -> None:
    chooser = Chooser()
    sender = chooser.sender("n2")
    for number in range(group_peer.ENDED_ENOUGH):
        assert sender.ended_at > 1.0
        sender.note_ended(number, 5.0)
    sender.tell_ended(1.0)
    assert sender.ended == []
    sender.note_ended(0, 5.0)
    sender.tell_ended(1.0)
    assert sender.ended == [0]


def test_ends_are_told_together() -> None:
    chooser = Chooser()
    sender = chooser.sender("n2")
    sender.note_ended(7, 0.05)
    sender.note_ended(8, 0.06)
    sender.tell_ended(0.04)
    assert sender.outbox.size == 0
    sender.tell_ended(0.05)
    sender.outbox.close_block()
    block = sender.outbox.take_waiting()
    assert block is not None
    frame = b"".join(block.encode(0.0))
    assert decode_copy_numbers(frame, 6, len(frame)) == [7, 8]
    assert block.messages == 0


def test_a_node_without_a_process_gets_no_copies() -> None:
    """It would skip them."""
    chooser = Chooser("")
    assert not chooser.sender("n2").takes_copies
    chooser.broker.publish(Message(b"t", b"x", 1, False), 0.0)
    assert chooser.kept() == [0, 0]
    assert sum(chooser.sender(name).outbox.size > 0 for name in NAMES) == 1


@given(
    st.integers(0, 2**63 - 1),
    st.integers(0, 255),
    st.integers(0, 2**31 - 1),
    st.binary(max_size=40),
    st.binary(max_size=40),
    st.integers(0, 60),
)
def test_the_head_of_a_copy(number: int, hops: int, key: int, share: bytes, topic_filter: bytes, cut: int) -> None:
    data = encode_copy_head(number, hops, key, share, topic_filter)
    head, end = decode_copy_head(b"xx" + data + b"packet", 2, 2 + len(data) + 6)
    assert end == 2 + len(data)
    assert (head.number, head.hops, head.key, head.share_name, head.topic_filter) == (
        number,
        hops,
        key,
        share,
        topic_filter,
    )
    if cut < len(data):
        with pytest.raises(FrameError):
            decode_copy_head(data, 0, cut)


def test_numbers_that_are_cut_off() -> None:
    with pytest.raises(FrameError):
        decode_copy_numbers(bytes(9), 0, 9)
