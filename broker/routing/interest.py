"""Interest of this node that has changed: the other nodes and the observer are told."""

# compiled with mypyc
from __future__ import annotations

from typing import cast

from broker.context import Context
from broker.routing.strategy import LOCAL_FIRST
from broker.routing.subscription import FilterEntry, Subscription, interest
from broker.routing.trie import Trie


def note_added(context: Context, tree: Trie, subscription: Subscription, is_first: bool) -> None:
    """A subscription was added to the tree."""
    share_name, topic_filter = subscription.share_name, subscription.topic_filter
    is_changed = _says_else(context, tree, subscription)
    if is_first:
        context.forwarder.interest_added(share_name, topic_filter)
        observer = context.interest_observer
        if observer is not None:
            observer.interest_added("", share_name, topic_filter, context.interest_note(share_name, topic_filter))
    elif is_changed:
        _tell(context, share_name, topic_filter)


def note_removed(context: Context, tree: Trie, subscription: Subscription, is_last: bool) -> None:
    """A subscription was removed from the tree."""
    share_name, topic_filter = subscription.share_name, subscription.topic_filter
    is_changed = _says_else(context, tree, subscription)
    if is_last:
        context.forwarder.interest_removed(share_name, topic_filter)
        if context.interest_observer is not None:
            context.interest_observer.interest_removed("", share_name, topic_filter)
    elif is_changed:
        _tell(context, share_name, topic_filter)


def note_changed(context: Context, tree: Trie, subscription: Subscription) -> None:
    """A subscription in the tree brings something else along, or its session has another BridgeEnd."""
    if _says_else(context, tree, subscription):
        _tell(context, subscription.share_name, subscription.topic_filter)


def tell_members(context: Context, tree: Trie) -> None:
    """The strategy of shared groups may have changed: other nodes are told what they are told with this one."""
    for share_name, topic_filter in interest(tree):
        if share_name:
            context.forwarder.note_changed(share_name, topic_filter)


def members_note(context: Context, tree: Trie, share_name: bytes, topic_filter: bytes) -> bytes:
    """The note of a shared group: how many members this node has. b"" with a strategy that does not ask."""
    if context.group_strategy == LOCAL_FIRST:
        return b""
    entry = cast("FilterEntry | None", tree.get(topic_filter))
    group = None if entry is None or entry.groups is None else entry.groups.get(share_name)
    return b"" if group is None else len(group).to_bytes(4, "big")


def members_of(note: bytes) -> int:
    """The number of members in a note, 1 where it says none."""
    return max(1, int.from_bytes(note, "big")) if len(note) == 4 else 1


def _says_else(context: Context, tree: Trie, subscription: Subscription) -> bool:
    """Return whether the interest in the filter of a subscription says something else along."""
    if subscription.share_name:
        return context.group_strategy != LOCAL_FIRST
    if context.bridging is None:
        return False
    entry = cast("FilterEntry | None", tree.get(subscription.topic_filter))
    return context.bridging.interest_changed(entry, subscription)


def _tell(context: Context, share_name: bytes, topic_filter: bytes) -> None:
    context.forwarder.note_changed(share_name, topic_filter)
    if context.interest_observer is not None and not share_name:
        context.interest_observer.note_changed("", topic_filter, context.interest_note(b"", topic_filter))
