"""The plain stream: single events, as a gmqttd reads and writes them (protobuf `Event`).

Outboxes hold frames whatever the other node reads; here frames become events, and events become messages. A run of
messages becomes one event each. Nothing that MQTT allows may stop the stream: correlation data that is not UTF-8 goes
into a field of ours that a gmqttd skips.
"""

from __future__ import annotations

from typing import Final

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
from broker.routing.names import check_topic_name, full_filter, parse_filter
from federation.api.pb import federation_pb2 as pb
from federation.stream.counters import DROP_EXPIRED, DROP_NOT_REPRESENTABLE, DROP_TOO_LARGE_FOR_PEER, StreamCounters
from federation.stream.frames import (
    HEADER_SIZE,
    PUBLISH,
    PUBLISH_BLOCK,
    RETAINED,
    SUBSCRIBE,
    UNSUBSCRIBE,
    FrameError,
    decode_block_header,
    decode_groups,
    decode_interest,
    decode_packet,
)

EXPIRY_MIN: Final = 1  # 0 would be no expiry
EVENT_BYTES_MAX: Final = 4 * 2**20  # a gmqttd takes gRPC messages up to gRPC's default
EVENT_ID_BYTES_MAX: Final = 11


class PlainEvents:
    """The events of one block. Their number does not change, so that ids stay: what expires between two sends goes out
    with its last second."""

    __slots__ = ("events",)

    def __init__(self, events: list[pb.Event]) -> None:
        self.events = events

    def encode(self, first_id: int, elapsed: float) -> list[bytes]:
        """Events with ids from first_id; `elapsed` seconds have passed since the conversion."""
        encoded: list[bytes] = []
        for number, event in enumerate(self.events):
            event.id = first_id + number
            expiry = event.message.message_expiry if event.HasField("message") else 0
            if expiry and elapsed >= 1:
                event.message.message_expiry = max(EXPIRY_MIN, expiry - int(elapsed))
                encoded.append(event.SerializeToString())
                event.message.message_expiry = expiry
            else:
                encoded.append(event.SerializeToString())
        return encoded


def convert_block(data: bytes, now: float, counters: StreamCounters) -> PlainEvents:
    """Our own frames as events. Expired messages stay away, counted; so does what an `Event` cannot say."""
    events: list[pb.Event] = []
    pos = 0
    while pos < len(data):
        kind = data[pos]
        start = pos + HEADER_SIZE
        pos = start + int.from_bytes(data[pos + 2 : start], "big")
        if kind == PUBLISH_BLOCK:
            version, _ = decode_block_header(data, start, pos)
            start += 5
            while start < pos:
                message, start = decode_packet(data, start, pos, version, now)
                _append_message(events, message, now, counters)
        elif kind in (PUBLISH, RETAINED):
            if kind == PUBLISH:
                _, start = decode_groups(data, start, pos)
            message, _ = decode_packet(data, start, pos, 5, now)
            _append_message(events, message, now, counters)
        elif kind in (SUBSCRIBE, UNSUBSCRIBE):
            share_name, topic_filter = decode_interest(data, start, pos)
            if kind == SUBSCRIBE:
                subscribe = pb.Subscribe(share_name=share_name.decode(), topic_filter=topic_filter.decode())
                events.append(pb.Event(Subscribe=subscribe))
            else:
                full = full_filter(share_name, topic_filter).decode()
                events.append(pb.Event(unsubscribe=pb.Unsubscribe(topic_name=full)))
    return PlainEvents(events)


def _append_message(events: list[pb.Event], message: Message, now: float, counters: StreamCounters) -> None:
    if message.expires_at <= now:
        counters.drop(DROP_EXPIRED, 1)
        return
    try:
        event = pb.Event(message=message_to_event(message, now))
    except (MqttError, ValueError):
        counters.drop(DROP_NOT_REPRESENTABLE, 1)
        return
    # The exact size costs an encoding: only what may be near the bound is looked at.
    may_be_large = len(message.payload) + len(message.properties) > EVENT_BYTES_MAX // 2
    if may_be_large and event.ByteSize() + EVENT_ID_BYTES_MAX > EVENT_BYTES_MAX:
        # Sent, it would end the stream, and the full state after that comes to every subscriber there.
        counters.drop(DROP_TOO_LARGE_FOR_PEER, 1)
        return
    events.append(event)


def message_to_event(message: Message, now: float) -> pb.Message:
    """MqttError or ValueError for what the event cannot carry."""
    event = pb.Message(
        topic_name=message.topic.decode(), payload=message.payload, qos=message.qos, retained=message.retain
    )
    if message.expires_at != NEVER:
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
    return event


def message_from_event(event: pb.Message, now: float) -> Message:
    """What a plain stream brought, checked as a packet would be. Raises FrameError."""
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
    return Message(topic, event.payload, event.qos, event.retained, properties, expires_at)


def interest_from_event(event: pb.Event) -> tuple[bytes, bytes]:
    """(share_name, topic_filter) of a Subscribe or Unsubscribe event. Raises FrameError."""
    if event.HasField("Subscribe"):
        return event.Subscribe.share_name.encode(), event.Subscribe.topic_filter.encode()
    try:
        return parse_filter(event.unsubscribe.topic_name.encode())
    except MqttError as error:
        raise FrameError(error.text) from None
