"""A link of the kind `queues` (docs/federated-queues.md): it takes jobs of shared groups from an upstream of this kind.

Every node of a cluster runs its queue links itself, each with a session of its own: a queue and its consumers are of a node.
The other nodes of the cluster are upstreams, too.

An upstream offers the jobs for which its own consumers have no credit. The downstream asks for some of them while its own queue
is empty and its own consumers have credit, for at most that, from all upstreams together. What it asks for is a limit: the
number of jobs that it takes since the connection began. It goes down again when the credit goes; jobs that are on the way then
come all the same. The upstream's end is in federation/links/bridging.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from broker.bridge_end import Arrival
from broker.codec.packets import MQTT_5, Connect
from broker.codec.reader import decode_publish
from broker.codec.reason_codes import SUCCESS
from broker.codec.wire import decode_varint
from broker.counters import DROP_GROUP_GONE
from broker.errors import ProtocolViolation
from broker.message import Publication
from broker.origin import NO_DOMAIN, HeaderError, Origin, decode_origin, split_properties
from federation.definitions.resolution import LinkPlan
from federation.links.bridging.ends import DROP_DUPLICATE, OwnEnd
from federation.links.bridging.group_consumers import GroupConsumers
from federation.links.bridging.headers import (
    NAME_TEXT,
    NO_QUEUE,
    LinkWelcome,
    encode_limit,
    offer_of,
    queue_of,
    quoted,
)
from federation.links.bridging.own_domain import SEEN
from federation.links.client import Client
from federation.links.handshake import Accepted, End, Note
from federation.links.interest import Domain
from federation.links.link import Link
from federation.links.packets import Passage
from federation.links.relay import Confirmation, Relay
from federation.links.status import LinkState, LinkStatus
from federation.links.subscriptions import Headers


class Credit:
    """The downstream end of one link, for one group.

    offered     jobs that wait at the upstream, with those on the way
    is_missing  the upstream has no queue for the group
    limit       as the upstream knows it
    received    jobs since the connection began
    """

    def __init__(self, prefetch: int) -> None:
        self.prefetch = prefetch
        self.begin()

    def begin(self) -> None:
        """A connection begins: nothing was offered, asked for, or received."""
        self.offered = self.limit = self.received = self._highest = 0
        self.is_missing = False

    def asked(self) -> int:
        """Number of jobs that were asked for and did not come yet."""
        return max(0, self.limit - self.received)

    def offer(self, count: int, sent: int = 0) -> None:
        """The upstream has so many jobs, without those on the way; NO_QUEUE where it has no queue. `sent`: all that it
        has sent before; some of them may come behind the offer."""
        self.is_missing = count == NO_QUEUE
        self.offered = max(0, count) + max(0, sent - self.received)

    def ask(self, count: int) -> bool:
        """Ask for so many jobs, in all. True when the upstream has to know the new `limit`."""
        limit = self.received + count
        if limit == self.limit:
            return False
        self.limit = limit
        self._highest = max(self._highest, limit)
        return True

    def receive(self, full: bytes) -> None:
        """A job of the group came. Raises ProtocolViolation for one that was never asked for."""
        if self.received >= self._highest:
            raise ProtocolViolation(
                f"{full.decode()}: the upstream sent {self.received + 1} jobs, was asked for {self._highest}"
            )
        self.received += 1
        self.offered = max(0, self.offered - 1)


class Credits:
    """The credits of a queue link: shared by the link and the upstream's end of its connection.

    credits  by the group here as `$share/GROUP/FILTER`
    names      groups here, by the names of the queues in the upstream's headers
    changed    groups of which something else is offered or asked for now; those of all queue links of the node
    """

    def __init__(self, changed: dict[bytes, None]) -> None:
        self.credits: dict[bytes, Credit] = {}
        self.names: dict[bytes, bytes] = {}
        self.changed = changed

    def offered(self, name: bytes, count: int, sent: int) -> None:
        """The upstream has so many jobs, without those on the way; NO_QUEUE where it has no such queue. `sent`: all
        that it has sent before."""
        full = self.names.get(name)
        if full is not None:
            self.credits[full].offer(count, sent)
            self.changed[full] = None

    def job_came(self, name: bytes) -> None:
        """Count a job. Raises ProtocolViolation for one that was never asked for."""
        full = self.names.get(name)
        if full is None:
            return  # of a group that was given up: it is refused, and goes back
        self.credits[full].receive(full)
        self.changed[full] = None

    def reset(self) -> None:
        """Nothing is offered or asked for."""
        for full, credit in self.credits.items():
            credit.begin()
            self.changed[full] = None


class Offers(Passage):
    """Messages of the upstream: offers are taken out of them."""

    def __init__(self, credits: Credits) -> None:
        super().__init__(True)
        self._credits = credits

    def walk(self, data: bytes, pos: int, size: int) -> int:
        end = super().walk(data, pos, size)
        if self.packets != self.published + self.dropped:
            raise ProtocolViolation("an acknowledgement, and the link has sent no message")
        return end

    def changed(self, data: bytes, pos: int, end: int) -> bytes | None:
        if data[pos] & 6:
            return None
        publish = decode_publish(data[pos], data, decode_varint(data, pos + 1, end)[1], end, MQTT_5)
        _, headers = split_properties(publish.properties)
        try:
            origin = decode_origin(headers[0]) if headers else None
            name = queue_of(origin)
            if origin is None or not name:
                raise ProtocolViolation(NO_JOB)
            self._credits.offered(name, *offer_of(origin))
        except HeaderError as error:
            raise ProtocolViolation(f"the header of an offer cannot be read: {error.text}") from None
        self.published -= 1
        self.packets -= 1
        return b""


class QueueEnd(OwnEnd):
    """The upstream: its jobs are counted, and are for their groups alone."""

    def __init__(
        self,
        consumers: GroupConsumers,
        domain: bytes,
        max_hops: int,
        dropped: dict[str, int],
        credits: Credits,
        is_node: bool,
    ) -> None:
        super().__init__(consumers, domain, max_hops, dropped, False, is_node)
        self._credits = credits

    def receive(self, sent: Publication, is_resent: bool) -> Arrival:
        arrival = super().receive(sent, is_resent)
        name = queue_of(sent.origin)
        if not name or sent.qos == 2:
            raise ProtocolViolation(NO_JOB)
        if not is_resent:  # one that is sent again was asked for on an earlier connection
            self._credits.job_came(name)
        return arrival

    def _judged(self, sent: Publication, origin: Origin, passed: int) -> Arrival:
        if passed == SEEN:  # refused jobs go back to the upstream's queue, and this one is here
            return Arrival(DROP_DUPLICATE, reason_code=SUCCESS)
        full = self._credits.names.get(queue_of(origin))
        group = None if full is None else self.consumers.group_of(full)
        return Arrival(DROP_GROUP_GONE) if group is None else Arrival("", passed, group)


NO_JOB: Final = "a message that is neither a job nor an offer"
OTHER_KIND: Final = "the upstream is a broker of another kind, and federated queues need one of this kind"
NO_QUEUES: Final = "the upstream has no plugin `links`, or an older version: it offers no jobs"
NO_ROLE: Final = "the account at the upstream has no role `link`, which federated queues need"


class QueueLink(Link):
    """credits  by the group here as `$share/GROUP/FILTER`"""

    def __init__(self, plan: LinkPlan, domain: Domain, changed: dict[bytes, None], now: float) -> None:
        """`changed` is that of Credits."""
        super().__init__(plan, False, domain, now)
        self._credits = Credits(changed)
        self.credits = self._credits.credits
        self._open: set[bytes] = set()  # groups with consumers here that have credit, and without jobs of their own

    # --- what the owner says

    def set_groups(self, groups: Iterable[bytes], now: float) -> None:
        """The link consumes for these groups from now on. With the key `queue` of the upstream it is the first one only."""
        queue = self.plan.upstream.queue
        wanted = sorted(groups)[: 1 if queue else None]
        gone = [full for full in self.credits if full not in wanted]
        added = [full for full in wanted if full not in self.credits]
        if queue and gone and added:  # the jobs that came of the upstream's group count on
            self.credits[added[0]] = self.credits.pop(gone[0])
            self._open.discard(gone[0])
            gone, added = [], []
        for full in gone:
            del self.credits[full]
            self._open.discard(full)
        for full in added:
            self.credits[full] = Credit(self.plan.upstream.prefetch_count)
        self._credits.names.clear()
        self._credits.names.update({quoted(self._there(full)): full for full in self.credits})
        self.subscriptions.change({self._there(full): _headers(0) for full in added}, map(self._there, gone))
        if added or gone:
            self._interest_changed(now)

    def _there(self, full: bytes) -> bytes:
        """The group at the upstream, as `$share/GROUP/FILTER`."""
        return self.plan.upstream.queue.encode() or full

    def ask(self, full: bytes, now: float) -> None:
        """The limit of a group is another one."""
        self.subscriptions.change({self._there(full): _headers(self.credits[full].limit)}, ())
        if self._client is not None:
            self._client.send_subscriptions(now)
            self.effects.note()

    def set_open(self, full: bytes, is_open: bool) -> None:
        """The group takes jobs of upstreams from now on, or does not."""
        if is_open:
            self._open.add(full)
        else:
            self._open.discard(full)

    # --- Link

    def _needs_session(self) -> bool:
        return bool(self.credits)

    def _take_interest(self) -> bool:
        return False  # `set_groups` says so at once

    def _subscription_options(self) -> tuple[int, bool]:
        return 1, False

    def _begin_session(self, welcome: LinkWelcome | None, is_present: bool, now: float) -> bool:
        if welcome is not None and welcome.has_queues:
            self._other_end = welcome.domain
            # Limits are of a connection. What was not acknowledged on an earlier one comes again, beside them.
            self._reset()
            self.subscriptions.begin(False)
            return True
        if welcome is None:
            self._hang_up(End.VERSION, OTHER_KIND, now, ends_session=True)
        else:
            self._hang_up(End.REFUSED, NO_ROLE if welcome.refused else NO_QUEUES, now, ends_session=True)
        return False

    def _fail(self, end: End, reason: str, now: float) -> None:
        if end is End.VERSION:
            self._end_connection(OTHER_KIND, now)
            self._give_up(OTHER_KIND, now)
        else:
            super()._fail(end, reason, now)

    def _made_relay(self, client: Client, accepted: Accepted, connect: Connect, now: float) -> Relay:
        end = QueueEnd(
            self._domain.bridging.consumers,
            self._other_end or NO_DOMAIN,
            self.plan.upstream.max_hops,
            self.dropped,
            self._credits,
            self.plan.is_node,
        )
        offers = Offers(self._credits)
        confirmation = Confirmation(self._broker, False, False)
        remote = self.address.redacted()
        return Relay(self._broker, client, self.effects, connect, remote, offers, False, end, confirmation, now)

    def _end_connection(self, reason: str, now: float) -> None:
        super()._end_connection(reason, now)
        self._reset()

    def _reset(self) -> None:
        """Nothing is offered or asked for."""
        self._credits.reset()
        self.subscriptions.change({self._there(full): _headers(0) for full in self.credits}, ())

    def _drop(self, reason: str, ends_session: bool, now: float) -> None:
        # Jobs whose acknowledgement has not left are here already: the session keeps them from being done there, too.
        super()._drop(reason, ends_session and (self._relay is None or self._relay.in_flight() == 0), now)

    def status(self, now: float) -> LinkStatus:
        row = super().status(now)
        if row.state is LinkState.RUNNING and not self._open:
            row = replace(row, state=LinkState.PAUSED)
        if self.plan.is_node:
            return row  # a node without a queue for a group has nothing that could wait
        missing = [full.decode() for full, credit in self.credits.items() if credit.is_missing]
        notes = [Note(f"the upstream has no queue for {name}: it needs a policy for it") for name in missing]
        return replace(row, notes=(*row.notes, *notes))


def _headers(limit: int) -> Headers:
    return ((NAME_TEXT, encode_limit(limit).decode()),)
