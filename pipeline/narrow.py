"""The records of a log that a query needs, as far as the reader and the node can leave the others out.

Narrowing only saves work: a record that passes may still be one that the query does not want. Spark checks each row again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from broker.errors import MqttError
from broker.event_log.selection import Selection
from broker.routing.names import SHARE_PREFIX, check_topic_filter

END: Final = 2**63 - 1
FILTERS_MAX: Final = 1000  # that a node takes; with more topics it is asked for those of option `topics`


class Bounds(NamedTuple):
    """low <= value < high."""

    low: int = 0
    high: int = END

    def both(self, other: Bounds) -> Bounds:
        return Bounds(max(self.low, other.low), min(self.high, other.high))


EVERYTHING: Final = Bounds()


@dataclass(frozen=True, slots=True)
class Narrow:
    """nodes, topics  names; None for all
    prefixes       a topic begins with each of them
    offsets, times_ns, qos
    retain         None for both
    """

    nodes: frozenset[str] | None = None
    topics: frozenset[str] | None = None
    prefixes: tuple[str, ...] = ()
    offsets: Bounds = EVERYTHING
    times_ns: Bounds = EVERYTHING
    qos: Bounds = EVERYTHING
    retain: bool | None = None

    def has_node(self, node: str) -> bool:
        return self.nodes is None or node in self.nodes

    @property
    def takes_all_topics(self) -> bool:
        return self.topics is None and not self.prefixes

    def has_topic(self, topic: str) -> bool:
        return (self.topics is None or topic in self.topics) and all(map(topic.startswith, self.prefixes))

    def with_names(self, nodes: frozenset[str] | None, topics: frozenset[str] | None) -> Narrow:
        """Of these nodes, and of these topics, only; None for all."""
        return replace(self, nodes=_both(self.nodes, nodes), topics=_both(self.topics, topics))

    def filters(self, given: tuple[str, ...]) -> tuple[str, ...]:
        """Topic filters for the node: of the records of topics that match one of `given` (() for all), at least those that
        are wanted."""
        if self.topics is not None:
            selection = Selection([each.encode() for each in given]) if given else None
            found = [each for each in sorted(self.topics) if self.has_topic(each)]
            found = [each for each in found if selection is None or selection.has(each.encode())]
        else:
            found = [f"{each.rpartition('/')[0]}/#" for each in self.prefixes if "/" in each]
            found = [max(found, key=len)] if found and not given else []
        are_names = 0 < len(found) <= FILTERS_MAX and all(map(_is_filter, found))
        return tuple(found) if are_names else given


ALL: Final = Narrow()


def _is_filter(text: str) -> bool:
    try:
        check_topic_filter(text.encode())
    except MqttError:
        return False
    return not text.encode().startswith(SHARE_PREFIX) and not set("+#") & set(text.removesuffix("/#"))


def _both(one: frozenset[str] | None, other: frozenset[str] | None) -> frozenset[str] | None:
    return one & other if one is not None and other is not None else one if other is None else other
