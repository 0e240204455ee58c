"""Sessions on their way, from the records of the store."""

# compiled with mypyc
from __future__ import annotations

from broker.broker import Broker
from broker.session.session import Session
from broker.store.journal import Journal, StoredRecord, checked
from broker.store.kinds import ENDED, HEAD, HOME
from broker.store.restoring import StoredDeparture, begin_restored
from federation.sessions.arriving import Arriving
from federation.sessions.departing import Departing, Marks, forget
from federation.sessions.home import Ended, Head, adopted_of, more_included
from federation.sessions.homes import Homes
from federation.sessions.moves import Moves


def restore(broker: Broker, homes: Homes, moves: Moves) -> None:
    """Take what the store keeps. Raises ValueError and TypeError for a record that no node has written."""
    homes.journal = journal = broker.commits.journal
    if journal is not None:
        for number, content in list(journal.kept.items()):
            if isinstance(content, StoredDeparture):
                _restore_departure(broker, homes, moves, journal, number, content)
            elif isinstance(content, StoredRecord):
                _restore(broker, homes, moves, journal, number, content.stored)


def _arriving(session: Session, homes: Homes, own_name: str, values: tuple[object, ...], now: float) -> Arriving:
    counter, store_id, is_merged, handing, names, waiting = values
    epoch = (checked(int, counter), checked(str, store_id))
    found = () if checked(bool, is_merged) else checked(tuple, waiting)
    arriving = Arriving(session, epoch, own_name, dict.fromkeys(found))
    arriving.restore(checked(tuple, handing), checked(tuple, names), now)
    if arriving.moves_messages():
        arriving.move_number = homes.next_number()
    return arriving


def _restore_departure(
    broker: Broker, homes: Homes, moves: Moves, journal: Journal, number: int, content: StoredDeparture
) -> None:
    _, _, counter, store_id, since, name, waiting, has_head_left, before, *more = content.stored
    now = broker.now
    departing = Departing(
        content.session,
        (checked(int, counter), checked(str, store_id)),
        checked(int, since),
        checked(str, name),
        moves.name,
        dict.fromkeys(checked(tuple, waiting)),
        None if before is None else _arriving(content.session, homes, moves.name, checked(tuple, before), now),
        None if has_head_left else Marks([], now),
        now,
    )
    if more:
        departing.came(adopted_of(more[0]), more_included(None, more[1]) if len(more) > 1 else None, {})
    if len(more) > 2 and departing.before is not None:
        departing.before.take_lineage(more[2])
    if len(more) > 3:
        said_counter, said_store = checked(tuple, more[4]) if len(more) > 4 else (0, "")
        said = checked(int, said_counter), checked(str, said_store)
        departing.restore_switched(checked(tuple, more[3]), said, now)
    departing.record = number
    journal.kept[number] = departing
    moves.begin_departure(departing)


def _restore(
    broker: Broker, homes: Homes, moves: Moves, journal: Journal, number: int, record: tuple[object, ...]
) -> None:
    kind = record[0]
    now = broker.now
    if kind == HOME:
        _, client_id, counter, is_clean, values, *more = record
        home = homes.made(checked(str, client_id), checked(int, counter))
        home.is_clean = checked(bool, is_clean)
        home.record = number
        home.own_since = 0
        if more:
            home.adopted = adopted_of(more[0])
        if len(more) > 1:
            home.include(more[1])
        journal.kept[number] = home
        session = broker.sessions.get(home.client_id)
        if session is None:
            journal.drop(number)
            return
        homes.by_client[home.client_id] = home
        if values is not None:
            arriving = _arriving(session, homes, moves.name, checked(tuple, values), now)
            if len(more) > 2:
                arriving.take_lineage(more[2])
            home.first = home.own_since = arriving.epoch[0]
            homes.arrives(home, arriving)
            homes.wait_for_hand_over(home, arriving.until)
    elif kind == ENDED:
        _, client_id, counter = record
        ended = Ended(checked(str, client_id), checked(int, counter), homes.next_number())
        ended.record = number
        journal.kept[number] = ended
        homes.ended[ended.client_id] = ended
    elif kind == HEAD:
        _, name, client_id, records = record
        head = Head(checked(str, name), checked(str, client_id), list(checked(tuple, records)))
        head.record = number
        journal.kept[number] = head
        moves.heads[(head.node, head.client_id)] = head


def keep_here(broker: Broker) -> None:
    """Nodes do not share sessions any more: those that were on their way stay. Raises as `Sessions.begin`."""
    journal = broker.commits.journal
    if journal is None:
        return
    for number, content in list(journal.kept.items()):
        if isinstance(content, StoredDeparture):
            session = content.session
            if session.client_id in broker.sessions:
                forget(broker, session, broker.now)
            else:
                begin_restored(broker, session)
            journal.drop(number)
        elif isinstance(content, StoredRecord) and content.stored[0] in (HOME, ENDED, HEAD):
            journal.drop(number)
