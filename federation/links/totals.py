"""What the connections of a link have carried so far."""

from __future__ import annotations

from broker.codec.reason_codes import reason_name
from federation.links.relay import Relay


class Totals:
    """received  messages that came from the upstream, with those that were dropped
    sent      messages that were given to the upstream, with those that it refused
    """

    def __init__(self) -> None:
        self.received = 0
        self.sent = 0
        self._surplus = 0  # of topics that do not belong to the link
        self._refused: dict[int, int] = {}  # by the upstream, by reason code

    def add(self, relay: Relay) -> None:
        """Count what a connection has carried."""
        self.received += relay.messages_received()
        self.sent += relay.messages_sent()
        self._surplus += relay.surplus()
        for code, count in relay.refused.items():
            self._refused[code] = self._refused.get(code, 0) + count

    def with_open(self, relay: Relay | None) -> Totals:
        """These and those of the open connection."""
        found = Totals()
        found.received = self.received
        found.sent = self.sent
        found._surplus = self._surplus
        found._refused = dict(self._refused)
        if relay is not None:
            found.add(relay)
        return found

    def dropped(self) -> dict[str, int]:
        """Messages that did not cross the link, by reason, without those that the broker here refused."""
        found = {reason_name(code).lower().replace(" ", "_"): count for code, count in self._refused.items()}
        if self._surplus:
            found["surplus"] = self._surplus
        return found
