"""One consumer group: members join, one of them, the leader, assigns the partitions, and all are told.

The states are those of Kafka's coordinator: EMPTY; PREPARING, until all members have joined again; COMPLETING, until the leader
has told the assignment; STABLE.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum
from typing import Final, NamedTuple

from broker.kafka import error_codes as errors
from broker.kafka.fields import Values

MEMBERS_MAX: Final = 250  # of a group
MEMBER_BYTES: Final = 2_048  # memory of a member with its names, without its protocols
PROTOCOL_BYTES: Final = 512  # of a protocol with its name, without its metadata
NO_TOKEN: Final = 0


class State(Enum):
    """The values are the words of DescribeGroups."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


class Joining(NamedTuple):
    """The words of a JoinGroup on its member. Times are in seconds, `protocols` in the order of preference."""

    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout: float
    rebalance_timeout: float
    protocols: tuple[tuple[str, bytes], ...]

    @property
    def size(self) -> int:
        """Bytes of memory at most: names are short (broker/kafka/groups.py)."""
        return MEMBER_BYTES + sum(PROTOCOL_BYTES + len(metadata) for _, metadata in self.protocols)


class Member:
    """expires_at   monotonic seconds; a member that waits for an answer does not expire
    join_token, sync_token  of the requests that wait for an answer, NO_TOKEN for none
    """

    def __init__(self, member_id: str, joining: Joining) -> None:
        self.member_id = member_id
        self.joining = joining
        self.assignment = b""
        self.expires_at = 0.0
        self.join_token = NO_TOKEN
        self.sync_token = NO_TOKEN

    @property
    def waits(self) -> bool:
        return bool(self.join_token or self.sync_token)

    def metadata(self, protocol: str) -> bytes:
        return next((metadata for name, metadata in self.joining.protocols if name == protocol), b"")


class Group:
    """answers  (token, values) of requests that have waited, which the owner takes
    waits_until  monotonic seconds when members are removed: while PREPARING those that have not joined again, while COMPLETING
                 those that have not asked for their assignment, with the leader among them
    """

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.state = State.EMPTY
        self.generation = 0
        self.protocol_type = ""
        self.protocol = ""
        self.leader = ""
        self.members: dict[str, Member] = {}
        self.waits_until = 0.0
        self.answers: list[tuple[int, Values]] = []

    @property
    def size(self) -> int:
        """Bytes of memory of the members."""
        return sum(member.joining.size + len(member.assignment) for member in self.members.values())

    def takes(self, protocol_type: str, joining: Joining, member_id: str) -> bool:
        """Return whether a member with these protocols has one in common with all others."""
        others = [member for member in self.members.values() if member.member_id != member_id]
        if not joining.protocols or not protocol_type:
            return False
        if not others:
            return True
        return protocol_type == self.protocol_type and bool(self._common([*others, Member("", joining)]))

    @staticmethod
    def _common(members: list[Member]) -> set[str]:
        """Names of the protocols that all have."""
        return set.intersection(*({name for name, _ in member.joining.protocols} for member in members))

    # --- requests ---

    def join(self, token: int, member_id: str, protocol_type: str, joining: Joining, now: float) -> None:
        """A member joins, for the first time or again. The answer waits for the others."""
        member = self.members.get(member_id)
        is_known = member is not None and member.joining.protocols == joining.protocols
        if member is None:
            member = self.members[member_id] = Member(member_id, joining)
        self._answer_join_again(member)
        member.joining = joining
        member.join_token = token
        member.expires_at = now + joining.session_timeout
        self.protocol_type = protocol_type
        is_settled = self.state is State.COMPLETING or (self.state is State.STABLE and member_id != self.leader)
        if is_known and is_settled:
            self._answer_join(member)  # its answer was lost
            return
        if self.state is not State.PREPARING:
            self._prepare(now)
        self._complete_when_all_joined(now)

    def take_place(self, token: int, former_id: str, member_id: str, joining: Joining, now: float) -> bool:
        """A static member has started again (KIP-345): it gets the assignment of the former one, and the others hear nothing of
        it. False where it must join: the group is not settled, or it has other protocols."""
        former = self.members[former_id]
        if self.state is not State.STABLE or former.joining.protocols != joining.protocols:
            return False
        member = Member(member_id, joining)
        member.assignment = former.assignment
        member.expires_at = now + joining.session_timeout
        member.join_token = token
        places = [member if each is former else each for each in self.members.values()]
        self.members = {each.member_id: each for each in places}
        self._answer_join(member)  # as to a member that does not lead: it is not to assign anything
        if self.leader == former_id:
            self.leader = member_id
        return True

    def sync(self, token: int, member_id: str, assignments: dict[str, bytes], now: float) -> int:
        """Returns an error, or NONE where the answer follows."""
        member = self.members[member_id]
        if self.state is State.PREPARING:
            return errors.REBALANCE_IN_PROGRESS
        self._answer_sync(member, errors.REBALANCE_IN_PROGRESS, now)  # one that waits, which this one has overtaken
        member.sync_token = token
        member.expires_at = now + member.joining.session_timeout
        if self.state is State.COMPLETING and member_id == self.leader:
            for each in self.members.values():
                each.assignment = assignments.get(each.member_id, b"")
            self.state = State.STABLE
        if self.state is State.STABLE:
            for each in self.members.values():
                self._answer_sync(each, errors.NONE, now)
        return errors.NONE

    def check(self, member_id: str, instance_id: str | None, generation: int) -> int:
        """The error of a request of a member."""
        if member_id not in self.members:
            is_fenced = instance_id is not None and self.of_instance(instance_id) is not None
            return errors.FENCED_INSTANCE_ID if is_fenced else errors.UNKNOWN_MEMBER_ID
        return errors.NONE if generation == self.generation else errors.ILLEGAL_GENERATION

    def heartbeat(self, member_id: str, now: float) -> int:
        member = self.members[member_id]
        member.expires_at = now + member.joining.session_timeout
        return errors.REBALANCE_IN_PROGRESS if self.state is State.PREPARING else errors.NONE

    def of_instance(self, instance_id: str) -> Member | None:
        """The static member with this name (KIP-345)."""
        return next((each for each in self.members.values() if each.joining.instance_id == instance_id), None)

    def remove(self, member_id: str, error: int, now: float) -> None:
        """A member leaves, has expired, or is replaced; requests of it that wait get the error."""
        member = self.members.pop(member_id)
        self._answer_join_again(member, error)
        self._answer_sync(member, error, now)
        if not self.members:
            self.state = State.EMPTY
            self.protocol = self.leader = ""
        elif self.state is State.PREPARING:
            self._complete_when_all_joined(now)
        else:
            self._prepare(now)
            self._complete_when_all_joined(now)

    # --- time ---

    def next_timeout(self) -> float | None:
        """Monotonic seconds of the next deadline."""
        times = [member.expires_at for member in self.members.values() if not member.waits]
        if self.state in (State.PREPARING, State.COMPLETING):
            times.append(self.waits_until)
        return min(times, default=None)

    def handle_timeout(self, now: float) -> None:
        for member in list(self.members.values()):
            if member.expires_at <= now and not member.waits:
                self.remove(member.member_id, errors.UNKNOWN_MEMBER_ID, now)
        if self.state is State.PREPARING and self.waits_until <= now:
            for member in list(self.members.values()):
                if not member.join_token:
                    del self.members[member.member_id]
            self._complete(now)
        elif self.state is State.COMPLETING and self.waits_until <= now:
            for member in [each for each in self.members.values() if not each.sync_token]:
                self.remove(member.member_id, errors.UNKNOWN_MEMBER_ID, now)

    # --- the way of a rebalance ---

    def _prepare(self, now: float) -> None:
        self.state = State.PREPARING
        self._wait(now)
        for member in self.members.values():
            self._answer_sync(member, errors.REBALANCE_IN_PROGRESS, now)

    def _wait(self, now: float) -> None:
        """Give members the time that the slowest of them wants."""
        self.waits_until = now + max(member.joining.rebalance_timeout for member in self.members.values())

    def _complete_when_all_joined(self, now: float) -> None:
        if all(member.join_token for member in self.members.values()):
            self._complete(now)

    def _complete(self, now: float) -> None:
        """All members have joined, or their time is over."""
        self.generation += 1
        if not self.members:
            self.state = State.EMPTY
            self.protocol = self.leader = ""
            return
        self.state = State.COMPLETING
        self._wait(now)
        if self.leader not in self.members:
            self.leader = next(iter(self.members))
        self.protocol = self._elected()
        for member in self.members.values():
            member.assignment = b""
            member.expires_at = now + member.joining.session_timeout
            self._answer_join(member)

    def _elected(self) -> str:
        """The protocol that most members like best, of those that all have."""
        members = list(self.members.values())
        common = self._common(members)
        votes = Counter(next(name for name, _ in member.joining.protocols if name in common) for member in members)
        return max(sorted(votes), key=lambda name: votes[name])

    # --- answers ---

    def _answer_join(self, member: Member) -> None:
        members = self.members.values() if member.member_id == self.leader else ()
        values = {
            "error_code": errors.NONE,
            "generation_id": self.generation,
            "protocol_type": self.protocol_type,
            "protocol_name": self.protocol,
            "leader": self.leader,
            "member_id": member.member_id,
            "members": [
                {
                    "member_id": each.member_id,
                    "group_instance_id": each.joining.instance_id,
                    "metadata": each.metadata(self.protocol),
                }
                for each in members
            ],
        }
        self.answers.append((member.join_token, values))
        member.join_token = NO_TOKEN

    def _answer_join_again(self, member: Member, error: int = errors.UNKNOWN_MEMBER_ID) -> None:
        """Answer a JoinGroup that waits, which another request has overtaken."""
        if member.join_token:
            self.answers.append((member.join_token, refused_join(error, member.member_id)))
            member.join_token = NO_TOKEN

    def _answer_sync(self, member: Member, error: int, now: float) -> None:
        if member.sync_token:
            member.expires_at = now + member.joining.session_timeout  # it may have waited for longer
            assignment = b"" if error else member.assignment
            self.answers.append((member.sync_token, sync_answer(error, self.protocol_type, self.protocol, assignment)))
            member.sync_token = NO_TOKEN


def refused_join(error: int, member_id: str) -> Values:
    return {
        "error_code": error,
        "generation_id": -1,
        "protocol_type": None,
        "protocol_name": "",
        "leader": "",
        "member_id": member_id,
        "members": [],
    }


def sync_answer(error: int, protocol_type: str | None = None, protocol: str | None = None, data: bytes = b"") -> Values:
    return {"error_code": error, "protocol_type": protocol_type, "protocol_name": protocol, "assignment": data}
