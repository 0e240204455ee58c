"""Failed logins slow down the next ones: of one user name from one address, and of one address.

Each failure fills a bucket that empties with the time. While it is full, logins are refused without a check. A user who has
logged in from an address is not slowed down by what others do there: clients behind one router have one address.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import Final

USER_SECONDS: Final = 10.0  # one failure of a user name from one address is forgotten in this time
ADDRESS_SECONDS: Final = 0.5  # one failure of an address
ENTRIES_MAX: Final = 20_000  # of each table; the oldest entry gives way
NAME_CHARACTERS_MAX: Final = 64  # in a key; longer names are kept as their hash


def user_key(address: str, username: str) -> str:
    """The key of a user name at one address, of bounded length."""
    if len(username) > NAME_CHARACTERS_MAX:
        username = hashlib.blake2b(username.encode(errors="surrogatepass"), digest_size=16).hexdigest()
    return f"{address} {username}"


class Buckets:
    """Failures by key. `burst` fill a bucket, 0 for no limit; one leaks away in `seconds`."""

    def __init__(self, burst: int, seconds: float) -> None:
        self._burst = burst
        self._seconds = seconds
        self._empty_at: OrderedDict[str, float] = OrderedDict()  # in the order of the last failure

    def __len__(self) -> int:
        return len(self._empty_at)

    def wait(self, key: str, now: float) -> float:
        """Seconds until the bucket has room, 0.0 when it has."""
        empty_at = self._empty_at.get(key)
        if empty_at is None or not self._burst:
            return 0.0
        return max(0.0, empty_at - (self._burst - 1) * self._seconds - now)

    def fill(self, key: str, now: float) -> None:
        """Count one failure."""
        if not self._burst:
            return
        empty_at = self._empty_at.pop(key, now)
        if len(self._empty_at) >= ENTRIES_MAX:
            self._empty_at.popitem(last=False)
        self._empty_at[key] = max(empty_at, now) + self._seconds

    def empty(self, key: str) -> None:
        self._empty_at.pop(key, None)


class FailedLogins:
    """The failures of one node. Addresses are those of `counted_address` (broker/admission.py). `slowed` counts logins that
    were refused without a check."""

    def __init__(self, per_user: int, per_address: int) -> None:
        self.slowed = 0
        self._users = Buckets(per_user, USER_SECONDS)
        self._addresses = Buckets(per_address, ADDRESS_SECONDS)
        self._welcome: OrderedDict[str, None] = OrderedDict()  # user names and addresses of good logins, oldest first

    def wait(self, address: str, username: str, now: float) -> float:
        """Seconds until a login of this user name from this address is checked, 0.0 for now."""
        key = user_key(address, username)
        wait = self._users.wait(key, now)
        if address and key not in self._welcome:
            wait = max(wait, self._addresses.wait(address, now))
        return wait

    def failed(self, address: str, username: str, now: float) -> None:
        self._users.fill(user_key(address, username), now)
        if address:
            self._addresses.fill(address, now)

    def succeeded(self, address: str, username: str) -> None:
        key = user_key(address, username)
        self._users.empty(key)
        self._welcome.pop(key, None)
        if len(self._welcome) >= ENTRIES_MAX:
            self._welcome.popitem(last=False)
        self._welcome[key] = None

    def entries(self) -> int:
        return len(self._users) + len(self._addresses) + len(self._welcome)
