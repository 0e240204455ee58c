"""The times of deletions, and their bounds."""

from __future__ import annotations

from broker.origin import Origin
from broker.store.journal import Journal, StoredRecord
from broker.store.store import pack_record, unpack_record
from federation.links.bridging.own_domain import Deletions


def at(milliseconds: int) -> Origin:
    return Origin(published_at_ms=milliseconds)


def test_the_last_deletion_of_a_topic_counts() -> None:
    deletions = Deletions()
    assert deletions.time_of(b"t") == 0
    deletions.note(b"t", at(5))
    deletions.note(b"t", at(7))
    assert deletions.time_of(b"t") == 7


def test_the_oldest_deletion_is_forgotten_past_either_bound() -> None:
    for deletions in (Deletions(topics_max=2), Deletions(bytes_max=2)):
        for number, topic in enumerate((b"a", b"b", b"a", b"c"), 1):
            deletions.note(topic, at(number))
        assert [deletions.time_of(topic) for topic in (b"a", b"b", b"c")] == [3, 0, 4]
        assert deletions.forgotten == 1


def test_a_topic_above_the_bound_of_bytes_is_not_kept() -> None:
    deletions = Deletions(bytes_max=2)
    deletions.note(b"abc", at(1))
    deletions.note(b"a", at(2))
    assert (deletions.time_of(b"abc"), deletions.time_of(b"a"), deletions.forgotten) == (0, 2, 1)


def test_deletions_outlive_the_process_with_a_store() -> None:
    journal = Journal()
    deletions = Deletions(topics_max=3)
    deletions.restore(journal)
    for number, topic in enumerate((b"forgotten", b"a", b"b", b"a", b"c"), 1):
        deletions.note(topic, at(number))
    after = Journal()
    for number, content in journal.kept.items():
        after.keep(StoredRecord(unpack_record(number, pack_record(content.values(0.0)))))
    restored = Deletions(topics_max=3)
    restored.restore(after)
    assert [restored.time_of(topic) for topic in (b"forgotten", b"a", b"b", b"c")] == [0, 4, 3, 5]
    assert len(after.kept) == len(restored) == 3
    restored.note(b"d", at(6))
    assert restored.time_of(b"b") == 0, "the oldest one goes first, as in the process before"
    kept = [found.origin.encode() for each in (deletions, restored) if (found := each.get(b"a")) and found.origin]
    assert kept[0] == kept[1]
