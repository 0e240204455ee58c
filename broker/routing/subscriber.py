"""The base class of `Session`, as routes see it."""

from __future__ import annotations

from broker.authorization import ClientIdentity, TopicAccess
from broker.codec.runs import Run
from broker.link_header import LinkFacts
from broker.message import Message
from broker.publisher import Publisher
from broker.timers import Timed


class Subscriber(Timed):
    """client_id  of the client, for No Local
    username   of the last connection, "" for none, as
    remote_addr, and
    access     what its credentials say about topics, None for nothing
    judged_number  the messages that wait were judged by the rules of this number (Authorization.number), -1 never
    link       the domain at the other end of a link session, None for ordinary clients
    ended      the session has ended and gets no more messages
    """

    def __init__(self, client_id: str) -> None:
        super().__init__()
        self.client_id = client_id
        self.username = ""
        self.remote_addr = ""
        self.access: tuple[TopicAccess, ...] | None = None
        self.judged_number = -1
        self.link: LinkFacts | None = None
        self.ended = False
        self._identity: ClientIdentity | None = None

    def identity(self) -> ClientIdentity:
        """The client, for authorizers."""
        identity = self._identity
        if identity is None:
            identity = ClientIdentity(self.client_id, self.username, self.remote_addr, self.access)
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

    def set_link(self, link: LinkFacts | None) -> bool:
        """The client has connected, as a link or not. True when routes are to be resolved again."""
        before = self.link
        self.link = link
        if before is None or link is None:
            return before is not link
        return before.relays != link.relays

    def is_available(self) -> bool:
        """Whether a message of a shared group can be sent now: connected, and the queue is less than half full."""
        raise AssertionError("a subscriber without a session")

    def deliver(
        self,
        message: Message,
        qos: int,
        retain: bool,
        identifiers: tuple[int, ...],
        publisher: Publisher | None,
        now: float,
    ) -> None:
        """Send one message, or queue it. Hold the publisher when the queue is more than half full."""
        raise AssertionError("a subscriber without a session")

    def deliver_run(self, run: Run, publisher: Publisher | None, now: float) -> None:
        """As `deliver`, for each message of a run, without subscription identifiers."""
        raise AssertionError("a subscriber without a session")

    def pump(self, now: float) -> None:
        """Send what waits, as far as the connection takes it."""
        raise AssertionError("a subscriber without a session")
