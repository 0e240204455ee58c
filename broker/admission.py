"""Limits of a listener: connections at one time and a second, in all and from each address."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from typing import Final

from broker.token_bucket import TokenBucket

ADDRESSES_MAX: Final = (
    10_000  # whose rate is remembered; the one that connected longest ago is forgotten, and counts anew
)
IPV6_CUSTOMER_BITS: Final = 64  # one customer has all addresses of such a network


def counted_address(host: str) -> str:
    """The address that a client is counted by: an IPv4 address, or the /64 of an IPv6 address; "" for a Unix socket."""
    if ":" not in host:
        return host
    address = ipaddress.IPv6Address(host.partition("%")[0])
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address), IPV6_CUSTOMER_BITS), strict=False))


class Admission:
    """The limits of one listener; 0 is no limit. A connection calls `open`, then `add_address` when the client's address is
    known, and at its end `close`. The answers are reasons for a refusal, "" lets the connection in.
    """

    def __init__(
        self,
        connections_max: int,
        connections_per_address_max: int,
        connect_rate: int,
        connect_rate_per_address: int,
        now: float,
    ) -> None:
        self._connections_max = connections_max
        self._per_address_max = connections_per_address_max
        self._rate = TokenBucket(connect_rate, now) if connect_rate else None
        self._rate_per_address = connect_rate_per_address
        self._connections = 0
        self._addresses: dict[str, int] = {}  # connections by address; bounded by their number
        self._rates: OrderedDict[str, TokenBucket] = OrderedDict()

    def open(self, now: float) -> str:
        """Count a connection. One that is refused is not counted and needs no `close`."""
        if self._connections_max and self._connections >= self._connections_max:
            return f"the listener has {self._connections_max} connections, as many as its max_connections"
        if self._rate is not None and not self._rate.try_take(now):
            return f"more than {self._rate.rate} connections a second, the listener's max_connect_rate"
        self._connections += 1
        return ""

    def add_address(self, address: str, now: float) -> str:
        """Count the address of an open connection, as `counted_address` gives it. One that is refused is not counted."""
        if not address:
            return ""
        if self._rate_per_address and not self._bucket(address, now).try_take(now):
            return f"more than {self._rate_per_address} connections a second of one address"
        count = self._addresses.get(address, 0)
        if self._per_address_max and count >= self._per_address_max:
            return f"the address has {count} connections, as many as max_connections_per_address"
        self._addresses[address] = count + 1
        return ""

    def count(self, address: str) -> None:
        """Count a connection that is open already; `address` is "" where none is counted."""
        self._connections += 1
        if address:
            self._addresses[address] = self._addresses.get(address, 0) + 1

    def close(self, address: str) -> None:
        """The end of a connection; `address` is "" when none was counted."""
        self._connections -= 1
        if address:
            count = self._addresses[address] - 1
            if count:
                self._addresses[address] = count
            else:
                del self._addresses[address]

    def _bucket(self, address: str, now: float) -> TokenBucket:
        bucket = self._rates.get(address)
        if bucket is None:
            if len(self._rates) >= ADDRESSES_MAX:
                self._rates.popitem(last=False)
            bucket = self._rates[address] = TokenBucket(self._rate_per_address, now)
        else:
            self._rates.move_to_end(address)
        return bucket
