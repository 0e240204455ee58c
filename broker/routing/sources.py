"""From which nodes a session takes messages while it goes from one to another."""

# compiled with mypyc
from __future__ import annotations

from mypy_extensions import mypyc_attr

from broker.message import Message
from broker.publisher import Publisher
from broker.store.journal import Content


@mypyc_attr(allow_interpreted_subclasses=True)
class Sources(Content):
    """Says which messages are for a session that is on its way from one node to another (`Subscriber.sources`). A message of a
    shared group is for it in any case: no other node has it."""

    def takes(
        self,
        message: Message,
        qos: int,
        retain: bool,
        identifiers: tuple[int, ...],
        publisher: Publisher | None,
        now: float,
    ) -> bool:
        """Return whether the session gets the message now, from here. `publisher` as in Router."""
        raise AssertionError("a subclass implements this")

    def waiting_messages(self) -> list[object]:
        """Return the `Outgoing` messages that the session gets later."""
        return []
