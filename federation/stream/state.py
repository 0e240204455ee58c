"""The states of a sender's stream.

state       means                                   leaves to
STOPPED     nowhere to connect to                   HELLO (connect)
HELLO       the shell connects and says Hello       STREAMING (hello_reply), BACKOFF (lost, deadline), STOPPED
STREAMING   batches flow                            BACKOFF (lost, no progress), HELLO (other way), STOPPED
BACKOFF     waits before the next try               HELLO (time, connect), STOPPED
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


MOVES: Final[dict[State, tuple[State, ...]]] = {
    State.STOPPED: (State.HELLO,),
    State.HELLO: (State.STREAMING, State.BACKOFF, State.HELLO, State.STOPPED),
    State.STREAMING: (State.BACKOFF, State.HELLO, State.STOPPED),
    State.BACKOFF: (State.HELLO, State.STOPPED),
}
