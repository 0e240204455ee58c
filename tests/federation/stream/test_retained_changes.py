"""Which retained message stays when another node's full state comes."""

from __future__ import annotations

import pytest

from broker.message import Message
from federation.stream.retained_changes import CHANGES_MAX, HERE, LONG_AGO, TOPIC_BYTES_MAX, RetainedChanges

MEMBERS = frozenset({"a-node", "z-node", "third"})


@pytest.fixture
def changes() -> RetainedChanges:
    return RetainedChanges("m-node")


def message(payload: bytes, properties: bytes = b"") -> Message:
    return Message(b"t", payload, 1, True, properties)


def test_the_last_change_of_a_topic_counts(changes: RetainedChanges) -> None:
    assert not changes.changed_since(b"t", 0.0)
    assert changes.changed_by(b"t") != HERE
    changes.note(b"t", 10.0, HERE)
    changes.note(b"u", 11.0, "a-node")
    assert changes.changed_since(b"t", 10.0)
    assert not changes.changed_since(b"t", 10.5)
    assert changes.changed_by(b"t") == HERE
    assert changes.changed_by(b"u") != HERE
    changes.note(b"v", 12.0, HERE)
    changes.note(b"t", 13.0, HERE)
    assert changes.written_here() == [b"v", b"t"]
    changes.note(b"t", 14.0, "a-node")
    assert changes.written_here() == [b"v"]


def test_a_touch_is_a_change_by_the_last_writer(changes: RetainedChanges) -> None:
    changes.note(b"t", 10.0, "a-node")
    changes.touch(b"t", 20.0)
    changes.touch(b"new", 20.0)
    assert changes.changed_since(b"t", 20.0)
    assert changes.written_here() == [b"new"]


def test_the_oldest_changes_are_forgotten_first(changes: RetainedChanges) -> None:
    for number in range(CHANGES_MAX):
        changes.note(b"%d" % number, 10.0, HERE)
    changes.note(b"0", 11.0, HERE)  # now the youngest
    assert changes.forgotten == 0
    for number in range(3):
        changes.note(b"later %d" % number, 12.0, HERE)
    assert changes.forgotten == 3
    assert [changes.changed_by(b"%d" % number) == HERE for number in range(5)] == [True, False, False, False, True]
    assert len(changes.written_here()) == CHANGES_MAX


def test_the_bytes_of_all_topics_are_bounded(changes: RetainedChanges) -> None:
    size = 2**16 - 1
    fitting = TOPIC_BYTES_MAX // size
    topics = [b"%d" % number + bytes(size - len(b"%d" % number)) for number in range(fitting + 10)]
    for topic in topics:
        changes.note(topic, 10.0, HERE)
        changes.note(topic, 11.0, HERE)
    assert changes.forgotten == 10
    assert changes.written_here() == topics[10:]


@pytest.mark.parametrize("node", ["a-node", "z-node"])
@pytest.mark.parametrize("is_written_there", [True, False])
@pytest.mark.parametrize(
    ("changed_at", "changed_by", "taken"),
    [
        (60.0, HERE, False),  # changed while `node` is known: the change is on its way there
        (60.0, "third", False),
        (40.0, "third", None),  # below: it depends on who wrote it there
        (40.0, HERE, None),
    ],
)
def test_a_change_here_against_the_state_of_a_node(
    changes: RetainedChanges, node: str, is_written_there: bool, changed_at: float, changed_by: str, taken: bool | None
) -> None:
    changes.note(b"t", changed_at, changed_by)
    if taken is None:
        # Who only holds a value does not know better than the node that wrote it. Where both wrote the first name wins.
        taken = is_written_there and (changed_by != HERE or node == "a-node")
    answer = changes.takes_state(message(b"theirs"), message(b"ours"), node, 50.0, is_written_there, MEMBERS)
    assert answer == taken


@pytest.mark.parametrize(
    ("held", "node", "is_written_there", "taken"),
    [
        (None, "z-node", False, True),  # there is nothing here
        (message(b"ours"), "z-node", False, False),
        (message(b"ours"), "z-node", True, True),
        (message(b"ours"), "a-node", False, True),
        (message(b"theirs"), "z-node", False, True),  # they are the same
        (message(b"theirs", b"\x01\x01"), "z-node", False, False),
    ],
)
def test_a_state_where_nothing_changed_here(
    changes: RetainedChanges, held: Message | None, node: str, is_written_there: bool, taken: bool
) -> None:
    assert changes.takes_state(message(b"theirs"), held, node, 50.0, is_written_there, MEMBERS) == taken


def test_the_node_that_wrote_last_is_believed(changes: RetainedChanges) -> None:
    changes.note(b"t", 60.0, "z-node")
    assert changes.takes_state(message(b""), message(b"ours"), "z-node", 50.0, True, MEMBERS)
    assert not changes.takes_state(message(b""), message(b"ours"), "a-node", 50.0, True, MEMBERS)


def test_a_writer_that_is_no_member_any_more_does_not_protect_its_value(changes: RetainedChanges) -> None:
    changes.note(b"t", 40.0, "gone")
    assert changes.takes_state(message(b"theirs"), message(b"ours"), "a-node", 50.0, False, MEMBERS)
    assert not changes.takes_state(message(b"theirs"), message(b"ours"), "a-node", 50.0, False, MEMBERS | {"gone"})


def test_a_value_from_a_full_state_is_older_than_any_change(changes: RetainedChanges) -> None:
    changes.note(b"t", LONG_AGO, "a-node")
    assert not changes.changed_since(b"t", 0.0)
    assert changes.changed_since(b"t", LONG_AGO)
