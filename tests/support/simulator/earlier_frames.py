"""What a node hears of sessions between this build and one before the extension EXTENSION_NEWEST."""

from __future__ import annotations

from federation.node import Node
from federation.sessions.wire import BEGUN, HAND, INCLUDES, decode_session_frame, encode_session_frame
from federation.stream.effects import SessionEvents
from federation.stream.frames import HEADER_SIZE


class EarlierFrames(SessionEvents):
    """Takes from frames what the build before does not say, nor read."""

    def __init__(self, heard: SessionEvents) -> None:
        self._heard = heard

    def receive(self, name: str, data: bytes, now: float) -> None:
        frame = decode_session_frame(data)
        if frame.operation == HAND:
            homes, records, *rest = frame.more
            assert isinstance(records, tuple)
            more = homes, tuple([earlier(record) for record in records if record != BEGUN]), *rest
            data = encode_session_frame(HAND, frame.client_id, frame.epoch, more)[HEADER_SIZE:]
        self._heard.receive(name, data, now)


def earlier(record: tuple[object, ...]) -> tuple[object, ...]:
    return record[:2] if record[0] == INCLUDES else record


def hear_as_before(node: Node) -> None:
    """Between the node and members without the extension its frames are not on the wire."""
    for name, receiver in node.receivers.by_name.items():
        sender = node.senders[name]
        is_known = bool(sender.node)  # of a member of before a start gossip has told nothing yet
        is_before = is_known and sender.knows_adoptions and not sender.marks_newest
        if is_before and not isinstance(receiver.sessions, EarlierFrames):
            receiver.sessions = EarlierFrames(receiver.sessions)
