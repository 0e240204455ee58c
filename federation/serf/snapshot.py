"""Serf's snapshot: lines of text with the members and the clocks, for the join after a restart (wire-gossip 10).

A core: bytes of the file come in at the start, lines to append go out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from federation.gossip.addresses import Address, pack_ip
from federation.gossip.members import MEMBERS_MAX, is_node_name
from federation.gossip.msgpack_fields import NAME_BYTES_MAX, WITNESSED_TIME_MAX
from federation.serf.events import Event, Member, MemberEvent, MemberJoin, MemberLeave, MemberReap

COMPACT_BYTES_MIN: Final = 128 << 10
"""A smaller file is never written anew."""
COMPACT_BYTES_PER_MEMBER: Final = 256
"""A larger file is written anew when it has more bytes than this for each member: as Serf does."""
SNAPSHOT_BYTES_MAX: Final = 64 << 20
"""A larger file is no snapshot: compaction keeps it far below."""
LINES_MAX: Final = 16_384
"""Lines that wait for a disk that takes none; policy: the file is written anew."""

_CLOCKS: Final = ("clock", "event-clock", "query-clock")


class NotASnapshot(ValueError):
    """The bytes are not those of a snapshot; the text says why."""


@dataclass(slots=True)
class SnapshotContents:
    """The contents of a file. `members`: addresses by name, in the order of the file. `clocks`: the last times seen of members,
    events and queries. `whole`: bytes up to the end of the last whole line. `unknown`: lines that say nothing known."""

    members: dict[str, Address] = field(default_factory=dict)
    clocks: list[int] = field(default_factory=lambda: [0, 0, 0])
    whole: int = 0
    unknown: int = 0


def read_snapshot(data: bytes, rejoin_after_leave: bool) -> SnapshotContents:
    """Read a file of this node or of Serf. A last line without an end was torn in writing and does not count.

    A leave forgets all before it, unless `rejoin_after_leave`. Raises NotASnapshot.
    """
    if len(data) > SNAPSHOT_BYTES_MAX:
        raise NotASnapshot(f"it has {len(data)} bytes, a snapshot at most {SNAPSHOT_BYTES_MAX}")
    found = SnapshotContents(whole=data.rfind(b"\n") + 1)
    known = 0
    for line in data[: found.whole].split(b"\n")[:-1]:
        if _read_line(line, rejoin_after_leave, found):
            known += 1
        else:
            found.unknown += 1
    if found.unknown and not known:
        raise NotASnapshot(f"none of its {found.unknown} lines is one of a snapshot, such as `alive: NAME HOST:PORT`")
    return found


def _read_line(line: bytes, rejoin_after_leave: bool, found: SnapshotContents) -> bool:
    """Apply one line; False when it says nothing known."""
    try:
        key, _, value = line.decode().partition(": ")
    except UnicodeDecodeError:
        return False
    if key == "alive":
        name, _, text = value.rpartition(" ")
        address = _read_address(text)
        if address is None or not is_node_name(name) or len(name.encode()) > NAME_BYTES_MAX:
            return False
        found.members.pop(name, None)
        if len(found.members) >= MEMBERS_MAX:
            del found.members[next(iter(found.members))]
        found.members[name] = address
    elif key == "not-alive":
        found.members.pop(value, None)
    elif key in _CLOCKS:
        if not (value.isascii() and value.isdigit() and len(value) < 20 and int(value) <= WITNESSED_TIME_MAX):
            return False
        found.clocks[_CLOCKS.index(key)] = int(value)
    elif key == "leave":
        if not rejoin_after_leave:
            found.members.clear()
            found.clocks = [0, 0, 0]
    else:
        return key == "coordinate" or key.startswith("#")  # of old releases, and comments
    return True


def _read_address(text: str) -> Address | None:
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    try:
        pack_ip(host)
    except ValueError:
        return None
    return (host, int(port)) if port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65536 else None


def _alive_line(name: str, address: Address) -> str:
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    return f"alive: {name} {host}:{address[1]}\n"


class SnapshotLog:
    """The lines for the file, as it goes on from `contents`. `own_name` is not written: nobody joins itself.

    A failed member stays in the file until it is forgotten: Serf takes it out at once, and when both sides of a partition
    are restarted, neither would know the other any more.
    """

    def __init__(self, contents: SnapshotContents, own_name: str) -> None:
        self._own_name = own_name
        self._members = dict(contents.members)
        self._members.pop(own_name, None)
        self._clocks = list(contents.clocks)
        self._bytes = contents.whole
        self._lines: list[str] = []
        self._must_compact = False
        self.has_left = False

    @property
    def members(self) -> dict[str, Address]:
        """Addresses of the members that the file has, by name."""
        return dict(self._members)

    def _add(self, line: str) -> None:
        """Note a line. Where a disk takes none for long, all of the file is written anew instead."""
        if len(self._lines) >= LINES_MAX:
            self._lines.clear()
            self.fail()
        self._lines.append(line)

    def note_events(self, events: list[Event]) -> None:
        """Members joined, left or were forgotten. After a leave nothing is noted: the others are no longer ours to tell of."""
        for event in events:
            if not isinstance(event, MemberEvent) or self.has_left or event.member.name == self._own_name:
                continue
            member = event.member
            if isinstance(event, MemberJoin):
                self._note_alive(member)
            elif isinstance(event, (MemberLeave, MemberReap)) and self._members.pop(member.name, None) is not None:
                self._add(f"not-alive: {member.name}\n")

    def _note_alive(self, member: Member) -> None:
        address = (member.ip, member.port)
        if self._members.get(member.name) == address:
            return
        if member.name not in self._members and len(self._members) >= MEMBERS_MAX:
            first = next(iter(self._members))
            del self._members[first]
            self._add(f"not-alive: {first}\n")
        self._members[member.name] = address
        self._add(_alive_line(member.name, address))

    def note_clocks(self, *last_seen: int) -> None:
        """The last times seen of members, events and queries."""
        for index, time in enumerate(last_seen):
            if time > self._clocks[index]:
                self._clocks[index] = time
                self._add(f"{_CLOCKS[index]}: {time}\n")

    def leave(self) -> None:
        """This node leaves: after a restart it joins nobody in this file, unless `rejoin_after_leave`."""
        if not self.has_left:
            self.has_left = True
            self._add("leave\n")

    def rejoin(self, members: list[Member]) -> None:
        """This node is a member again after a leave, and these are the members that it knows."""
        self.has_left = False
        self._must_compact = True
        self._members.clear()
        for member in members:
            if member.name != self._own_name:
                self._members[member.name] = (member.ip, member.port)

    def fail(self) -> None:
        """Lines that were taken may not be in the file: write all of it anew next time."""
        self._must_compact = True

    def take(self) -> tuple[bytes, bool]:
        """(Bytes, whether they are the whole file): to append, or to put in the place of the file. (b"", False): nothing."""
        added = "".join(self._lines).encode()
        self._lines.clear()
        self._bytes += len(added)
        limit = max(COMPACT_BYTES_MIN, COMPACT_BYTES_PER_MEMBER * len(self._members))
        if not self._must_compact and self._bytes <= limit:
            return added, False
        self._must_compact = False
        lines = [_alive_line(name, address) for name, address in self._members.items()]
        lines += [f"{key}: {time}\n" for key, time in zip(_CLOCKS, self._clocks, strict=True)]
        whole = ("".join(lines) + ("leave\n" if self.has_left else "")).encode()
        self._bytes = len(whole)
        return whole, True
