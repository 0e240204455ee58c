"""Sessions on their way, from the records of the store."""

# compiled with mypyc
from __future__ import annotations

from broker.broker import Broker
from broker.store.journal import Journal, StoredRecord, checked
from broker.store.kinds import ENDED, HEAD, HOME
from broker.store.restoring import StoredDeparture, begin_restored
from federation.sessions.departing import Departing, Marks, forget
from federation.sessions.home import Ended, Head
from federation.sessions.homes import Homes
from federation.sessions.moves import Moves


def restore(broker: Broker, homes: Homes, moves: Moves) -> None:
    """Take what the store keeps. Raises ValueError and TypeError for a record that no node has written."""
    homes.journal = journal = broker.commits.journal
    if journal is not None:
        for number, content in list(journal.kept.items()):
            if isinstance(content, StoredDeparture):
                _restore_departure(broker, moves, journal, number, content)
            elif isinstance(content, StoredRecord):
                _restore(broker, homes, moves, journal, number, content.stored)


def _restore_departure(broker: Broker, moves: Moves, journal: Journal, number: int, content: StoredDeparture) -> None:
    _, _, counter, store_id, since, name, waiting, has_head_left = content.stored
    now = broker.now
    departing = Departing(
        content.session,
        (checked(int, counter), checked(str, store_id)),
        checked(int, since),
        checked(str, name),
        moves.name,
        dict.fromkeys(checked(tuple, waiting)),
        None,
        None if has_head_left else Marks([], now),
        now,
    )
    departing.record = number
    journal.kept[number] = departing
    moves.begin_departure(departing)


def _restore(
    broker: Broker, homes: Homes, moves: Moves, journal: Journal, number: int, record: tuple[object, ...]
) -> None:
    kind = record[0]
    now = broker.now
    if kind == HOME:
        _, client_id, counter, is_clean, since, is_merged, handing, former, waiting = record
        home = homes.made(checked(str, client_id), checked(int, counter))
        home.is_clean = checked(bool, is_clean)
        home.record = number
        journal.kept[number] = home
        session = broker.sessions.get(home.client_id)
        if session is None:
            journal.drop(number)
            return
        homes.by_client[home.client_id] = home
        if former:
            arriving = moves.arrives(home, session, dict.fromkeys(checked(tuple, waiting)))
            arriving.begin([checked(str, name) for name in checked(tuple, former)], now)
            arriving.is_merged = checked(bool, is_merged)
            arriving.handing = dict.fromkeys(checked(tuple, handing))
            arriving.epoch = (checked(int, since), arriving.epoch[1])
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
