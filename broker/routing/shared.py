"""Shared subscriptions [MQTT5 4.8.2]: the members of a group get messages round robin, or as a strategy says."""

# compiled with mypyc
from __future__ import annotations

from collections import OrderedDict
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

    def is_away(self) -> bool:
        """Return whether it will not be available before `SharedGroup.returned` is called for it."""
        return False

    def set_aside(self, is_aside: bool) -> None:
        """The group has noted that the member is away, or notes it no more."""

    def load(self) -> int:
        """Return how many messages it has not acknowledged."""
        return 0

    def hash(self) -> int:
        """Return strategy.hash_of the client identifier."""
        return 1


class SharedGroup:
    """Members of one `$share/share_name/topic_filter`, in the order in which they were added. A member is in one group.
    They form a ring: `add` and `remove` take constant time. Members that were found to be away are set aside, so that no
    message looks at them again while others take it.

    queue   gets the messages for which no member is available; None where a member's session queues them
    copy    of each message for which this node chooses a member of its own
    looked  number of members that choices have looked at in vain, or compared, until `take_looked`
    """

    __slots__ = (
        "_aside",
        "_first",
        "_found",
        "_hashes",
        "_next",
        "_size",
        "_turn",
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
        self._size = 0  # of the ring
        self._aside: OrderedDict[GroupMember, None] = (
            OrderedDict()
        )  # the next one for a message that nobody takes is first
        self._turn = 0  # of messages that nobody takes
        self._hashes: dict[GroupMember, int] | None = None  # of all members; None before they are needed
        self._found: dict[int, GroupMember] = {}  # the members of keys
        self.queue: GroupMember | None = None
        self.copy = GroupCopy(share_name, topic_filter)
        self.looked = 0

    def __len__(self) -> int:
        return self._size + len(self._aside)

    def add(self, member: GroupMember) -> None:
        assert member.group is None, "the member is in a group"
        member.group = self
        self._hashes = None
        self._append(member)

    def _append(self, member: GroupMember) -> None:
        """Put a member at the end of the ring."""
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
        member.group = None
        self._hashes = None
        if member in self._aside:
            del self._aside[member]
            member.set_aside(False)
        else:
            self._take_out(member)

    def returned(self, member: GroupMember) -> None:
        """A member that was set aside is there again, and gets messages as one that was just added."""
        del self._aside[member]
        member.set_aside(False)
        self._append(member)

    def _take_out(self, member: GroupMember) -> None:
        following, previous = member.following, member.previous
        assert following is not None
        assert previous is not None
        member.following = member.previous = None
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
        return found + list(self._aside)

    def take_looked(self) -> int:
        """Return `looked`, for the slice, and begin it again."""
        looked = self.looked
        self.looked = 0
        return looked

    def pick(self, available_only: bool = False, skipped: dict[GroupMember, None] | None = None) -> GroupMember | None:
        """The next available member, round robin. When none is available: None with `available_only`, else the group's queue,
        or the next member, whose session queues the message. No member of `skipped` is chosen."""
        member = self._first if self._next is None else self._next
        next_member: GroupMember | None = None
        for _ in range(self._size):
            assert member is not None
            following = member.following
            if skipped is None or member not in skipped:
                if member.is_available():
                    self._next = following
                    return member
                self._pass_over(member)
                if next_member is None and member.following is not None:  # it is in the ring yet
                    next_member = member
            member = following
        if available_only:
            return None
        return self._waiting(next_member, skipped) if self.queue is None else self.queue

    def _pass_over(self, member: GroupMember) -> None:
        """A member of the ring is not available. It leaves the ring where it is away."""
        self.looked += 1
        if member.is_away():
            self._take_out(member)
            self._aside[member] = None
            member.set_aside(True)

    def _waiting(self, member: GroupMember | None, skipped: dict[GroupMember, None] | None) -> GroupMember | None:
        """The member whose session queues a message that nobody takes: all in turn, those that are set aside and those of the
        ring, of which `member` is the next one."""
        self._turn += 1
        if member is None or self._turn % len(self) >= self._size:
            for aside in self._aside:
                self.looked += 1
                if skipped is None or aside not in skipped:
                    self._aside.move_to_end(aside)
                    return aside
        if member is not None:
            self._next = member.following
        return member

    def pick_least(self, available_only: bool, skipped: dict[GroupMember, None] | None = None) -> GroupMember | None:
        """As `pick`, but the available member with the fewest messages; round robin where several have so few."""
        member = self._first if self._next is None else self._next
        least: GroupMember | None = None
        least_load = 0
        for _ in range(self._size):
            assert member is not None
            following = member.following
            if skipped is None or member not in skipped:
                if member.is_available():
                    self.looked += 1
                    load = member.load()
                    if least is None or load < least_load:
                        least = member
                        least_load = load
                        if load == 0:
                            break
                else:
                    self._pass_over(member)
            member = following
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
        highest = self._found.get(key) if skipped is None else None
        if highest is None:
            highest_score = -1
            self.looked += len(hashes)
            for member, whose in hashes.items():
                found = score(key, whose)
                if found > highest_score and (skipped is None or member not in skipped):
                    highest = member
                    highest_score = found
            if skipped is None and highest is not None:
                if len(self._found) >= KEYS_MAX:
                    self._found = {}
                self._found[key] = highest
        if highest is not None and highest.is_available():
            return highest
        available: GroupMember | None = None
        available_score = -1
        member_at = self._first
        for _ in range(self._size):
            assert member_at is not None
            following = member_at.following
            if skipped is None or member_at not in skipped:
                if member_at.is_available():
                    self.looked += 1
                    found = score(key, hashes[member_at])
                    if found > available_score:
                        available = member_at
                        available_score = found
                else:
                    self._pass_over(member_at)
            member_at = following
        if available is not None or available_only:
            return available
        return highest if self.queue is None else self.queue
