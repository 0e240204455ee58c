"""PublishService: messages that the node publishes for a caller of the API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import grpc
from google.protobuf.empty_pb2 import Empty

from broker.api.errors import ApiError, invalid_argument
from broker.api.fields import topic_field
from broker.api.pb.admin_pb2 import PublishRequest
from broker.api.pb.admin_pb2_grpc import PublishServiceServicer
from broker.api.tokens import Role
from broker.codec.properties import encode_publish_properties
from broker.codec.reason_codes import QUOTA_EXCEEDED
from broker.errors import MqttError
from broker.message import NEVER, Message
from broker.routing.names import check_topic_name
from broker.server.committed import committed

if TYPE_CHECKING:
    from broker.server.host import Host


REJECTED: Final = (
    "the queue of a shared group is full and rejects the message (overflow of its policy); all others have it"
)
USER_PROPERTIES_MAX: Final = 1000  # of one message


class PublishService(PublishServiceServicer):
    roles: Final = {"Publish": Role.WRITE}

    def __init__(self, server: Host) -> None:
        self._server = server

    async def Publish(self, request: PublishRequest, context: object) -> Empty:
        server = self._server
        if request.retained and not server.settings.mqtt.retain_available:
            text = "retained must be false: mqtt.retain_available is false"
            raise ApiError(grpc.StatusCode.FAILED_PRECONDITION, text)
        now = server.now()
        reason_code = await published(server, message_of(request, now), now)
        if reason_code == QUOTA_EXCEEDED:
            raise ApiError(grpc.StatusCode.RESOURCE_EXHAUSTED, REJECTED)
        return Empty()


async def published(server: Host, message: Message, now: float) -> int:
    """Publish a message, and return its reason code when it is committed. Raises ApiError where the node does not take it."""
    try:
        reason_code = server.broker.publish(message, now)
    except MqttError as error:
        if error.reason_code == QUOTA_EXCEEDED:
            raise ApiError(grpc.StatusCode.RESOURCE_EXHAUSTED, error.text) from None
        raise invalid_argument(f"topic_name: {error.text}") from None
    server.flush_soon()
    await committed(server, promises=True)
    return reason_code


def message_of(request: PublishRequest, now: float) -> Message:
    """The message of a request. Raises ApiError that names the field that MQTT cannot carry."""
    topic = topic_field(request.topic_name, check_topic_name, "topic_name")
    if request.qos > 2:
        raise invalid_argument(f"qos is {request.qos}, may be 0, 1 or 2")
    if request.payload and request.payload_raw:
        raise invalid_argument("payload and payload_raw are both set; only one can be the payload")
    if request.correlation_data and request.correlation_data_raw:
        raise invalid_argument("correlation_data and correlation_data_raw are both set; only one can be the data")
    payload = request.payload_raw or request.payload.encode()
    if request.payload_format == 1 and not is_utf8(payload):
        raise invalid_argument("payload_format is 1 (UTF-8 text) but payload_raw is not UTF-8")
    expires_at = now + request.message_expiry if request.message_expiry else NEVER
    return Message(topic, payload, request.qos, request.retained, properties_of(request), expires_at)


def properties_of(request: PublishRequest) -> bytes:
    """The properties of the message as they stand in a PUBLISH packet. Raises ApiError."""
    if len(request.user_properties) > USER_PROPERTIES_MAX:
        text = f"user_properties has {len(request.user_properties)} pairs, may have at most {USER_PROPERTIES_MAX}"
        raise invalid_argument(text)
    user_properties: list[tuple[str, str]] = []
    for index, pair in enumerate(request.user_properties):
        try:
            user_properties.append((pair.K.decode(), pair.V.decode()))
        except UnicodeDecodeError:
            raise invalid_argument(f"user_properties[{index}]: K and V must be UTF-8 text") from None
    try:
        return encode_publish_properties(
            payload_format=request.payload_format or None,
            content_type=request.content_type or None,
            response_topic=request.response_topic.encode() or None,
            correlation_data=request.correlation_data_raw or request.correlation_data.encode() or None,
            user_properties=user_properties or None,
        )
    except MqttError as error:
        raise invalid_argument(error.text) from None


def is_utf8(payload: bytes) -> bool:
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True
