"""An authorizer by user name, for tests of a broker on virtual time."""

from __future__ import annotations

from typing import Any

from broker.authorization import ALLOW, DENY, NO_OPINION, Authorizer, ClientIdentity, Verdict

NOT_AUTHORIZED = 0x87


class TopicRights(Authorizer):
    """By user name: topics that may be read and published. Counts its answers."""

    def __init__(self, world: Any, **rights: str) -> None:
        """rights: user=topics, each letter a topic; a capital letter may be published only."""
        self.rights = rights
        self.asked: list[tuple[str, bytes]] = []
        self.world = world
        world.broker.add_authorizer(self)

    def may_publish(self, client: ClientIdentity, topic: bytes) -> Verdict:
        self.asked.append((client.client_id, topic))
        return ALLOW if topic.decode().upper() in self.rights.get(client.username, "") else DENY

    def may_read(self, client: ClientIdentity, topic: bytes) -> Verdict:
        return ALLOW if topic.decode() in self.rights.get(client.username, "") else DENY

    def may_subscribe(self, client: ClientIdentity, share_name: bytes, topic_filter: bytes) -> Verdict:
        readable = [right for right in self.rights.get(client.username, "") if right.islower()]
        return ALLOW if readable and topic_filter.decode() in ["#", "+", *readable] else NO_OPINION

    def change(self, **rights: str) -> None:
        self.rights = rights
        self.world.broker.authorization_changed()
