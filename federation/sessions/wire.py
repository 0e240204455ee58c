"""The frames about sessions (docs/protocol-extensions.md, SESSION): MessagePack of (operation, client id, epoch, more).

CLAIM   sender is the home of the client by this epoch
ANSWER  to a CLAIM that asks for one
MOVE    the session arrives at the sender; messages for it go there from now on
SWITCH  messages of the sender that follow go to the node with this epoch, those before it to its former home
HAND    records of the session, from its former home

Without a client: BARRIER, from a worker that leaves (the epoch has the number of its question), and back behind all that the
sender has for it.

Without a client, of a store that is lost (federation/replication/adoption.py; the epoch has its id):

ADOPTED  sender has become the home of its sessions: relay what waits for them
RELAY    a block for these sessions
RELAYED  all that the sender had for them has come
REST_OF  a block that the lost home had for the receiver
KEEPERS  sender's store has these keepers
BLOCK    in a RELAY: of which block its frames are; the epoch has the id of the store that the block is of
"""

# not compiled: MessagePack is no package of the build
from __future__ import annotations

from typing import Final, NamedTuple

import msgpack  # type: ignore[import-untyped]

from broker.store.journal import checked
from federation.sessions.arriving import Epoch
from federation.stream.frames import SESSION, FrameError, encode_frame

CLAIM: Final = 1
ANSWER: Final = 2
MOVE: Final = 3
SWITCH: Final = 4
HAND: Final = 5
ADOPTED: Final = 6
RELAY: Final = 7
RELAYED: Final = 8
REST_OF: Final = 9
KEEPERS: Final = 10
BLOCK: Final = 11
BARRIER: Final = 12

# Of RELAY: the sessions that get its messages.
ALL: Final = 0
ADOPTED_SESSIONS: Final = 1
OTHERS: Final = 2

COUNTER_MAX: Final = 2**62
# Of ANSWER.
NOTHING: Final = 0  # the node has no session of the client
HANDING: Final = 1  # it hands the session over
REFUSED: Final = (
    2  # it is the home by a greater epoch, which follows, or was it for an adopted session that has gone on
)
OTHER_USER: Final = 3  # the session is that of a link of another user
# In place of a record in HAND.
HEAD_END: Final = 100  # the session can be served; messages follow
HANDED: Final = 101  # nothing follows but messages of nodes that were away
INCLUDES: Final = (
    102  # with ((store id, counter), ...): what homes had at these claims, they have handed on themselves; behind it
    # ((store id, ((first, end), ...)), ...): numbers of records that they may lack, and copies of them have
)
COPIED: Final = (
    103  # with (store id, counter): messages that follow in the frame are from a copy of that home; "" for none
)
AWAITED: Final = 104  # with (name, ...): nodes that have not said yet where their messages go

BLOCK_OF: Final = (
    105  # with (node, store id, serial): messages that follow in the frame are from this block of the node, or from the record
    # with this number where that is the store of the new home
)

Record = tuple[object, ...]
BEGUN: Final[Record] = (106,)  # the client may not have heard that the session was a new one
NOT_COPIED: Final[Record] = (COPIED, "", 0)  # nor of a block


class SessionFrame(NamedTuple):
    """more: of a CLAIM (is_answered, is_clean, has_ended) and, where the session was adopted, the id of that store, the number
    that its records are below, whether no client has connected since, and the former two of each further store; of an ANSWER
    (verdict, counter, store id), behind them of REFUSED and OTHER_USER these two of each store (told_adopted), of HANDING and
    NOTHING store id and counter of each claim that is on its way, or over (told_claims); of a MOVE the former homes, of a
    HAND those, its records, the counter of the former home, and id and number of each lost store; 0 for one whose home has
    handed on itself what its copy lacks; of a BARRIER whether it is the answer."""

    operation: int
    client_id: str
    epoch: Epoch
    more: tuple[object, ...]


def encode_session_frame(operation: int, client_id: str, epoch: Epoch, more: tuple[object, ...]) -> bytes:
    body: bytes = msgpack.packb((operation, client_id, epoch[0], epoch[1], more))
    return encode_frame(SESSION, body)


def decode_session_frame(data: bytes, counter_max: int = COUNTER_MAX) -> SessionFrame:
    """Raises FrameError, also for an epoch with a greater counter."""
    try:
        operation, client_id, counter, store_id, more = msgpack.unpackb(data, use_list=False, strict_map_key=True)
        found = SessionFrame(
            checked(int, operation),
            checked(str, client_id),
            (checked(int, counter), checked(str, store_id)),
            checked(tuple, more),
        )
    except (ValueError, TypeError) as error:
        raise FrameError(f"session frame: {error}") from None
    if not 0 <= found.epoch[0] <= counter_max:
        raise FrameError(f"session frame with the counter {found.epoch[0]}, may be 0 to {counter_max}")
    return found
