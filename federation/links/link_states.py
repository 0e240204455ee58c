"""The states of a link, and what leads from one to the next.

event         from                        to
WAIT          not draining                WAITING     the link does not know all filters yet
CONNECT       not draining                CONNECTING
OPENED        CONNECTING                  GREETING    the network connection is open, CONNECT is sent
ACCEPTED      GREETING                    PROVING     CONNACK came: a round trip and the first subscriptions follow
PROVED        PROVING                     RUNNING
REFUSED       a connection                ERROR       until the next try; likewise LOST and FAULT
TAKEN         a connection                BLOCKED     another client has the session
VERSION       a connection                CONNECTING  at once: the upstream has another version of MQTT
NOT_WANTED    anywhere                    IDLE
DRAIN         PROVING, RUNNING            DRAINING    another node runs the link soon
STOP          anywhere                    SHUTDOWN
GIVE_UP       not draining                INVALID     the link cannot run as it is defined

A link that drains does not try again: whatever ends its connection leads to SHUTDOWN.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from federation.links.handshake import End
from federation.links.status import LinkState


class State(Enum):
    """`shown` is what an operator sees of it."""

    WAITING = auto()
    CONNECTING = auto()
    GREETING = auto()
    PROVING = auto()
    RUNNING = auto()
    DRAINING = auto()
    IDLE = auto()
    ERROR = auto()
    BLOCKED = auto()
    SHUTDOWN = auto()
    INVALID = auto()

    @property
    def shown(self) -> LinkState:
        return LinkState.STARTING if self in STARTING else LinkState[self.name]


class Event(Enum):
    """Those that do not end a connection; the others are End."""

    WAIT = auto()
    CONNECT = auto()
    OPENED = auto()
    ACCEPTED = auto()
    PROVED = auto()
    NOT_WANTED = auto()
    DRAIN = auto()
    STOP = auto()
    GIVE_UP = auto()


STARTING: Final = frozenset({State.WAITING, State.CONNECTING, State.GREETING, State.PROVING})
WITH_CONNECTION: Final = frozenset({State.CONNECTING, State.GREETING, State.PROVING, State.RUNNING, State.DRAINING})
"""States in which the shell has a socket, or opens one."""
STOPPED: Final = frozenset({State.SHUTDOWN, State.INVALID})
"""States that only the owner of the link ends."""

_ANYWHERE: Final[Mapping[Event | End, State]] = {
    Event.WAIT: State.WAITING,
    Event.CONNECT: State.CONNECTING,
    Event.NOT_WANTED: State.IDLE,
    Event.STOP: State.SHUTDOWN,
    Event.GIVE_UP: State.INVALID,
}
_CONNECTED: Final = {
    **_ANYWHERE,
    End.REFUSED: State.ERROR,
    End.LOST: State.ERROR,
    End.FAULT: State.ERROR,
    End.TAKEN: State.BLOCKED,
    End.VERSION: State.CONNECTING,
}
_ENDING: Final = (*End, Event.NOT_WANTED, Event.STOP)

TRANSITIONS: Final[Mapping[State, Mapping[Event | End, State]]] = {
    State.IDLE: _ANYWHERE,
    State.WAITING: _ANYWHERE,
    State.ERROR: _ANYWHERE,
    State.BLOCKED: _ANYWHERE,
    State.SHUTDOWN: _ANYWHERE,
    State.INVALID: _ANYWHERE,
    State.CONNECTING: {**_CONNECTED, Event.OPENED: State.GREETING},
    State.GREETING: {**_CONNECTED, Event.ACCEPTED: State.PROVING},
    State.PROVING: {**_CONNECTED, Event.PROVED: State.RUNNING, Event.DRAIN: State.DRAINING},
    State.RUNNING: {**_CONNECTED, Event.DRAIN: State.DRAINING},
    State.DRAINING: {**dict.fromkeys(_ENDING, State.SHUTDOWN), Event.DRAIN: State.DRAINING},
}
