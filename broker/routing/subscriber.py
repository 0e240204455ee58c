"""The base class of `Session`, as routes see it."""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from broker.authorization import ClientIdentity, TopicAccess
from broker.bridge_end import BridgeEnd
from broker.codec.runs import Run
from broker.message import Message
from broker.publisher import Publisher
from broker.routing.group_copy import GroupCopy
from broker.routing.shared import GroupMember, SharedGroup
from broker.routing.sources import Sources
from broker.timers import Timed

GROUP_QUEUE_PREFIX: Final = "$queue/"  # of client identifiers, which no client may have
NODE_PREFIX: Final = "$node/"  # of client identifiers of other nodes of the cluster, and of nobody else
OWN_PREFIX: Final = "link:"  # of client identifiers of connections of the node itself, which no other client may have


class Subscriber(Timed):
    """client_id  of the client, for No Local
    username   of the last connection, "" for none, as
    remote_addr, and
    access     what its credentials say about topics, None for nothing
    judged_number  the messages that wait were judged by the rules of this number (Authorization.number), -1 never
    bridge_end  the other end, where that is another broker; None for ordinary clients
    is_group_queue  what waits for a shared group (broker/session/group_queues.py), and no client's session
    queued_groups  the shared groups with a queue that the session is a member or consumer of, or keeps messages of; None: no
    left_groups    those that the session has left and may have messages of, as `$share/GROUP/FILTER`; None for none
    group_limits   of such a queue: messages, bytes, and seconds that a message waits, 0 for no limit
    sources    of the messages while the session is on its way between two nodes; None: all of them
    ended      the session has ended and gets no more messages
    """

    def __init__(self, client_id: str) -> None:
        super().__init__()
        self.client_id = client_id
        self.username = ""
        self.remote_addr = ""
        self.access: tuple[TopicAccess, ...] | None = None
        self.judged_number = -1
        self.bridge_end: BridgeEnd | None = None
        self.queued_groups: dict[SharedGroup, None] | None = None
        self.aside: dict[GroupMember, None] | None = None
        self.left_groups: dict[bytes, None] | None = None
        self.group_limits: tuple[int, int, float] | None = None
        self.is_group_queue = client_id.startswith(GROUP_QUEUE_PREFIX)
        self.sources: Sources | None = None
        self.ended = False
        self._identity: ClientIdentity | None = None

    def identity(self) -> ClientIdentity:
        """The client, for authorizers."""
        identity = self._identity
        if identity is None:
            is_node = self.bridge_end is not None and self.bridge_end.is_node
            identity = ClientIdentity(self.client_id, self.username, self.remote_addr, self.access, is_node)
            self._identity = identity
        return identity

    def identify(self, username: str, remote_addr: str, access: tuple[TopicAccess, ...] | None) -> bool:
        """The client has connected, or authenticated again. True when an authorizer may decide otherwise from now on: about
        another user, another host, or other access."""
        changed = (
            username != self.username
            or access != self.access
            or remote_addr.rpartition(":")[0] != self.remote_addr.rpartition(":")[0]
        )
        self.username = username
        self.remote_addr = remote_addr
        self.access = access
        if changed:
            self.judged_number = -1
        self._identity = None
        return changed

    def set_bridge_end(self, end: BridgeEnd | None) -> bool:
        """The client has connected, as another broker or not. True when its subscriptions mean something else from now on."""
        before = self.bridge_end
        self.bridge_end = end
        self._identity = None
        if before is None or end is None:
            return before is not end
        return before is not end and (before.is_own != end.is_own or before.kept != end.kept)

    def add_queued_group(self, group: SharedGroup) -> None:
        """The group has a queue, and the session is a member or consumer of it, or is the queue."""
        if self.queued_groups is None:
            self.queued_groups = {}
        self.queued_groups[group] = None

    def remove_queued_group(self, group: SharedGroup) -> None:
        """The reverse of `add_queued_group`; harmless for another group."""
        if self.queued_groups is not None:
            self.queued_groups.pop(group, None)
            if not self.queued_groups:
                self.queued_groups = None

    def return_to_groups(self) -> None:
        """The client is there again."""
        aside = self.aside
        if aside is not None:
            self.aside = None
            for member in aside:
                group = member.group
                if group is not None:
                    group.returned(member)

    def is_away(self) -> bool:
        """Return whether there is no connection. `return_to_groups` is called for the next one."""
        return False

    def is_available(self) -> bool:
        """Return whether a message of a shared group can be sent now: connected, and the queue is less than half full;
        a member of a group with a queue takes what leaves at once."""
        raise AssertionError("a subscriber without a session")

    def load(self) -> int:
        """Return how many messages wait or are in flight."""
        raise AssertionError("a subscriber without a session")

    def deliver(
        self,
        message: Message,
        qos: int,
        retain: bool,
        identifiers: tuple[int, ...],
        publisher: Publisher | None,
        now: float,
        copy: GroupCopy | None = None,
    ) -> bool:
        """Send one message, or queue it. Hold the publisher when the queue is more than half full. False when the queue of a
        group rejects the message. `copy`: of the group that the message is for, which ends with its delivery."""
        raise AssertionError("a subscriber without a session")

    def take_back(
        self, message: Message, qos: int, retain: bool, identifiers: tuple[int, ...], copy: GroupCopy, now: float
    ) -> bool:
        """As `deliver`, for a message that the session's group had before: its queue does not reject it."""
        return self.deliver(message, qos, retain, identifiers, None, now, copy)

    def deliver_run(self, run: Run, publisher: Publisher | None, now: float) -> None:
        """As `deliver`, for each message of a run, without subscription identifiers."""
        raise AssertionError("a subscriber without a session")

    def pump(self, now: float) -> None:
        """Send what waits, as far as the connection takes it."""
        raise AssertionError("a subscriber without a session")
