"""The interfaces of the broker to other nodes, logs and stores.

The router knows other nodes as `Forwarder` and `Peer`. The base class `Forwarder` is a node without others. Plugins know them
as `Members`. A `Tap` sees published messages. A `ConnectDecider` authenticates clients; a `ClientObserver` sees them. Who may
publish and read what is decided in `authorization`.
"""

# compiled with mypyc
from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from mypy_extensions import mypyc_attr

from broker.authorization import TopicAccess
from broker.codec.packets import Connect
from broker.codec.reason_codes import CONTINUE_AUTHENTICATION, SUCCESS
from broker.codec.runs import Run
from broker.errors import MemberFault as MemberFault  # noqa: PLC0414 (exported: plugins raise it in `Members.served`)
from broker.listener_facts import ListenerFacts
from broker.message import NEVER, Message
from broker.publisher import Publisher
from broker.routing.group_copy import GroupCopy
from broker.routing.member_counts import MemberCounts
from broker.routing.strategy import hash_of
from broker.slices import Work

NO_GROUPS: Final[tuple[tuple[bytes, bytes], ...]] = ()
UNDECIDED: Final = -1
NO_OPINION: Final = -2
NOT_LET_IN: Final = "not authorized: the credentials are wrong or missing"  # reason where no decider has an opinion


@mypyc_attr(allow_interpreted_subclasses=True)
class Peer:
    """Another node, as the router sees it. Calls never wait and never fail.

    name          the node's name in Serf
    names_groups  the node can be told for which shared groups a message was sent to it. A node that cannot, the Go broker,
                  delivers each message to all of its groups that match.
    congested     its outbox is past the half of its bound: publishers are to be held
    reachable     its event stream is up. Messages for an unreachable node wait in its outbox. Shared groups prefer
                  reachable nodes.
    takes_copies  it takes copies for shared groups that are for no other subscriber, and tells their end
    hash          strategy.hash_of the name
    """

    def __init__(self, name: str, names_groups: bool) -> None:
        self.name = name
        self.names_groups = names_groups
        self.congested = False
        self.reachable = True
        self.takes_copies = False
        self.hash = hash_of(name.encode())

    def load(self) -> int:
        """Return how many copies for shared groups are under way to it that have not ended."""
        return 0

    def forward(self, message: Message, groups: tuple[tuple[bytes, bytes], ...], now: float) -> None:
        """Queue one message. `groups` are the (share_name, topic_filter) for which this node was chosen."""
        raise AssertionError("a subclass implements this")

    def forward_copy(self, message: Message, copy: GroupCopy, now: float) -> None:
        """Queue the copy of a group for which this node was chosen. The publisher waits for it as for any other message."""
        raise AssertionError("a subclass that takes copies implements this")

    def forward_again(self, message: Message, copy: GroupCopy, now: float) -> None:
        """As forward_copy, of a copy that was here: no publisher waits for it, so the store keeps it until it is there."""
        raise AssertionError("a subclass that takes copies implements this")

    def forward_run(self, data: bytes, count: int, version: int, qos: int, now: float) -> None:
        """Queue `count` contiguous PUBLISH packets of one topic: QoS 0 or 1, no RETAIN, no DUP, no properties
        but User Properties.

        data     their bytes as received, with any packet identifiers
        version  4 for MQTT 3.1 and 3.1.1, which have the same PUBLISH, or 5
        """
        raise AssertionError("a subclass implements this")

    def needs_store(self, qos: int) -> bool:
        """Return whether a message of QoS 1 or 2 for the node has to be in the store before it is acknowledged."""
        return False

    def position(self) -> int:
        """Number of messages that were queued so far."""
        return 0

    def mark(self) -> int:
        """Return where the queue ends now, for `is_done`."""
        return 0

    def is_done(self, mark: int) -> bool:
        """Return whether the node has acknowledged what was queued before the mark, or is none of the living members
        any more. What was dropped is counted, and not waited for."""
        return True


class RemoteGroup:
    """The nodes that have members of one shared group. `last` is the index of the node that was chosen last. `counts`: None
    before a node tells its members, or a strategy needs it."""

    __slots__ = ("counts", "last", "peers", "share_name", "topic_filter")

    def __init__(self, share_name: bytes, topic_filter: bytes, peers: list[Peer]) -> None:
        self.share_name = share_name
        self.topic_filter = topic_filter
        self.peers = peers
        self.counts: MemberCounts | None = None
        self.last = 0

    def add(self, peer: Peer) -> None:
        self.peers.append(peer)
        if self.counts is not None:
            self.counts.change(len(self.peers) - 1, True)

    def remove(self, peer: Peer) -> None:
        at = self.peers.index(peer)
        del self.peers[at]
        if self.counts is not None:
            self.counts.change(at, False)

    def made_counts(self) -> MemberCounts:
        if self.counts is None:
            self.counts = MemberCounts(len(self.peers))
        return self.counts

    def tell_members(self, peer: Peer, count: int) -> None:
        """The node has so many members."""
        if count > 1 or self.counts is not None:
            self.made_counts().members[self.peers.index(peer)] = count

    def members_at(self, at: int) -> int:
        """Return how many members a node has."""
        return 1 if self.counts is None else self.counts.members[at]


NO_NOTES: Final[tuple[tuple[Peer, bytes], ...]] = ()


class RemoteRoute:
    """The other nodes with interest in one topic: `peers` by ordinary filters, `groups` by shared ones.

    notes  what the interest of nodes says along, for `Context.bridging`
    """

    __slots__ = ("groups", "notes", "peers")

    def __init__(
        self, peers: list[Peer], groups: list[RemoteGroup], notes: tuple[tuple[Peer, bytes], ...] = NO_NOTES
    ) -> None:
        self.peers = peers
        self.groups = groups
        self.notes = notes


@mypyc_attr(allow_interpreted_subclasses=True)
class Forwarder:
    """Carries interest and messages to other nodes. This base class is a node without others.

    The router keeps the results of `route` in its cache. A forwarder calls `Router.forget_routes` when they change, or
    `Router.forget_topic` when only one topic does.
    """

    def interest_added(self, share_name: bytes, topic_filter: bytes) -> None:
        """The filter has its first local subscriber. share_name is b"" for an ordinary subscription."""

    def interest_removed(self, share_name: bytes, topic_filter: bytes) -> None:
        """The filter has no local subscriber any more."""

    def note_changed(self, share_name: bytes, topic_filter: bytes) -> None:
        """The interest in the filter says something else along (Bridging.note), or the number of members of the group."""

    def remote_interest(self) -> list[tuple[str, bytes, bytes, bytes]]:
        """(node, share_name, topic_filter, note) of all other nodes, as an InterestObserver is told."""
        return []

    def route(self, topic: bytes) -> RemoteRoute | None:
        """The other nodes with interest in a topic name, None for none."""
        return None

    def has_members(self, share_name: bytes, topic_filter: bytes) -> bool:
        """Return whether other nodes have members of a shared group."""
        return False

    def adopt(self, copy: GroupCopy, message: Message, now: float) -> bool:
        """Return whether the copy of a group, which nobody takes now, waits until more is known of other nodes."""
        return False

    def peers(self) -> list[Peer]:
        """All other nodes. Each of them gets every retained message."""
        return []


@mypyc_attr(allow_interpreted_subclasses=True)
class InterestObserver:
    """Sees which filters are wanted, on this node and on the others (`Context.interest_observer`). Calls never
    wait.

    node        name of the other node, "" for this one
    share_name  b"" for ordinary subscriptions
    note        what the interest says along (Bridging.note), b"" for nothing
    """

    def interest_added(self, node: str, share_name: bytes, topic_filter: bytes, note: bytes) -> None:
        """The filter has its first subscription on the node."""

    def interest_removed(self, node: str, share_name: bytes, topic_filter: bytes) -> None:
        """The filter has no subscription on the node any more."""

    def note_changed(self, node: str, topic_filter: bytes, note: bytes) -> None:
        """The interest says something else along. The first call of a filter is `interest_added`."""


class OtherNode(NamedTuple):
    """Another member of the federation, as this node sees it.

    status  ALIVE, LEAVING, LEFT or FAILED
    tags    what the member tells about itself; `Plugin.tags` of its plugins are among them
    """

    name: str
    status: str
    tags: dict[str, str]


@mypyc_attr(allow_interpreted_subclasses=True)
class Members:
    """The members of the federation, for plugins (`Host.members`). This base class is a node without a federation.

    node_name  the node's name in the federation; "" without one
    served     what answers the calls of plugins on other members, by method; plugins add to it while they are prepared.
               Raises MemberFault
    observers  are called when members came, left, failed, or have other tags
    """

    def __init__(self, node_name: str) -> None:
        self.node_name = node_name
        self.served: dict[str, Callable[[bytes], Awaitable[bytes]]] = {}
        self.observers: list[Callable[[], None]] = []

    def call(self, node: str, method: str, request: bytes, seconds: float) -> Awaitable[bytes]:
        """Return the answer of `served` on another member, within so many seconds. Raises MemberFault,
        MemberLate, MethodUnknown."""
        raise AssertionError("there are no other members")

    def others(self) -> list[OtherNode]:
        """All members but this node, also those that left or failed and are not forgotten yet."""
        return []


@mypyc_attr(allow_interpreted_subclasses=True)
class Waiter:
    """Goes on when commits are finished (`Commits.wait` in broker/session/commits.py)."""

    def committed(self) -> None:
        """Return what happened before `Commits.wait` in broker/session/commits.py is on disk."""
        raise AssertionError("a subclass implements this")


@mypyc_attr(allow_interpreted_subclasses=True)
class Tap:
    """Sees each message that is published on this node, once: by clients, the API and wills, not by other nodes.

    A tap is called before the message is delivered. `message` and `run` may change after the call. `publisher` is the
    client's connection (broker.session.output.Output: user name, address), or None for the API and wills: the message has
    their client id. A tap that stores messages later than in this call begins a commit (broker/session/commits.py).
    """

    def is_essential(self) -> bool:
        """Return whether an exception of the tap ends the client's connection, because the message is not stored.
        Otherwise it is logged and counted, and the message goes on."""
        return False

    def refuses(self, topic: bytes) -> bool:
        """Return whether messages of this topic are refused before the tap sees them: Quota exceeded for QoS 1 and 2
        of MQTT 5, for the API and for wills; QoS 0 is dropped. MQTT 3.1.1 has no such answer: the tap is given these
        messages, and holds
        the publisher."""
        return False

    def published(self, message: Message, publisher: Publisher | None, now: float) -> None:
        """One message."""

    def published_run(self, run: Run, publisher: Publisher | None, now: float) -> None:
        """A run of QoS 0 messages of one topic, with the same User Properties or none."""


@mypyc_attr(allow_interpreted_subclasses=True)
class AuthenticationRequest(Work):
    """A client that asks to connect (`ConnectRequest`), or that authenticates again [MQTT5 4.12].

    The `ConnectDecider` calls `accept`, `refuse` or `has_no_opinion`, once: in the turn of the client's packet, or in a later
    one, in which it has the shell flush afterwards (`Host.flush_soon`). With an Authentication Method it may call `challenge`
    before that, and is asked again when the client has answered.

    client_id    of the session; of a CONNECT as in the packet, or the one that the server assigns
    username     of CONNECT, "" for none. The decider may set it: an Authentication Method or a certificate names the user
    remote_addr  HOST:PORT of the client
    local_addr   HOST:PORT of the listener
    listener     on which the client connected
    certificate_name  common name of the client's certificate, which TLS has verified; "" without one
    method       Authentication Method, one of those of the decider; "" for a client without one
    data         Authentication Data of the client's last packet, b"" for none
    exchange     kept for the decider between two steps, opaque here
    expires_at   monotonic seconds when the connection ends because its credentials do; the decider may lower it
    access       what the credentials say about topics, for the authorizer; None for nothing
    is_link      the account has the role `link`: its clients may be links of other domains
    link_domain  the only domain that they may be links of; "" for any
    is_challenged  an AUTH was sent, and the client has not answered it
    reason_code  of the answer; UNDECIDED before it
    reason       of a refusal, for the log and the Reason String
    answer_data  Authentication Data of the answer
    """

    def __init__(
        self,
        client_id: str,
        username: str,
        remote_addr: str,
        local_addr: str,
        listener: ListenerFacts,
        certificate_name: str,
        method: str,
        data: bytes,
    ) -> None:
        self.client_id = client_id
        self.username = username
        self.remote_addr = remote_addr
        self.local_addr = local_addr
        self.listener = listener
        self.certificate_name = certificate_name
        self.method = method
        self.data = data
        self.exchange: object = None
        self.expires_at = NEVER
        self.access: tuple[TopicAccess, ...] | None = None
        self.is_link = False
        self.link_domain = ""
        self.is_challenged = False
        self.reason_code = UNDECIDED
        self.reason = ""
        self.answer_data = b""

    def accept(self, data: bytes = b"") -> None:
        """Let the client in, unless another decider refuses it. CONNACK, or AUTH with Success, has this Authentication Data."""
        self._decide(SUCCESS, "", data)

    def has_no_opinion(self) -> None:
        """Leave the decision to the other deciders. A client about which none has an opinion is refused."""
        self._decide(NO_OPINION, "", b"")

    def refuse(self, reason_code: int, reason: str) -> None:
        """Close the connection with this reason code, 0x80 or above: of CONNACK [MQTT5 3.2.2.2], or of DISCONNECT for a client
        that is connected [MQTT5 3.14.2.1]."""
        assert reason_code >= 0x80, f"0x{reason_code:02x} is no reason code of a refusal, which is 0x80 or above"
        self._decide(reason_code, reason, b"")

    def challenge(self, data: bytes) -> None:
        """Send AUTH with Continue authentication and this Authentication Data [MQTT-4.12.0-2]."""
        assert self.method, "a client without an Authentication Method is sent no AUTH [MQTT-4.12.0-6]"
        self._decide(CONTINUE_AUTHENTICATION, "", data)

    def _decide(self, reason_code: int, reason: str, data: bytes) -> None:
        assert self.reason_code == UNDECIDED, "each packet of a client is answered once"
        assert not self.is_challenged, "a challenge is answered once, and the client has the next turn"
        self.reason_code = reason_code
        self.reason = reason
        self.answer_data = data
        self.decided()

    # --- implemented by the session core ---

    def is_open(self) -> bool:
        """Return whether the client still waits. The answer to one that does not has no effect."""
        raise AssertionError("a subclass implements this")

    def decided(self) -> None:
        """Continue with the answer."""
        raise AssertionError("a subclass implements this")


@mypyc_attr(allow_interpreted_subclasses=True)
class ConnectRequest(AuthenticationRequest):
    """A client that asks to connect. When it is accepted its session is opened or taken over.

    connect  the packet: user name, password, will, properties
    """

    def __init__(
        self,
        connect: Connect,
        client_id: str,
        remote_addr: str,
        local_addr: str,
        listener: ListenerFacts,
        certificate_name: str,
        method: str,
        data: bytes,
    ) -> None:
        super().__init__(
            client_id, connect.username or "", remote_addr, local_addr, listener, certificate_name, method, data
        )
        self.connect = connect


@mypyc_attr(allow_interpreted_subclasses=True)
class ConnectDecider:
    """Accepts or refuses each client that sends CONNECT (`Broker.connect_deciders`). Without deciders all clients are accepted
    that have no Authentication Method.

    Several deciders are asked one after the other. A refusal is final. A client is let in when at least one accepts it; each of
    them sees in the request what those before it have set.
    The client's input behind CONNECT waits for the answer; after a challenge only AUTH and DISCONNECT are read. A client that
    is not accepted within connect_timeout is refused. A session of the same client id is taken over when the new client is
    accepted, not before. Calls never wait. A decider that keeps requests bounds their number. An exception refuses the client.
    """

    def methods(self) -> tuple[str, ...]:
        """Authentication Methods that the decider has. A CONNECT with another one is refused with 0x8C."""
        return ()

    def decide(self, request: ConnectRequest, now: float) -> None:
        """Accept, refuse or challenge the client, have no opinion, or keep the request and answer it in a later turn. A
        `request.method` may be that of another decider, which proves who the client is."""
        raise AssertionError("a subclass implements this")

    def continue_authentication(self, request: AuthenticationRequest, now: float) -> None:
        """The client has answered a challenge with `request.data`. Answer as in `decide`."""
        raise AssertionError("a subclass with methods implements this")

    def reauthenticate(self, request: AuthenticationRequest, now: float) -> None:
        """A connected client authenticates again with its first method [MQTT5 4.12.1]. Answer as in `decide`; only the decider
        that has the method is asked. Meanwhile other packets are handled. `request.username` is the name of the client."""
        raise AssertionError("a subclass with methods implements this")


@mypyc_attr(allow_interpreted_subclasses=True)
class ClientObserver:
    """Sees clients, their sessions and subscriptions (`Broker.add_observer`). Calls never wait. There is none for a
    connection that its client ends before CONNECT is accepted.

    addr    HOST:PORT of the client
    reason  why the connection ended, as in the Reason String of the answer
    """

    def client_connected(self, client_id: str, addr: str, version: int, username: str, keep_alive: int) -> None:
        """CONNECT was accepted. version is 3, 4 or 5; keep_alive is in seconds, as the server watches it."""

    def client_disconnected(self, client_id: str, addr: str, reason: str) -> None:
        """The connection of an accepted client ended."""

    def client_refused(self, client_id: str, addr: str, username: str, reason: str) -> None:
        """The connection ended before a CONNECT was accepted. client_id and username, as CONNECT gives them, are empty where
        none could be read."""

    def session_created(self, client_id: str) -> None:
        """A new session; `client_connected` follows."""

    def session_resumed(self, client_id: str) -> None:
        """A client came back to its session; `client_connected` follows."""

    def session_terminated(self, client_id: str, reason: str) -> None:
        """The session state is deleted. reason: SESSION_EXPIRED, SESSION_REPLACED, SESSION_MOVED or SESSION_ENDED."""

    def subscribed(self, client_id: str, full_filter: bytes, qos: int) -> None:
        """A subscription was added or replaced, by the client or the API. full_filter includes `$share/NAME/`."""

    def subscription_refused(self, client_id: str, full_filter: bytes, reason: str) -> None:
        """A filter of a SUBSCRIBE was refused; with MQTT 3.1.1 its client gets no reason."""

    def unsubscribed(self, client_id: str, full_filter: bytes) -> None:
        """A subscription was removed, by the client, the API or the end of its session."""

    def will_published(self, client_id: str, message: Message) -> None:
        """The will of a client was published."""


SESSION_EXPIRED: Final = "expired"
SESSION_REPLACED: Final = "replaced"  # the client began a new one: Clean Start
SESSION_MOVED: Final = "moved"  # another node has it: its client has connected there
SESSION_ENDED: Final = "ended"  # with its connection, or by the API


@mypyc_attr(allow_interpreted_subclasses=True)
class DeliveryObserver:
    """Sees every message that is sent to a client of this node, or dropped for one (`Broker.add_delivery_observer`). Calls
    never wait. They cost each delivery; a run is one call."""

    def delivered(self, client_id: str, message: Message, qos: int) -> None:
        """A message is written to the client for the first time. `message` may change after the call."""

    def delivered_run(self, client_id: str, run: Run) -> None:
        """A run of QoS 0 messages of one topic is written to the client. `run` may change after the call."""

    def dropped(self, client_id: str, qos: int, reason: str) -> None:
        """A message for the client is dropped; the reasons are those of broker/counters.py."""
