"""Interest of this node that has changed: the other nodes and the observer are told."""

# compiled with mypyc
from __future__ import annotations

from typing import cast

from broker.context import Context
from broker.routing.subscription import FilterEntry, Subscription
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
        _tell(context, topic_filter)


def note_removed(context: Context, tree: Trie, subscription: Subscription, is_last: bool) -> None:
    """A subscription was removed from the tree."""
    share_name, topic_filter = subscription.share_name, subscription.topic_filter
    is_changed = _says_else(context, tree, subscription)
    if is_last:
        context.forwarder.interest_removed(share_name, topic_filter)
        if context.interest_observer is not None:
            context.interest_observer.interest_removed("", share_name, topic_filter)
    elif is_changed:
        _tell(context, topic_filter)


def note_changed(context: Context, tree: Trie, subscription: Subscription) -> None:
    """A subscription in the tree brings something else along, or its session has another BridgeEnd."""
    if _says_else(context, tree, subscription):
        _tell(context, subscription.topic_filter)


def _says_else(context: Context, tree: Trie, subscription: Subscription) -> bool:
    """Return whether the interest in the filter of a subscription says something else along."""
    if context.bridging is None or subscription.share_name:
        return False
    entry = cast("FilterEntry | None", tree.get(subscription.topic_filter))
    return context.bridging.interest_changed(entry, subscription)


def _tell(context: Context, topic_filter: bytes) -> None:
    context.forwarder.note_changed(topic_filter)
    if context.interest_observer is not None:
        context.interest_observer.note_changed("", topic_filter, context.interest_note(b"", topic_filter))
