"""What the owner of a Serf node is told."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from federation.gossip.addresses import Address


class MemberStatus(IntEnum):
    """Section 8.1. LEAVING: it said that it goes, and is still there. FAILED: gone without a word."""

    NONE = 0
    ALIVE = 1
    LEAVING = 2
    LEFT = 3
    FAILED = 4


@dataclass(frozen=True, slots=True)
class Member:
    """One member as this node sees it. `ip` as text."""

    name: str
    ip: str
    port: int
    tags: dict[str, str]
    status: MemberStatus


@dataclass(frozen=True, slots=True)
class MemberEvent:
    """Something happened to a member; `member` as it is after that."""

    member: Member


@dataclass(frozen=True, slots=True)
class MemberJoin(MemberEvent):
    """A member is there, or there again. The first one is the node itself."""


@dataclass(frozen=True, slots=True)
class MemberLeave(MemberEvent):
    """A member left gracefully, or a failed one was told to be gone."""


@dataclass(frozen=True, slots=True)
class MemberFailed(MemberEvent):
    """A member is gone without a word."""


@dataclass(frozen=True, slots=True)
class MemberUpdate(MemberEvent):
    """A member has new tags."""


@dataclass(frozen=True, slots=True)
class MemberReap(MemberEvent):
    """A failed or left member is forgotten."""


@dataclass(frozen=True, slots=True)
class NameConflict:
    """Two nodes have one name. `ip` and `port` are those of the other claim.

    ours    it is this node's name
    lost    the others hold to the other claim: this node must stop and be given another name
    """

    name: str
    ip: str
    port: int
    ours: bool
    lost: bool


@dataclass(frozen=True, slots=True)
class JoinResult:
    """A join is over. `joined`: addresses that we exchanged state with; `errors`: the others, and why not."""

    join_id: int
    joined: int
    errors: dict[Address, str]


@dataclass(frozen=True, slots=True)
class Left:
    """Our own leave is over: others know, the node may stop, or join again."""


@dataclass(frozen=True, slots=True)
class UserEvent:
    """A user event of any member, also our own; each comes once."""

    lamport_time: int
    name: str
    payload: bytes
    coalesce: bool


@dataclass(frozen=True, slots=True)
class QueryReceived:
    """A query that asks this node; `Serf.respond` answers it, before `deadline`."""

    lamport_time: int
    query_id: int
    name: str
    payload: bytes
    addr: bytes
    port: int
    deadline: float


@dataclass(frozen=True, slots=True)
class QueryFinished:
    """A query of ours is over: who acknowledged, and who answered what."""

    query_id: int
    acks: list[str]
    responses: dict[str, bytes]


Event = (
    MemberJoin
    | MemberLeave
    | MemberFailed
    | MemberUpdate
    | MemberReap
    | NameConflict
    | JoinResult
    | Left
    | UserEvent
    | QueryReceived
    | QueryFinished
)
