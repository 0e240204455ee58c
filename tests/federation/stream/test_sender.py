"""The sender's states, windows and batches, and the outbox behind it; what two ends make of them is in test_node.py."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.message import NEVER, Message
from federation.shell.outlet_flush import OutletFlush
from federation.stream.block import Block
from federation.stream.counters import DropReason, StreamCounters
from federation.stream.frames import (
    HEADER_SIZE,
    INTEREST_DIGEST,
    PUBLISH,
    PUBLISH_BLOCK,
    STATE_BEGIN,
    STATE_END,
    SUBSCRIBE,
    UNSUBSCRIBE,
)
from federation.stream.full_state import LocalState
from federation.stream.outbox import BLOCK_BYTES_MAX, Outbox
from federation.stream.sender import (
    ACK_RATE_MIN,
    ACK_SECONDS_MAX,
    BACKOFF_SECONDS_MAX,
    EAGER_BLOCKS,
    HELLO_SECONDS_MAX,
    LINGER_SECONDS,
    STATE_BLOCKS_MAX,
    WINDOW_BLOCKS_MAX,
    Outlet,
    Outlets,
    PeerSender,
)
from federation.stream.state import State
from waiting import DEADLINE

PACKET = b"\x30\x05\x00\x01tab"


def make(bytes_max: int = 2**26, age_max: float = 300.0) -> PeerSender:
    outbox = Outbox(bytes_max, age_max, True, StreamCounters())
    return PeerSender("other", True, LocalState(), Outlets(), outbox, random.Random(1))


def state(sender: PeerSender) -> State:
    """A call, so that the type checker does not hold an earlier answer for the present one."""
    return sender.state


def streaming(now: float = 0.0) -> PeerSender:
    """A sender whose empty state was sent and acknowledged: the next id is 2."""
    sender = make()
    sender.connect("host:1", now)
    sender.hello_reply(1, True, 0, now)
    assert kinds(sender, now) == [(0, [STATE_BEGIN, STATE_END])]
    sender.ack(1, 1, now)
    return sender


def kinds(sender: PeerSender, now: float) -> list[tuple[int, list[int]]]:
    """First id and frame kinds of each block that leaves now."""
    found = []
    for block in sender.take_blocks(now):
        data = frames_of(block, now)
        frames = []
        pos = 0
        while pos < len(data):
            frames.append(data[pos])
            pos += HEADER_SIZE + int.from_bytes(data[pos + 2 : pos + HEADER_SIZE], "big")
        found.append((block.first_id, frames))
    return found


def frames_of(block: Block, now: float = 0.0) -> bytes:
    return b"".join(block.encode(now))


def test_states_from_start_to_stop() -> None:
    sender = make()
    assert state(sender) is State.STOPPED
    assert sender.next_timeout() == NEVER
    sender.connect("host:1", 0.0)
    assert (state(sender), sender.attempt) == (State.HELLO, 1)
    assert sender.next_timeout() == HELLO_SECONDS_MAX
    sender.handle_timeout(HELLO_SECONDS_MAX - 0.1)
    assert state(sender) is State.HELLO
    sender.handle_timeout(HELLO_SECONDS_MAX)
    assert state(sender) is State.BACKOFF
    assert "no answer to Hello" in sender.reason
    sender.handle_timeout(sender.next_timeout())
    assert (state(sender), sender.attempt) == (State.HELLO, 2)
    sender.hello_reply(1, True, 0, 6.0)
    assert state(sender) is State.HELLO, "news of an older attempt"
    sender.hello_reply(2, True, 0, 6.0)
    assert state(sender) is State.STREAMING
    assert sender.reachable
    sender.connection_lost(1, "old", 7.0)
    assert state(sender) is State.STREAMING
    sender.connection_lost(2, "reset", 7.0)
    assert (state(sender), sender.reachable, sender.reason) == (State.BACKOFF, False, "reset")
    sender.connect("host:1", 7.0)
    assert (state(sender), sender.attempt) == (State.HELLO, 3), "it is there again: no more waiting"
    sender.stop("left")
    assert state(sender) is State.STOPPED
    assert sender.next_timeout() == NEVER


def test_waits_grow_to_their_bound() -> None:
    sender = make()
    sender.connect("host:1", 0.0)
    now = 0.0
    waits = []
    for _ in range(20):
        sender.connection_lost(sender.attempt, "refused", now)
        waits.append(sender.next_timeout() - now)
        now = sender.next_timeout()
        sender.handle_timeout(now)
    assert waits[0] <= 0.1
    assert all(BACKOFF_SECONDS_MAX / 2 <= wait <= BACKOFF_SECONDS_MAX for wait in waits[8:])


def test_no_progress_ends_the_stream() -> None:
    sender = streaming()
    sender.full_state.end_digests()
    sender.forward_run(PACKET, 1, 4, 0, 10.0)
    assert kinds(sender, 10.0) == [(2, [PUBLISH_BLOCK])]
    assert sender.next_timeout() == 10.0 + ACK_SECONDS_MAX
    sender.handle_timeout(10.0 + ACK_SECONDS_MAX)
    assert state(sender) is State.BACKOFF


@pytest.mark.parametrize("event_id", [2, 3, 2**63])
def test_an_acknowledgement_of_events_that_were_not_sent_begins_a_new_session(event_id: int) -> None:
    sender = streaming()
    session_id = sender.session_id
    sender.ack(1, event_id, 0.0)
    assert state(sender) is State.BACKOFF
    assert sender.session_id != session_id


@pytest.mark.parametrize("next_event_id", [0, 1, 4, 99])
def test_a_resume_from_events_that_are_gone_begins_a_new_session(next_event_id: int) -> None:
    sender = streaming()
    session_id = sender.session_id
    sender.forward_run(PACKET, 1, 4, 0, 0.0)
    sender.take_blocks(0.0)
    sender.connection_lost(1, "reset", 0.0)
    sender.handle_timeout(1.0)
    sender.hello_reply(2, False, next_event_id, 1.0)
    assert state(sender) is State.BACKOFF
    assert sender.session_id != session_id
    sender.handle_timeout(10.0)
    sender.hello_reply(3, True, 0, 10.0)
    assert kinds(sender, 10.0) == [(0, [STATE_BEGIN, STATE_END]), (2, [PUBLISH_BLOCK])]


def test_resume_sends_events_that_are_not_acknowledged() -> None:
    sender = streaming()
    for number in range(3):
        sender.forward(Message(b"t", b"%d" % number, 1, True), (), 0.0)
        sender.take_blocks(LINGER_SECONDS * 2)
    sender.ack(1, 2, 0.0)
    sender.connection_lost(1, "reset", 0.0)
    sender.handle_timeout(1.0)
    sender.hello_reply(2, False, 4, 1.0)
    assert kinds(sender, 1.0) == [(4, [PUBLISH]), (5, [INTEREST_DIGEST])], "3 arrived, its acknowledgement was lost"
    sender.ack(2, 5, 1.0)
    assert sender.outbox.size == 0


def busy() -> tuple[PeerSender, int]:
    """A sender with as many small batches on the way as leave at once, and the id of the next event."""
    sender = streaming()
    for number in range(EAGER_BLOCKS):
        sender.forward_run(PACKET, 1, 4, 0, 0.0)
        assert kinds(sender, 0.0) == [(2 + number, [PUBLISH_BLOCK])]
    return sender, 2 + EAGER_BLOCKS


def test_a_batch_leaves_at_once_while_few_are_on_the_way_else_it_gathers() -> None:
    sender, next_id = busy()
    sender.forward_run(PACKET, 1, 4, 0, 0.0)
    sender.forward_run(PACKET * 2, 2, 4, 0, 0.0)
    sender.forward_run(PACKET, 1, 5, 0, 0.0)
    assert kinds(sender, 0.0005) == []
    assert sender.gathered_at() == LINGER_SECONDS
    assert kinds(sender, LINGER_SECONDS) == [(next_id, [PUBLISH_BLOCK, PUBLISH_BLOCK])], "a frame for each version"
    sender.forward_run(PACKET, 1, 4, 0, 0.002)
    assert kinds(sender, 0.002) == []
    sender.ack(1, next_id + 3, 0.002)
    assert kinds(sender, 0.002) == [(next_id + 4, [PUBLISH_BLOCK])], "an id for each message"
    big = b"\x30" * BLOCK_BYTES_MAX
    sender.forward_run(big, 1, 4, 0, 0.002)
    assert kinds(sender, 0.002) == [(next_id + 5, [PUBLISH_BLOCK])], "full"


def test_a_block_gathers_while_the_window_has_room() -> None:
    sender, _ = busy()
    assert sender.gathered_at() == NEVER, "no block is open"
    sender.forward_run(PACKET, 1, 4, 0, 0.5)
    assert sender.gathered_at() == 0.5 + LINGER_SECONDS < sender.next_timeout()
    sender.outbox.close_block()
    for _ in range(WINDOW_BLOCKS_MAX):
        sender.forward_run(b"\x30" * BLOCK_BYTES_MAX, 1, 4, 0, 0.5)
    sender.take_blocks(0.5)
    sender.forward_run(PACKET, 1, 4, 0, 0.5)
    assert sender.gathered_at() == NEVER, "an acknowledgement comes first"


class Taker(Outlet):
    """Takes what is to be written."""

    def __init__(self, sender: PeerSender) -> None:
        self.first_ids: list[int] = []
        self.came = asyncio.Event()
        self._sender = sender

    def flush_at(self, now: float) -> None:
        self.first_ids += [block.first_id for block in self._sender.take_blocks(now)]
        if self.first_ids:
            self.came.set()


@pytest.mark.interpreted
async def test_a_block_that_gathers_leaves_without_another_turn() -> None:
    sender, next_id = busy()
    sender.outlet = taker = Taker(sender)
    node = SimpleNamespace(outlets=sender.outlets, senders={"other": sender}, promises=None, sessions=None)
    searches: list[None] = []
    flush = OutletFlush(cast(Any, node), lambda: searches.append(None), lambda: None)
    flush.is_watched = True
    now = asyncio.get_running_loop().time()
    sender.forward_run(PACKET, 1, 4, 0, now)
    sender.want_attention()
    flush.turn_ended(now)
    assert taker.first_ids == []
    async with asyncio.timeout(DEADLINE):
        await taker.came.wait()
    assert taker.first_ids == [next_id]
    assert searches == [], "for the next deadline of all"
    flush.stop()


def test_the_shell_is_asked_once_a_block() -> None:
    sender, _ = busy()
    outlets = sender.outlets
    outlets.take_ready()
    sender.take_blocks(0.0)
    for _ in range(10):
        sender.forward_run(PACKET, 1, 4, 0, 0.0)
    assert outlets.take_ready() == [sender]
    sender.take_blocks(0.0)
    sender.forward_run(PACKET, 1, 4, 0, 0.0)
    assert outlets.take_ready() == [], "it gathers, and has its timer"


def test_an_impossible_move_is_a_fault() -> None:
    sender = make()
    with pytest.raises(AssertionError, match="STOPPED to"):
        sender._move(State.STREAMING)


def test_the_window_is_bounded() -> None:
    sender = streaming()
    for _ in range(WINDOW_BLOCKS_MAX + 20):
        sender.forward_run(b"\x30" * BLOCK_BYTES_MAX, 1, 4, 0, 0.0)
    sent = len(sender.take_blocks(0.0))
    assert sent <= WINDOW_BLOCKS_MAX
    assert sender.take_blocks(0.1) == []
    sender.ack(1, 2, 0.1)
    assert len(sender.take_blocks(0.1)) == 1


def test_congestion_is_set_past_the_half_and_cleared_below_the_quarter() -> None:
    sender = make(bytes_max=1_000_000)
    sender.connect("host:1", 0.0)
    sender.hello_reply(1, True, 0, 0.0)
    run = b"\x30" * BLOCK_BYTES_MAX
    for _ in range(7):
        sender.forward_run(run, 1, 4, 0, 0.0)
    assert (sender.congested, sender.outbox.size < 500_000) == (False, True)
    sender.forward_run(run, 1, 4, 0, 0.0)
    assert sender.congested
    sender.take_blocks(0.0)
    sender.ack(1, 5, 0.0)
    assert sender.congested
    sender.ack(1, 7, 0.0)
    assert not sender.congested


def test_changes_of_interest_that_cancel_each_other_are_not_sent() -> None:
    sender = streaming()
    sender.interest_changed(b"", b"known", True)
    assert kinds(sender, 0.0) == [(2, [SUBSCRIBE])]
    sender.ack(1, 2, 0.0)
    sender.connection_lost(1, "reset", 0.0)
    sender.interest_changed(b"g", b"a", True)
    sender.interest_changed(b"", b"known", False)
    for number in range(1000):  # as of clients that ask and wait for one answer each
        sender.interest_changed(b"", b"answers/%d" % number, True)
        sender.interest_changed(b"", b"answers/%d" % number, False)
        sender.interest_changed(b"g", b"a", False)
        sender.interest_changed(b"g", b"a", True)
    assert len(sender.full_state.interest) == 2, "bounded by what the other node knows and what is wanted here"
    sender.handle_timeout(1.0)
    sender.hello_reply(2, False, 3, 1.0)
    assert sorted(kinds(sender, 1.0)[0][1]) == [SUBSCRIBE, UNSUBSCRIBE]


def test_many_changes_of_interest_are_batches_of_the_usual_size() -> None:
    sender = streaming()
    for number in range(5000):
        sender.interest_changed(b"", b"some/filter/of/a/usual/length/%d" % number, True)
    blocks = sender.take_blocks(0.0)
    assert sum(block.events for block in blocks) == 5000
    assert len(blocks) > 5
    assert max(len(frames_of(block)) for block in blocks) < BLOCK_BYTES_MAX
    assert sender.take_blocks(0.0) == []


class Retained(LocalState):
    """A node with many retained messages."""

    def __init__(self, count: int) -> None:
        self.messages = {b"r/%d" % number: Message(b"r/%d" % number, bytes(200), 1, True) for number in range(count)}

    def retained_topics(self) -> list[bytes]:
        return list(self.messages)

    def retained_message(self, topic: bytes, now: float) -> Message | None:
        return self.messages.get(topic)


def test_a_full_state_comes_in_slices_and_messages_pass_between() -> None:
    local = Retained(20_000)
    outbox = Outbox(2**26, 300.0, True, StreamCounters())
    sender = PeerSender("other", True, local, Outlets(), outbox, random.Random(1))
    sender.connect("host:1", 0.0)
    sender.hello_reply(1, True, 0, 0.0)
    told: set[bytes] = set()
    calls = 0
    message_at = 0
    changed = False
    while len(told) < 19_999:
        blocks = sender.take_blocks(calls * 1.0)
        assert 0 < len(blocks) <= STATE_BLOCKS_MAX + 1
        for block in blocks:
            told.update(block.retained or [])
            if b"live" in frames_of(block):
                message_at = calls
        sender.ack(1, blocks[-1].first_id + blocks[-1].events - 1, calls * 1.0)
        calls += 1
        if calls == 1:
            sender.forward_run(b"\x30\x07\x00\x01tlive", 1, 4, 0, calls * 1.0)
        if not changed:  # it goes before its place in the state has come
            changed = True
            del local.messages[b"r/19999"]
    assert b"r/19999" not in told
    assert calls > 4
    assert message_at == 1, "no message waits for the end of the state"
    assert not sender.full_state.has_more()


def test_a_large_message_on_a_slow_line_has_its_time() -> None:
    sender = streaming()
    sender.full_state.end_digests()
    sender.forward(Message(b"t", b"x" * 100 * ACK_RATE_MIN, 1, False), (), 0.0)
    sender.take_blocks(0.0)
    assert sender.next_timeout() == pytest.approx(ACK_SECONDS_MAX + 100, abs=1.0)
    sender.handle_timeout(ACK_SECONDS_MAX + 98.0)
    assert state(sender) is State.STREAMING
    sender.handle_timeout(ACK_SECONDS_MAX + 102.0)
    assert state(sender) is State.BACKOFF


@pytest.mark.parametrize("retain", [False, True])
def test_a_large_message_travels_alone(retain: bool) -> None:
    """Where the other node refuses it, nothing else is lost with it."""
    sender, _ = busy()
    sender.forward(Message(b"t", b"before", 1, False), (), 0.0)
    sender.forward(Message(b"t", b"x" * BLOCK_BYTES_MAX, 1, retain), (), 0.0)
    sender.forward(Message(b"t", b"after", 1, False), (), 0.0)
    blocks = sender.take_blocks(1.0)
    assert [b"before" in frames_of(block) for block in blocks] == [True, False, False]
    assert [block.events for block in blocks] == [1, 1, 1]
    assert len(frames_of(blocks[1])) < BLOCK_BYTES_MAX + 100


def test_a_refused_batch_is_the_one_that_the_next_hello_tells() -> None:
    sender = streaming()
    for number in range(3):
        sender.forward(Message(b"t", b"%d" % number, 1, True), (), 0.0)
        sender.take_blocks(1.0)
    session_id = sender.session_id
    sender.refused(1, "too large", 1.0)
    sender.handle_timeout(2.0)
    sender.hello_reply(2, False, 3, 2.0)
    assert state(sender) is State.BACKOFF
    assert sender.session_id != session_id
    assert sender.counters.dropped[DropReason.REFUSED] == 1
    sender.handle_timeout(10.0)
    sender.hello_reply(3, True, 0, 10.0)
    blocks = sender.take_blocks(10.0)
    assert [frames_of(block)[-1:] for block in blocks[1:]] == [b"2"], "0 had arrived, 1 was refused"
