"""Shared subscriptions [MQTT5 4.8.2]: the members of a group get messages round robin, or as a strategy says."""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from broker.routing.group_copy import GroupCopy
from broker.routing.strategy import score

KEYS_MAX: Final = 4_096  # of one group, whose members are known; then they are searched again


class GroupMember:
    """A member of a group. A native base class, so that compiled calls need no lookup by name.

    A subclass overrides the questions, or sets `available`. The group sets `group`, `following` and `previous`.
    """

    __slots__ = ("available", "following", "group", "previous")

    def __init__(self, available: bool = True) -> None:
        self.available = available
        self.group: SharedGroup | None = None
        self.following: GroupMember | None = None
        self.previous: GroupMember | None = None

    def is_available(self) -> bool:
        """Return whether the member can take a message now."""
        return self.available

    def load(self) -> int:
        """Return how many messages it has not acknowledged."""
        return 0

    def hash(self) -> int:
        """Return strategy.hash_of the client identifier."""
        return 1


class SharedGroup:
    """Members of one `$share/share_name/topic_filter`, in the order in which they were added. A member is in one group.
    They form a ring: `add` and `remove` take constant time.

    queue   gets the messages for which no member is available; None where a member's session queues them
    copy    of each message for which this node chooses a member of its own
    looked  number of members that choices have looked at, until `take_looked`
    """

    __slots__ = (
        "_first",
        "_found",
        "_hashes",
        "_next",
        "_size",
        "copy",
        "looked",
        "queue",
        "share_name",
        "topic_filter",
    )

    def __init__(self, share_name: bytes, topic_filter: bytes) -> None:
        self.share_name = share_name
        self.topic_filter = topic_filter
        self._first: GroupMember | None = None  # the member that was added first
        self._next: GroupMember | None = None  # gets the next message; None: the first member
        self._size = 0
        self._hashes: dict[GroupMember, int] | None = None  # of all members; None before they are needed
        self._found: dict[int, GroupMember] = {}  # the members of keys
        self.queue: GroupMember | None = None
        self.copy = GroupCopy(share_name, topic_filter)
        self.looked = 0

    def __len__(self) -> int:
        return self._size

    def add(self, member: GroupMember) -> None:
        assert member.group is None, "the member is in a group"
        member.group = self
        self._hashes = None
        self._size += 1
        first = self._first
        if first is None:
            self._first = member
            member.following = member.previous = member
        else:
            last = first.previous
            assert last is not None
            member.previous = last
            member.following = first
            last.following = first.previous = member

    def remove(self, member: GroupMember) -> None:
        """The order of the others does not change."""
        assert member.group is self, "no member of this group"
        following, previous = member.following, member.previous
        assert following is not None
        assert previous is not None
        member.group = member.following = member.previous = None
        self._hashes = None
        self._size -= 1
        if self._size == 0:
            self._first = self._next = None
            return
        previous.following = following
        following.previous = previous
        if self._first is member:
            self._first = following
        if self._next is member:
            self._next = following

    def members(self) -> list[GroupMember]:
        found: list[GroupMember] = []
        member = self._first
        for _ in range(self._size):
            assert member is not None
            found.append(member)
            member = member.following
        return found

    def take_looked(self) -> int:
        """Return `looked`, for the slice, and begin it again."""
        looked = self.looked
        self.looked = 0
        return looked

    def pick(self, available_only: bool = False, skipped: dict[GroupMember, None] | None = None) -> GroupMember | None:
        """The next available member, round robin. When none is available: None with `available_only`, else the group's queue,
        or the next member, whose session queues the message. No member of `skipped` is chosen."""
        first = self._next
        if first is None:
            first = self._first
            if first is None:
                return None if available_only else self.queue
        member = first
        next_member: GroupMember | None = None
        while True:
            self.looked += 1
            following = member.following
            assert following is not None
            if skipped is None or member not in skipped:
                if member.is_available():
                    self._next = following
                    return member
                if next_member is None:
                    next_member = member
            if following is first:
                break
            member = following
        if available_only:
            return None
        if self.queue is not None:
            return self.queue
        if next_member is None:
            return None
        self._next = next_member.following
        return next_member

    def pick_least(self, available_only: bool, skipped: dict[GroupMember, None] | None = None) -> GroupMember | None:
        """As `pick`, but the available member with the fewest messages; round robin where several have so few."""
        member = self._first if self._next is None else self._next
        least: GroupMember | None = None
        least_load = 0
        for _ in range(self._size):
            assert member is not None
            self.looked += 1
            if (skipped is None or member not in skipped) and member.is_available():
                load = member.load()
                if least is None or load < least_load:
                    least = member
                    least_load = load
                    if load == 0:
                        break
            member = member.following
        if least is None:
            return self.pick(available_only, skipped)
        self._next = least.following
        return least

    def pick_hashed(
        self, key: int, available_only: bool, skipped: dict[GroupMember, None] | None = None
    ) -> GroupMember | None:
        """As `pick`, but the available member with the highest score for the key."""
        hashes = self._hashes
        if hashes is None:
            hashes = self._hashes = {member: member.hash() for member in self.members()}
            self._found = {}
        if skipped is None:
            known = self._found.get(key)
            if known is not None and known.is_available():
                return known
        self.looked += len(hashes)
        highest: GroupMember | None = None
        available: GroupMember | None = None
        highest_score = available_score = -1
        for member, whose in hashes.items():
            if skipped is None or member not in skipped:
                found = score(key, whose)
                if found > highest_score:
                    highest = member
                    highest_score = found
                if found > available_score and member.is_available():
                    available = member
                    available_score = found
        if skipped is None and highest is not None:
            if len(self._found) >= KEYS_MAX:
                self._found = {}
            self._found[key] = highest
        if available is not None or available_only:
            return available
        return highest if self.queue is None else self.queue
