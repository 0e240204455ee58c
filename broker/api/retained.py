"""RetainedService: the retained messages of this node."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from google.protobuf.empty_pb2 import Empty

from broker.api.errors import ApiError, not_found
from broker.api.fields import page_bounds, topic_field
from broker.api.long_calls import LongCalls, Steps
from broker.api.pb.admin_pb2 import (
    ListRetainedRequest,
    ListRetainedResponse,
    RetainedMessage,
    RetainedRequest,
)
from broker.api.pb.admin_pb2_grpc import RetainedServiceServicer
from broker.api.publishing import published
from broker.api.tokens import Role
from broker.message import NEVER, Message
from broker.routing.names import check_topic_filter, check_topic_name, is_reserved
from broker.routing.retained import RetainedWalk, TopicMessages
from broker.server.logging import get_logger

if TYPE_CHECKING:
    from broker.server.host import Host

PAYLOAD_LISTED: Final = 256  # bytes of a payload in a list
WALK_NODES: Final = 100  # that one step of a search looks at


class RetainedService(RetainedServiceServicer):
    roles: Final = {"List": Role.WRITE, "Get": Role.WRITE, "Delete": Role.WRITE}  # as messages of the event log

    def __init__(self, server: Host, long_calls: LongCalls) -> None:
        self._server = server
        self._long_calls = long_calls
        self._log = get_logger("api")

    async def List(self, request: ListRetainedRequest, context: object) -> ListRetainedResponse:
        bounds = page_bounds(request.page, request.page_size)
        if request.topic_filter in ("", "#"):
            return await self._long_calls.run(self._page(*bounds))
        topic_filter = topic_field(request.topic_filter, check_topic_filter, "topic_filter")
        return await self._long_calls.run(self._found(topic_filter, *bounds))

    def _page(self, offset: int, count: int) -> Steps[ListRetainedResponse]:
        store = self._server.broker.retained
        response = ListRetainedResponse(total_count=len(store))
        for message in list(islice(store.messages(), offset, offset + count)):
            response.messages.append(self._shown(message, PAYLOAD_LISTED))
            yield
        return response

    def _found(self, topic_filter: bytes, offset: int, count: int) -> Steps[ListRetainedResponse]:
        """A page of the messages that match. All that may match are looked at, in steps."""
        response = ListRetainedResponse()
        walk = RetainedWalk(self._store_of(topic_filter), topic_filter)
        while not walk.is_done():
            walk.advance(WALK_NODES)
            if walk.found is not None:
                if offset <= response.total_count < offset + count:
                    response.messages.append(self._shown(walk.found, PAYLOAD_LISTED))
                response.total_count += 1
            yield
        return response

    async def Get(self, request: RetainedRequest, context: object) -> RetainedMessage:
        message = self._known(request.topic_name)
        return self._shown(message, len(message.payload))

    async def Delete(self, request: RetainedRequest, context: object) -> Empty:
        message = self._known(request.topic_name)
        if is_reserved(message.topic):
            raise not_found(f'the node itself publishes "{request.topic_name}": it cannot be deleted')
        now = self._server.now()
        await published(self._server, Message(message.topic, b"", 1, True, b"", NEVER), now)
        self._log.info("retained message deleted by the API", topic=request.topic_name)
        return Empty()

    def _store_of(self, topic: bytes) -> TopicMessages:
        return self._server.broker.sys_retained if is_reserved(topic) else self._server.broker.retained

    def _known(self, topic_name: str) -> Message:
        """Raises ApiError."""
        topic = topic_field(topic_name, check_topic_name, "topic_name")
        message = self._store_of(topic).get(topic)
        if message is None or message.expires_at <= self._server.now():
            raise no_message(topic_name)
        return message

    def _shown(self, message: Message, size: int) -> RetainedMessage:
        """A message with the first bytes of its payload."""
        shown = RetainedMessage(
            topic_name=message.topic.decode(),
            payload_bytes=len(message.payload),
            qos=message.qos,
            client_id=message.client_id,
        )
        text = text_of(message.payload[:size], len(message.payload) > size)
        if text is None:
            shown.payload_raw = message.payload[:size]
        else:
            shown.payload = text
        if message.expires_at != NEVER:
            shown.expires_seconds = max(0.0, message.expires_at - self._server.now())
        return shown


def text_of(payload: bytes, is_cut: bool) -> str | None:
    """The text of a payload, None where it is none. One that is cut may end within a character."""
    try:
        return payload.decode()
    except UnicodeDecodeError as error:
        if is_cut and error.end == len(payload) and len(payload) - error.start < 4:
            return payload[: error.start].decode()
        return None


def no_message(topic_name: str) -> ApiError:
    return not_found(f'the topic "{topic_name}" has no retained message')
