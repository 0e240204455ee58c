"""What nodes keep as retained messages: all of the federation have them, also those that come later, and stores keep them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from broker.errors import MqttError
from broker.message import Message
from broker.routing.retained import RetainedWalk

if TYPE_CHECKING:
    from broker.server.host import Host

WALK_STEPS: Final = 1_000


class RetainedMessages:
    def __init__(self, server: Host) -> None:
        self._server = server

    def get(self, topic: bytes) -> Message | None:
        return self._server.broker.retained.get(topic)

    def put(self, topic: bytes, payload: bytes, expires_at: float | None = None) -> bool:
        """Return whether it is kept. expires_at: monotonic seconds, None for never."""
        message = Message(topic, payload, 1, True)
        if expires_at is not None:
            message.expires_at = expires_at
        retained = self._server.broker.retained
        refused = retained.refused
        try:
            self._server.broker.publish(message, self._server.now())
        except MqttError:
            return False
        finally:
            self._server.flush_soon()
        return retained.refused == refused

    def below(self, prefix: str, count_max: int) -> Iterator[Message]:
        """The messages below the prefix, not more than so many: clients may publish there, too. Others may be put and deleted
        meanwhile."""
        walk = RetainedWalk(self._server.broker.retained, f"{prefix}#".encode())
        count = 0
        while not walk.is_done() and count < count_max:
            walk.advance(WALK_STEPS)
            if walk.found is not None:
                count += 1
                yield walk.found
