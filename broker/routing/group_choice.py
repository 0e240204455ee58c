"""The receiver of a group's copy: a member on this node, or another node with members."""

# compiled with mypyc
from __future__ import annotations

from typing import Final, cast

from broker.authorization import Authorization
from broker.hooks import Peer
from broker.message import Message
from broker.routing.group_copy import GroupCopy
from broker.routing.route import GroupRoute, Route
from broker.routing.shared import GroupMember, SharedGroup
from broker.routing.subscription import Subscription

HOPS_MAX: Final = 8  # nodes that hand one copy for a group on, because their members have gone meanwhile


def may_read(authorization: Authorization, subscription: Subscription, topic: bytes) -> bool:
    return authorization.may_read(subscription.session.identity(), topic)


def skip_members(authorization: Authorization, group_route: GroupRoute, group: SharedGroup, topic: bytes) -> None:
    """Leave the members of a shared group out that may not read the topic."""
    skipped: dict[GroupMember, None] = {}
    for member in group.members():
        if not may_read(authorization, cast(Subscription, member), topic):
            skipped[member] = None
    if skipped:
        group_route.skipped = skipped
        if len(skipped) == len(group) and group.queue is None:
            group_route.local = None


def choose(group: GroupRoute, peers: list[Peer]) -> GroupMember | Peer | None:
    """The receiver of a group's copy: a member or the queue of the group on this node, or a node that has members. `peers` get
    the message anyway.

    The order is: available local members, reachable nodes round robin, other local members. A node that does not
    understand group names delivers each message to its member. When it gets the message anyway, it is chosen, so
    that the group gets one copy.
    """
    remote = group.remote
    local = group.local
    if remote is None or not remote.peers:
        return None if local is None else local.pick(False, group.skipped)
    for peer in remote.peers:
        if not peer.names_groups and peer in peers:
            return peer
    if local is not None:
        member = local.pick(True, group.skipped)
        if member is not None:
            return member
    for _ in range(len(remote.peers)):
        remote.last = (remote.last + 1) % len(remote.peers)
        if remote.peers[remote.last].reachable:
            return remote.peers[remote.last]
    return remote.peers[remote.last] if local is None else local.pick(False, group.skipped)


def choose_other(
    route: Route, group: GroupRoute, copy: GroupCopy, message: Message, without: Peer | None
) -> Peer | None:
    """The node that a copy is handed on to, if possible one that is reached. None when there is none, and after HOPS_MAX nodes.
    A node that takes no copies gets one where it has no ordinary subscriber, who would get it too."""
    remote = group.remote
    if remote is None or copy.hops >= HOPS_MAX or route.is_reserved:
        return None
    found: Peer | None = None
    for _ in range(len(remote.peers)):
        remote.last = (remote.last + 1) % len(remote.peers)
        peer = remote.peers[remote.last]
        is_taken = peer.takes_copies or (peer.names_groups and not message.retain and peer not in route.peers)
        if peer is without or not is_taken:
            continue
        if peer.reachable:
            return peer
        if found is None:
            found = peer
    return found
