"""A session without a client: what it gets is kept for a reader of the API, up to a bound."""

# compiled with mypyc
from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.authorization import ClientIdentity
from broker.codec.runs import Run
from broker.context import Context
from broker.message import Message
from broker.publisher import Publisher
from broker.routing.group_copy import GroupCopy
from broker.session.session import Session

WAITING_BYTES_MAX: Final = 4 * 2**20  # of messages that the reader has not taken; then new ones are dropped
MESSAGE_BYTES: Final = 256  # that a message counts beside its payload


class Watching(Session):
    """It is none of `Context.sessions`, and reads every topic, as a node of the cluster does.

    dropped  number of messages that the reader was too slow for
    """

    def __init__(self, context: Context, client_id: str, now: float, has_some: Callable[[], None]) -> None:
        """`has_some` is called when there is a message after there was none."""
        super().__init__(context, client_id, now)
        self.dropped = 0
        self._has_some = has_some
        self._waiting: list[Message] = []
        self._bytes = 0
        self._as_node = ClientIdentity(client_id, "", "", None, True)

    def identity(self) -> ClientIdentity:
        return self._as_node

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
        self._keep(message)
        return True

    def deliver_run(self, run: Run, publisher: Publisher | None, now: float) -> None:
        for message in run.messages():
            self._keep(message)

    def take(self) -> list[Message]:
        """The messages since the last call."""
        waiting = self._waiting
        self._waiting = []
        self._bytes = 0
        return waiting

    def _keep(self, message: Message) -> None:
        size = MESSAGE_BYTES + len(message.payload)
        if self._bytes + size > WAITING_BYTES_MAX:
            self.dropped += 1
            return
        self._bytes += size
        self._waiting.append(message)
        if len(self._waiting) == 1:
            self._has_some()
