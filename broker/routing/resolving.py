"""The `Route` of a topic, from the trees of subscriptions: what a miss of the router's cache asks."""

# compiled with mypyc
from __future__ import annotations

from typing import cast

from broker.codec.reason_codes import TOPIC_NAME_INVALID
from broker.context import Context
from broker.errors import MqttError
from broker.routing.group_choice import may_read, skip_members
from broker.routing.names import check_topic_name
from broker.routing.route import GROUP_SIZE, GroupRoute, Receiver, Route
from broker.routing.subscriber import Subscriber
from broker.routing.subscription import FilterEntry, Subscription
from broker.routing.trie import Trie


def resolve(context: Context, tree: Trie, topic: bytes) -> Route:
    """Ask the local tree and the federation. The steps count in the slice. Raises MqttError for an invalid topic name."""
    check_topic_name(topic)
    levels_max = context.settings.max_topic_levels
    if topic.count(b"/") >= levels_max:
        raise MqttError(TOPIC_NAME_INVALID, f"topic name has more than {levels_max} levels")
    authorization = context.authorization
    failed_before = 0 if authorization is None else authorization.failed
    route = Route(topic, authorization is not None)
    groups: dict[tuple[bytes, bytes], GroupRoute] = {}
    merged: dict[Subscriber, Receiver] = {}
    bridged: list[Subscription] = []
    matched = tree.match(topic)
    context.slices.steps += tree.visited + len(matched)
    for value in matched:
        entry = cast(FilterEntry, value)
        for subscription in entry.subscriptions.values():
            if authorization is not None and not may_read(authorization, subscription, topic):
                continue
            session = subscription.session
            receiver = merged.get(session)
            if session.bridge_end is not None:
                bridged.append(subscription)
            elif receiver is None or context.overlap:
                if receiver is not None:
                    route.whole_runs = False  # all copies of one message come before the next one [MQTT-4.6.0-5]
                receiver = Receiver(subscription)
                merged[session] = receiver
                route.receivers.append(receiver)
            else:
                receiver.merge(subscription)
        if entry.groups is not None:
            for share_name, group in entry.groups.items():
                group_route = GroupRoute(share_name, entry.topic_filter)
                group_route.local = group
                if authorization is not None:
                    skip_members(authorization, group_route, group, topic)
                    route.size += len(group_route.skipped or ())
                groups[(share_name, entry.topic_filter)] = group_route
    remote = context.forwarder.route(topic)
    if remote is not None:
        route.peers = remote.peers
        for remote_group in remote.groups:
            key = (remote_group.share_name, remote_group.topic_filter)
            found = groups.get(key)
            if found is None:
                found = groups[key] = GroupRoute(key[0], key[1])
            found.remote = remote_group
    # Groups without local members come first: the node that they choose can get the message for other groups too.
    route.groups = [group for group in groups.values() if group.local is None]
    route.groups += [group for group in groups.values() if group.local is not None]
    route.size += len(route.peers) + GROUP_SIZE * len(route.groups)
    if route.groups:
        route.whole_runs = False
    for receiver in route.receivers:
        receiver.end_merge()
        route.size += receiver.size()
        if receiver.identifiers:
            route.whole_runs = False
    if context.bridging is not None:
        route.bridge = context.bridging.route(topic, bridged, remote)
    route.is_passed_on = bool(route.peers) and not (route.receivers or route.groups) and route.bridge is None
    route.is_kept = authorization is None or authorization.failed == failed_before
    return route
