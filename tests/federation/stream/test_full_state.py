"""What a full state says, in which order, and what it leaves out."""

from __future__ import annotations

import pytest

from broker.message import NEVER, Message
from broker.routing.retained import RetainedMessage
from federation.stream.block import Block
from federation.stream.frames import (
    HAS_EXTENSIONS,
    HEADER_SIZE,
    INTEREST_DIGEST,
    IS_NEWS,
    IS_WRITTEN_THERE,
    LINK_INTEREST,
    ONLY_THESE,
    RETAINED,
    RETAINED_DIGEST,
    RETAINED_STAMPS,
    STATE_BEGIN,
    STATE_END,
    SUBSCRIBE,
    UNSUBSCRIBE,
    body_start,
    decode_interest,
    decode_packet,
    decode_stamps,
    extension,
)
from federation.stream.full_state import DIGEST_SECONDS, LISTED_MAX, TOPICS_MAX, FullState
from federation.stream.outbox import BLOCK_BYTES_MAX
from federation.stream.retained_versions import BUCKET_SHIFT
from senders import Local

NOW = 100.0
Frame = tuple[int, int, bytes]


def frames(block: Block) -> list[Frame]:
    """(kind, flags, filter, or topic and payload, or range and number of stamps) of each frame."""
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
                text += b" " + extension(data, start, LINK_INTEREST)
        elif kind == RETAINED:
            message, _ = decode_packet(data, body_start(data, flags, start, pos), pos, 5, NOW)
            text = message.topic + b"=" + message.payload
        elif kind == RETAINED_STAMPS:
            low, high, listed = decode_stamps(data, start, pos)
            text = b"%d %d %d" % (low, high, len(listed))
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
    local = Local([(b"", b"a"), (b"g", b"b/#")], [retained(b"t"), retained(b"gone", b"")])
    state = FullState(local)
    assert state.next_block(True, NOW) is None
    state.begin()
    state.change(b"", b"c", True)
    assert drain(state) == [
        [(STATE_BEGIN, 0, b""), (SUBSCRIBE, 0, b"|a"), (SUBSCRIBE, 0, b"g|b/#"), (STATE_END, 0, b"")],
        [(SUBSCRIBE, 0, b"|c")],
        [(RETAINED, IS_WRITTEN_THERE, b"t=x"), (RETAINED, IS_WRITTEN_THERE, b"gone=")],
    ]


def test_a_node_that_reads_stamps_gets_digests_and_then_what_it_lacks() -> None:
    local = Local([(b"", b"a")], [RetainedMessage(retained(b"t"), 7), RetainedMessage(retained(b"gone", b""), 8)])
    state = FullState(local)
    state.is_stamped = True
    state.begin()
    state.begin_digests(True, True, NOW)
    (_, (digest,)) = drain(state)
    assert digest[0] == RETAINED_DIGEST
    state.tell_retained([], [3, 1023, 3])
    first, last = (3 << BUCKET_SHIFT, (4 << BUCKET_SHIFT) - 1), (1023 << BUCKET_SHIFT, 2**64 - 1)
    assert drain(state) == [[(RETAINED_STAMPS, 0, b"%d %d 1" % first), (RETAINED_STAMPS, 0, b"%d %d 1" % last)]]
    state.tell_retained([b"gone", b"unknown", b"t"], [])
    assert drain(state) == [[(RETAINED, HAS_EXTENSIONS, b"gone="), (RETAINED, HAS_EXTENSIONS, b"t=x")]]
    state.handle_timeout(NOW + DIGEST_SECONDS)
    ((interest, again),) = drain(state)
    assert (interest[0], again[0]) == (INTEREST_DIGEST, RETAINED_DIGEST)
    state.end_digests()
    assert state.digest_at == NEVER


def test_the_stamps_of_a_large_part_come_in_several_frames() -> None:
    local = Local()
    local.stamps = [(5 << BUCKET_SHIFT | key, key) for key in range(2 * LISTED_MAX + 1)]
    state = FullState(local)
    state.tell_retained([], [5])
    found: list[Frame] = []
    while (block := state.next_block(True, NOW)) is not None:
        found += frames(block)
    low = 5 << BUCKET_SHIFT
    middle = [low + LISTED_MAX - 1, low + 2 * LISTED_MAX - 1, (6 << BUCKET_SHIFT) - 1]
    begin = [low, low + LISTED_MAX, low + 2 * LISTED_MAX]
    assert [text for _, _, text in found] == [
        b"%d %d %d" % (begin[number], middle[number], (LISTED_MAX, LISTED_MAX, 1)[number]) for number in range(3)
    ]


def test_a_node_without_room_says_so() -> None:
    local = Local()
    local.has_room = False
    state = FullState(local)
    state.tell_retained([], [0])
    assert [(kind, flags) for kind, flags, _ in drain(state)[0]] == [(RETAINED_STAMPS, ONLY_THESE)]


def test_a_go_broker_gets_neither_marks_nor_deletions() -> None:
    state = FullState(Local([(b"", b"a")], [retained(b"t"), retained(b"gone", b"")]))
    state.begin()
    assert drain(state, extended=False) == [[(SUBSCRIBE, 0, b"|a")], [(RETAINED, IS_WRITTEN_THERE, b"t=x")]]


def test_values_are_those_of_the_moment_in_which_their_block_is_made() -> None:
    local = Local([], [retained(b"r/%d" % number, bytes(1000)) for number in range(200)])
    state = FullState(local)
    state.begin()
    state.next_block(True, NOW)
    state.next_block(True, NOW)
    local.messages[b"r/199"] = retained(b"r/199", b"newer")
    del local.messages[b"r/198"]
    told = {text.partition(b"=")[0]: text.partition(b"=")[2] for block in drain(state) for _, _, text in block}
    assert told[b"r/199"] == b"newer"
    assert b"r/198" not in told


def test_many_topics_are_looked_up_in_bounded_steps() -> None:
    """A block looks up TOPICS_MAX topics at most, so that nothing else waits for it."""
    messages = [retained(b"r/%d" % number) for number in range(3 * TOPICS_MAX)]
    state = FullState(Local([], messages))
    state.begin()
    blocks = drain(state)
    assert sum(len(block) for block in blocks) == 3 * TOPICS_MAX + 2


def test_a_refused_topic_is_left_out_once_and_a_large_message_has_its_own_block() -> None:
    sizes = {b"a": 10, b"b": 2 * BLOCK_BYTES_MAX, b"c": 10}
    state = FullState(Local([], [retained(topic, bytes(size)) for topic, size in sizes.items()]))
    state.begin()
    topics = []
    while (block := state.next_block(True, NOW)) is not None:
        topics.append(list(block.retained or []))
    assert topics == [[], [b"a"], [b"b"], [b"c"]]
    state.give_up([b"b"])
    state.begin()
    assert [len(block) for block in drain(state)] == [2, 2]
    state.begin()
    assert len(drain(state)) == 4, "the next node at that address may take more"


@pytest.mark.parametrize("first", [True, False])
def test_a_change_that_is_undone_before_it_is_told_is_not_told(first: bool) -> None:
    state = FullState(Local())
    assert state.change(b"", b"a", first)
    assert not state.change(b"", b"a", not first)
    assert not state.has_more()


def test_a_node_without_stamps_is_told_all_values_as_news_where_unknown_ones_were_dropped() -> None:
    state = FullState(Local([(b"", b"a")], [retained(b"t")]))
    state.begin_mending()
    block = state.next_block(True, NOW)
    assert block is not None
    assert block.messages == 0, "they stand for messages that were counted"
    assert frames(block) == [(RETAINED, IS_NEWS, b"t=x")]
    assert not state.has_more()
    state.begin_mending()
    state.begin()
    assert drain(state)[1] == [(RETAINED, IS_NEWS, b"t=x")], "it was not at its end"
    state.is_stamped = True
    state.begin_mending()
    assert [kind for kind, _, _ in drain(state)[0]] == [RETAINED_DIGEST]


def test_links_of_a_filter_are_told_as_they_are_when_the_block_is_made() -> None:
    local = Local([(b"", b"a"), (b"", b"b")])
    local.links[b"a"] = b"0 first"
    state = FullState(local)
    state.begin()
    assert drain(state) == [
        [(STATE_BEGIN, 0, b""), (SUBSCRIBE, HAS_EXTENSIONS, b"|a 0 first"), (SUBSCRIBE, 0, b"|b"), (STATE_END, 0, b"")]
    ]
    local.links[b"a"] = b"0 second"
    state.change_note(b"", b"a")
    assert drain(state) == [[(SUBSCRIBE, HAS_EXTENSIONS, b"|a 0 second")]]


def test_a_filter_that_comes_back_for_clients_is_told_again() -> None:
    local = Local([(b"", b"a")])
    local.links[b"a"] = b"0 link"
    state = FullState(local)
    state.begin()
    drain(state)
    state.change(b"", b"a", False)
    del local.links[b"a"]
    assert state.change(b"", b"a", True)
    assert drain(state) == [[(SUBSCRIBE, 0, b"|a")]]


def test_a_filter_whose_links_changed_before_it_went_is_told_as_gone() -> None:
    local = Local([(b"", b"a")])
    state = FullState(local)
    state.begin()
    drain(state)
    state.change_note(b"", b"a")
    assert state.change(b"", b"a", False)
    assert drain(state) == [[(UNSUBSCRIBE, 0, b"|a")]]
