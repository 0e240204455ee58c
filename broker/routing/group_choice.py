"""The receiver of a group's copy: a member on this node, or another node with members."""

# compiled with mypyc
from __future__ import annotations

from typing import Final, cast

from broker.authorization import Authorization
from broker.hooks import Peer, RemoteGroup
from broker.message import Message
from broker.routing.group_copy import GroupCopy
from broker.routing.route import GroupRoute, Route
from broker.routing.shared import GroupMember, SharedGroup
from broker.routing.strategy import HASH_CLIENTID, HASH_TOPIC, LEAST_INFLIGHT, hash_of, weighted_score
from broker.routing.subscription import Subscription

OWN: Final = -1  # in place of the index of another node; the last one of credits
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


def keyed(strategy: int, copy: GroupCopy, message: Message) -> GroupCopy:
    """The copy of a message that is published here, with the key that the strategy gives it."""
    if strategy == HASH_TOPIC:
        return GroupCopy(copy.share_name, copy.topic_filter, 0, hash_of(message.topic))
    if strategy == HASH_CLIENTID:
        return GroupCopy(copy.share_name, copy.topic_filter, 0, hash_of(message.client_id.encode()))
    return copy


def pick(strategy: int, key: int, group: GroupRoute, available_only: bool) -> GroupMember | None:
    """The next member on this node, or the queue of the group here, as `SharedGroup.pick`. A key decides, whatever the strategy
    here: the node that chose this one has another."""
    local = group.local
    if local is None:
        return None
    if key:
        return local.pick_hashed(key, available_only, group.skipped)
    if strategy == LEAST_INFLIGHT:
        return local.pick_least(available_only, group.skipped)
    return local.pick(available_only, group.skipped)


def choose_by(
    strategy: int, key: int, group: GroupRoute, peers: list[Peer], own_hash: int
) -> GroupMember | Peer | None:
    """As `choose`, with another strategy than local_first: it decides between available local members and reachable nodes."""
    remote = group.remote
    local = group.local
    if remote is None or not remote.peers:
        return pick(strategy, key, group, False)
    for peer in remote.peers:
        if not peer.names_groups and peer in peers:
            return peer
    if strategy == LEAST_INFLIGHT:
        member = pick(strategy, key, group, True)
        at = _least_loaded(remote, None if member is None else member.load())
        if at == OWN and member is not None:
            return member
    else:
        own = 0 if local is None else len(local)
        at = _highest(remote, key, own, own_hash, True) if key else _next(remote, own)
        if at == OWN and own:
            member = pick(strategy, key, group, True)
            if member is not None:
                return member
            at = _highest(remote, key, 0, own_hash, True) if key else _next(remote, 0)
    if at != OWN:
        return remote.peers[at]
    if local is not None:
        return pick(strategy, key, group, False)
    return remote.peers[_highest(remote, key, 0, own_hash, False) if key else remote.last]


def _highest(remote: RemoteGroup, key: int, own: int, own_hash: int, reachable_only: bool) -> int:
    """The node with the highest score for a key."""
    found = OWN
    highest = weighted_score(key, own_hash, own) if own else 0.0
    for at in range(len(remote.peers)):
        peer = remote.peers[at]
        if peer.reachable or not reachable_only:
            its = weighted_score(key, peer.hash, remote.members_at(at))
            if its > highest:
                found = at
                highest = its
    return found


def _next(remote: RemoteGroup, own: int) -> int:
    """The node whose turn it is, round robin over all members: each node is given a turn for each of its members, the one with
    the most turns is chosen, and gives one for each member of all."""
    turns = remote.made_counts().credits
    turns[OWN] += own
    found = OWN
    total = own
    for at in range(len(remote.peers)):
        if remote.peers[at].reachable:
            members = remote.members_at(at)
            turns[at] += members
            if total == 0 or turns[at] > turns[found]:
                found = at
            total += members
    turns[found] -= total
    if found != OWN:
        remote.last = found
    return found


def _least_loaded(remote: RemoteGroup, own_load: int | None) -> int:
    """The node with the fewest copies under way for each of its members, this one where no other has fewer."""
    found = OWN
    least = -1.0 if own_load is None else float(own_load)
    count = len(remote.peers)
    first = remote.last + 1
    for step in range(count):
        at = (first + step) % count
        if remote.peers[at].reachable:
            its = remote.peers[at].load() / remote.members_at(at)
            if its < least or least < 0:
                found = at
                least = its
    if found != OWN:
        remote.last = found
    return found


def choose_other(
    route: Route, group: GroupRoute, copy: GroupCopy, message: Message, without: Peer | None
) -> Peer | None:
    """The node that a copy is handed on to, if possible one that is reached. None when there is none, and after HOPS_MAX nodes.
    A node that takes no copies gets one where it has no ordinary subscriber, who would get it too."""
    remote = group.remote
    if remote is None or copy.hops >= HOPS_MAX or route.is_reserved:
        return None
    found: Peer | None = None
    highest = 0.0
    for _ in range(len(remote.peers)):
        remote.last = (remote.last + 1) % len(remote.peers)
        peer = remote.peers[remote.last]
        is_taken = peer.takes_copies or (peer.names_groups and not message.retain and peer not in route.peers)
        if peer is without or not is_taken:
            continue
        if copy.key == 0:
            if peer.reachable:
                return peer
            if found is None:
                found = peer
            continue
        its = weighted_score(copy.key, peer.hash, remote.members_at(remote.last))
        if found is None or (its > highest if peer.reachable == found.reachable else peer.reachable):
            found = peer
            highest = its
    return found
