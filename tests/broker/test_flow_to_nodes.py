"""A lone message that goes to other nodes: written to all of them or to none, and noted with each."""

from __future__ import annotations

import pytest

from broker.codec.writer import encode_publish
from broker.counters import Counters
from broker.flow import Flow, make_flow
from broker.hooks import Peer
from broker.routing.route import Route


def qos0(payload: bytes) -> bytes:
    return encode_publish(4, b"a/b", payload, 0, False, False, 0, b"")


class Near(Peer):
    """Another node to which a packet can leave at once, or not."""

    def __init__(self, clear: bool, done: bool = True) -> None:
        super().__init__("near", True)
        self.clear = clear
        self.done = done
        self.written: list[bytes] = []
        self.noted: list[tuple[bytes, int, float]] = []

    def is_clear(self) -> bool:
        return self.clear

    def write_alone(self, data: bytes, version: int) -> None:
        self.written.append(data)

    def note_alone(self, data: bytes, version: int, now: float) -> bool:
        self.noted.append((data, version, now))
        return self.done


def flow_to(*peers: Near) -> Flow:
    flow = make_flow(Route(b"a/b"), 7, 4, qos0(b"1"), 0, 7)
    assert flow is not None
    flow.route.peers.extend(peers)
    return flow


def test_it_leaves_for_all_nodes_or_for_none() -> None:
    packet = qos0(b"2")
    first, second = Near(True), Near(False)
    assert not flow_to(first, second).leave(packet)
    assert (first.written, second.written) == ([], [])
    second.clear = True
    assert flow_to(first, second).leave(packet)
    assert (first.written, second.written) == ([packet], [packet])


@pytest.mark.parametrize(("first", "second"), [(True, True), (True, False), (False, True)])
def test_each_node_is_counted_and_asked_for_what_is_left(first: bool, second: bool) -> None:
    packet = qos0(b"2")
    peers = (Near(True, first), Near(True, second))
    counters = Counters()
    assert flow_to(*peers).note(packet, counters, 3.0) == (first and second)
    assert [peer.noted for peer in peers] == [[(packet, 4, 3.0)]] * 2
    assert counters.messages_to_peers == 2
    assert counters.messages_received == [1, 0, 0]
    assert counters.messages_sent == [0, 0, 0]
