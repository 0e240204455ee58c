"""Failed logins slow down the next ones: of one user name from one address, and of one address.

Each failure fills a bucket that empties with the time. While it is full, logins are refused without a check. A user who has
logged in from an address is not slowed down by what others do there: clients behind one router have one address.

A check that goes on counts as a failure until it ends. Otherwise logins that come at once would all be checked: further ones
wait until those before them have ended.
"""

from __future__ import annotations

import hashlib
from collections import Counter, OrderedDict
from collections.abc import Iterator
from enum import Enum, auto
from itertools import islice
from typing import Final

USER_SECONDS: Final = 10.0  # one failure of a user name from one address is forgotten in this time
ADDRESS_SECONDS: Final = 0.5  # one failure of an address
ENTRIES_MAX: Final = 20_000  # of each table; the oldest entry gives way
LOOKED_AT_MAX: Final = 5_000  # entries of each table, the newest ones, in a search of those that are locked out
NAME_CHARACTERS_MAX: Final = 64  # in a key; longer names are kept as their hash


def user_key(address: str, username: str) -> str:
    """Return the key of a user name at one address, of bounded length."""
    if len(username) > NAME_CHARACTERS_MAX:
        username = hashlib.blake2b(username.encode(errors="surrogatepass"), digest_size=16).hexdigest()
    return f"{address} {username}"


class Start(Enum):
    """The check of a login begins now, after others have ended, or not at all."""

    NOW = auto()
    LATER = auto()
    NEVER = auto()


class Buckets:
    """Failures by key, and the checks that go on. `burst` fill a bucket, 0 for no limit; one leaks away in `seconds`."""

    def __init__(self, burst: int, seconds: float) -> None:
        self._burst = burst
        self._seconds = seconds
        self._empty_at: OrderedDict[str, float] = OrderedDict()  # in the order of the last failure
        self._running: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._empty_at)

    def wait(self, key: str, now: float) -> float:
        """Return the seconds until one more failure fits into the bucket, 0.0 when it does."""
        empty_at = self._empty_at.get(key)
        if empty_at is None or not self._burst:
            return 0.0
        return max(0.0, empty_at - (self._burst - 1) * self._seconds - now)

    def is_exhausted(self, key: str, now: float) -> bool:
        """Return whether one more failure would not fit if all checks that go on failed."""
        running = self._running.get(key, 0)
        if not running or not self._burst:
            return False
        level = max(0.0, self._empty_at.get(key, now) - now) / self._seconds
        return level + running > self._burst - 1

    def begun(self, key: str) -> None:
        self._running[key] += 1

    def ended(self, key: str) -> None:
        self._running[key] -= 1
        if not self._running[key]:
            del self._running[key]

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

    def full(self, now: float) -> Iterator[tuple[str, float]]:
        """(key, seconds to wait) of buckets without room, of those that were filled last."""
        for key in islice(reversed(self._empty_at), LOOKED_AT_MAX):
            seconds = self.wait(key, now)
            if seconds > 0:
                yield key, seconds


class FailedLogins:
    """The failures of one node. Addresses are those of `counted_address` (broker/admission.py). `slowed` counts logins that
    were refused without a check."""

    def __init__(self, per_user: int, per_address: int) -> None:
        self.slowed = 0
        self._users = Buckets(per_user, USER_SECONDS)
        self._addresses = Buckets(per_address, ADDRESS_SECONDS)
        self._proved: OrderedDict[str, None] = OrderedDict()  # user names and addresses of good logins, oldest first

    def wait(self, address: str, username: str, now: float) -> float:
        """Return the seconds until a login of this user name from this address is checked, 0.0 for now."""
        key = user_key(address, username)
        wait = self._users.wait(key, now)
        if address and key not in self._proved:
            wait = max(wait, self._addresses.wait(address, now))
        return wait

    def begin(self, address: str, username: str, now: float) -> Start:
        """Return whether a check may begin. After NOW it goes on until `end` is called."""
        if self.wait(address, username, now) > 0:
            return Start.NEVER
        key = user_key(address, username)
        if self._users.is_exhausted(key, now):
            return Start.LATER
        if address and key not in self._proved and self._addresses.is_exhausted(address, now):
            return Start.LATER
        self._users.begun(key)
        self._addresses.begun(address)
        return Start.NOW

    def end(self, address: str, username: str) -> None:
        """A check has ended, and its failure was counted if there was one."""
        self._users.ended(user_key(address, username))
        self._addresses.ended(address)

    def failed(self, address: str, username: str, now: float) -> None:
        self._users.fill(user_key(address, username), now)
        if address:
            self._addresses.fill(address, now)

    def succeeded(self, address: str, username: str) -> None:
        key = user_key(address, username)
        self._users.empty(key)
        self._proved.pop(key, None)
        if len(self._proved) >= ENTRIES_MAX:
            self._proved.popitem(last=False)
        self._proved[key] = None

    def turns_of(self, address: str, username: str) -> str:
        """Return the name under which a login waits for its turn: the address, or a user's own where it has logged in from
        there before. So it does not wait for all guesses that come from there."""
        key = user_key(address, username)
        return key if key in self._proved else address

    def locked_out(self, now: float) -> Iterator[tuple[str, str, float]]:
        """(address, user name or "" for all of the address, seconds to wait), users first."""
        for key, seconds in self._users.full(now):
            address, _, username = key.partition(" ")
            yield address, username, seconds
        for address, seconds in self._addresses.full(now):
            yield address, "", seconds

    def entries(self) -> int:
        return len(self._users) + len(self._addresses) + len(self._proved)
