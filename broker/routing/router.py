"""Routes messages to their receivers on this node and to other nodes.

The `Route` of a topic is cached until subscriptions change; a miss asks the trie. A receiver with the publisher's
protocol version gets a run of QoS 0 messages as the bytes that came in.
"""

# compiled with mypyc
from __future__ import annotations

from typing import Final, cast

from broker.bridging import needs_origin
from broker.codec.reader import decode_publish
from broker.codec.reason_codes import NO_MATCHING_SUBSCRIBERS, QUOTA_EXCEEDED, SUCCESS
from broker.codec.runs import Run, bare_payload_at, bare_run
from broker.context import Context
from broker.counters import (
    DROP_FROM_PEER_EXPIRED,
    DROP_FROM_PEER_INVALID,
    DROP_GROUP_GONE,
    DROP_RETAINED_FULL,
)
from broker.errors import MqttError
from broker.hooks import NO_GROUPS, Peer
from broker.message import Message, Publication
from broker.publisher import Publisher
from broker.routing.carried import carried_message, publish_at
from broker.routing.group_choice import choose, choose_by, choose_other, keyed, pick
from broker.routing.group_copy import GroupCopy
from broker.routing.resolving import resolve
from broker.routing.retained import RetainedMessage
from broker.routing.route import GroupRoute, Route
from broker.routing.route_cache import RouteCache
from broker.routing.shared import GroupMember
from broker.routing.strategy import LOCAL_FIRST
from broker.routing.subscription import Subscription
from broker.routing.trie import Trie
from broker.slices import Work

NO_IDENTIFIERS: Final[tuple[int, ...]] = ()
NO_CHOICE: Final[dict[str, list[tuple[bytes, bytes]]]] = {}


class Router:
    """`publisher` is the source of the message and may be held; None for messages of the server itself.

    last  the route of the last lookup: many publishers repeat their topic
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self.tree = Trie()  # the local tree: topic filter -> FilterEntry
        self.cache = RouteCache()
        self.last: Route | None = None

    # --- the cache ---

    def lookup(self, topic: bytes) -> Route:
        """The route of a topic name. Raises MqttError for an invalid topic name."""
        last = self.last
        if last is not None and last.topic == topic:
            return last
        route = self.cache.routes.get(topic)
        if route is None:
            route = resolve(self.context, self.tree, topic)
            if self.cache.keep(route):
                self.context.counters.routes_cleared += 1
        self.last = route if route.is_kept else None
        return route

    def forget_routes(self) -> None:
        """Clear the cache: a filter with wildcards changed, which may match any topic."""
        self.last = None
        self.cache.clear()

    def forget_topic(self, topic: bytes) -> None:
        """Remove one topic from the cache: a filter without wildcards changed."""
        self.last = None
        self.cache.remove(topic)

    def forget_filter(self, topic_filter: bytes, wildcard: bool) -> None:
        """Remove the topics that a filter with or without wildcards matches."""
        if wildcard:
            self.forget_routes()
        else:
            self.forget_topic(topic_filter)

    def reaches_nobody(self, topics: list[bytes]) -> bool:
        """Return whether a message of these topics that is not retained has no receiver, here and on other nodes.
        Raises MqttError for an invalid topic name."""
        for topic in topics:  # noqa: SIM110 (compiled without a generator)
            if not self.lookup(topic).is_empty():
                return False
        return True

    # --- messages of clients and of the server ---

    def route(self, route: Route, sent: Publication, publisher: Publisher | None, now: float) -> int:
        """Route what was published on this node to the route's topic. Returns the reason code of its acknowledgement [MQTT5
        3.4.2.1]: SUCCESS; NO_MATCHING_SUBSCRIBERS; QUOTA_EXCEEDED when the queue of a shared group has not taken it."""
        if isinstance(sent, Message):
            return self._route_message(route, sent, publisher, now)
        assert isinstance(sent, Run)
        return self._route_run(route, sent, publisher, now)

    def _route_message(self, route: Route, message: Message, publisher: Publisher | None, now: float) -> int:
        bridge = route.bridge
        bridging = self.context.bridging
        is_timed = False  # other domains order it by this time
        if bridging is not None and (bridge is not None or message.retain):
            bridging.publish(bridge, message, now)
            is_timed = message.retain and message.origin is not None and message.origin.published_at_ms > 0
        tap = self.context.tap
        if tap is not None:
            tap.published(message, publisher, now)
        if message.retain:
            message = self.store_retained(message, now, is_timed)
        self._deliver(route, message, publisher, now)
        reason_code = SUCCESS if route.receivers or bridge is not None else NO_MATCHING_SUBSCRIBERS
        if route.groups or route.peers or message.retain:
            beyond = self._deliver_beyond(route, message, publisher, now)
            if beyond != NO_MATCHING_SUBSCRIBERS:
                reason_code = beyond
        if reason_code == NO_MATCHING_SUBSCRIBERS:
            self.context.counters.without_receivers += 1
        return reason_code

    def publish_here(self, message: Message, now: float) -> None:
        """Publish a message below $SYS, about this node and on this node only: no tap sees it, and no other node gets it."""
        route = self.lookup(message.topic)
        if message.retain:
            self.context.sys_retained.put(message)
        self._deliver(route, message, None, now)
        for group in route.groups:
            self._deliver_group(group, message, group.copy, None, now)

    def _deliver(self, route: Route, message: Message, publisher: Publisher | None, now: float) -> None:
        """Deliver to the subscribers on this node, without shared groups."""
        message_qos = message.qos
        self.context.slices.steps += len(route.receivers)
        for merged in route.receivers:
            receiver = merged
            session = merged.session
            if merged.no_local and session.client_id == message.client_id:
                if merged.own is None:
                    continue
                receiver = merged.own
            qos = receiver.qos if receiver.qos < message_qos else message_qos
            retain = message.retain and receiver.retain_as_published
            sources = session.sources
            if sources is None or sources.takes(message, qos, retain, receiver.identifiers, publisher, now):
                session.deliver(message, qos, retain, receiver.identifiers, publisher, now)
        if route.bridge is not None:
            route.bridge.deliver(message, publisher, now)
        message.encoded = None  # else queues, windows and the retained store keep all forms of it

    def _deliver_beyond(self, route: Route, message: Message, publisher: Publisher | None, now: float) -> int:
        """Deliver to shared groups and other nodes. Each group gets one copy in the whole federation."""
        targets = self.context.forwarder.peers() if message.retain else route.peers
        reason_code = SUCCESS if targets or route.groups else NO_MATCHING_SUBSCRIBERS
        chosen = NO_CHOICE
        strategy = self.context.group_strategy
        if route.groups:
            targets, chosen = list(targets), {}
        for group in route.groups:
            copy = group.copy
            if strategy == LOCAL_FIRST:
                receiver = choose(group, targets)
            else:
                copy = keyed(strategy, copy, message)
                receiver = choose_by(strategy, copy.key, group, targets, self.context.node_hash)
            if group.local is not None and group.local.looked:
                self.context.slices.steps += group.local.take_looked()
            if isinstance(receiver, GroupMember):
                if not self._deliver_member(receiver, message, copy, publisher, False, now):
                    reason_code = QUOTA_EXCEEDED
            elif receiver is not None and receiver.takes_copies:
                receiver.forward_copy(message, copy, now)
                self._forwarded(receiver, publisher, now)
            elif receiver is not None:
                if receiver not in targets:
                    targets.append(receiver)
                chosen.setdefault(receiver.name, []).append((group.share_name, group.topic_filter))
        for peer in targets:
            sent = message
            if message.origin is not None and not route.groups and not needs_origin(peer, route.bridge, message):
                sent = message.bare()
            self.forward(peer, sent, tuple(chosen.get(peer.name, ())) if chosen else NO_GROUPS, publisher, now)
        return reason_code

    def _pick(self, copy: GroupCopy, group: GroupRoute, available_only: bool) -> GroupMember | None:
        """As `group_choice.pick`. The members that it looks at are steps."""
        context = self.context
        member = pick(context.group_strategy, copy.key, group, available_only)
        if group.local is not None:
            context.slices.steps += group.local.take_looked()
        return member

    def _deliver_group(
        self, group: GroupRoute, message: Message, copy: GroupCopy, publisher: Publisher | None, now: float
    ) -> bool:
        """Deliver to the next local member of the group. False when there is none that may read the topic."""
        member = self._pick(copy, group, False)
        if member is not None:
            self._deliver_member(member, message, copy, publisher, False, now)
        return member is not None

    def deliver_copy(self, message: Message, copy: GroupCopy, publisher: Publisher | None, now: float) -> None:
        """Deliver a copy for which another node has chosen this one. Where the last member here has gone meanwhile, or none may
        read the topic, another node with members gets it. Raises MqttError for an invalid topic name."""
        route = self.lookup(message.topic)
        group = route.group_of(copy)
        if group is not None and self._deliver_group(group, message, copy, publisher, now):
            return
        if group is not None and self._redeliver_elsewhere(route, group, message, copy, None, now):
            return
        if not self.context.forwarder.adopt(copy, message, now):
            self.context.counters.drop_of_topic(DROP_GROUP_GONE, 1, message.qos, message.topic)
            copy.end()

    def redeliver(
        self, copy: GroupCopy, message: Message, now: float, only_available: bool = False, without: Peer | None = None
    ) -> bool:
        """Deliver a copy that a member of the group, or its queue, or the node `without`, gives up: to the next member here, or
        on a node that is reached. False when there is none that may read the topic, or with `only_available` none here that
        has credit."""
        try:
            route = self.lookup(message.topic)
        except MqttError:
            return False
        group = route.group_of(copy)
        if group is None:
            return False
        has_queue = group.local is not None and group.local.queue is not None
        member = self._pick(copy, group, only_available or not has_queue)
        if member is None and not only_available and not has_queue:
            if self._redeliver_elsewhere(route, group, message, copy, without, now):
                return True
            member = self._pick(copy, group, False)
        if member is not None:
            self._deliver_member(member, message, copy, None, True, now)
        return member is not None

    def _redeliver_elsewhere(
        self,
        route: Route,
        group: GroupRoute,
        message: Message,
        copy: GroupCopy,
        without: Peer | None,
        now: float,
    ) -> bool:
        """Give a copy to another node with members. False when there is none."""
        found = choose_other(route, group, copy, message, without)
        if found is None:
            return False
        self.context.counters.messages_to_peers += 1
        if found.takes_copies:
            found.forward_again(message, copy, now)
        else:
            found.forward(message, ((copy.share_name, copy.topic_filter),), now)
            copy.end()
        return True

    def _deliver_member(
        self,
        member: GroupMember,
        message: Message,
        copy: GroupCopy,
        publisher: Publisher | None,
        is_known: bool,
        now: float,
    ) -> bool:
        """Deliver to a member or the queue of a group. False when the queue rejects the message, which it does not do when the
        group had it before (`is_known`)."""
        subscription = cast(Subscription, member)
        qos = min(subscription.qos, message.qos)
        identifiers = (subscription.identifier,) if subscription.identifier else ()
        retain = message.retain and subscription.retain_as_published
        session = subscription.session
        if is_known:
            is_taken = session.take_back(message, qos, retain, identifiers, copy, now)
        else:
            is_taken = session.deliver(message, qos, retain, identifiers, publisher, now, copy)
        if session.queued_groups is not None:
            self.context.changed_groups.update(session.queued_groups)
        return is_taken

    def forward(
        self,
        peer: Peer,
        message: Message,
        groups: tuple[tuple[bytes, bytes], ...],
        publisher: Publisher | None,
        now: float,
    ) -> None:
        peer.forward(message, groups, now)
        self._forwarded(peer, publisher, now)

    def _forwarded(self, peer: Peer, publisher: Publisher | None, now: float) -> None:
        self.context.counters.messages_to_peers += 1
        if peer.congested and publisher is not None:
            self.context.hold_for_peer(peer, publisher, now)

    def deliver_each(self, route: Route, run: Run, at: int, publisher: Publisher | None, now: float) -> int:
        """Deliver the messages of a run one by one, from the one with index `at` on, until the slice is over. Returns the index
        of the next one."""
        slices = self.context.slices
        messages = run.messages()
        has_beyond = route.groups or route.peers
        while at < len(messages):
            message = messages[at]
            at += 1
            self._deliver(route, message, publisher, now)
            if has_beyond:
                self._deliver_beyond(route, message, publisher, now)
            if publisher is not None and slices.is_over():
                break
        return at

    def _route_run(self, route: Route, run: Run, publisher: Publisher | None, now: float) -> int:
        context = self.context
        tap = context.tap
        if tap is not None:
            tap.published_run(run, publisher, now)
        if route.is_empty():
            context.counters.without_receivers += run.count
            return NO_MATCHING_SUBSCRIBERS
        bridge = route.bridge
        if bridge is not None and context.bridging is not None:
            context.bridging.publish(bridge, run, now)
        if not route.whole_runs:
            at = self.deliver_each(route, run, 0, publisher, now)
            if at < run.count and publisher is not None:
                context.pause(publisher)
                context.slices.later(RunRest(self, run, at, publisher))
            return SUCCESS
        self._deliver_run_here(route, run, publisher, now)
        if route.peers:
            version = 4 if run.version < 5 else 5
            for peer in route.peers:
                if bridge is not None and bridge.splits(peer, run):
                    for message in run.messages():
                        peer.forward(message, NO_GROUPS, now)
                else:
                    peer.forward_run(run.encoded(version), run.count, version, run.qos, now)
                if peer.congested and publisher is not None:
                    context.hold_for_peer(peer, publisher, now)
            context.counters.messages_to_peers += run.count * len(route.peers)
        return SUCCESS

    # --- messages of other nodes ---

    def publish_remote(
        self,
        message: Message,
        groups: tuple[tuple[bytes, bytes], ...] | None,
        publisher: Publisher | None,
        now: float,
    ) -> None:
        """Deliver a message of another node to ordinary subscribers and to the groups for which this node was chosen.

        groups  None: the other node does not name groups, so all that match. The message is not forwarded. Raises
        MqttError for an invalid topic name.
        """
        route = self.lookup(message.topic)
        message.topic = route.topic  # one object for all messages of the topic
        context = self.context
        context.now = now
        context.counters.messages_from_peers += 1
        bridging = None if message.origin is None and not message.retain else context.bridging
        if bridging is None or bridging.receive(route.bridge, message, publisher, now):
            if message.retain:
                self.store_retained(message, now)
            self._deliver(route, message, publisher, now)
        if groups is None:
            for group in route.groups:
                self._deliver_group(group, message, group.copy, publisher, now)
        else:
            for share_name, topic_filter in groups:
                self.deliver_copy(message, GroupCopy(share_name, topic_filter), publisher, now)

    def publish_block(
        self, data: bytes, version: int, publisher: Publisher | None, now: float, pos: int, size: int
    ) -> int:
        """Deliver PUBLISH packets of another node (version 4 or 5), data[pos:size], to ordinary subscribers.

        Returns the position to continue at: `size`, or less when the publisher is held or its slice is over. Anything but
        a whole PUBLISH ends the block, and the rest counts as one drop. A PUBLISH that is refused counts as one drop.
        """
        context = self.context
        counters = context.counters
        context.now = now
        slices = context.slices
        while pos < size:
            if publisher is not None:
                if publisher.held:
                    return pos
                if slices.is_over():
                    context.rest(publisher)
                    return pos
            slices.steps += 1
            end = size
            try:
                body, end = publish_at(data, pos, size)
                first = data[pos]
                payload_at = bare_payload_at(data, first, body, end, version)
                if payload_at >= 0:
                    run = bare_run(data, pos, body, end, payload_at, version, "", size)
                    route = self.lookup(run.topic)
                    run.topic = route.topic  # one object for all messages of the topic
                    if run.qos:
                        end = self._deliver_singly(route, run, pos, publisher, now)
                    else:
                        end = run.stop
                        self._deliver_run_here(route, run, publisher, now)
                    counters.messages_from_peers += (end - pos) // run.packet_size
                else:
                    message = carried_message(decode_publish(first, data, body, end, version), now)
                    if message.expires_at > now:
                        self.publish_remote(message, NO_GROUPS, publisher, now)
                    else:
                        counters.drop_of_topic(DROP_FROM_PEER_EXPIRED, 1, message.qos, message.topic)
            except MqttError:
                # A refused packet (a topic with more levels than this node allows) does not affect the others.
                counters.drop(DROP_FROM_PEER_INVALID, 1, 0)
            pos = end
        return size

    def _deliver_singly(self, route: Route, run: Run, pos: int, publisher: Publisher | None, now: float) -> int:
        """Deliver the messages of a run of QoS 1 that begins at `pos` to subscribers on this node, until the publisher is held
        or its slice is over. Returns the position behind them."""
        slices = self.context.slices
        while True:
            self._deliver(route, run.message(pos), publisher, now)
            pos += run.packet_size
            if pos >= run.stop or (publisher is not None and (publisher.held or slices.is_over())):
                return pos
            slices.steps += 1

    def _deliver_run_here(self, route: Route, run: Run, publisher: Publisher | None, now: float) -> None:
        """Deliver a run to subscribers on this node, without shared groups."""
        if route.whole_runs:
            self.context.slices.steps += len(route.receivers)
            for receiver in route.receivers:
                session = receiver.session
                if receiver.no_local and receiver.own is None and session.client_id == run.client_id:
                    continue
                if session.sources is None:
                    session.deliver_run(run, publisher, now)
                else:
                    for message in run.messages():
                        sources = session.sources
                        if sources is None or sources.takes(message, 0, False, NO_IDENTIFIERS, publisher, now):
                            session.deliver(message, 0, False, NO_IDENTIFIERS, publisher, now)
            if route.bridge is not None:
                route.bridge.deliver(run, publisher, now)
        else:
            for message in run.messages():
                self._deliver(route, message, publisher, now)

    # --- retained messages ---

    def store_retained(self, message: Message, now: float, is_timed: bool = False) -> RetainedMessage:
        """Store as the topic's retained message, unless a newer one is known; an empty payload deletes it [MQTT-3.3.1-6].
        Returns the message with the stamp of its change, which it gets here where it has none: that of the time in its origin
        if `is_timed`."""
        retained = self.context.retained
        if not isinstance(message, RetainedMessage):
            time_ms = message.origin.published_at_ms if is_timed and message.origin is not None else 0
            message = RetainedMessage(message, retained.versions.next_stamp(message.topic, time_ms, now))
        if not retained.keep(message, now):
            self.context.counters.drop_of_topic(DROP_RETAINED_FULL, 1, message.qos, message.topic)
        return message


class RunRest(Work):
    """The messages of a run that its receivers do not get as a whole, from index `at` on: what is more than a slice waits for a
    later turn. The publisher is paused until then."""

    __slots__ = ("_at", "_publisher", "_router", "_run")

    def __init__(self, router: Router, run: Run, at: int, publisher: Publisher) -> None:
        self._router = router
        self._run = run
        self._at = at
        self._publisher = publisher

    def go_on(self, now: float) -> bool:
        router = self._router
        run = self._run
        at = run.count  # after a fault, too: the publisher must be read again
        try:
            route = router.lookup(run.topic)  # subscriptions may have changed
            at = self._at = router.deliver_each(route, run, self._at, self._publisher, now)
        finally:
            if at == run.count:
                router.context.release(self._publisher)
        return at == run.count
