"""Events for the owner of a Serf node."""

# not compiled: made when members change
from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from federation.gossip.addresses import Address
from federation.gossip.messages import OUR_VERSIONS
from federation.serf.messages import Query


class MemberStatus(IntEnum):
    """wire-gossip 8.1. LEAVING: the member announced its leave and is still alive. FAILED: dead without a leave."""

    NONE = 0
    ALIVE = 1
    LEAVING = 2
    LEFT = 3
    FAILED = 4


@dataclass(frozen=True, slots=True)
class Member:
    """One member as this node sees it. `ip` is text, `versions` as on the wire (wire-gossip 2.1), `since` monotonic seconds:
    when its status was last changed."""

    name: str
    ip: str
    port: int
    tags: dict[str, str]
    status: MemberStatus
    versions: bytes = OUR_VERSIONS
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class MemberEvent:
    """Base of all member events. `member`: its state after the event."""

    member: Member


@dataclass(frozen=True, slots=True)
class MemberJoin(MemberEvent):
    """A member is alive, for the first time or again. The first event is for the node itself."""


@dataclass(frozen=True, slots=True)
class MemberLeave(MemberEvent):
    """A member left gracefully, or one that was gone was forced to leave: `is_forced`, where the intent says so."""

    is_forced: bool = False


@dataclass(frozen=True, slots=True)
class MemberFailed(MemberEvent):
    """A member is dead without a leave."""


@dataclass(frozen=True, slots=True)
class MemberUpdate(MemberEvent):
    """A member has new tags."""


@dataclass(frozen=True, slots=True)
class MemberReap(MemberEvent):
    """A failed or left member is forgotten."""


@dataclass(frozen=True, slots=True)
class NameConflict:
    """Two nodes use one name. `ip` and `port` are the address of the other claim.

    ours    the name is this node's
    lost    the cluster keeps the other claim: this node must stop and get another name
    """

    name: str
    ip: str
    port: int
    ours: bool
    lost: bool


@dataclass(frozen=True, slots=True)
class JoinResult:
    """A join is over. `joined`: number of addresses that state was exchanged with; `errors`: reasons of the others."""

    join_id: int
    joined: int
    errors: dict[Address, str]


@dataclass(frozen=True, slots=True)
class Left:
    """This node's leave is over: the others know of it. The node may stop or join again."""


@dataclass(frozen=True, slots=True)
class UserEventReceived:
    """A user event of any node, this one included. Each comes once."""

    lamport_time: int
    name: str
    payload: bytes
    coalesce: bool


@dataclass(slots=True, eq=False)
class QueryReceived:
    """A query of any node that this one may answer once until `deadline` (Serf.answer)."""

    query: Query
    deadline: float
    is_answered: bool = False


@dataclass(frozen=True, slots=True)
class QueryResponded:
    """A member acknowledged the query with this number, or responded to it."""

    number: int
    origin: str
    payload: bytes
    is_ack: bool


@dataclass(frozen=True, slots=True)
class QueryEnded:
    """The query with this number is over: its deadline passed, or its owner ended it."""

    number: int


@dataclass(slots=True, eq=False)
class KeysChanged:
    """A key query has changed this node's keyring, or found it as wanted. `keys`: all of them then, the primary one first.

    `awaits`: the answer waits until the owner has kept the keys (Serf.keys_kept).
    """

    query: Query
    keys: tuple[bytes, ...]
    awaits: bool


Event = (
    MemberJoin
    | MemberLeave
    | MemberFailed
    | MemberUpdate
    | MemberReap
    | NameConflict
    | JoinResult
    | Left
    | UserEventReceived
    | QueryReceived
    | QueryResponded
    | QueryEnded
    | KeysChanged
)
