"""From a topic to its receivers: here, and on other nodes.

The answer for a topic is a `Route`, kept in a cache that subscription changes invalidate: the trie is asked on a miss
only. A run of QoS 0 messages of one topic goes to a receiver of the same protocol version as one slice of what came in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from broker.codec.reader import decode_publish
from broker.codec.reason_codes import TOPIC_NAME_INVALID
from broker.codec.writer import encode_publish
from broker.counters import DROP_EXPIRED, DROP_FROM_PEER_INVALID, DROP_GROUP_GONE, DROP_RETAINED_FULL
from broker.errors import MqttError
from broker.flow import Flow
from broker.hooks import NO_GROUPS, Peer
from broker.message import NEVER, Message
from broker.routing.names import check_topic_name
from broker.routing.route import GroupRoute, Receiver, Route
from broker.routing.subscription import FilterEntry, Subscription
from broker.routing.trie import Trie

if TYPE_CHECKING:
    from broker.broker import Broker
    from broker.routing.shared import SharedGroup
    from broker.session.publisher import Publisher
    from broker.session.session import Session

ROUTES_MAX: Final = 65_536  # topics in the cache; when it is full it starts anew
ROUTE_TOPIC_BYTES_MAX: Final = 1024  # longer topics are resolved each time, so that the cache is bounded in bytes too
BLOCK_RUN_MAX: Final = 256  # messages of a peer's block handled as one; a hold acts between two


class Router:
    """`publisher` is whoever's packets are being handled: a client or another node; None for the server's own."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.tree = Trie()  # the local tree: topic filter -> FilterEntry
        self.routes: dict[bytes, Route] = {}
        self._last: Route | None = None  # the one that was looked up last: one publisher's topic often follows itself
        self.generation = 0  # changes with every route that may be another one now
        self.publisher: Publisher | None = None

    # --- the cache ---

    def lookup(self, topic: bytes) -> Route:
        """The route of a topic name; raises MqttError for what is no topic name."""
        last = self._last
        if last is not None and last.topic == topic:
            return last
        route = self.routes.get(topic)
        if route is None:
            route = self._resolve(topic)
        self._last = route
        return route

    def forget_routes(self) -> None:
        """A filter with wildcards changed: any topic may be concerned."""
        self._last = None
        self.generation += 1
        if self.routes:
            self.routes.clear()
            self.broker.counters.routes_forgotten += 1

    def forget_topic(self, topic: bytes) -> None:
        """A filter without wildcards changed: only the topic of that name is concerned."""
        self._last = None
        self.generation += 1
        self.routes.pop(topic, None)

    def _resolve(self, topic: bytes) -> Route:
        check_topic_name(topic)
        if topic.count(b"/") >= self.broker.settings.max_topic_levels:
            raise MqttError(
                TOPIC_NAME_INVALID, f"topic name has more than {self.broker.settings.max_topic_levels} levels"
            )
        route = Route(topic)
        groups: dict[tuple[bytes, bytes], GroupRoute] = {}
        overlap = self.broker.overlap
        merged: dict[Session, Receiver] = {}
        for value in self.tree.match(topic):
            entry = cast(FilterEntry, value)
            for subscription in entry.subscriptions.values():
                receiver = merged.get(subscription.session)
                if receiver is None or overlap:
                    if receiver is not None:
                        route.plain = False  # its copies of one message leave before the next message [MQTT-4.6.0-5]
                    receiver = Receiver(subscription)
                    merged[subscription.session] = receiver
                    route.receivers.append(receiver)
                else:
                    receiver.merge(subscription)
            if entry.groups is not None:
                for share_name, group in entry.groups.items():
                    group_route = GroupRoute(share_name, entry.topic_filter)
                    group_route.local = group
                    groups[(share_name, entry.topic_filter)] = group_route
        remote = self.broker.forwarder.route(topic)
        if remote is not None:
            route.peers = remote.peers
            for remote_group in remote.groups:
                key = (remote_group.share_name, remote_group.topic_filter)
                found = groups.get(key)
                if found is None:
                    found = groups[key] = GroupRoute(key[0], key[1])
                found.remote = remote_group
        # Groups without members here go first: a node that they choose may get the message for other groups too.
        route.groups = [group for group in groups.values() if group.local is None]
        route.groups += [group for group in groups.values() if group.local is not None]
        if route.groups:
            route.plain = False
        for receiver in route.receivers:
            if receiver.more_identifiers is not None:
                receiver.identifiers = tuple(receiver.more_identifiers)
                receiver.more_identifiers = None
            if receiver.no_local or receiver.identifiers:
                route.plain = False
        if len(topic) <= ROUTE_TOPIC_BYTES_MAX:
            if len(self.routes) >= ROUTES_MAX:
                self.forget_routes()
            self.routes[topic] = route
        return route

    # --- messages of clients and of the server ---

    def route(self, message: Message, now: float) -> bool:
        """One message from here to everyone: receivers, groups, nodes. True when anyone gets it."""
        route = self.lookup(message.topic)
        if message.retain:
            self.store_retained(message, now)
            self.broker.forwarder.retained_published(message.topic, now)
        self._deliver(route, message, now)
        if not route.groups and not route.peers and not message.retain:
            return len(route.receivers) > 0
        return self._deliver_beyond(route, message, now) or len(route.receivers) > 0

    def _deliver(self, route: Route, message: Message, now: float) -> None:
        """To the ordinary subscribers here."""
        message_qos = message.qos
        for receiver in route.receivers:
            session = receiver.session
            if receiver.no_local and session.client_id == message.client_id:
                continue
            qos = receiver.qos if receiver.qos < message_qos else message_qos
            session.deliver(message, qos, message.retain and receiver.retain_as_published, receiver.identifiers, now)

    def _deliver_beyond(self, route: Route, message: Message, now: float) -> bool:
        """Shared groups and other nodes: each group gets one copy in the whole federation, local members first."""
        peers = self.broker.forwarder.peers() if message.retain else route.peers
        if not route.groups:
            for peer in peers:
                self._forward(peer, message, NO_GROUPS, now)
            return len(peers) > 0
        chosen: dict[str, list[tuple[bytes, bytes]]] = {}
        targets: list[Peer] = list(peers)
        for group in route.groups:
            peer_chosen = self._choose(group, targets, message, now)
            if peer_chosen is None:
                continue
            names = chosen.get(peer_chosen.name)
            if names is None:
                chosen[peer_chosen.name] = [(group.share_name, group.topic_filter)]
                if peer_chosen not in targets:
                    targets.append(peer_chosen)
            else:
                names.append((group.share_name, group.topic_filter))
        for peer in targets:
            names = chosen.get(peer.name)
            self._forward(peer, message, NO_GROUPS if names is None else tuple(names), now)
        return True

    def _choose(self, group: GroupRoute, peers: list[Peer], message: Message, now: float) -> Peer | None:
        """The node whose member of the group gets the message, or None: a member here got it.

        Members here that can take it come first, then nodes in turn, then members here that are away.
        A node that does not understand group names and gets the message anyway delivers to its member whatever we
        choose: so it is chosen, and the group still gets one copy.
        """
        remote = group.remote
        local = group.local
        if remote is not None:
            for peer in remote.peers:
                if not peer.names_groups and peer in peers:
                    return peer
        if local is not None:
            member = local.pick(True)
            if member is not None:
                self._deliver_member(cast(Subscription, member), message, now)
                return None
        if remote is not None and remote.peers:
            count = len(remote.peers)
            for _ in range(count):
                remote.turn = (remote.turn + 1) % count
                if remote.peers[remote.turn].reachable:
                    return remote.peers[remote.turn]
            if local is None:
                return remote.peers[remote.turn]
        self.deliver_group(local, message, now)
        return None

    def deliver_group(self, group: SharedGroup | None, message: Message, now: float) -> None:
        """To the member here whose turn it is."""
        member = group.pick() if group is not None else None
        if member is not None:
            self._deliver_member(cast(Subscription, member), message, now)

    def _deliver_member(self, subscription: Subscription, message: Message, now: float) -> None:
        qos = min(subscription.qos, message.qos)
        identifiers = (subscription.identifier,) if subscription.identifier else ()
        retain = message.retain and subscription.retain_as_published
        subscription.session.deliver(message, qos, retain, identifiers, now)

    def _forward(self, peer: Peer, message: Message, groups: tuple[tuple[bytes, bytes], ...], now: float) -> None:
        peer.forward(message, groups, now)
        self.broker.counters.messages_to_peers += 1
        if peer.congested and self.publisher is not None:
            self.broker.hold_for_peer(peer, self.publisher, now)

    def route_run(
        self,
        route: Route,
        data: bytes,
        start: int,
        stop: int,
        count: int,
        head_size: int,
        version: int,
        client_id: str,
        now: float,
        to_peers: bool,
    ) -> None:
        """`count` contiguous PUBLISH packets of one topic and length: QoS 0, no RETAIN, no DUP, no properties.

        head_size: bytes of each packet before its payload. Receivers of the same version get the slice as it is.
        """
        if not route.plain:
            for message in _run_messages(route.topic, data, start, stop, count, head_size, client_id):
                self._deliver(route, message, now)
                if to_peers:
                    self._deliver_beyond(route, message, now)
            return
        if not route.receivers and not (to_peers and route.peers):
            return
        old = version < 5
        chunk: bytes | None = None  # the run as it came
        other: bytes | None = None  # the run for receivers of the other version
        messages: list[Message] | None = None
        sent = 0
        length = (stop - start) // count
        for receiver in route.receivers:
            session = receiver.session
            connection = session.connection
            if (
                connection is not None
                and not session.queue
                and connection.can_write()
                and (connection.maximum_packet_size == 0 or length + 2 <= connection.maximum_packet_size)
            ):
                if (connection.version < 5) == old:
                    if chunk is None:
                        chunk = data if stop - start == len(data) else data[start:stop]
                    connection.write_packets(chunk, count)
                else:
                    if other is None:
                        other_version = 5 if old else 4
                        if messages is None:
                            messages = _run_messages(route.topic, data, start, stop, count, head_size, client_id)
                        other = b"".join([_encode_qos0(m, other_version) for m in messages])
                    connection.write_packets(other, count)
                sent += count
            else:
                if messages is None:
                    messages = _run_messages(route.topic, data, start, stop, count, head_size, client_id)
                for message in messages:
                    session.deliver(message, 0, False, receiver.identifiers, now)
        if sent:
            self.broker.counters.qos0_sent += sent
        if to_peers and route.peers:
            if chunk is None:
                chunk = data if stop - start == len(data) else data[start:stop]
            for peer in route.peers:
                peer.forward_run(chunk, count, 4 if old else 5, now)
                if peer.congested and self.publisher is not None:
                    self.broker.hold_for_peer(peer, self.publisher, now)
            self.broker.counters.messages_to_peers += count * len(route.peers)

    def route_again(self, flow: Flow, data: bytes, publisher: Publisher, client_id: str, now: float) -> None:
        """One more packet of a client's flow: all of data."""
        self.broker.counters.qos0_received += 1
        self.publisher = publisher
        try:
            self.route_run(flow.route, data, 0, len(data), 1, flow.payload_from, flow.version, client_id, now, True)
        finally:
            self.publisher = None

    # --- messages of other nodes ---

    def publish_remote(self, message: Message, groups: tuple[tuple[bytes, bytes], ...] | None, now: float) -> None:
        """A message from another node: to ordinary subscribers here and to the groups for which this node was chosen
        (None: the node cannot tell, so all that match). It is never forwarded again. Raises MqttError for a bad topic."""
        route = self.lookup(message.topic)
        self.broker.now = now
        self.broker.counters.messages_from_peers += 1
        if message.retain:
            self.store_retained(message, now)
        self._deliver(route, message, now)
        if groups is None:
            for group in route.groups:
                self.deliver_group(group.local, message, now)
        elif groups:
            gone = len(groups)
            for group in route.groups:
                if group.local is not None and (group.share_name, group.topic_filter) in groups:
                    gone -= 1
                    self.deliver_group(group.local, message, now)
            if gone > 0:  # the last member here went while the message was on its way
                self.broker.counters.drop(DROP_GROUP_GONE, gone)

    def publish_block(self, data: bytes, version: int, now: float, pos: int = 0, size: int = -1) -> int:
        """Contiguous PUBLISH packets of another node (version 4 or 5), data[pos:size], to ordinary subscribers here only.

        Stops when the publisher is held: the position to go on at, `size` at the end. What is no PUBLISH ends the
        block, and it and the rest are counted as one drop; a PUBLISH that is refused is one drop too.
        """
        if size < 0:
            size = len(data)
        publisher = self.publisher
        self.broker.now = now
        first_at = pos
        while pos < size:
            if publisher is not None and publisher.held:
                return pos
            end = size
            try:
                start = pos
                first = data[pos]
                pos += 1
                remaining = 0
                shift = 0
                while True:
                    byte = data[pos]
                    pos += 1
                    remaining |= (byte & 127) << shift
                    if byte < 128:
                        break
                    shift += 7
                    if shift > 21:
                        raise IndexError
                if first >> 4 != 3 or pos + remaining > size:
                    raise IndexError
                end = pos + remaining
                topic_end = pos + 2 + (data[pos] << 8 | data[pos + 1])
                payload_at = topic_end + 1 if version == 5 else topic_end
                if first == 0x30 and payload_at <= end and (version != 5 or data[topic_end] == 0):
                    route = self.lookup(data[pos + 2 : topic_end])
                    length = end - start
                    count = 1
                    limit = min(size, start + length * BLOCK_RUN_MAX)
                    if end + length <= limit:
                        head = data[start:payload_at]
                        while end + length <= limit and data.startswith(head, end):
                            end += length
                            count += 1
                    self.broker.counters.messages_from_peers += count
                    if publisher is not None and start == first_at and end == len(data) and count == 1:
                        publisher.learn_flow(route, self.generation, version, data, start, payload_at)
                    self._deliver_run_here(route, data, start, end, count, payload_at - start, version, now)
                else:
                    publish = decode_publish(first, data, pos, end, version)
                    expiry = publish.message_expiry_interval
                    pos = end
                    if expiry == 0:
                        self.broker.counters.drop(DROP_EXPIRED, 1)
                        continue
                    message = Message(
                        publish.topic,
                        publish.payload,
                        publish.qos,
                        publish.retain,
                        publish.properties,
                        now + expiry if expiry >= 0 else NEVER,
                    )
                    self.publish_remote(message, NO_GROUPS, now)
                pos = end
            except (IndexError, MqttError):
                # A whole packet that is refused here (a topic too deep for this node's settings) costs no other one.
                self.broker.counters.drop(DROP_FROM_PEER_INVALID, 1)
                pos = end
        return size

    def publish_again(self, flow: Flow, data: bytes, start: int, now: float) -> None:
        """As publish_block, for one more packet of the flow: data[start:]."""
        broker = self.broker
        broker.now = now
        broker.counters.messages_from_peers += 1
        self.route_run(flow.route, data, start, len(data), 1, flow.payload_from, flow.version, "", now, False)

    def _deliver_run_here(
        self, route: Route, data: bytes, start: int, stop: int, count: int, head_size: int, version: int, now: float
    ) -> None:
        """As route_run, but what a route says of groups and of other nodes is not for this message."""
        if route.plain:
            self.route_run(route, data, start, stop, count, head_size, version, "", now, False)
            return
        for message in _run_messages(route.topic, data, start, stop, count, head_size, ""):
            self._deliver(route, message, now)

    # --- retained messages ---

    def store_retained(self, message: Message, now: float) -> None:
        """Keep as the topic's retained message; an empty payload deletes it [MQTT-3.3.1-6]."""
        retained = self.broker.retained
        if message.payload and not retained.has_room(message):
            retained.expire(now)
            if not retained.has_room(message):
                self.broker.counters.drop(DROP_RETAINED_FULL, 1)
        # A copy: what the router encodes for today's receivers is not kept with it.
        retained.put(
            Message(
                message.topic,
                message.payload,
                message.qos,
                True,
                message.properties,
                message.expires_at,
                message.client_id,
            )
        )


def _run_messages(
    topic: bytes, data: bytes, start: int, stop: int, count: int, head_size: int, client_id: str
) -> list[Message]:
    """A run as single messages, for receivers that must queue or encode them."""
    length = (stop - start) // count
    return [
        Message(topic, data[at + head_size : at + length], 0, False, b"", NEVER, client_id)
        for at in range(start, stop, length)
    ]


def _encode_qos0(message: Message, version: int) -> bytes:
    return encode_publish(version, message.topic, message.payload, 0, False, False, 0, b"", -1, 0, ())
