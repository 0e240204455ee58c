"""Events for another node that are sent together, and kept in the store together."""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

from broker.codec.wire import VARINT_MAX
from broker.message import NEVER, Message
from broker.origin import PROPERTY_HEAD
from broker.routing.retained import STAMP_BYTES, RetainedMessage
from broker.store.journal import Content, checked
from broker.store.kinds import OUTBOX
from broker.store.records import monotonic_time, wall_time
from federation.stream.frames import (
    BLOCK_HEAD_SIZE,
    GROUP_COPY,
    HAS_EXTENSIONS,
    HEADER_SIZE,
    IS_NEWS,
    PUBLISH,
    STAMP,
    count_events,
    decode_block_version,
    encode_block_header,
    encode_expiring_packet,
    encode_extension,
    encode_frame,
    encode_groups,
    encode_packet,
    expiry_offset,
    fill_expiry,
    skip_packets,
)

CHUNK_OVERHEAD: Final = 48  # bytes of memory of a bytes object and its place in a list, beside its content
PACKET_OVERHEAD_MAX: Final = 32  # bytes of a PUBLISH beside topic, properties and payload
UNNUMBERED: Final = -1


def packet_bytes(message: Message) -> int:
    """Return how many bytes the PUBLISH of a message has at most."""
    size = len(message.payload) + len(message.topic) + len(message.properties) + PACKET_OVERHEAD_MAX
    if message.origin is not None:
        size += len(message.origin.encode()) + len(PROPERTY_HEAD) + 2
    return size


@mypyc_attr(allow_interpreted_subclasses=True)
class BlockOwner:
    """The holder of a block that waits.

    node  name of the node that it is for
    told, claims_told, moves_told  of the newest acknowledged block
    """

    def __init__(self, node: str) -> None:
        self.node = node
        self.told = 0
        self.claims_told = 0
        self.moves_told = 0

    def acknowledged(self, block: Block) -> None:
        """The other node has it."""
        self.told = max(self.told, block.told)
        self.claims_told = max(self.claims_told, block.claims_told)
        self.moves_told = max(self.moves_told, block.moves_told)

    def close_if_open(self, block: Block) -> None:
        """The block takes no more messages."""
        raise AssertionError("an owner whose blocks stay open")


class Block(Content):
    """Events that are sent together.

    first_id    event id of the first one, UNNUMBERED before it is sent for the first time
    count       how many events its frames hold
    events      how many event ids it takes: `count`, or fewer towards a Go broker, which is not sent all of them
    messages    how many application messages it has
    expiring    (index in chunks, offset from the chunk's end, expires_at): where to fill in the seconds that are left
    serial      rising number of a block of messages in its outbox, 0 for state
    done        how many events at its front the other node has done; they are not in it any more
    is_promised it has messages whose publishers get an acknowledgement
    is_once     it has messages of QoS 2, and is not sent before it is in the store with the packet identifiers of these
    record      its number in the store, 0 for none
    owner       of a block that is kept in the store
    told        the changes of interest up to this one (FullState.changes) are told with it, 0 for none
    claims_told, moves_told  the newest claim and move that are told with it (federation/sessions/news.py), 0 for none
    is_kept     it has what no bound may drop
    is_state    interest or retained state: a full state replaces it
    retained    topics of its retained messages, None for none
    converted   the same as events of the Go broker's stream, made by its codec
    """

    __slots__ = (
        "chunks",
        "claims_told",
        "converted",
        "count",
        "done",
        "events",
        "expiring",
        "first_id",
        "is_kept",
        "is_once",
        "is_promised",
        "is_state",
        "messages",
        "moves_told",
        "opened_at",
        "owner",
        "record",
        "retained",
        "serial",
        "size",
        "told",
    )

    def __init__(self, is_state: bool, now: float) -> None:
        self.chunks: list[bytes] = []
        self.expiring: list[tuple[int, int, float]] | None = None
        self.first_id = UNNUMBERED
        self.count = 0
        self.events = 0
        self.messages = 0
        self.size = 0
        self.serial = 0
        self.is_state = is_state
        self.opened_at = now
        self.retained: list[bytes] | None = None
        self.converted: object | None = None
        self.done = 0
        self.is_promised = False
        self.is_once = False
        self.record = 0
        self.owner: BlockOwner | None = None
        self.told = 0
        self.claims_told = 0
        self.moves_told = 0
        self.is_kept = False

    def values(self, wall_offset: float) -> tuple[object, ...]:
        """The record of the block: (OUTBOX, name of the node, serial, done, time, count, messages, frames, expiring, topics of
        retained messages), and True where it is kept. `expiring`: (end of the packet in the frames, offset from there, time)
        for each. The block takes no more messages afterwards."""
        owner = self.owner
        assert owner is not None
        owner.close_if_open(self)
        expiring: list[tuple[int, int, float]] = []
        if self.expiring is not None:
            end = 0
            at = 0
            for index, offset, expires_at in self.expiring:
                while at <= index:
                    end += len(self.chunks[at])
                    at += 1
                expiring.append((end, offset, wall_time(expires_at, wall_offset)))
        record = (
            OUTBOX,
            owner.node,
            self.serial,
            self.done,
            self.opened_at + wall_offset,
            self.count,
            self.messages,
            b"".join(self.chunks),
            tuple(expiring),
            None if self.retained is None else tuple(self.retained),
        )
        return (*record, True) if self.is_kept else record

    def append_frame(self, frame: bytes) -> None:
        """One event without an expiry."""
        self.chunks.append(frame)
        self.count += 1
        self.size += len(frame) + CHUNK_OVERHEAD

    def append_message(
        self, kind: int, message: Message, groups: tuple[tuple[bytes, bytes], ...], flags: int = 0
    ) -> None:
        """One message as a frame of its own: PUBLISH with its groups, or RETAINED without. With its stamp, if it has one.
        Nothing for one whose packet MQTT could not say: the other node would refuse the block with all that is in it."""
        if packet_bytes(message) > VARINT_MAX:
            return
        prefix = encode_groups(groups) if kind == PUBLISH else b""
        if message.retain and isinstance(message, RetainedMessage) and message.stamp:
            prefix = encode_extension(STAMP, message.stamp.to_bytes(STAMP_BYTES, "big")) + prefix
            flags |= HAS_EXTENSIONS
        if message.expires_at == NEVER:
            self.append_frame(encode_frame(kind, prefix + encode_packet(message, 5), flags))
        else:
            self.append_frame(encode_frame(kind, prefix + encode_expiring_packet(message), flags))
            self.note_expiry(message)
        if not flags & IS_NEWS:  # they stand for messages that were counted
            self.messages += 1
        if message.retain:
            if self.retained is None:
                self.retained = []
            self.retained.append(message.topic)

    def append_copy(self, message: Message, head: bytes) -> None:
        """One message as a GROUP_COPY behind its head (encode_copy_head)."""
        if message.expires_at == NEVER:
            self.append_frame(encode_frame(GROUP_COPY, head + encode_packet(message, 5)))
        else:
            self.append_frame(encode_frame(GROUP_COPY, head + encode_expiring_packet(message)))
            self.note_expiry(message)
        self.messages += 1

    def note_expiry(self, message: Message) -> None:
        """The last chunk ends with encode_expiring_packet(message)."""
        if self.expiring is None:
            self.expiring = []
        self.expiring.append((len(self.chunks) - 1, expiry_offset(message), message.expires_at))

    def leave_out(self, done: int, now: float) -> None:
        """The first `done` events, which are fewer than it has, were done by the other node. A message that expires keeps the
        seconds that are left at `now`."""
        data = b"".join(self.encode(now))
        pos = 0
        self.count -= done
        self.done += done
        while done > 0:
            start = pos + HEADER_SIZE
            end = start + int.from_bytes(data[pos + 2 : start], "big")
            events = count_events(data, data[pos], data[pos + 1], start, end)
            pos = end
            if events > done:
                version = decode_block_version(data, start)
                at = skip_packets(data, start + BLOCK_HEAD_SIZE, end, done)
                data = encode_block_header(version, events - done, end - at) + data[at:]
                pos = 0
            done -= events
        self.chunks = [data[pos:]]
        self.expiring = None
        self.messages = min(self.messages, self.count)

    def encode(self, now: float) -> list[bytes]:
        """The frames as they leave at `now`, in pieces."""
        if self.expiring is not None:
            for index, offset, expires_at in self.expiring:
                chunk = self.chunks[index]
                self.chunks[index] = fill_expiry(chunk, len(chunk) + offset, expires_at, now)
        return self.chunks


def restored_block(values: tuple[object, ...], wall_offset: float, now: float) -> tuple[str, Block]:
    """(name of the node, block) of a record. Raises ValueError and TypeError for a record that no outbox has written."""
    _, node, serial, done, since, count, messages, data, expiring, retained, *more = values
    frames = checked(bytes, data)
    block = Block(False, min(now, checked(float, since) - wall_offset))
    block.serial = checked(int, serial)
    block.done = checked(int, done)
    block.count = checked(int, count)
    block.messages = checked(int, messages)
    if block.serial < 1 or block.done < 0 or block.count < 1 or block.messages < 0:
        raise ValueError(f"block {block.serial} of {block.count} events, {block.messages} messages behind {block.done}")
    block.is_promised = True
    block.is_kept = bool(more)
    start = 0
    for packet in checked(tuple, expiring):
        end, offset, expires_at = packet
        if not start <= checked(int, end) + checked(int, offset) <= end <= len(frames):
            raise ValueError(f"a packet that expires ends at {end} of {len(frames)} bytes")
        block.chunks.append(frames[start:end])
        if block.expiring is None:
            block.expiring = []
        block.expiring.append((len(block.chunks) - 1, offset, monotonic_time(checked(float, expires_at), wall_offset)))
        start = end
    block.chunks.append(frames[start:])
    block.size = len(frames) + len(block.chunks) * CHUNK_OVERHEAD
    if retained is not None:
        block.retained = [
            checked(
                bytes, topic[0] if isinstance(topic, tuple) else topic
            )  # the version before had (topic, is deleted)
            for topic in checked(tuple, retained)
        ]
    return checked(str, node), block


@mypyc_attr(allow_interpreted_subclasses=True)
class BlockConverter:
    """A stream on which a node is not sent every event. It decides before the block has its event ids."""

    def convert(self, block: Block, now: float) -> int:
        """Return how many events of the block are sent."""
        raise AssertionError("a converter that converts nothing")
