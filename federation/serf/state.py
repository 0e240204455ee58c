"""Serf's part of a push-pull (wire-gossip 7.2)."""

from __future__ import annotations

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
        reader = BodyReader(body)
        state = SerfState()
        for _ in range(reader.map_length(STREAM_ELEMENTS_MAX, "Serf's state")):
            key = reader.scalar()
            if key == b"StatusLTimes":
                state._read_status_times(reader)
            elif key == b"LeftMembers":
                state._read_left_members(reader)
            elif key == b"Events":
                for _ in range(reader.array_length(EVENTS_MAX, "Events")):
                    if not reader.is_nil():
                        state._read_slot(reader)
            elif key == b"LTime":
                state.lamport_time = state._clock(reader)
            elif key == b"EventLTime":
                state.event_time = state._clock(reader)
            elif key == b"QueryLTime":
                state.query_time = state._clock(reader)
            else:
                reader.skip()
        reader.end()
        return state

    def _clock(self, reader: BodyReader) -> int:
        """A clock of the other side; 0, which advances no clock, when it is invalid."""
        try:
            return time_field({b"LTime": reader.scalar()}, b"LTime")
        except WireError:
            self.refused += 1
            return 0

    def _read_status_times(self, reader: BodyReader) -> None:
        for _ in range(reader.map_length(NAMES_MAX, "StatusLTimes")):
            name, time = reader.scalar(), reader.scalar()
            try:
                self.status_times[as_name(name, b"StatusLTimes")] = time_field({b"LTime": time}, b"LTime")
            except WireError:
                self.refused += 1

    def _read_left_members(self, reader: BodyReader) -> None:
        for _ in range(reader.array_length(NAMES_MAX, "LeftMembers")):
            try:
                self.left_members.append(as_name(reader.scalar(), b"LeftMembers"))
            except WireError:
                self.refused += 1

    def _read_slot(self, reader: BodyReader) -> None:
        """The events of one Lamport time, which may stand behind them."""
        events: list[Fields] = []
        time: object = None
        for _ in range(reader.map_length(STREAM_ELEMENTS_MAX, "an event slot")):
            key = reader.scalar()
            if key == b"Events":
                for _ in range(reader.array_length(SLOT_ENTRIES_MAX, "the events of one time")):
                    if len(events) < SLOT_EVENTS_MAX:
                        events.append(self._read_event(reader))
                    else:
                        reader.skip()
                        self.refused += 1
            elif key == b"LTime":
                time = reader.scalar()
            else:
                reader.skip()
        for fields in events:
            try:
                at = time_field({b"LTime": time}, b"LTime")
                self.events.append((at, text_field(fields, b"Name"), bytes_field(fields, b"Payload")))
            except WireError:
                self.refused += 1

    def _read_event(self, reader: BodyReader) -> Fields:
        fields: Fields = {}
        for _ in range(reader.map_length(STREAM_ELEMENTS_MAX, "an event")):
            key = reader.scalar()
            if key in (b"Name", b"Payload"):
                assert isinstance(key, bytes)
                fields[key] = reader.scalar()
            else:
                reader.skip()
        return fields

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
