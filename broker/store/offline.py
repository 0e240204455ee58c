"""The store of a node that does not run: `gmqttd store check | export | import | compact`."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from operator import itemgetter
from typing import Any, Final

from broker.broker import Broker
from broker.config.settings import Settings
from broker.store.durability import make_store
from broker.store.exported import KIND_NAMES, export_lines, import_lines
from broker.store.restoring import RecordFault, Restoring
from broker.store.store import Store, StoreFault, pack_record, unpack_record

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
    restoring = _scratch(settings)
    batch: list[tuple[int, bytes | None]] = []
    last = 0
    for number, record in sorted(import_lines(lines), key=itemgetter(0)):
        if number <= last:
            raise StoreFault(f"record {number}: each number stands once, from 1 on")
        last = number
        try:
            restoring.add(number, record)
        except RecordFault as fault:
            raise StoreFault(str(fault)) from None
        batch.append((number, pack_record(record)))
    with opened(settings, config_folder, create=True) as store:
        if not replace and next(store.records(), None) is not None:
            raise StoreFault("the store has records; --replace imports in place of them")
        store.replace(batch)
    return len(batch)


def compact(settings: Settings, config_folder: str) -> None:
    with opened(settings, config_folder) as store:
        store.compact()
