"""The outbox: blocks and their frames, bounds and what they drop, and what a new session keeps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.codec import writer
from broker.codec.writer import encode_publish
from broker.message import NEVER, Message
from federation.stream import block as block_module
from federation.stream.block import Block
from federation.stream.counters import DropReason
from federation.stream.frames import (
    BLOCK_HEAD_SIZE,
    HEADER_SIZE,
    PUBLISH,
    PUBLISH_BLOCK,
    count_events,
    decode_block_version,
    decode_groups,
    decode_packet,
)
from federation.stream.outbox import BLOCK_BYTES_MAX, BLOCK_MESSAGES_MAX, BLOCK_SECONDS_MAX, Outbox
from origins import origin, text_of
from senders import make_outbox

NOW = 100.0


def packet(payload: bytes = b"x", version: int = 4) -> bytes:
    return encode_publish(version, b"t", payload, 0, False, False, 0, b"")


def take(outbox: Outbox) -> list[Block]:
    outbox.close_block()
    blocks = []
    while (block := outbox.take_waiting()) is not None:
        blocks.append(block)
    return blocks


def payloads(block: Block, now: float = NOW) -> list[bytes]:
    """What the block's frames say."""
    return [message.payload for message in messages_of(block, now)]


def links(block: Block) -> list[bytes]:
    """The headers of links of the block's messages."""
    return [text_of(message.origin) for message in messages_of(block, NOW)]


def messages_of(block: Block, now: float) -> list[Message]:
    data = b"".join(block.encode(now))
    found: list[Message] = []
    pos = 0
    while pos < len(data):
        start = pos + HEADER_SIZE
        kind = data[pos]
        end = start + int.from_bytes(data[pos + 2 : start], "big")
        if kind == PUBLISH_BLOCK:
            version = decode_block_version(data, start)
            count = count_events(data, kind, 0, start, end)
            start += BLOCK_HEAD_SIZE
            for _ in range(count):
                message, start = decode_packet(data, start, end, version, now)
                found.append(message)
            assert start == end
        else:
            assert kind == PUBLISH
            _, start = decode_groups(data, start, end)
            found.append(decode_packet(data, start, end, 5, now)[0])
        pos = end
    return found


INPUTS = st.lists(st.tuples(st.sampled_from(("run4", "run5", "plain", "retained", "grouped", "expiring"))), max_size=30)


@given(INPUTS)
def test_messages_of_any_kind_leave_in_order_and_are_counted(kinds: list[tuple[str]]) -> None:
    outbox = make_outbox()
    for number, (kind,) in enumerate(kinds):
        payload = b"%d" % number
        if kind.startswith("run"):
            outbox.append_run(packet(payload, int(kind[3])), 1, int(kind[3]), NOW)
        else:
            expires_at = NOW + 50 if kind == "expiring" else NEVER
            message = Message(b"t", payload, 1, kind == "retained", b"", expires_at)
            outbox.append_message(message, ((b"g", b"t"),) if kind == "grouped" else (), NOW)
    blocks = take(outbox)
    assert [payload for block in blocks for payload in payloads(block)] == [b"%d" % n for n in range(len(kinds))]
    assert sum(block.count for block in blocks) == sum(block.messages for block in blocks) == len(kinds)
    assert outbox.size == 0


@pytest.mark.parametrize("kind", ["plain", "as it came", "retained", "expiring"])
def test_messages_leave_with_their_headers_of_links(kind: str) -> None:
    outbox = make_outbox()
    expires_at = NOW + 50 if kind == "expiring" else NEVER
    message = Message(b"t", b"x", 1, kind == "retained", b"", expires_at, "", origin(b"1 path=paris"))
    if kind == "as it came":
        message.head, message.tail, message.head_version = b"\x32\x06\0\1t", b"x", 4
    outbox.append_run(packet(b"before", 4), 1, 4, NOW)
    outbox.append_message(message, (), NOW)
    outbox.append_run(packet(b"behind", 4), 1, 4, NOW)
    assert [found for block in take(outbox) for found in links(block)] == [b"", b"1 path=paris", b""]


def test_a_block_is_closed_by_bytes_messages_and_time() -> None:
    outbox = make_outbox()
    full = [outbox.append_run(packet(b"x" * 1000), 1, 4, NOW) for _ in range(100)]
    assert full.count(True) == 100 * 1000 // BLOCK_BYTES_MAX
    assert max(block.size for block in take(outbox)) < BLOCK_BYTES_MAX + 2000
    assert outbox.append_run(packet() * BLOCK_MESSAGES_MAX, BLOCK_MESSAGES_MAX, 4, NOW)
    assert len(take(outbox)) == 1
    outbox.append_run(packet(), 1, 4, NOW)
    outbox.append_run(packet(), 1, 4, NOW + BLOCK_SECONDS_MAX + 0.1)
    assert len(take(outbox)) == 2


def test_the_expiry_is_the_rest_of_the_time_when_the_block_leaves() -> None:
    outbox = make_outbox()
    outbox.append_message(Message(b"t", b"x", 1, False, b"", NOW + 60), (), NOW)
    (block,) = take(outbox)
    for waited in (0.0, 20.0, 59.0, 61.0):
        data = b"".join(block.encode(NOW + waited))
        start = decode_groups(data, HEADER_SIZE, len(data))[1]
        message, _ = decode_packet(data, start, len(data), 5, NOW + waited)
        assert message.expires_at == pytest.approx(max(NOW + 60, NOW + waited), abs=1.0)


@pytest.mark.parametrize("drop_oldest", [True, False])
def test_the_policy_chooses_the_messages_that_are_dropped_past_the_bytes(drop_oldest: bool) -> None:
    outbox = make_outbox(bytes_max=50_000, drop_oldest=drop_oldest)
    for number in range(500):
        outbox.append_message(Message(b"t", b"%03d" % number + b"-" * 1000, 1, True), (), NOW)
        assert outbox.size <= 50_000
    kept = [int(payload[:3]) for block in take(outbox) for payload in payloads(block)]
    assert len(kept) + outbox.counters.dropped[DropReason.OUTBOX_FULL] == 500
    assert kept == list(range(500 - len(kept), 500) if drop_oldest else range(len(kept)))


def test_a_message_larger_than_the_outbox_drops_no_other() -> None:
    outbox = make_outbox(bytes_max=10_000)
    outbox.append_run(packet(), 1, 4, NOW)
    assert not outbox.append_message(Message(b"t", bytes(20_000), 1, False), (), NOW)
    assert not outbox.append_run(packet(bytes(20_000)), 3, 4, NOW)
    assert outbox.counters.dropped[DropReason.TOO_LARGE] == 4
    assert len(take(outbox)) == 1


def test_the_age_bounds_waiting_messages_only() -> None:
    outbox = make_outbox(age_max=10.0)
    outbox.append_run(packet(), 1, 4, NOW)
    (sent,) = take(outbox)
    sent.first_id, sent.events = 0, sent.count
    outbox.sent(sent)
    outbox.append_run(packet() * 2, 2, 4, NOW)
    assert outbox.next_age_out() == NOW + 10.0
    outbox.drop_old(NOW + 9.9)
    assert outbox.counters.dropped[DropReason.OUTBOX_AGE] == 0
    outbox.drop_old(NOW + 10.0)
    assert outbox.counters.dropped[DropReason.OUTBOX_AGE] == 2
    assert outbox.on_way == [sent]
    assert outbox.next_age_out() == NEVER


def send(outbox: Outbox, first_id: int) -> Block:
    (block,) = take(outbox)
    block.first_id, block.events = first_id, block.count
    outbox.sent(block)
    return block


def test_acknowledgements_free_whole_blocks() -> None:
    outbox = make_outbox()
    for first_id in (0, 3, 6):
        outbox.append_run(packet() * 3, 3, 4, NOW)
        send(outbox, first_id)
    assert outbox.acknowledge(4) == 3
    assert [block.first_id for block in outbox.on_way] == [3, 6]
    assert outbox.acknowledge(8) == 6
    assert (outbox.size, outbox.on_way_size) == (0, 0)


def test_a_new_session_keeps_messages_in_front_and_forgets_state() -> None:
    outbox = make_outbox()
    outbox.append_run(packet(b"first"), 1, 4, NOW)
    send(outbox, 0)
    state = Block(True, NOW)
    state.append_frame(b"\6\0\0\0\0\0")
    state.first_id, state.events = 1, 1
    outbox.sent(state)
    outbox.append_run(packet(b"second"), 1, 4, NOW)
    outbox.rewind(0, NOW)
    assert [payloads(block) for block in take(outbox)] == [[b"first"], [b"second"]]
    assert (outbox.size, outbox.on_way_size) == (0, 0)


@given(INPUTS, st.integers(0, 40))
def test_a_new_session_leaves_out_events_that_the_old_one_delivered(kinds: list[tuple[str]], done: int) -> None:
    outbox = make_outbox()
    for number, (kind,) in enumerate(kinds):
        payload = b"%d" % number
        if kind.startswith("run"):
            outbox.append_run(packet(payload, int(kind[3])), 1, int(kind[3]), NOW)
        else:
            outbox.append_message(Message(b"t", payload, 1, kind == "retained"), (), NOW)
        if number % 7 == 6:
            send(outbox, number - 6)
    done = min(done, len(kinds) // 7 * 7)
    outbox.rewind(done, NOW)
    left = take(outbox)
    assert [payload for block in left for payload in payloads(block)] == [b"%d" % n for n in range(done, len(kinds))]
    assert sum(block.count for block in left) == len(kinds) - done
    assert (outbox.size, outbox.on_way_size) == (0, 0)


def test_refused_blocks_and_those_of_a_peer_that_is_gone_are_counted() -> None:
    outbox = make_outbox()
    outbox.append_run(packet() * 3, 3, 4, NOW)
    send(outbox, 0)
    outbox.append_run(packet() * 2, 2, 4, NOW)
    assert outbox.drop_first_on_way(DropReason.REFUSED) is not None
    assert outbox.drop_first_on_way(DropReason.REFUSED) is None
    outbox.clear(DropReason.PEER_GONE)
    assert (outbox.counters.dropped[DropReason.REFUSED], outbox.counters.dropped[DropReason.PEER_GONE]) == (3, 2)
    assert outbox.size == 0


# --- topics of dropped retained messages


def retained(topic: bytes, payload: bytes = b"x") -> Message:
    return Message(topic, payload, 1, True)


def test_topics_of_dropped_retained_messages_are_kept_until_a_later_one_leaves() -> None:
    outbox = make_outbox(bytes_max=400, drop_oldest=False)
    for topic in (b"a", b"b", b"c", b"d", b"e"):
        outbox.append_message(retained(topic), (), NOW)
    kept = sum(block.messages for block in take(outbox))
    assert list(outbox.lost_topics) == [b"a", b"b", b"c", b"d", b"e"][kept:]
    outbox.append_message(retained(b"e"), (), NOW)
    assert b"e" not in outbox.lost_topics


@pytest.mark.interpreted
def test_a_retained_message_too_large_for_mqtt_takes_no_other_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be that large on its own node, but not with the properties that it has between nodes."""
    monkeypatch.setattr(writer, "VARINT_MAX", 200)
    monkeypatch.setattr(block_module, "VARINT_MAX", 200)
    outbox = make_outbox()
    for message in (retained(b"a"), retained(b"large", b"x" * 300), retained(b"b")):
        outbox.append_lost(message, NOW)
    (block,) = take(outbox)
    assert (block.count, block.retained) == (2, [b"a", b"b"])


def test_the_retained_state_is_due_past_the_bound() -> None:
    outbox = make_outbox()
    outbox.lost_topics_max = 4
    for topic in (b"a", b"b", b"c", b"d", b"a"):
        outbox.note_lost(topic)
    assert list(outbox.lost_topics) == [b"a", b"b", b"c", b"d"]
    assert not outbox.is_retained_state_due
    outbox.note_lost(b"e")
    assert (outbox.is_retained_state_due, len(outbox.lost_topics)) == (True, 0)


def test_a_mark_is_done_when_everything_before_it_is_acknowledged_or_dropped() -> None:
    outbox = make_outbox(age_max=10.0)
    assert outbox.is_done(outbox.mark())
    outbox.append_run(packet(), 1, 4, NOW)
    first = outbox.mark()
    assert not outbox.is_done(first)
    block = send(outbox, 0)
    outbox.append_run(packet(), 1, 4, NOW)
    second = outbox.mark()
    assert not outbox.is_done(first)
    outbox.acknowledge(block.first_id)
    assert outbox.is_done(first)
    assert not outbox.is_done(second)
    outbox.rewind(0, NOW)
    assert not outbox.is_done(second)
    outbox.drop_old(NOW + 10.0)
    assert outbox.is_done(second)


def test_state_that_is_on_the_way_does_not_hold_a_mark_up() -> None:
    outbox = make_outbox()
    state = Block(True, NOW)
    state.append_frame(b"frame")
    state.first_id, state.events = 0, 1
    outbox.sent(state)
    assert outbox.is_done(outbox.mark())
    outbox.append_run(packet(), 1, 4, NOW)
    mark = outbox.mark()
    block = send(outbox, 1)
    assert not outbox.is_done(mark)
    outbox.acknowledge(block.first_id)
    assert outbox.is_done(mark)
