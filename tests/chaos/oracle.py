"""What must be true after a chaos run. Rules over rows, without I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, NamedTuple

from messages import number_of

EXAMPLES_MAX: Final = 5
MARKER: Final = "gmqttd-pipeline"


class Row(NamedTuple):
    """A record with the columns of the source, `ts` left out."""

    node: str
    log: str
    offset: int
    time: int
    topic: str
    payload: bytes
    qos: int
    retain: bool
    client_id: str | None
    user_name: str | None
    content_type: str | None
    response_topic: str | None
    correlation_data: bytes | None
    user_properties: tuple[tuple[str, str], ...]
    expiry: int | None
    origin: str | None

    @property
    def place(self) -> tuple[str, str, int]:
        return self.node, self.log, self.offset

    @property
    def marker(self) -> str | None:
        """QUERY/BATCH/ROW of what a pipeline published."""
        return next((value for key, value in self.user_properties if key == MARKER), None)


@dataclass
class Fault:
    """One thing that is wrong, how often, and the first examples."""

    what: str
    count: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, example: object) -> None:
        self.count += 1
        if len(self.examples) < EXAMPLES_MAX:
            self.examples.append(str(example))

    def __str__(self) -> str:
        return f"{self.count} {self.what}, such as {'; '.join(self.examples)}"


def found(*faults: Fault) -> list[Fault]:
    return [fault for fault in faults if fault.count]


def compare_with_log(log_rows: Sequence[Row], archive_rows: Sequence[Row]) -> list[Fault]:
    """Whether the archive has each record of the logs once, and as it was logged."""
    twice = Fault("(node, log, offset) more than once in the archive")
    for place, count in Counter(row.place for row in archive_rows).items():
        if count > 1:
            twice.add(place)
    missing = Fault("records of a log not in the archive")
    foreign = Fault("rows of the archive in no log")
    different = Fault("rows of the archive that are not as in the log")
    archived = {row.place: row for row in archive_rows}
    for row in log_rows:
        other = archived.pop(row.place, None)
        if other is None:
            missing.add(row.place)
        elif other != row:
            names = [name for name, a, b in zip(Row._fields, row, other, strict=True) if a != b]
            different.add(f"{row.place}: {', '.join(names)}")
    for place in archived:
        foreign.add(place)
    return found(twice, missing, foreign, different)


def check_offsets(log_rows: Iterable[Row]) -> list[Fault]:
    """Whether the offsets of each log follow each other, and its times do not step back."""
    gaps = Fault("offsets that do not follow the one before")
    back = Fault("times before that of the record before")
    for _, rows in groupby(sorted(log_rows, key=lambda row: row.place), key=lambda row: row.place[:2]):
        last: Row | None = None
        for row in rows:
            if last is not None and row.offset != last.offset + 1:
                gaps.add(row.place)
            if last is not None and row.time < last.time:
                back.add(row.place)
            last = row
    return found(gaps, back)


def check_acknowledged(seed: int, acknowledged: bytes, archive_rows: Iterable[Row]) -> list[Fault]:
    """Whether every acknowledged message is in the archive, and nothing that was never sent."""
    missing = Fault("acknowledged messages not in the archive")
    unknown = Fault("payloads in the archive that nobody sent")
    seen = bytearray(len(acknowledged))
    for row in archive_rows:
        number = number_of(seed, row.payload)
        if number is None or number >= len(seen):
            unknown.add(row.place)
        else:
            seen[number] = 1
    for number, is_acknowledged in enumerate(acknowledged):
        if is_acknowledged and not seen[number]:
            missing.add(f"number {number}")
    return found(missing, unknown)


def check_sent(seed: int, sent: Sequence[int], log_rows: Iterable[Row]) -> list[Fault]:
    """Whether the logs have no message more often than it was sent. `sent`: how often, by number."""
    more = Fault("messages that the logs have more often than they were sent")
    logged = Counter(number_of(seed, row.payload) for row in log_rows)
    for number, count in logged.items():
        times = sent[number] if number is not None and number < len(sent) else 0
        if count > times:
            more.add(f"number {number}: sent {times} times, logged {count} times")
    return found(more)


def check_sink(sink_rows: Iterable[Row], source_rows: Iterable[Row]) -> list[Fault]:
    """Whether a query that copies every source row through the sink did so once for each row.

    sink_rows    records with the marker, of the staging node's log, in the order of their offsets. The payload of a copy
                 names the place of its source row (`copy_payload`)
    source_rows  records without the marker, of all logs
    """
    twice = Fault("(query, batch, row) more than once in the log of the staging node")
    gaps = Fault("batches whose rows are not 0, 1, 2, … in this order")
    copied_twice = Fault("source rows that were copied more than once")
    not_copied = Fault("source rows that were not copied")
    unknown = Fault("copies of no source row")
    rows_of: dict[str, list[int]] = {}
    copies: Counter[bytes] = Counter()
    for row in sink_rows:
        marker = row.marker
        assert marker is not None
        batch, _, number = marker.rpartition("/")
        rows_of.setdefault(batch, []).append(int(number))
        copies[row.payload] += 1
    for batch, numbers in rows_of.items():
        for place, count in Counter(numbers).items():
            if count > 1:
                twice.add(f"{batch}/{place}")
        if sorted(set(numbers)) != list(range(len(set(numbers)))) or numbers != sorted(numbers):
            gaps.add(batch)
    for row in source_rows:
        count = copies.pop(copy_payload(row), 0)
        if count == 0:
            not_copied.add(row.place)
        elif count > 1:
            copied_twice.add(row.place)
    for payload in copies:
        unknown.add(payload.decode(errors="replace"))
    return found(twice, gaps, copied_twice, not_copied, unknown)


def copy_payload(row: Row) -> bytes:
    """The payload of the copy of a source row, as `sink_query` makes it."""
    return f"{row.node} {row.log} {row.offset}".encode()
