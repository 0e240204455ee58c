"""Serf's part of a push-pull (wire-gossip 7.2)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from federation.gossip.body_reader import BodyReader
from federation.gossip.errors import WireError
from federation.gossip.members import MEMBERS_MAX
from federation.gossip.msgpack_fields import STREAM_ELEMENTS_MAX, Fields, as_name, bytes_field, encode, text_field
from federation.serf.messages import EVENTS_MAX, RecentEvent, time_field

NAMES_MAX: Final = 2 * MEMBERS_MAX
"""Names in `StatusLTimes`, and in `LeftMembers`: as many as a node keeps members."""
SLOT_EVENTS_MAX: Final = 64
"""Events of one Lamport time that are read; further ones are left out and counted."""
SLOT_ENTRIES_MAX: Final = 1024
"""Events of one Lamport time that a state may have: each that is passed over costs time, too."""


@dataclass(slots=True)
class SerfState:
    """`events`: of at most EVENTS_MAX Lamport times.

    `refused`: number of entries that are invalid, for example names that are not UTF-8. They are left out.
    """

    lamport_time: int = 0
    event_time: int = 0
    query_time: int = 0
    status_times: dict[str, int] = field(default_factory=dict)
    left_members: list[str] = field(default_factory=list)
    events: list[RecentEvent] = field(default_factory=list)
    refused: int = 0

    @staticmethod
    def decode(body: bytes) -> SerfState:
        """Raises WireError."""
        state = SerfState()
        for _ in state.read(body):
            pass
        return state

    def read(self, body: bytes) -> Iterator[None]:
        """Fill this state from a body. Yields where a slice is over. Raises WireError."""
        reader = BodyReader(body)
        for _ in range(reader.map_length(STREAM_ELEMENTS_MAX, "Serf's state")):
            key = reader.scalar()
            if key == b"StatusLTimes":
                yield from self._read_status_times(reader)
            elif key == b"LeftMembers":
                yield from self._read_left_members(reader)
            elif key == b"Events":
                for _ in range(reader.array_length(EVENTS_MAX, "Events")):
                    if not reader.is_nil():
                        yield from self._read_slot(reader)
            elif key == b"LTime":
                self.lamport_time = self._clock(reader)
            elif key == b"EventLTime":
                self.event_time = self._clock(reader)
            elif key == b"QueryLTime":
                self.query_time = self._clock(reader)
            else:
                yield from reader.skip()
        reader.end()

    def _clock(self, reader: BodyReader) -> int:
        """A clock of the other side; 0, which advances no clock, when it is invalid."""
        time = reader.scalar()
        try:
            return time_field({b"LTime": time}, b"LTime")
        except WireError:
            self.refused += 1
            return 0

    def _read_status_times(self, reader: BodyReader) -> Iterator[None]:
        for _ in range(reader.map_length(NAMES_MAX, "StatusLTimes")):
            if reader.is_slice_over():
                yield
            name, time = reader.scalar(), reader.scalar()
            try:
                self.status_times[as_name(name, b"StatusLTimes")] = time_field({b"LTime": time}, b"LTime")
            except WireError:
                self.refused += 1

    def _read_left_members(self, reader: BodyReader) -> Iterator[None]:
        for _ in range(reader.array_length(NAMES_MAX, "LeftMembers")):
            if reader.is_slice_over():
                yield
            name = reader.scalar()
            try:
                self.left_members.append(as_name(name, b"LeftMembers"))
            except WireError:
                self.refused += 1

    def _read_slot(self, reader: BodyReader) -> Iterator[None]:
        """The events of one Lamport time, which may stand behind them."""
        events: list[Fields] = []
        time: object = None
        for _ in range(reader.map_length(STREAM_ELEMENTS_MAX, "an event slot")):
            key = reader.scalar()
            if key == b"Events":
                for _ in range(reader.array_length(SLOT_ENTRIES_MAX, "the events of one time")):
                    if len(events) < SLOT_EVENTS_MAX:
                        fields: Fields = {}
                        yield from _read_event(reader, fields)
                        events.append(fields)
                    else:
                        yield from reader.skip()
                        self.refused += 1
                    if reader.is_slice_over():
                        yield
            elif key == b"LTime":
                time = reader.scalar()
            else:
                yield from reader.skip()
        for fields in events:
            try:
                at = time_field({b"LTime": time}, b"LTime")
                self.events.append((at, text_field(fields, b"Name"), bytes_field(fields, b"Payload")))
            except WireError:
                self.refused += 1

    def encode(self) -> bytes:
        """Empty event slots are left out; Serf accepts that."""
        by_time: dict[int, list[dict[str, object]]] = {}
        for time, name, payload in self.events:
            by_time.setdefault(time, []).append({"Name": name, "Payload": payload})
        return b"\x02" + encode(
            {
                "EventLTime": self.event_time,
                "Events": [{"Events": events, "LTime": time} for time, events in by_time.items()],
                "LTime": self.lamport_time,
                "LeftMembers": self.left_members,
                "QueryLTime": self.query_time,
                "StatusLTimes": self.status_times,
            }
        )


def _read_event(reader: BodyReader, fields: Fields) -> Iterator[None]:
    for _ in range(reader.map_length(STREAM_ELEMENTS_MAX, "an event")):
        key = reader.scalar()
        if key in (b"Name", b"Payload"):
            assert isinstance(key, bytes)
            fields[key] = reader.scalar()
        else:
            yield from reader.skip()
