"""The store of a node that does not run: `gmqttd store check | export | import | compact`.

An export has the records as lines of JSON, with named values: for people, and to move from one store to another. The
first line is {"gmqttd_store": VERSION}. Topics and topic filters are text. Other bytes are base64, and their names end
with `_base64`.
"""

from __future__ import annotations

import binascii
import json
import random
import re
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from operator import itemgetter
from typing import Any, Final

from broker.broker import Broker
from broker.config.settings import Settings
from broker.store.durability import make_store
from broker.store.identity import new_store_id
from broker.store.kinds import (
    COPY,
    DELETION,
    DEPARTING,
    ENDED,
    HEAD,
    HOME,
    INTEREST,
    KEEPERS,
    MESSAGE,
    OUTBOX,
    OUTGOING,
    POSITION,
    RECEIVED,
    REPLICA,
    RETAINED,
    RUN,
    SESSION,
    STORE,
    SUBSCRIPTION,
    TOMBSTONE,
    WILL,
)
from broker.store.restoring import RecordFault, Restoring
from broker.store.store import VERSION, Store, StoreFault, pack_record, unpack_record

HEADER: Final = "gmqttd_store"
STORE_ID: Final = "store_id"  # in the first line of one of several stores that know each other
TEXTS: Final = ("topic", "topic_filter", "link")  # kept as bytes of UTF-8
BINARIES: Final = ("payload", "properties", "events", "stamp", "packed", "replayed_to")
SUFFIX: Final = "_base64"
MESSAGE_FIELDS: Final = ("topic", "payload", "qos", "retain", "properties", "expires_at", "client_id")
WILL_FIELDS: Final = (
    *("topic", "payload", "qos", "retain", "properties"),
    *("message_expiry_interval", "delay_interval"),
)
SESSION_FIELDS: Final = (
    *("client_id", "username", "access", "version", "keep_alive", "remote_addr", "local_addr", "created_at"),
    *("connected_at", "expiry_interval", "disconnected_at", "will", "will_due_at"),
)
FIELDS: Final = {
    SESSION: SESSION_FIELDS,
    WILL: SESSION_FIELDS,
    SUBSCRIPTION: (
        *("session", "topic_filter", "qos", "no_local", "retain_as_published", "retain_handling", "identifier"),
    ),
    MESSAGE: MESSAGE_FIELDS,
    OUTGOING: ("session", "message", "qos", "retain", "identifiers", "expires_at", "packet_id", "state"),
    RECEIVED: ("session", "packet_id"),
    RETAINED: MESSAGE_FIELDS,
    STORE: ("store_id", "starts"),
    OUTBOX: ("node", "serial", "done", "since", "count", "messages", "events", "expiring", "retained"),
    POSITION: ("store_id", "serial", "done"),
    INTEREST: ("node", "filters"),
    TOMBSTONE: ("topic", "stamp"),
    HOME: ("client_id", "counter", "is_clean", "arriving"),
    DEPARTING: ("session", "counter", "store_id", "since", "node", "waiting", "has_head_left", "before"),
    ENDED: ("client_id", "counter"),
    HEAD: ("node", "client_id", "records"),
    REPLICA: ("node", "store_id", "starts", "version", "position", "is_complete", "names"),
    COPY: ("replica", "there", "record"),
    KEEPERS: ("version", "names"),
    RUN: ("replica", "packed"),
    DELETION: ("topic", "link"),
}
# At the end of records that have something to do with links, queues of groups, replay, or a federation, and of positions since
# they belong to nodes; each with those before it.
OPTIONAL: Final = {
    REPLICA: ("stored_below",),
    SESSION: ("link", "left_groups", "came_at"),
    WILL: ("link", "left_groups", "came_at"),
    SUBSCRIPTION: ("wants", "replayed_to"),
    MESSAGE: ("link",),
    OUTGOING: ("topic_filter",),
    RETAINED: ("link", "stamp"),
    POSITION: ("node", "former"),
    STORE: ("formerly", "unstored", "newest", "node"),
    OUTBOX: ("is_kept",),
    HOME: ("adopted", "includes", "lineage"),
    DEPARTING: ("adopted", "includes", "lineage", "switched", "said"),
}
KINDS: Final = {
    **{"session": SESSION, "subscription": SUBSCRIPTION, "message": MESSAGE},
    **{"outgoing": OUTGOING, "received": RECEIVED, "retained": RETAINED},
    **{"store": STORE, "outbox": OUTBOX, "position": POSITION, "interest": INTEREST},
    **{"tombstone": TOMBSTONE},
    **{"home": HOME, "departing": DEPARTING, "ended": ENDED, "head": HEAD},
    **{"replica": REPLICA, "copy": COPY, "keepers": KEEPERS, "run": RUN},
    **{"will": WILL, "deletion": DELETION},
}
KIND_NAMES: Final = {kind: name for name, kind in KINDS.items()}

# Their records know no store.
OF_CLIENTS: Final = frozenset(
    (SESSION, WILL, SUBSCRIPTION, MESSAGE, OUTGOING, RECEIVED, RETAINED, INTEREST, TOMBSTONE, DELETION)
)

STORE_ID_TEXT: Final = re.compile("[0-9a-f]{32}")
FAULTS_MAX: Final = 20  # that are told; the others are counted


@contextmanager
def opened(settings: Settings, config_folder: str, create: bool = False) -> Iterator[Store]:
    """The store that the settings name, locked. Raises StoreFault."""
    store = make_store(settings, config_folder)
    if store is None:
        raise StoreFault("persistence.type is memory: there is no store; set data_dir, or type redis")
    try:
        store.open(create)
        yield store
    finally:
        store.close()


def check(settings: Settings, config_folder: str) -> tuple[dict[str, int], list[str]]:
    """(number of records by kind, faults). Raises StoreFault when the store cannot be read to its end."""
    counts: Counter[str] = Counter()
    faults: list[str] = []
    restoring = _scratch(settings)
    with opened(settings, config_folder) as store:
        for number, packed in store.records():
            try:
                record = unpack_record(number, packed)
                restoring.add(number, record)
            except (StoreFault, RecordFault) as fault:
                faults.append(str(fault))
            else:
                counts[KIND_NAMES[record[0]]] += 1  # type: ignore[index]
    if len(faults) > FAULTS_MAX:
        faults[FAULTS_MAX:] = [f"and {len(faults) - FAULTS_MAX} more"]
    return dict(counts), faults


def _scratch(settings: Settings) -> Restoring:
    """Restores into a broker that serves nobody."""
    return Restoring(Broker(settings.mqtt, random.Random(0), 0.0), 0.0, 0.0)


def export(settings: Settings, config_folder: str) -> Iterator[str]:
    """The lines of an export. Raises StoreFault for a damaged record."""
    with opened(settings, config_folder) as store:
        records: Iterator[tuple[int, Any]] = (
            (number, unpack_record(number, packed)) for number, packed in store.records()
        )
        yield from export_lines(records)


def import_(settings: Settings, config_folder: str, lines: Iterable[str], replace: bool) -> int:
    """Write an export to the store, all or nothing. Returns the number of records. Raises StoreFault for lines that are no
    export, and for a store that has records, unless they are to be replaced."""
    batch = batch_of(settings, lines, {})
    with free_store(settings, config_folder, replace) as store:
        store.replace(batch)
    return len(batch)


def batch_of(settings: Settings, lines: Iterable[str], ids: Mapping[str, str]) -> list[tuple[int, bytes | None]]:
    """The records of an export as a store takes them. `ids` are the new ids of stores that know each other, by those of the
    export (new_ids). Raises StoreFault for lines that are no export."""
    restoring = _scratch(settings)
    batch: list[tuple[int, bytes | None]] = []
    last = 0
    found = ((number, renamed(record, ids)) for number, record in import_lines(lines))
    for number, record in sorted(found, key=itemgetter(0)):
        if number <= last:
            raise StoreFault(f"record {number}: each number stands once, from 1 on")
        last = number
        try:
            restoring.add(number, record)
        except RecordFault as fault:
            raise StoreFault(str(fault)) from None
        batch.append((number, pack_record(record)))
    return batch


@contextmanager
def free_store(settings: Settings, config_folder: str, replace: bool) -> Iterator[Store]:
    """The store for records of an export, locked. Raises StoreFault for one that has records, unless they are replaced."""
    with opened(settings, config_folder, create=True) as store:
        if not replace and next(store.records(), None) is not None:
            raise StoreFault("the store has records; --replace imports in place of them")
        yield store


def compact(settings: Settings, config_folder: str) -> None:
    with opened(settings, config_folder) as store:
        store.compact()


def new_ids(headers: Iterable[str], rng: random.Random) -> dict[str, str]:
    """Return new ids of the stores of these exports, by their old ones. headers: the first line of each. Raises StoreFault."""
    found: dict[str, str] = {}
    for header in headers:
        try:
            store_id = json.loads(header).get(STORE_ID)
        except (ValueError, AttributeError):
            raise StoreFault("line 1 is not a line of an export: it is not JSON") from None
        if store_id is not None:
            if not isinstance(store_id, str) or not STORE_ID_TEXT.fullmatch(store_id):
                raise StoreFault(f"line 1: {STORE_ID} is {store_id!a}, must be 32 hexadecimal digits")
            found[store_id] = new_store_id(rng)
    return found


def renamed(record: tuple[Any, ...], ids: Mapping[str, str]) -> tuple[Any, ...]:
    """The record with new ids, also in the frames for other stores, where they are ASCII of the same length. What clients have
    chosen stays."""
    kind = record[0]
    if not ids or kind in OF_CLIENTS:
        return record
    if kind == HEAD:
        *first, records = record
        return *first, tuple([renamed(part, ids) for part in records])
    kept = 2 if kind in (HOME, ENDED) else 1  # a client id comes first
    return *record[:kept], *[_with_ids(value, ids) for value in record[kept:]]


def _with_ids(value: Any, ids: Mapping[str, str]) -> Any:
    if isinstance(value, tuple):
        return tuple([_with_ids(part, ids) for part in value])
    if isinstance(value, str):
        return ids.get(value, value)
    if isinstance(value, bytes):
        for old, new in ids.items():
            value = value.replace(old.encode(), new.encode())
    return value


def export_lines(records: Iterable[tuple[int, tuple[Any, ...]]], store_id: str = "") -> Iterator[str]:
    """store_id: of a store that goes together with others that know it; "" for one by itself, whose import is a store that
    nobody knows."""
    yield json.dumps({HEADER: VERSION, STORE_ID: store_id} if store_id else {HEADER: VERSION})
    for number, (kind, *values) in records:
        if kind == STORE and not store_id:
            continue  # others may not take what is imported for this one
        named = _named((*FIELDS[kind], *OPTIONAL.get(kind, ()))[: len(values)], values)
        yield json.dumps({"number": number, "kind": KIND_NAMES[kind], **named}, ensure_ascii=False)


def _named(names: Iterable[str], values: Iterable[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in zip(names, values, strict=True):
        if name in TEXTS:
            found[name] = value.decode()
        elif name in BINARIES:
            found[name + SUFFIX] = b64encode(value).decode()
        elif name == "wants":
            found[name] = [want.decode() for want in value]
        elif name == "will" and value is not None:
            found[name] = _named(WILL_FIELDS, value)
        else:
            found[name] = _plain(value)
    return found


def import_lines(lines: Iterable[str]) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """The inverse of export_lines. Raises StoreFault that names the line."""
    at = 0
    try:
        for at, line in enumerate(lines, 1):
            found = json.loads(line)
            if at == 1:
                if not 0 < found[HEADER] <= VERSION:
                    raise StoreFault(f"line 1: version {found[HEADER]}, this gmqttd reads versions up to {VERSION}")
                continue
            kind = KINDS[found["kind"]]
            optional = [name for name in OPTIONAL.get(kind, ()) if name in found or name + SUFFIX in found]
            values = _values((*FIELDS[kind], *optional), found)
            number = found["number"]
            if not isinstance(number, int):
                raise TypeError("number is no whole number")
            yield number, (kind, *values)
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error) as error:
        raise StoreFault(f"line {at} is not a line of an export: {_text_of(error)}") from None
    if at == 0:
        raise StoreFault("the file is empty")


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return {SUFFIX: b64encode(value).decode()}
    return [_plain(part) for part in value] if isinstance(value, tuple) else value


def _nested(value: Any) -> Any:
    """The inverse of _plain. Raises TypeError, KeyError and binascii.Error for others."""
    if isinstance(value, dict):
        return b64decode(value[SUFFIX], validate=True)
    return tuple([_nested(part) for part in value]) if isinstance(value, list) else value


def _text_of(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"{error} is missing or not known"
    return "it is not JSON" if isinstance(error, json.JSONDecodeError) else str(error)


def _values(names: Iterable[str], found: dict[str, Any]) -> list[Any]:
    values: list[Any] = []
    for name in names:
        if name in TEXTS:
            values.append(found[name].encode())
        elif name in BINARIES:
            values.append(b64decode(found[name + SUFFIX], validate=True))
        elif name == "will" and found[name] is not None:
            values.append(tuple(_values(WILL_FIELDS, found[name])))
        elif name == "wants":
            values.append(tuple([want.encode() for want in found[name]]))
        else:
            values.append(_nested(found[name]))
    return values
