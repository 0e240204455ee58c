"""This domain, as the sessions of links on this node know it."""

# compiled with mypyc
from __future__ import annotations

from broker.broker import Broker
from broker.origin import NO_DOMAIN, Origin
from federation.links.bridging.deletions import Deletions
from federation.links.bridging.duplicates import DuplicateWindow
from federation.links.bridging.headers import origin_node


class OwnDomain:
    """name          of the domain among those that links join; NO_DOMAIN without one
    node_name     name of the node in the headers of messages
    no_origin     that of a message without one
    duplicates    which numbered messages of other domains came already
    deletions     when retained messages were deleted, where domains are linked
    path_skipped  messages that no link session got because its domain was in their path
    hops_skipped  because they had passed as many links as the domain allows
    """

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.name = NO_DOMAIN
        self.node_name = ""
        self.no_origin = Origin()
        self.duplicates = DuplicateWindow()
        self.deletions = Deletions()
        self.path_skipped = 0
        self.hops_skipped = 0
        self._origin_node = b""
        self._sequence = 0

    def next_number(self) -> tuple[bytes, int]:
        """(node, sequence) of one more message that gets a number."""
        if not self._origin_node:
            self._origin_node = origin_node(self.node_name, self.broker.rng.getrandbits(32))
        self._sequence += 1
        return self._origin_node, self._sequence
