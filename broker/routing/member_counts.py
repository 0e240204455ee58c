"""The number of members of a shared group on other nodes, and the turns that are due to them."""

# compiled with mypyc
from __future__ import annotations


class MemberCounts:
    """Of the nodes of a RemoteGroup, in their order.

    members  how many members each of them has, as far as it tells; otherwise it counts as one
    credits  turns that are due to each of them, and then to this node, with round robin
    """

    __slots__ = ("credits", "members")

    def __init__(self, nodes: int) -> None:
        self.members = [1] * nodes
        self.credits = [0] * (nodes + 1)

    def change(self, at: int, is_added: bool) -> None:
        """A node was added there, or removed."""
        if is_added:
            self.members.insert(at, 1)
        else:
            del self.members[at]
        self.credits = [0] * (len(self.members) + 1)
