"""Which of its addresses a link connects to next.

A session at an upstream is the queue of the link there. While it is kept the link goes back to its address, also when that one
does not answer; only then it takes the next one.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from broker.message import NEVER
from federation.definitions.uri import LinkUri
from federation.links.client import EXPIRY_NEVER
from federation.links.version import Version


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
        place = before.current
        for index, uri in enumerate(self._uris):
            if (uri.host, uri.port) == (place.host, place.port):
                self._index = index
                self._has_session = before._has_session
                self._is_restored = before._is_restored
                self._session_until = before._session_until
                break

    def restore(self, host: str, port: int, until: float) -> None:
        """An earlier process left a session at this address, and it is kept until then."""
        for index, uri in enumerate(self._uris):
            if (uri.host, uri.port) == (host, port):
                self._index = index
                self._has_session = self._is_restored = True
                self._session_until = until
                break

    def has_session(self) -> bool:
        """Whether the link left a session at the current address."""
        return self._has_session

    def has_own_session(self) -> bool:
        """Whether it is one of this process, whose subscriptions are known."""
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
