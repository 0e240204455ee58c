"""A link of the kind `topics`: it subscribes at the upstream to the interest of this domain, or pushes topics to it."""

from __future__ import annotations

from hashlib import blake2b
from string import hexdigits
from typing import Final

from broker.broker import Broker
from broker.codec.packets import MQTT_5, Connect
from broker.errors import MqttError
from broker.message import NEVER
from broker.origin import NO_DOMAIN
from federation.definitions.resolution import LinkPlan
from federation.definitions.upstream import AckMode, Direction
from federation.links.bridging.ends import OwnEnd
from federation.links.bridging.group_consumers import GroupConsumers
from federation.links.bridging.headers import NAME_TEXT, LinkWelcome, encode_interest
from federation.links.client import Client
from federation.links.handshake import Accepted, Note, addresses_of, qos_of
from federation.links.interest import FILTERS_MAX, Domain, LinkInterest
from federation.links.link import Link
from federation.links.packets import Passage, Rewriter, TopicRule
from federation.links.reconnecting import SessionPlace
from federation.links.relay import Confirmation, Relay
from federation.links.status import Event, State
from federation.links.subscriptions import NO_HEADERS, Headers

RANDOM_CHARS: Final = 12


class TopicEnd(OwnEnd):
    """The upstream publishes here to topics of the link's policies, whatever it sends; to none where the link pushes."""

    def __init__(
        self,
        consumers: GroupConsumers,
        domain: bytes | None,
        max_hops: int,
        dropped: dict[str, int],
        interest: LinkInterest,
        is_out: bool,
        message_ttl: float,
    ) -> None:
        relays = is_out and domain is not None
        super().__init__(consumers, domain or NO_DOMAIN, max_hops, dropped, relays, message_ttl=message_ttl)
        self.takes_back = False
        self._interest = interest
        self._is_out = is_out

    def has_topic(self, topic: bytes) -> bool:
        return not self._is_out and self._interest.scope.has(topic)


class LinkRule(TopicRule):
    """The topics of messages on the other side of a link. `checked`: a topic that this broker does not take does not cross it,
    such as one with too many levels. The upstream would send such a message again on each connection that it has ended."""

    def __init__(self, interest: LinkInterest, is_out: bool, checked: Broker | None) -> None:
        self._interest = interest
        self._is_out = is_out
        self._checked = checked

    def other_name(self, topic: bytes) -> bytes | None:
        interest = self._interest
        if self._is_out:
            return interest.map_out(topic)
        name = interest.map_in(topic) if interest.changes_topics else topic
        if name is not None and self._checked is not None:
            try:
                self._checked.router.lookup(name)
            except MqttError:
                return None
        return name


class TopicLink(Link):
    """interest  that of this domain at the upstream"""

    def __init__(
        self,
        plan: LinkPlan,
        interest: LinkInterest,
        relays: bool,
        domain: Domain,
        now: float,
    ) -> None:
        super().__init__(plan, relays, domain, now)
        self.interest = interest

    @property
    def notes(self) -> tuple[Note, ...]:
        waiting = len(self.interest.covering_set.refused)
        text = f"{waiting} filters are not subscribed to: a link has at most {FILTERS_MAX}"
        return (*super().notes, Note(text)) if waiting else super().notes

    def session_place(self) -> SessionPlace | None:
        """Return where the link has a session in which messages may wait; None for none."""
        if self.plan.upstream.direction is Direction.OUT or not self._addresses.has_session():
            return None
        return SessionPlace(self.client_id, self.address.host, self.address.port)

    def restore_session(self, place: SessionPlace, now: float) -> bool:
        """Before `start`: an earlier process of this node left the session there. False for one that is not of this link."""
        if place.client_id != self._own_id and not self._is_random_id(place.client_id):
            return False
        self.client_id = place.client_id
        expires = self.plan.upstream.expires
        self._addresses.restore(place.host, place.port, NEVER if expires is None else now + expires)
        return True

    def take_random_id(self, secret: bytes) -> None:
        """Before `start` of a link without a session: nobody else is to know the name of the one that it makes. A node that
        has lost what it knew of its sessions, and not its secret, finds that one again."""
        part = blake2b(self.plan.link_id.encode(), key=secret, digest_size=RANDOM_CHARS // 2)
        client_id = f"{self._own_id}-{part.hexdigest()}"
        if self._is_random_id(client_id):
            self.client_id = client_id

    def _is_random_id(self, client_id: str) -> bool:
        """Return whether the link may have a client identifier with a random part, and this is one."""
        upstream = self.plan.upstream
        if upstream.consumer_tag or self.plan.key or upstream.direction is Direction.OUT:
            return False
        name, _, part = client_id.rpartition("-")
        return name == self._own_id and len(part) == RANDOM_CHARS and set(part) <= set(hexdigits)

    def start(self, now: float) -> None:
        """A session that is there would end filters that the link does not have yet: it waits for them."""
        if not self.plan.error and not self._domain.interest.is_complete(self.interest):
            self._move(Event.WAIT, NEVER, now)
        else:
            super().start(now)

    def send_interest(self, now: float) -> None:
        if self._state is not State.WAITING:
            super().send_interest(now)
        elif self._domain.interest.is_complete(self.interest):
            self.start(now)

    def _needs_session(self) -> bool:
        return bool(self.subscriptions.wanted) or self.plan.upstream.direction is Direction.OUT

    def _take_interest(self) -> bool:
        subscribe, unsubscribe = self.interest.covering_set.take_changes()
        self.subscriptions.change({found: self._headers(found) for found in subscribe}, unsubscribe)
        return bool(subscribe or unsubscribe)

    def _headers(self, topic_filter: bytes) -> Headers:
        """Return the interests in a filter, for the SUBSCRIBE to an upstream of ours."""
        if self._other_end is None:
            return NO_HEADERS
        interests = self.interest.covering_set.interests_of(topic_filter)
        return tuple((NAME_TEXT, encode_interest(*interest).decode()) for interest in interests)

    def _subscription_options(self) -> tuple[int, bool]:
        return min(qos_of(self.plan.upstream), self._broker.maximum_qos), self._broker.settings.retain_available

    def _begin_session(self, welcome: LinkWelcome | None, is_present: bool, now: float) -> bool:
        self._meet(None if welcome is None or welcome.refused else welcome.domain)
        accepted = None if self._client is None else self._client.accepted
        is_inherited = accepted is not None and accepted.session_present and not is_present
        self.subscriptions.begin(is_present, is_inherited and self._other_end is not None)
        return True

    def _meet(self, domain: bytes | None) -> None:
        """The domain of the upstream decides which interest is passed on to it. None: a broker of another kind."""
        if domain != self.interest.upstream:
            self._other_end = domain
            self.interest.set_upstream(domain)
            if self.plan.upstream.direction is Direction.IN:
                self._domain.interest.repeat(self.interest)
            self._take_interest()
            self.subscriptions.change({found: self._headers(found) for found in self.subscriptions.wanted}, ())

    def _made_relay(self, client: Client, accepted: Accepted, connect: Connect, now: float) -> Relay:
        upstream = self.plan.upstream
        is_out = upstream.direction is Direction.OUT
        message_ttl = upstream.message_ttl if is_out and upstream.message_ttl is not None else -1.0
        end = TopicEnd(
            self._domain.bridging.consumers,
            self._other_end,
            upstream.max_hops,
            self.dropped,
            self.interest,
            is_out,
            message_ttl,
        )
        if self._other_end is None:
            end.set_addresses(addresses_of(upstream, self.address))
        # Nobody else says where messages come from.
        end.is_explicit = self._other_end is None and client.version == MQTT_5
        is_confirmed = upstream.ack_mode is AckMode.ON_CONFIRM and not is_out
        confirmation = Confirmation(self._broker, is_confirmed, accepted.session_present)
        passage = Passage()
        checked = self._broker if self._checks_topics and not is_out else None
        if self.interest.changes_topics or checked is not None:
            bytes_max = accepted.maximum_packet_size if is_out else self._broker.max_packet_size
            passage = Rewriter(LinkRule(self.interest, is_out, checked), bytes_max)
        remote = self.address.redacted()
        relay = Relay(self._broker, client, self.effects, connect, remote, passage, is_out, end, confirmation, now)
        if is_out:
            qos = min(qos_of(upstream), accepted.maximum_qos)
            relay.subscribe(self.interest.scope.patterns, qos, accepted.retain_available, now)
        return relay
