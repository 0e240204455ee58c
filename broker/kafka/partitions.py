"""The partitions of a federation: each is a node. They say which node coordinates a group, too.

Each node has one entry, which all nodes keep for ever. The partitions are the nodes in the order of their first start, so that
a node that joins gets the next number, and one that is away or was removed keeps its own. Nodes compute the same from the same
entries. A node's number in the protocol, the broker id, is that of its partition.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from hashlib import blake2b
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from broker.config.addresses import AddressError, parse_address

PARTITIONS_MAX: Final = 1_000
ENTRY_BYTES_MAX: Final = 1_024  # of a node's entry
NOBODY: Final = -1


class Entry(NamedTuple):
    """since    Unix nanoseconds of the node's first start with this plugin
    address  HOST:PORT for consumers
    epoch    leader epoch of its partition: it rises when the log may have lost its end (broker/event_log/lineage.py)
    """

    since: int
    address: str
    epoch: int


class Partition(NamedTuple):
    """`number` is that of the partition and of its node."""

    number: int
    node: str
    host: str
    port: int
    epoch: int
    is_alive: bool


def encode_entry(entry: Entry) -> bytes:
    return json.dumps(entry._asdict()).encode()


def decode_entry(data: bytes) -> Entry | None:
    """None for bytes that are no entry: somebody else may write to the same place."""
    if len(data) > ENTRY_BYTES_MAX:
        return None
    try:
        content = json.loads(data)
        since, address, epoch = content["since"], content["address"], content["epoch"]
        if not (isinstance(since, int) and isinstance(epoch, int) and 0 <= epoch < 2**31 and 0 <= since < 2**63):
            return None
        parse_address(address, unix_allowed=False)
        address.encode()  # JSON may have half of a surrogate pair
    except (ValueError, TypeError, KeyError, AttributeError, AddressError, RecursionError):
        return None
    return Entry(since, address, epoch)


def encode_entries(entries: Mapping[str, Entry]) -> bytes:
    """A line for each node: its name, a space, its entry."""
    return b"".join(
        [quote(name, safe="").encode() + b" " + encode_entry(each) + b"\n" for name, each in entries.items()]
    )


def decode_entries(data: bytes) -> dict[str, Entry]:
    """By name. Lines that are damaged are left out."""
    found: dict[str, Entry] = {}
    for line in data.splitlines()[:PARTITIONS_MAX]:
        name, _, content = line.partition(b" ")
        entry = decode_entry(content)
        if entry is not None:
            found[unquote(name.decode(errors="replace"))] = entry
    return found


class KnownNodes:
    """The entries that a node has heard of, also before its last start: without those of nodes that it does not hear yet the
    partitions behind theirs would have other numbers. Policy: beyond PARTITIONS_MAX the nodes that came last are left out.
    """

    def __init__(self, entries: Mapping[str, Entry]) -> None:
        """`entries`: as they were known before the start."""
        self._entries = dict(entries)
        self._heard: Collection[str] = ()

    def hear(self, heard: Mapping[str, Entry]) -> dict[str, Entry]:
        """Return all entries. `heard`: those that all nodes have now; one that was among them before was deleted."""
        known = {**self._entries, **heard}
        for name in self._heard:
            if name not in heard:
                del known[name]
        if len(known) > PARTITIONS_MAX:
            known = {name: known[name] for name in _in_order(known)}
        self._entries = known
        self._heard = heard.keys() & known.keys()
        return dict(known)


def _in_order(entries: Mapping[str, Entry]) -> list[str]:
    """The names of the nodes in the order of their numbers."""
    return sorted(entries, key=lambda name: (entries[name].since, name))[:PARTITIONS_MAX]


def partitions_of(entries: Mapping[str, Entry], alive: Collection[str]) -> list[Partition]:
    """All partitions in the order of their numbers. `alive`: names of the nodes that can be reached."""
    found = []
    for number, name in enumerate(_in_order(entries)):
        address = parse_address(entries[name].address, unix_allowed=False)
        found.append(Partition(number, name, address.host, address.port, entries[name].epoch, name in alive))
    return found


def coordinator_of(partitions: list[Partition], group: str) -> Partition | None:
    """The living node that coordinates a group: rendezvous hashing, so that a node that comes or goes moves its share of the
    groups only. None when no node lives."""
    alive = [partition for partition in partitions if partition.is_alive]
    return max(alive, key=lambda partition: _weight(group, partition.node), default=None)


def _weight(group: str, node: str) -> bytes:
    return blake2b(f"{node}\0{group}".encode(), digest_size=8).digest()
