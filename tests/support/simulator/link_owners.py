"""The ownership of links on a simulated node: its tables travel over streams, a request and its answer on each."""

from __future__ import annotations

import json
from typing import Final

from federation.gossip.addresses import Address
from federation.links.ownership import Ownership
from federation.links.ownership_table import Order, Phase, Row, Table
from federation.links.reconnecting import SessionPlace
from simulator.network import Stream
from simulator.process import Machine

OWNER_PORT: Final = 8904
CALL_SECONDS_MAX: Final = 2.0


class _Call:
    """A table on its way to a member."""

    def __init__(self, name: str, serial: int, until: float) -> None:
        self.name = name
        self.serial = serial
        self.until = until
        self.received = b""


class LinkOwners:
    """`core` decides; `addresses` are those of the living members, by name."""

    def __init__(self, core: Ownership) -> None:
        self.core = core
        self.addresses: dict[str, Address] = {}
        self._calls: dict[Stream, _Call] = {}
        self._asked: dict[Stream, bytes] = {}

    def members_changed(self, addresses: dict[str, Address], now: float) -> None:
        self.addresses = addresses
        self.core.set_members(addresses, now)

    # --- streams

    def accepted(self, stream: Stream) -> None:
        self._asked[stream] = b""

    def knows(self, stream: Stream) -> bool:
        return stream in self._asked or stream in self._calls

    def received(self, stream: Stream, data: bytes, now: float) -> None:
        call = self._calls.get(stream)
        if call is not None:
            call.received += data
            if call.received.endswith(b"\n"):
                del self._calls[stream]
                stream.close()
                self.core.handle_answer(call.name, call.serial, _read(call.received), now)
        else:
            self._asked[stream] += data
            if self._asked[stream].endswith(b"\n"):
                stream.write(_write(self.core.handle_table(_read(self._asked.pop(stream)), now)))

    def closed(self, stream: Stream, now: float) -> None:
        self._asked.pop(stream, None)
        call = self._calls.pop(stream, None)
        if call is not None:
            self.core.telling_failed(call.name, now)

    # --- time

    def next_timeout(self) -> float:
        return min([self.core.next_timeout(), *(call.until for call in self._calls.values())])

    def handle_timeout(self, now: float) -> None:
        for stream, call in list(self._calls.items()):
            if call.until <= now:
                stream.close()
                self.closed(stream, now)
        self.core.handle_timeout(now)

    def take_orders(self, host: Machine, now: float) -> list[Order]:
        """Send the tables that must go out, and return what is to be done with the links."""
        orders = self.core.take_orders()
        for telling in self.core.take_tables(now):
            stream = host.open_stream((self.addresses[telling.name][0], OWNER_PORT))
            self._calls[stream] = _Call(telling.name, telling.table.serial, now + CALL_SECONDS_MAX)
            stream.write(_write(telling.table))
        return orders


def _write(table: Table) -> bytes:
    return json.dumps(table).encode() + b"\n"


def _read(data: bytes) -> Table:
    node, incarnation, serial, rows = json.loads(data)
    return Table(
        node,
        incarnation,
        serial,
        tuple(
            Row(link_id, Phase(phase), epoch, None if session is None else SessionPlace(*session))
            for link_id, phase, epoch, session in rows
        ),
    )
