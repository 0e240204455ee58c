"""The events of the Go broker's stream (protobuf `Event`), one for each subscription and message.

Outboxes hold frames whatever the other node reads; here frames become events, and events become what a receiver takes. What
the Go broker's fields cannot say travels in fields of ours, which it skips (docs/protocol-extensions.md). No other core knows
protobuf.
"""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from google.protobuf.message import DecodeError

from broker.codec.properties import (
    CONTENT_TYPE,
    CORRELATION_DATA,
    PAYLOAD_FORMAT_INDICATOR,
    RESPONSE_TOPIC,
    encode_publish_properties,
    get_bytes,
    get_int,
    get_str,
    get_user_properties,
    publish_properties_to_dict,
)
from broker.codec.wire import VARINT_MAX
from broker.errors import MqttError
from broker.message import NEVER, Message
from broker.origin import NAME, carried_origin, split_properties
from broker.routing.names import check_topic_name, full_filter, parse_filter
from federation.pb import federation_pb2 as pb
from federation.stream.block import Block, BlockConverter
from federation.stream.counters import DropReason, SkipReason, StreamCounters
from federation.stream.effects import stamped
from federation.stream.frames import (
    BLOCK_HEAD_SIZE,
    COPIES_ENDED,
    GROUP_COPY,
    HAS_EXTENSIONS,
    HEADER_SIZE,
    INTEREST_DIGEST,
    PUBLISH,
    PUBLISH_BLOCK,
    RETAINED,
    RETAINED_DIGEST,
    RETAINED_STAMPS,
    SESSION,
    STAMP,
    STATE_BEGIN,
    STATE_END,
    SUBSCRIBE,
    UNSUBSCRIBE,
    FrameError,
    body_start,
    decode_block_version,
    decode_groups,
    decode_interest,
    decode_packet,
    extension,
    interest_note,
    is_awaited_copy,
)
from federation.stream.held_batches import StreamError
from federation.stream.receiver import OpenStream, PeerReceiver

EXPIRY_MIN: Final = 1  # 0 would be no expiry
EVENT_BYTES_MAX: Final = 4 * 2**20  # a Go broker takes gRPC messages up to gRPC's default
EVENT_ID_BYTES_MAX: Final = 11
UNKNOWN: Final = 0  # kind of an event that is none of ours
STATE_MARKS: Final[dict[int, int]] = {pb.STATE_MARK_BEGIN: STATE_BEGIN, pb.STATE_MARK_END: STATE_END}

Groups = tuple[tuple[bytes, bytes], ...]


# --- frames to events


def block_events(block: Block, now: float) -> list[pb.Event]:
    """One event for each event id of the block."""
    events: list[pb.Event] = []
    data = b"".join(block.encode(now))
    pos = 0
    while pos < len(data):
        kind = data[pos]
        flags = data[pos + 1]
        start = pos + HEADER_SIZE
        pos = start + int.from_bytes(data[pos + 2 : start], "big")
        if kind == PUBLISH_BLOCK:
            version = decode_block_version(data, start)
            start += BLOCK_HEAD_SIZE
            while start < pos:
                message, start = decode_packet(data, start, pos, version, now)
                events.append(_message_event(message, (), -1, now))
        elif kind in (PUBLISH, RETAINED):
            groups: Groups = ()
            body = body_start(data, flags, start, pos)
            if kind == PUBLISH:
                groups, body = decode_groups(data, body, pos)
            message, _ = decode_packet(data, body, pos, 5, now)
            event = _message_event(message, groups, -1 if kind == PUBLISH else flags & ~HAS_EXTENSIONS, now)
            if flags & HAS_EXTENSIONS and event.HasField("message"):
                event.message.stamp = extension(data, start, STAMP)
            events.append(event)
        elif kind == SUBSCRIBE:
            share_name, topic_filter = decode_interest(data, body_start(data, flags, start, pos), pos)
            subscribe = pb.Subscribe(share_name=share_name.decode(), topic_filter=topic_filter.decode())
            note = interest_note(data, flags, start, share_name)
            if share_name:
                subscribe.members = int.from_bytes(note, "big")
            else:
                subscribe.link_interest = note
            events.append(pb.Event(Subscribe=subscribe))
        elif kind == UNSUBSCRIBE:
            share_name, topic_filter = decode_interest(data, start, pos)
            full = full_filter(share_name, topic_filter).decode()
            events.append(pb.Event(unsubscribe=pb.Unsubscribe(topic_name=full)))
        elif kind == INTEREST_DIGEST:
            events.append(pb.Event())  # of a direct stream, and sent again on this one: it is skipped there
        elif kind in (RETAINED_DIGEST, RETAINED_STAMPS, SESSION, GROUP_COPY, COPIES_ENDED):
            events.append(pb.Event(frame=data[start - HEADER_SIZE : pos]))
        else:
            mark = pb.STATE_MARK_BEGIN if kind == STATE_BEGIN else pb.STATE_MARK_END
            events.append(pb.Event(state_mark=mark))
    return events


def encode_events(block: Block, next_event_id: int, now: float) -> list[bytes]:
    """The block's events with ids from next_event_id on; those below it are done at the other node."""
    converted = block.converted
    elapsed = 0
    if isinstance(converted, Converted):
        events = converted.events
        elapsed = int(now - converted.converted_at)
    else:
        events = block_events(block, now)
    encoded: list[bytes] = []
    event_id = block.first_id
    has_places = converted is None and block.serial > 0
    for event in events:
        if event_id >= next_event_id:
            event.id = event_id
            if has_places:
                event.serial = block.serial
                event.place = block.done + event_id - block.first_id + 1
                event.ends_block = event is events[-1]
            expiry = event.message.message_expiry if elapsed and event.HasField("message") else 0
            if expiry:
                event.message.message_expiry = max(EXPIRY_MIN, expiry - elapsed)
            encoded.append(event.SerializeToString())
            if expiry:
                event.message.message_expiry = expiry
        event_id += 1
    return encoded


class Converted:
    """The events of one block for a Go broker. Their number does not change, so that ids stay: what expires between two
    sends goes out with its last second."""

    __slots__ = ("converted_at", "events")

    def __init__(self, events: list[pb.Event], now: float) -> None:
        self.events = events
        self.converted_at = now


class GoConverter(BlockConverter):
    """Events for a Go broker: no message that has expired, and none that it could not take. Both are counted."""

    def __init__(self, counters: StreamCounters) -> None:
        self._counters = counters

    def convert(self, block: Block, now: float) -> int:
        events = [event for event in block_events(block, now) if self._is_sent(event)]
        block.converted = Converted(events, now)
        return len(events)

    def _is_sent(self, event: pb.Event) -> bool:
        kind = event.WhichOneof("Event")
        if kind is None:
            self._counters.drop(DropReason.NOT_REPRESENTABLE, 1)
            return False
        if kind != "message":
            return kind != "state_mark"
        message = event.message
        if message.expired:
            self._counters.drop(DropReason.EXPIRED, 1)
            return False
        # Sent, it would end the stream, and the full state after that comes to every subscriber there. The exact size costs
        # an encoding: only what may be near the bound is looked at.
        if len(message.payload) > EVENT_BYTES_MAX // 2 or len(message.user_properties) > 1000:
            if event.ByteSize() + EVENT_ID_BYTES_MAX > EVENT_BYTES_MAX:
                self._counters.drop(DropReason.TOO_LARGE_FOR_PEER, 1)
                return False
        return True


def _message_event(message: Message, groups: Groups, state_flags: int, now: float) -> pb.Event:
    """state_flags: of a RETAINED frame, -1 for none. An event of no kind, which is skipped there, for what no event can say."""
    try:
        event = message_to_event(message, now)
    except (MqttError, ValueError):
        return pb.Event()
    if state_flags >= 0:
        event.state_flags = state_flags
    else:
        event.groups.SetInParent()  # also without a group: the message is for ordinary subscribers only
        for share_name, topic_filter in groups:
            event.groups.groups.add(share_name=share_name.decode(), topic_filter=topic_filter.decode())
    return pb.Event(message=event)


def message_to_event(message: Message, now: float) -> pb.Message:
    """MqttError or ValueError for what the event cannot carry."""
    event = pb.Message(
        topic_name=message.topic.decode(), payload=message.payload, qos=message.qos, retained=message.retain
    )
    if message.expires_at <= now:
        event.expired = True
    elif message.expires_at != NEVER:
        event.message_expiry = max(EXPIRY_MIN, int(min(message.expires_at - now, 4_294_967_295.0)))
    if message.properties:
        properties = publish_properties_to_dict(message.properties)
        event.payload_format = get_int(properties, PAYLOAD_FORMAT_INDICATOR, 0)
        event.content_type = get_str(properties, CONTENT_TYPE) or ""
        event.response_topic = get_str(properties, RESPONSE_TOPIC) or ""
        correlation_data = get_bytes(properties, CORRELATION_DATA) or b""
        try:
            event.correlation_data = correlation_data.decode()
        except UnicodeDecodeError:
            event.correlation_data_raw = correlation_data
        for key, value in get_user_properties(properties):
            event.user_properties.append(pb.UserProperty(K=key.encode(), V=value.encode()))
    if message.origin is not None:
        event.user_properties.append(pb.UserProperty(K=NAME, V=message.origin.encode()))
    return event


# --- events to what a receiver takes


def receive_event(receiver: PeerReceiver, stream: OpenStream, data: bytes, now: float) -> int:
    """Apply one event; the event id to acknowledge. Raises StreamError."""
    try:
        event = pb.Event.FromString(data)
    except DecodeError:
        raise StreamError("what came is not an Event", True) from None
    event_id = event.id
    kind = event.WhichOneof("Event")
    is_copy = kind is None and is_awaited_copy(event.frame[0] if event.frame else 0, event.frame, HEADER_SIZE)
    is_new = receiver.accept_event(stream, event_id, event.serial, event.place, is_copy)
    if event.ends_block:
        receiver.position.done_whole(event.serial)
    if not is_new:
        return event_id
    try:
        if kind == "message":
            _receive_message(receiver, event.message, now)
        elif kind == "Subscribe":
            filter_event = event.Subscribe
            note = filter_event.members.to_bytes(4, "big") if filter_event.members else filter_event.link_interest
            receiver.receive_interest(
                True, filter_event.share_name.encode(), filter_event.topic_filter.encode(), now, note
            )
        elif kind == "unsubscribe":
            share_name, topic_filter = parse_filter(event.unsubscribe.topic_name.encode())
            receiver.receive_interest(False, share_name, topic_filter, now)
        elif kind == "state_mark":
            receiver.receive_mark(STATE_MARKS.get(event.state_mark, UNKNOWN))
        elif event.frame:
            receiver.receive_frame(event.frame, now)
        else:
            receiver.receive_mark(UNKNOWN)
    except (FrameError, MqttError):
        receiver.counters.drop(SkipReason.MALFORMED, 1)
    return event_id


def _receive_message(receiver: PeerReceiver, event: pb.Message, now: float) -> None:
    message = message_from_event(event, now)
    if message.origin is not None and not event.HasField("groups") and not event.HasField("state_flags"):
        message.origin = None  # a Go broker does not check what its clients say of links
    groups: Groups | None = None
    if event.HasField("groups"):
        groups = tuple((group.share_name.encode(), group.topic_filter.encode()) for group in event.groups.groups)
    state_flags = event.state_flags if event.HasField("state_flags") else -1
    receiver.receive_message(stamped(message, event.stamp), groups, state_flags, now)


def message_from_event(event: pb.Message, now: float) -> Message:
    """The message, checked as a packet would be. Raises FrameError."""
    if event.qos > 2:
        raise FrameError(f"message with QoS {event.qos}, may be 0, 1 or 2")
    topic = event.topic_name.encode()
    try:
        check_topic_name(topic)
        user_properties = [(pair.K.decode(), pair.V.decode()) for pair in event.user_properties]
        properties = encode_publish_properties(
            payload_format=event.payload_format or None,
            content_type=event.content_type or None,
            response_topic=event.response_topic.encode() or None,
            correlation_data=event.correlation_data_raw or event.correlation_data.encode() or None,
            user_properties=user_properties or None,
        )
    except MqttError as error:
        raise FrameError(error.text) from None
    except UnicodeDecodeError:
        raise FrameError("user property that is not UTF-8") from None
    if len(topic) + len(event.payload) + len(properties) + 32 > VARINT_MAX:
        raise FrameError("message of more than 256 MB")
    expires_at = now + event.message_expiry if event.message_expiry else NEVER
    if event.expired:
        expires_at = now
    origin = None
    if NAME in properties:
        properties, headers = split_properties(properties)
        origin = carried_origin(headers)
    return Message(topic, event.payload, event.qos, event.retained, properties, expires_at, "", origin)
