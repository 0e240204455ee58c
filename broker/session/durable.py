"""Sessions in the store: which are durable, from when to when. Their messages are in `SessionRecords`."""

# compiled with mypyc
from __future__ import annotations

from broker.routing.subscription import Subscription
from broker.session.session import Session
from broker.session.session_records import SessionRecords
from broker.session.will import forget_stored
from broker.store.journal import Journal


def attach_records(session: Session, journal: Journal) -> None:
    """A connection serves the session. One whose client gave it a Session Expiry Interval of 0 ends with the connection, and
    so with the process, unless it is a member of a group with a queue."""
    records = session.records
    if session.expiry_interval == 0 and session.queued_groups is None:
        end_records(session)
    elif records is None:
        session.records = SessionRecords(journal, journal.add(session))
    else:
        journal.change(records.number, session)


def begin_records(session: Session, journal: Journal) -> None:
    """The session has become a member of a group with a queue: its messages outlive the process, and are requeued when the
    next one ends the session."""
    if session.records is not None:
        return
    if session.connection is not None:
        forget_stored(session.connection, journal)  # the record of the session has it
    records = session.records = SessionRecords(journal, journal.add(session))
    for subscription in session.subscriptions.values():
        note_subscription(session, subscription)
    if session.queue is not None:
        session.queue.records = records
    if session.inflight is not None:
        session.inflight.records = records
    for outgoing in session.queued() + ([] if session.inflight is None else session.inflight.messages()):
        if outgoing.qos and outgoing.message is not None:
            records.add(outgoing)
    if session.incoming is not None:
        for packet_id in session.incoming:
            session.incoming[packet_id] = records.add_received(packet_id)


def note_change(session: Session) -> None:
    """Fields of the session, its will or its connection have changed."""
    records = session.records
    if records is not None:
        records.journal.change(records.number, session)


def note_subscription(session: Session, subscription: Subscription) -> None:
    """The subscription is new, or has other options."""
    records = session.records
    if records is None:
        return
    if subscription.record:
        records.journal.change(subscription.record, subscription)
    else:
        subscription.record = records.journal.add(subscription)


def note_unsubscribed(session: Session, subscription: Subscription) -> None:
    records = session.records
    if records is not None:
        records.journal.remove(subscription.record)
        records.journal.is_touched = True


def end_records(session: Session) -> None:
    """The session ends, or is not durable any more."""
    records = session.records
    if records is None:
        return
    journal = records.journal
    session.records = None
    if session.inflight is not None:
        session.inflight.records = None
        for outgoing in session.inflight.messages():
            records.remove(outgoing)
    if session.queue is not None:
        session.queue.records = None
        for outgoing in session.queue.messages():
            records.remove(outgoing)
    if session.incoming is not None:
        for packet_id, record in session.incoming.items():
            records.remove_received(record)
            session.incoming[packet_id] = 0
    for subscription in session.subscriptions.values():
        journal.remove(subscription.record)
        subscription.record = 0
    journal.remove(records.number)
    journal.is_touched = True
