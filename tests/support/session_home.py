"""A node with a store and sessions among three others that are not reached: what it says waits for them."""

from __future__ import annotations

from broker.broker import Broker
from broker.session.session import Session
from broker.store.restoring import insert_restored, subscription_of
from federation.serf.events import Member, MemberJoin, MemberStatus
from federation.sessions.arriving import Epoch
from federation.sessions.sessions import Sessions
from federation.sessions.wire import KEEPERS, SWITCH, Record, SessionFrame, decode_session_frame, encode_session_frame
from federation.stream.frames import HEADER_SIZE, SESSION
from federation.tags import own_tags
from stored_node import Station

SUBSCRIPTION: Record = (2, 0, b"t", 2, False, False, 0, 0)
STORES = {"n2": "2" * 32, "n3": "3" * 32, "n4": "4" * 32}


class Home(Station):
    """Node n1 among three others, which are not reached: what it says waits for them."""

    def __init__(self) -> None:
        super().__init__({})
        for name, store_id in STORES.items():
            tags = {**own_tags("127.0.0.1:8901", True), "store": store_id}
            member = Member(name, "127.0.0.1", 8901, tags, MemberStatus.ALIVE)
            self.node.member_events([MemberJoin(member)], 0.0)
            self.node.handle_timeout(0.0)

    def hear(self, name: str, operation: int, epoch: Epoch, *more: object) -> None:
        frame = encode_session_frame(operation, "c", epoch, more)
        self.sessions.receive(name, frame[HEADER_SIZE:], 0.0)
        self.node.turn_ended(0.0)

    @property
    def sessions(self) -> Sessions:
        assert self.node.sessions is not None
        return self.node.sessions

    def said(self, name: str) -> list[SessionFrame]:
        """Frames about the client that wait for the node, which has them from now on."""
        outbox = self.node.senders[name].outbox
        outbox.close_block()
        found: list[SessionFrame] = []
        for block in outbox.waiting:
            data = b"".join(block.encode(0.0))
            pos = 0
            while pos < len(data):
                end = pos + HEADER_SIZE + int.from_bytes(data[pos + 2 : pos + HEADER_SIZE], "big")
                if data[pos] == SESSION:
                    found.append(decode_session_frame(data[pos + HEADER_SIZE : end]))
                pos = end
        outbox.waiting.clear()
        return [frame for frame in found if frame.operation != KEEPERS]

    def switches(self, name: str) -> list[Epoch]:
        return [frame.epoch for frame in self.said(name) if frame.operation == SWITCH]


def subscribed(broker: Broker, session: Session) -> None:
    insert_restored(broker, session, subscription_of(SUBSCRIPTION, session))


def session_records() -> list[Record]:
    times = (0.0, 0.0, 3600, 0.0, None, 0.0)
    message = (3, b"t", b"x", 2, False, b"", 0.0, "")
    outgoing = (4, 0, message, 2, False, (), 0.0, 0, 0)
    return [(1, "c", "", None, 5, 60, "127.0.0.1:1", "127.0.0.1:2", *times), outgoing]
