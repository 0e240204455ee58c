"""The states of a sender: of its stream, and of what its next call has to do.

State       means                                   leaves to
STOPPED     nowhere to connect to                   HELLO (connect), STOPPED
HELLO       the shell connects and says Hello       STREAMING (hello_reply), BACKOFF (lost, deadline), HELLO, STOPPED
STREAMING   batches flow                            BACKOFF (lost, no progress), HELLO (other way), STOPPED
BACKOFF     waits before the next try               HELLO (time, connect), STOPPED

OnWay       means, of the blocks on the way         leaves to
SENT        they wait for their acknowledgement     DUE (hello_reply), REFUSED (refused)
DUE         take_blocks sends them again            SENT (take_blocks, hello_reply), REFUSED (refused)
REFUSED     hello_reply gives up the first          SENT, DUE (hello_reply)

Attention   means                                   leaves to
QUIET       what comes in does not need the shell   QUEUED (want_attention), WATCHING (take_blocks)
WATCHING    the next message needs the shell        QUEUED (want_attention), QUIET (take_blocks, stream lost)
QUEUED      the sender is in Outlets.ready          QUIET (take_ready)
"""

# compiled with mypyc
from __future__ import annotations

from enum import Enum
from typing import Final


class State(Enum):
    STOPPED = "stopped"
    HELLO = "hello"
    STREAMING = "streaming"
    BACKOFF = "backoff"


class OnWay(Enum):
    SENT = "sent"
    DUE = "due"
    REFUSED = "refused"


class Attention(Enum):
    QUIET = "quiet"
    WATCHING = "watching"
    QUEUED = "queued"


MOVES: Final[dict[State, tuple[State, ...]]] = {
    State.STOPPED: (State.HELLO, State.STOPPED),
    State.HELLO: (State.STREAMING, State.BACKOFF, State.HELLO, State.STOPPED),
    State.STREAMING: (State.BACKOFF, State.HELLO, State.STOPPED),
    State.BACKOFF: (State.HELLO, State.STOPPED),
}
