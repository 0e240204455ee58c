"""A link of the kind `queues` (docs/federated-queues.md): it takes jobs of shared groups from an upstream of this kind.

Every node of a cluster runs its queue links itself, each with a session of its own: a queue and its consumers are of a node.
The other nodes of the cluster are upstreams, too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from broker.codec.packets import MQTT_5, PUBLISH, Connect
from broker.codec.reader import decode_publish
from broker.codec.wire import decode_varint
from broker.config.addresses import AddressError, parse_address
from broker.errors import MqttError, ProtocolViolation
from broker.origin import NO_DOMAIN, HeaderError, decode_origin, split_properties
from broker.routing.subscriber import NODE_PREFIX
from federation.definitions.policy import ApplyTo, Policy
from federation.definitions.resolution import LinkPlan, link_id
from federation.definitions.upstream import Upstream
from federation.definitions.uri import LinkUri
from federation.errors import QueueLinkFault
from federation.links.bridging.ends import QueueEnd
from federation.links.bridging.headers import LinkWelcome
from federation.links.bridging.job_header import encode_limit, offer_of, queue_of, quoted, sent_of
from federation.links.client import Accepted, Client, End
from federation.links.handshake import NAME_TEXT
from federation.links.interest import Domain
from federation.links.link import Link
from federation.links.packets import packet_end
from federation.links.queue_credit import Borrower
from federation.links.relay import Relay
from federation.links.status import LinkState, LinkStatus
from federation.links.subscriptions import Headers, Subscriptions

JOBS_MAX: Final = 1_000  # without an acknowledgement, of one node at another
RECONNECT_SECONDS: Final = 1.0  # base of the delay before the next try
AWAY_SECONDS_MAX: Final = 60.0
"""A node that is away for so long has lost the jobs that it did not acknowledge: they go back to the queue."""


def node_plans(nodes: Mapping[str, str], policies: Iterable[Policy]) -> list[LinkPlan]:
    """One link to each other node of the cluster, while there are policies for queues.

    nodes  the address of its event streams (HOST:PORT) by the name of a node; one that cannot be read is left out
    """
    for_queues = tuple(policy for policy in policies if policy.apply_to is ApplyTo.QUEUES)
    plans: list[LinkPlan] = []
    for name, text in sorted(nodes.items()) if for_queues else ():
        try:
            address = parse_address(text, unix_allowed=False)
        except AddressError:
            continue  # the federation has said so
        if not address.host or not address.port:
            continue
        upstream = Upstream(
            name,
            (LinkUri("mqtt", address.host, address.port),),
            prefetch_count=JOBS_MAX,
            reconnect_delay=RECONNECT_SECONDS,
            expires=AWAY_SECONDS_MAX,
            consumer_tag=f"{NODE_PREFIX}jobs",  # the link adds the name of this node
        )
        plans.append(LinkPlan(link_id(name, "node", ()), ApplyTo.QUEUES.value, upstream, for_queues, is_node=True))
    return plans


class Borrowed:
    """What a queue link borrows: shared by the link and its client.

    borrowers  by the group here as `$share/GROUP/FILTER`
    names      groups here, by the names of the queues in the upstream's headers
    changed    groups of which something else is offered or asked for now; those of all queue links of the node
    """

    def __init__(self, changed: dict[bytes, None]) -> None:
        self.borrowers: dict[bytes, Borrower] = {}
        self.names: dict[bytes, bytes] = {}
        self.changed = changed

    def offered(self, name: bytes, count: int, sent: int) -> None:
        """The upstream has so many jobs to spare, without those on the way; NO_QUEUE where it has no such queue. `sent`: all
        that it has sent before."""
        full = self.names.get(name)
        if full is not None:
            self.borrowers[full].offer(count, sent)
            self.changed[full] = None

    def job_came(self, name: bytes) -> None:
        """Count a job. Raises QueueLinkFault for one that was never asked for."""
        full = self.names.get(name)
        if full is None:
            return  # of a group that was given up: it is refused, and goes back
        try:
            self.borrowers[full].receive()
        except QueueLinkFault as fault:
            raise QueueLinkFault(f"{full.decode()}: {fault}") from None
        self.changed[full] = None

    def reset(self) -> None:
        """Nothing is offered or asked for."""
        for full, borrower in self.borrowers.items():
            borrower.begin()
            self.changed[full] = None


class QueueClient(Client):
    """The client's end of the connection of a queue link: offers are taken out of what comes, and jobs are counted."""

    def __init__(
        self, connect: Connect, subscriptions: Subscriptions, packet_bytes_max: int, borrowed: Borrowed
    ) -> None:
        super().__init__(connect, subscriptions, 1, False, packet_bytes_max)
        self._borrowed = borrowed

    def take_flow(self) -> bytes:
        """The jobs that came since the last call, as they came."""
        flow = super().take_flow()
        if self.is_closed:
            return b""
        try:
            return self._jobs_of(flow)
        except MqttError as error:
            self.fail(error)
        except HeaderError as error:
            self.fail(ProtocolViolation(f"the header of a job cannot be read: {error.text}"))
        except QueueLinkFault as fault:
            self.fail(ProtocolViolation(str(fault)))
        return b""

    def _jobs_of(self, flow: bytes) -> bytes:
        parts: list[bytes] = []
        size = len(flow)
        kept_from = pos = 0
        while pos < size:
            end = packet_end(flow, pos, size)
            first = flow[pos]
            if first >> 4 != PUBLISH:
                raise ProtocolViolation("an acknowledgement, and the link has sent no message")
            publish = decode_publish(first, flow, decode_varint(flow, pos + 1, end)[1], end, MQTT_5)
            _, headers = split_properties(publish.properties)
            origin = decode_origin(headers[0]) if headers else None
            name = queue_of(origin)
            if origin is None or not name or publish.qos == 2:
                raise ProtocolViolation("a message that is neither a job nor an offer")
            if publish.qos == 0:
                self._borrowed.offered(name, offer_of(origin), sent_of(origin))
                parts.append(flow[kept_from:pos])
                kept_from = end
            elif not publish.dup:  # one that is sent again was asked for on an earlier connection
                self._borrowed.job_came(name)
            pos = end
        parts.append(flow[kept_from:])
        return b"".join(parts)


OTHER_KIND: Final = "the upstream is a broker of another kind, and federated queues need one of this kind"
NOT_LENDING: Final = "the upstream has no plugin `links`, or an older version: it lends no jobs"
NO_ROLE: Final = "the account at the upstream has no role `link`, which federated queues need"


class QueueLink(Link):
    """borrowers  what the link borrows, by the group here as `$share/GROUP/FILTER`"""

    def __init__(self, plan: LinkPlan, domain: Domain, changed: dict[bytes, None], now: float) -> None:
        """`changed` is that of Borrowed."""
        super().__init__(plan, False, domain, now)
        self._borrowed = Borrowed(changed)
        self.borrowers = self._borrowed.borrowers
        self._there: dict[bytes, bytes] = {}  # `$share/GROUP/FILTER` at the upstream, by the group here
        self._open: set[bytes] = set()  # groups with consumers here that have room, and without jobs of their own
        self._has_changed = False

    # --- what the owner says

    def set_groups(self, groups: Iterable[bytes], now: float) -> None:
        """The link borrows for these groups from now on. With the key `queue` of the upstream it is the first one only."""
        queue = self.plan.upstream.queue.encode()
        wanted = sorted(groups)[: 1 if queue else None]
        gone = [full for full in self.borrowers if full not in wanted]
        added = [full for full in wanted if full not in self.borrowers]
        if queue and gone and added:  # what the upstream has lent of its group counts on
            self.borrowers[added[0]] = self.borrowers.pop(gone[0])
            self._there[added[0]] = self._there.pop(gone[0])
            self._open.discard(gone[0])
            gone, added = [], []
        for full in gone:
            del self.borrowers[full]
            self._open.discard(full)
        unsubscribe = [self._there.pop(full) for full in gone]
        for full in added:
            self.borrowers[full] = Borrower(self.plan.upstream.prefetch_count)
            self._there[full] = queue or full
        self._borrowed.names.clear()
        self._borrowed.names.update({quoted(there): full for full, there in self._there.items()})
        self.subscriptions.change({self._there[full]: _headers(0) for full in added}, unsubscribe)
        if added or gone:
            self._has_changed = True
            self.send_interest(now)

    def ask(self, full: bytes, now: float) -> None:
        """The limit of a group is another one."""
        self.subscriptions.change({self._there[full]: _headers(self.borrowers[full].limit)}, ())
        if self._client is not None:
            self._client.send_subscriptions(now)
            self.effects.note()

    def set_open(self, full: bytes, is_open: bool) -> None:
        """Whether the group takes jobs of upstreams now."""
        if is_open:
            self._open.add(full)
        else:
            self._open.discard(full)

    # --- Link

    def _is_wanted(self) -> bool:
        return bool(self.borrowers)

    def _take_interest(self) -> bool:
        has_changed, self._has_changed = self._has_changed, False
        return has_changed

    def _made_client(self, connect: Connect) -> Client:
        return QueueClient(connect, self.subscriptions, self._broker.max_packet_size, self._borrowed)

    def _begin_session(self, welcome: LinkWelcome | None, is_present: bool, now: float) -> bool:
        if welcome is not None and welcome.lends:
            self._other_end = welcome.domain
            # Limits are of a connection. What was not acknowledged on an earlier one comes again, beside them.
            self._reset()
            self.subscriptions.begin(False)
            return True
        if welcome is None:
            self._hang_up(End.VERSION, OTHER_KIND, now, ends_session=True)
        else:
            self._hang_up(End.REFUSED, NO_ROLE if welcome.refused else NOT_LENDING, now, ends_session=True)
        return False

    def _fail(self, end: End, reason: str, now: float) -> None:
        if end is End.VERSION:
            self._end_connection(reason, now)
            self._give_up(OTHER_KIND, now)
        else:
            super()._fail(end, reason, now)

    def _made_relay(self, client: Client, accepted: Accepted, connect: Connect, now: float) -> Relay:
        end = QueueEnd(
            self._domain.bridging.lending,
            self._other_end or NO_DOMAIN,
            self.plan.upstream.max_hops,
            self.dropped,
            self._borrowed.names,
            self.plan.is_node,
        )
        return Relay(self._broker, client, self.effects, connect, self.address.redacted(), None, False, end, None, now)

    def _end_connection(self, reason: str, now: float) -> None:
        super()._end_connection(reason, now)
        self._reset()

    def _reset(self) -> None:
        """Nothing is offered or asked for."""
        self._borrowed.reset()
        self.subscriptions.change({there: _headers(0) for there in self._there.values()}, ())

    def _drop(self, reason: str, ends_session: bool, now: float) -> None:
        # Jobs whose acknowledgement has not left are here already: the session keeps them from being done there, too.
        super()._drop(reason, ends_session and (self._relay is None or self._relay.in_flight() == 0), now)

    def status(self, now: float) -> LinkStatus:
        row = super().status(now)
        if row.state is LinkState.RUNNING and not self._open:
            row = replace(row, state=LinkState.PAUSED)
        if self.plan.is_node:
            return row  # a node without a queue for a group has nothing that could wait
        missing = [full.decode() for full, borrower in self.borrowers.items() if borrower.is_missing]
        notes = [f"the upstream has no queue for {name}: it needs a policy for it" for name in missing]
        return replace(row, notes=(*row.notes, *notes))


def _headers(limit: int) -> Headers:
    return ((NAME_TEXT, encode_limit(limit).decode()),)
