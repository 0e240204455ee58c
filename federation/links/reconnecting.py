"""The next try of a link: its address, its version of MQTT, its time; and a competing session that ends its connections.

A session at an upstream is the queue of the link there. While it is kept the link goes back to its address, also when that one
does not answer; only then it takes the next one.

A broker without MQTT 5 says so, or closes the connection without an answer. That has other causes, too, such as a proxy whose
broker is away. So 3.1.1 is a guess then. Once it is accepted the link asks for 5 again, at once for the first time, then with
the next connection."""

from __future__ import annotations

import random
from typing import Final, NamedTuple

from broker.codec.packets import MQTT_5, MQTT_311
from broker.message import NEVER
from federation.definitions.uri import LinkUri
from federation.links.handshake import EXPIRY_NEVER, End

DELAY_SECONDS_MAX: Final = 60.0  # unless reconnect-delay itself is longer
REFUSED_FACTOR: Final = 6.0  # a refused login or a fault of the protocol is the same a moment later
REFUSED_SECONDS_MAX: Final = 300.0
FULL_SECONDS_MAX: Final = 10.0  # where there was no room for a message: all else of the link waits, too
STABLE_SECONDS: Final = 10.0  # after a connection that ran for so long the delay begins at its base
DOUBLINGS_MAX: Final = 10


class Backoff:
    """`base` is reconnect-delay in seconds."""

    def __init__(self, base: float, rng: random.Random) -> None:
        self._base = base
        self._rng = rng
        self._tries = 0

    def delay(self, end: End, ran_for: float) -> float:
        """Seconds until the next try, after a connection that ran for `ran_for` seconds, 0.0 for one that never did."""
        if ran_for >= STABLE_SECONDS:
            self._tries = 0
        ceiling = min(max(DELAY_SECONDS_MAX, self._base), self._base * float(1 << min(self._tries, DOUBLINGS_MAX)))
        self._tries += 1
        if end in (End.REFUSED, End.VERSION, End.TAKEN, End.FAULT):
            ceiling = min(max(REFUSED_SECONDS_MAX, self._base), ceiling * REFUSED_FACTOR)
        elif end is End.FULL:
            ceiling = min(max(FULL_SECONDS_MAX, self._base), ceiling)
        return ceiling * (0.5 + self._rng.random() / 2)

    def reset(self) -> None:
        """The next delay is the first one again."""
        self._tries = 0


class Version:
    """Of one address. `current`: of the next CONNECT, or of the connection. `needs_5`: never another one."""

    def __init__(self, needs_5: bool = False) -> None:
        self.current = MQTT_5
        self._needs_5 = needs_5
        self._is_known = False
        self._is_checked = False

    def accepted(self) -> bool:
        """The upstream has accepted a CONNECT. False: it is to be asked in 5 now."""
        if self.current == MQTT_5:
            self._is_known = True
        elif not self._is_known and not self._is_checked:
            self._is_checked = True
            self.current = MQTT_5
            return False
        return True

    def refused(self) -> None:
        """The upstream does not have this version, or it is not enough."""
        self._is_known = True
        self._take_other()

    def unanswered(self) -> None:
        """The upstream has closed the connection without an answer."""
        if not self._is_known:
            self._take_other()

    def ended(self) -> None:
        """A connection that was accepted is over."""
        if not self._is_known:
            self.current = MQTT_5

    def _take_other(self) -> None:
        self.current = MQTT_311 if self.current == MQTT_5 and not self._needs_5 else MQTT_5


class SessionPlace(NamedTuple):
    """The session of a link, as the node remembers it over a restart."""

    client_id: str
    host: str
    port: int


class Addresses:
    """sessions_lost  number of sessions that were given up or that the upstream no longer had

    The order of the addresses is random, and the same for one seed: the next owner of the link, or the next process, begins
    where the session probably is.
    """

    def __init__(self, uris: tuple[LinkUri, ...], seed: str, needs_5: bool = False) -> None:
        """`needs_5`: the link speaks MQTT 5 only."""
        order = list(uris)
        random.Random(seed).shuffle(order)
        self.sessions_lost = 0
        self._uris = order
        self._needs_5 = needs_5
        self._versions = [Version(needs_5) for _ in order]
        self._index = 0
        self._has_session = False
        self._is_restored = False  # the session is one of an earlier process
        self._session_until = NEVER

    @property
    def current(self) -> LinkUri:
        """The address that is tried or used."""
        return self._uris[self._index]

    @property
    def version(self) -> Version:
        """The version of MQTT in which the current address is asked."""
        return self._versions[self._index]

    def follow(self, before: Addresses) -> None:
        """The upstream of the link had these addresses until now: begin where its session is."""
        if self._go_to(before.current.host, before.current.port):
            self._has_session = before._has_session
            self._is_restored = before._is_restored
            self._session_until = before._session_until

    def restore(self, host: str, port: int, until: float) -> None:
        """An earlier process left a session at this address, and it is kept until then."""
        if self._go_to(host, port):
            self._has_session = self._is_restored = True
            self._session_until = until

    def _go_to(self, host: str, port: int) -> bool:
        """False where it is none of the addresses."""
        for index, uri in enumerate(self._uris):
            if (uri.host, uri.port) == (host, port):
                self._index = index
                return True
        return False

    def has_session(self) -> bool:
        """Return whether the link left a session at the current address."""
        return self._has_session

    def has_own_session(self) -> bool:
        """Return whether it is one of this process, whose subscriptions are known."""
        return self._has_session and not self._is_restored

    def accepted(self, session_present: bool) -> None:
        """The upstream at the current address has a session for this link."""
        if self._has_session and not session_present:
            self.sessions_lost += 1
        self._has_session = True
        self._is_restored = False
        self._session_until = NEVER

    def lost(self, expiry: int, now: float) -> None:
        """A connection that was accepted has ended. `expiry`: seconds for which the session is kept."""
        self._session_until = NEVER if expiry == EXPIRY_NEVER else now + expiry

    def forget_session(self) -> None:
        """The link has ended its session."""
        self._has_session = False

    def next(self, now: float) -> bool:
        """Choose the address of the next try after a failed one. True when a session is given up."""
        is_given_up = self._has_session and now >= self._session_until
        if is_given_up:
            self._has_session = False
            self.sessions_lost += 1
            self._versions = [Version(self._needs_5) for _ in self._uris]
        if not self._has_session:
            self._index = (self._index + 1) % len(self._uris)
        return is_given_up


CUT_SHORT_MAX: Final = 3
"""Connections in a row that resumed the session and were closed within STABLE_SECONDS: a network fails less regularly, and
a broker that restarts refuses connections in between."""
COMPETING: Final = (
    f"{CUT_SHORT_MAX} connections in a row were closed soon: another node of this domain, or a cluster with the same `domain` "
    "or `consumer-tag`, may have connected"
)


class CompetingSession:
    """Another client that takes the session of a link again and again, at a broker that does not say so (0x8E) when it happens:
    connections that were cut short are counted."""

    def __init__(self) -> None:
        self._times = 0

    def has_session(self, end: End, is_resumed: bool, ran_for: float) -> bool:
        """A connection is over, or could not be made. True when another client probably has the session now."""
        if end is End.LOST and is_resumed and ran_for < STABLE_SECONDS:
            self._times += 1
        elif end is not End.TAKEN:
            self._times = 0
        return self._times >= CUT_SHORT_MAX
