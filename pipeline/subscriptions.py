"""The receivers of a message: the subscriptions of all nodes at an instant. Rules without I/O; snapshots come in
as rows.

A node gets a message once when one of its clients has a matching subscription. Of a shared group one member gets it: a
member at the publisher's node, or else one anywhere, which counts as a share of a message at each node that has members.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from broker.routing.names import parse_filter
from broker.routing.trie import Trie

# A topic with more clients than this at one node says nothing about where one of them would be better.
CLIENTS_MAX: Final = 100
TOPICS_KEPT_MAX: Final = 100_000


class Subscription(NamedTuple):
    """`filter` as in SUBSCRIBE, with `$share/NAME/` in front of a shared one."""

    node: str
    client: str
    filter: str


@dataclass
class Receivers:
    """The clients that get the messages of one topic.

    clients  node -> client -> its filters, of subscriptions that are not shared
    groups   (share, filter) -> node -> number of members
    """

    clients: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    groups: dict[str, dict[str, int]] = field(default_factory=dict)

    def shares(self, publisher_node: str) -> dict[str, float]:
        """node -> how much of a message it gets, 0 to 1."""
        found = dict.fromkeys(self.clients, 1.0)
        for members in self.groups.values():
            for node, share in group_shares(members, publisher_node):
                found[node] = min(1.0, found.get(node, 0.0) + share)
        return found

    def filters(self, node: str, publisher_node: str) -> dict[str, float]:
        """filter -> how much of a message it draws to the node."""
        found = {each: 1.0 for filters in self.clients.get(node, {}).values() for each in filters}
        for name, members in self.groups.items():
            share = dict(group_shares(members, publisher_node)).get(node)
            if share:
                found[name] = share
        return found


def group_shares(members: Mapping[str, int], publisher_node: str) -> Iterator[tuple[str, float]]:
    if publisher_node in members:
        yield publisher_node, 1.0
        return
    total = sum(members.values())
    for node, count in members.items():
        yield node, count / total


class Subscriptions:
    """The subscriptions of all nodes over time.

    A snapshot of a node is valid until its next one; the first one also before it was taken.
    """

    def __init__(self, snapshots: Mapping[str, Mapping[int, Iterable[Subscription]]]) -> None:
        """`snapshots`: node -> time in ns -> what the node had then."""
        self._snapshots = {node: {at: tuple(found) for at, found in times.items()} for node, times in snapshots.items()}
        self._tries = {
            node: [_trie(found) for _, found in sorted(times.items())] for node, times in self._snapshots.items()
        }
        self._times = {node: sorted(times) for node, times in snapshots.items()}
        self.nodes: Final = sorted(snapshots)
        # Between two of these nothing changes.
        self.bounds: Final = sorted({time for times in self._times.values() for time in times})
        self._found: dict[tuple[int, bytes], Receivers] = {}

    def __reduce__(self) -> tuple[type[Subscriptions], tuple[object, ...]]:
        """Tasks of Spark make the trees anew: those of the compiled form cannot be pickled."""
        return Subscriptions, (self._snapshots,)

    def period(self, time_ns: int) -> int:
        """Number of the period that a time is in, for `receivers`."""
        return bisect_right(self.bounds, time_ns)

    def receivers(self, period: int, topic: str) -> Receivers:
        key = period, topic.encode()
        found = self._found.get(key)
        if found is None:
            if len(self._found) >= TOPICS_KEPT_MAX:
                self._found.clear()
            found = self._found[key] = self._receivers(*key)
        return found

    def _receivers(self, period: int, topic: bytes) -> Receivers:
        found = Receivers()
        at = self.bounds[period - 1] if period else -1
        for node in self.nodes:
            number = max(0, bisect_right(self._times[node], at) - 1)
            clients: dict[str, list[str]] = defaultdict(list)
            for subscribed in self._tries[node][number].match(topic):
                assert isinstance(subscribed, list)
                for client, topic_filter, is_shared in subscribed:
                    if is_shared:
                        members = found.groups.setdefault(topic_filter, {})
                        members[node] = members.get(node, 0) + 1
                    else:
                        clients[client].append(topic_filter)
            if clients:
                found.clients[node] = dict(clients)
        return found


def _trie(subscriptions: Iterable[Subscription]) -> Trie:
    trie = Trie()
    for _, client, name in subscriptions:
        share, topic_filter = parse_filter(name.encode())
        subscribed = trie.get(topic_filter)
        if not isinstance(subscribed, list):
            subscribed = []
            trie.set(topic_filter, subscribed)
        subscribed.append((client, name, share != b""))
    return trie


def publisher_savings(receivers: Receivers, home: str, nodes: Iterable[str]) -> dict[str, float]:
    """node -> copies that links save for each message of a publisher that moves there from `home`."""
    shares = receivers.shares(home)
    now = sum(share for node, share in shares.items() if node != home)
    return {
        node: now - sum(share for other, share in receivers.shares(node).items() if other != node)
        for node in nodes
        if node != home
    }


def subscriber_savings(
    receivers: Receivers, publisher_node: str, nodes: Iterable[str]
) -> Iterator[tuple[str, str, dict[str, float]]]:
    """(client, its node, node -> copies that links save for each message when it moves there)."""
    for home, clients in receivers.clients.items():
        if len(clients) > CLIENTS_MAX:
            continue
        saved = 1.0 if len(clients) == 1 and home != publisher_node else 0.0
        moves = {
            node: saved - (0.0 if node == publisher_node or node in receivers.clients else 1.0)
            for node in nodes
            if node != home
        }
        for client in clients:
            yield client, home, moves
