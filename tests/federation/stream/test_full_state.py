"""What a full state says, in which order, and what it leaves out."""

from __future__ import annotations

import pytest

from broker.message import Message
from federation.stream.block import Block
from federation.stream.frames import (
    HAS_EXTENSIONS,
    HEADER_SIZE,
    IS_MENDED,
    IS_NEWS,
    IS_WRITTEN_THERE,
    LINK_WANTS,
    RETAINED,
    STATE_BEGIN,
    STATE_END,
    SUBSCRIBE,
    UNSUBSCRIBE,
    body_start,
    decode_interest,
    decode_packet,
    extension,
)
from federation.stream.full_state import TOPICS_MAX, FullState
from federation.stream.outbox import BLOCK_BYTES_MAX
from federation.stream.retained_changes import HERE, RetainedChanges
from senders import Local

NOW = 100.0
Frame = tuple[int, int, bytes]


def frames(block: Block) -> list[Frame]:
    """(kind, flags, filter or topic and payload) of each frame."""
    data = b"".join(block.encode(NOW))
    found: list[Frame] = []
    pos = 0
    while pos < len(data):
        kind, flags, start = data[pos], data[pos + 1], pos + HEADER_SIZE
        pos = start + int.from_bytes(data[pos + 2 : start], "big")
        text = b""
        if kind in (SUBSCRIBE, UNSUBSCRIBE):
            body = body_start(data, flags, start, pos)
            text = b"|".join(decode_interest(data, body, pos))
            if flags & HAS_EXTENSIONS:
                text += b" " + extension(data, start, LINK_WANTS)
        elif kind == RETAINED:
            message, _ = decode_packet(data, start, pos, 5, NOW)
            text = message.topic + b"=" + message.payload
        found.append((kind, flags, text))
    return found


def drain(state: FullState, extended: bool = True) -> list[list[Frame]]:
    blocks: list[list[Frame]] = []
    while (block := state.next_block(extended, NOW)) is not None:
        assert block.size < 2 * BLOCK_BYTES_MAX + 200
        blocks.append(frames(block))
    assert not state.has_more()
    return [block for block in blocks if block]


def retained(topic: bytes, payload: bytes = b"x", expires_at: float = 1e9) -> Message:
    return Message(topic, payload, 1, True, b"", expires_at)


def test_filters_changes_retained_messages_and_deletions() -> None:
    changes = RetainedChanges("this")
    changes.note(b"ours", NOW, HERE)
    changes.note(b"gone", NOW, HERE)
    changes.note(b"theirs", NOW, "third")
    local = Local(
        [(b"", b"a"), (b"g", b"b/#")], [retained(b"ours"), retained(b"theirs"), retained(b"over", b"x", NOW)], [b"gone"]
    )
    state = FullState(local, changes)
    assert state.next_block(True, NOW) is None
    state.begin()
    state.change(b"", b"c", True)
    assert drain(state) == [
        [(STATE_BEGIN, 0, b""), (SUBSCRIBE, 0, b"|a"), (SUBSCRIBE, 0, b"g|b/#"), (STATE_END, 0, b"")],
        [(SUBSCRIBE, 0, b"|c")],
        [(RETAINED, IS_WRITTEN_THERE, b"ours=x"), (RETAINED, 0, b"theirs=x")],
        [(RETAINED, IS_WRITTEN_THERE, b"gone=")],
    ]


def test_a_go_broker_gets_neither_marks_nor_deletions() -> None:
    state = FullState(Local([(b"", b"a")], [retained(b"t")], [b"gone"]), RetainedChanges("this"))
    state.begin()
    assert drain(state, extended=False) == [[(SUBSCRIBE, 0, b"|a")], [(RETAINED, 0, b"t=x")]]


def test_values_are_those_of_the_moment_in_which_their_block_is_made() -> None:
    local = Local([], [retained(b"r/%d" % number, bytes(1000)) for number in range(200)], [b"again"])
    state = FullState(local, RetainedChanges("this"))
    state.begin()
    state.next_block(True, NOW)
    state.next_block(True, NOW)
    local.messages[b"r/199"] = retained(b"r/199", b"newer")
    local.messages[b"again"] = retained(b"again")
    del local.messages[b"r/198"]
    told = {text.partition(b"=")[0]: text.partition(b"=")[2] for block in drain(state) for _, _, text in block}
    assert told[b"r/199"] == b"newer"
    assert b"r/198" not in told
    assert b"again" not in told, "its message is on its way by itself"


def test_many_topics_are_looked_up_in_bounded_steps() -> None:
    """A block looks up TOPICS_MAX topics at most, so that nothing else waits for it."""
    messages = [retained(b"r/%d" % number) for number in range(3 * TOPICS_MAX)]
    state = FullState(Local([], messages), RetainedChanges("this"))
    state.begin()
    blocks = drain(state)
    assert sum(len(block) for block in blocks) == 3 * TOPICS_MAX + 2


def test_a_refused_topic_is_left_out_once_and_a_large_message_has_its_own_block() -> None:
    sizes = {b"a": 10, b"b": 2 * BLOCK_BYTES_MAX, b"c": 10}
    state = FullState(
        Local([], [retained(topic, bytes(size)) for topic, size in sizes.items()]), RetainedChanges("this")
    )
    state.begin()
    topics = []
    while (block := state.next_block(True, NOW)) is not None:
        topics.append([topic for topic, _ in block.retained or []])
    assert topics == [[], [b"a"], [b"b"], [b"c"]]
    state.give_up([(b"b", False)])
    state.begin()
    assert [len(block) for block in drain(state)] == [2, 2]
    state.begin()
    assert len(drain(state)) == 4, "the next node at that address may take more"


@pytest.mark.parametrize("first", [True, False])
def test_a_change_that_is_undone_before_it_is_told_is_not_told(first: bool) -> None:
    state = FullState(Local(), RetainedChanges("this"))
    assert state.change(b"", b"a", first)
    assert not state.change(b"", b"a", not first)
    assert not state.has_more()


def test_a_mending_state_is_kept_as_messages_are_and_leaves_out_values_of_others() -> None:
    changes = RetainedChanges("this")
    changes.note(b"ours", NOW, HERE)
    changes.note(b"theirs", NOW, "third")
    local = Local([(b"", b"a")], [retained(b"ours"), retained(b"theirs"), retained(b"unknown")], [b"gone"])
    state = FullState(local, changes)
    state.begin_mending()
    block = state.next_block(True, NOW)
    assert block is not None
    assert not block.is_state
    assert block.messages == 0, "they stand for messages that were counted"
    assert frames(block) == [(RETAINED, IS_NEWS, b"ours=x"), (RETAINED, IS_MENDED, b"unknown=x")]
    assert not state.has_more()
    state.begin_mending()
    assert state.begin(), "it was not at its end"
    assert not state.begin()


def test_links_of_a_filter_are_told_as_they_are_when_the_block_is_made() -> None:
    local = Local([(b"", b"a"), (b"", b"b")])
    local.links[b"a"] = b"0 first"
    state = FullState(local, RetainedChanges("this"))
    state.begin()
    assert drain(state) == [
        [(STATE_BEGIN, 0, b""), (SUBSCRIBE, HAS_EXTENSIONS, b"|a 0 first"), (SUBSCRIBE, 0, b"|b"), (STATE_END, 0, b"")]
    ]
    local.links[b"a"] = b"0 second"
    state.change_note(b"a")
    assert drain(state) == [[(SUBSCRIBE, HAS_EXTENSIONS, b"|a 0 second")]]


def test_a_filter_that_comes_back_for_clients_is_told_again() -> None:
    local = Local([(b"", b"a")])
    local.links[b"a"] = b"0 link"
    state = FullState(local, RetainedChanges("this"))
    state.begin()
    drain(state)
    state.change(b"", b"a", False)
    del local.links[b"a"]
    assert state.change(b"", b"a", True)
    assert drain(state) == [[(SUBSCRIBE, 0, b"|a")]]


def test_a_filter_whose_links_changed_before_it_went_is_told_as_gone() -> None:
    local = Local([(b"", b"a")])
    state = FullState(local, RetainedChanges("this"))
    state.begin()
    drain(state)
    state.change_note(b"a")
    assert state.change(b"", b"a", False)
    assert drain(state) == [[(UNSUBSCRIBE, 0, b"|a")]]
