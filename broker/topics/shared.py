"""One shared subscription (section 4.8.2): its members take turns."""

from __future__ import annotations


class GroupMember:
    """Base of what can be in a group, so that the turn costs no lookup by name when compiled.

    A subclass overrides `is_available`, or sets `available`.
    """

    __slots__ = ("available",)

    def __init__(self, available: bool = True) -> None:
        self.available = available

    def is_available(self) -> bool:
        """Whether a message could leave for this member now: it is connected."""
        return self.available


class SharedGroup:
    """Members of one `$share/share_name/topic_filter` in the order in which they joined; each is in it once."""

    __slots__ = ("_members", "_next", "share_name", "topic_filter")

    def __init__(self, share_name: bytes, topic_filter: bytes) -> None:
        self.share_name = share_name
        self.topic_filter = topic_filter
        self._members: list[GroupMember] = []
        self._next = 0

    def __len__(self) -> int:
        return len(self._members)

    def add(self, member: GroupMember) -> bool:
        """False when it is a member already."""
        for known in self._members:
            if known is member:
                return False
        self._members.append(member)
        return True

    def remove(self, member: GroupMember) -> bool:
        """False when it is no member. The turn stays where it was for the others."""
        for index, known in enumerate(self._members):
            if known is member:
                del self._members[index]
                if index < self._next:
                    self._next -= 1
                return True
        return False

    def members(self) -> list[GroupMember]:
        return list(self._members)

    def pick(self, available_only: bool = False) -> GroupMember | None:
        """The next member in turn that is available; when none is, the next at all, whose session keeps the message,
        or None with `available_only`. None for an empty group."""
        count = len(self._members)
        if count == 0:
            return None
        first = self._next if self._next < count else 0
        index = first
        while True:
            member = self._members[index]
            index = index + 1 if index + 1 < count else 0
            if member.is_available():
                self._next = index
                return member
            if index == first:
                break
        if available_only:
            return None
        self._next = first + 1
        return self._members[first]
