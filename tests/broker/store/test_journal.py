"""Changes of durable state between two batches."""

from __future__ import annotations

from broker.message import Message
from broker.store.journal import Journal


def test_several_changes_of_a_record_are_one() -> None:
    journal = Journal()
    number = journal.add("first")
    journal.change(number, "second")
    assert journal.take() == {number: "second"}
    journal.change(number, "third")
    journal.remove(number)
    assert journal.take() == {number: None}
    assert journal.take() == {}


def test_a_record_that_comes_and_goes_within_a_batch_is_not_written() -> None:
    journal = Journal()
    stays, goes = journal.add("stays"), journal.add("goes")
    journal.remove(goes)
    assert journal.take() == {stays: "stays"}
    assert journal.add("next") > goes, "no number is used again"


def test_numbers_go_on_behind_those_of_the_store() -> None:
    journal = Journal()
    journal.begin_behind(7)
    assert journal.add("new") == 8
    journal.remove(7)
    assert journal.take() == {8: "new", 7: None}


def test_acknowledgements_wait_for_additions_and_changes() -> None:
    journal = Journal()
    number = journal.add("x")
    for change, touches in ((journal.add, True), (lambda x: journal.change(number, x), True)):
        journal.is_touched = False
        change("y")
        assert journal.is_touched is touches
    journal.is_touched = False
    journal.remove(number)
    assert not journal.is_touched


def test_a_message_is_one_record_for_all_that_refer_to_it() -> None:
    journal = Journal()
    message = Message(b"a", b"x", 1, False)
    number = journal.add_reference(message)
    assert journal.add_reference(message) == number
    assert journal.take() == {number: message}
    journal.remove_reference(message)
    assert journal.take() == {}
    journal.remove_reference(message)
    assert (journal.take(), message.record) == ({number: None}, 0)
