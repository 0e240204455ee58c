"""One client's subscription to one filter, and what stands behind one filter in the local tree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.topics.shared import GroupMember, SharedGroup

if TYPE_CHECKING:
    from broker.session.session import Session


class Subscription(GroupMember):
    """topic_filter is without $share/NAME/; share_name is b"" for an ordinary one; identifier 0 is none (MQTT 5 3.8.2.1.2)."""

    __slots__ = (
        "identifier",
        "no_local",
        "qos",
        "retain_as_published",
        "retain_handling",
        "session",
        "share_name",
        "topic_filter",
    )

    def __init__(
        self,
        session: Session,
        share_name: bytes,
        topic_filter: bytes,
        qos: int,
        no_local: bool,
        retain_as_published: bool,
        retain_handling: int,
        identifier: int,
    ) -> None:
        super().__init__()
        self.session = session
        self.share_name = share_name
        self.topic_filter = topic_filter
        self.qos = qos
        self.no_local = no_local
        self.retain_as_published = retain_as_published
        self.retain_handling = retain_handling
        self.identifier = identifier

    def is_available(self) -> bool:
        """Connected, and not so far behind that its queue is half full."""
        return self.session.is_available()


class FilterEntry:
    """The local tree's value for one topic filter: ordinary subscribers and shared groups, in order of arrival."""

    __slots__ = ("groups", "subscriptions", "topic_filter")

    def __init__(self, topic_filter: bytes) -> None:
        self.topic_filter = topic_filter
        self.subscriptions: dict[Session, Subscription] = {}
        self.groups: dict[bytes, SharedGroup] | None = None  # share_name -> group; most filters have none
