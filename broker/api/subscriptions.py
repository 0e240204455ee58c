"""SubscriptionService: lists and searches the subscriptions of the clients of this node, subscribes and unsubscribes them."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

import grpc
from google.protobuf.empty_pb2 import Empty

from broker.api.clients import known_session, no_session, wanted
from broker.api.errors import ApiError, invalid_argument
from broker.api.fields import page_bounds, topic_field
from broker.api.long_calls import LongCalls, Steps
from broker.api.pb.admin_pb2 import (
    FilterSubscriptionRequest,
    FilterSubscriptionResponse,
    ListSubscriptionRequest,
    ListSubscriptionResponse,
    SubscribeRequest,
    SubscribeResponse,
    UnsubscribeRequest,
)
from broker.api.pb.admin_pb2 import Subscription as SubscriptionEntry
from broker.api.pb.admin_pb2_grpc import SubscriptionServiceServicer
from broker.api.subscription_search import Search
from broker.api.tokens import Role
from broker.codec.packets import SubscribeFilter
from broker.codec.reason_codes import NOT_AUTHORIZED, QUOTA_EXCEEDED, reason_name
from broker.routing.names import check_topic_filter, full_filter, parse_filter
from broker.server.committed import committed

if TYPE_CHECKING:
    from broker.routing.subscription import Subscription
    from broker.server.host import Host
    from broker.session.session import Session

SUBSCRIPTION_IDENTIFIER_MAX: Final = 268_435_455  # [MQTT5 3.8.2.1.2]
FILTERS_MAX: Final = 1000  # of one request
REFUSED: Final = 0x80  # the lowest reason code of SUBACK that refuses a subscription
REFUSAL_CODES: Final = {
    NOT_AUTHORIZED: grpc.StatusCode.PERMISSION_DENIED,
    QUOTA_EXCEEDED: grpc.StatusCode.RESOURCE_EXHAUSTED,
}


class SubscriptionService(SubscriptionServiceServicer):
    roles: Final = {"List": Role.READ, "Filter": Role.READ, "Subscribe": Role.WRITE, "Unsubscribe": Role.WRITE}

    def __init__(self, server: Host, long_calls: LongCalls) -> None:
        self._server = server
        self._long_calls = long_calls

    async def List(self, request: ListSubscriptionRequest, context: object) -> ListSubscriptionResponse:
        return await self._long_calls.run(self._page(*page_bounds(request.page, request.page_size)))

    def _page(self, offset: int, count: int) -> Steps[ListSubscriptionResponse]:
        response = ListSubscriptionResponse()
        total = 0
        for session in list(self._server.broker.sessions.values()):
            held = len(session.subscriptions)
            start = max(offset - total, 0)
            missing = count - len(response.subscriptions)
            if start < held and missing:
                for subscription in list(islice(session.subscriptions.values(), start, start + missing)):
                    response.subscriptions.append(entry(subscription))
                    yield
            total += held
            yield
        response.total_count = total
        return response

    async def Filter(self, request: FilterSubscriptionRequest, context: object) -> FilterSubscriptionResponse:
        found = await self._long_calls.run(Search(request).run(self._server.broker.sessions))
        return FilterSubscriptionResponse(subscriptions=[entry(subscription) for subscription in found])

    async def Subscribe(self, request: SubscribeRequest, context: object) -> SubscribeResponse:
        """Subscribe a client that has a session here. All requests are checked before the first is carried out."""
        server = self._server
        session = known_session(server, request.client_id)
        if not request.subscriptions:
            raise invalid_argument("subscriptions is empty; it needs at least one with its topic_name")
        check_count("subscriptions", len(request.subscriptions))
        response = await self._long_calls.run(self._subscribe(session, request))
        await committed(server)
        return response

    def _subscribe(self, session: Session, request: SubscribeRequest) -> Steps[SubscribeResponse]:
        server = self._server
        filters: list[SubscribeFilter] = []
        for index, wish in enumerate(request.subscriptions):
            filters.append(self._checked(index, wish))
            yield
        response = SubscribeResponse()
        for index, (wish, subscribe_filter) in enumerate(zip(request.subscriptions, filters, strict=True)):
            if server.broker.sessions.get(request.client_id) is not session:
                raise no_session(request.client_id)
            is_new = subscribe_filter.topic_filter not in session.subscriptions
            (code,) = server.broker.subscribe(request.client_id, [subscribe_filter], wish.id, server.now())
            server.flush_soon()
            if code >= REFUSED:
                text = f"subscriptions[{index}].topic_name: {wish.topic_name} is refused: {reason_name(code)}"
                raise ApiError(REFUSAL_CODES.get(code, grpc.StatusCode.FAILED_PRECONDITION), text)
            response.new.append(is_new)
            yield
        return response

    def _checked(self, index: int, wish: SubscriptionEntry) -> SubscribeFilter:
        place = f"subscriptions[{index}]"
        topic_filter = topic_field(wish.topic_name, check_topic_filter, f"{place}.topic_name")
        if wish.qos > 2:
            raise invalid_argument(f"{place}.qos is {wish.qos}, may be 0, 1 or 2")
        if wish.retain_handling > 2:
            raise invalid_argument(f"{place}.retain_handling is {wish.retain_handling}, may be 0, 1 or 2")
        if wish.id > SUBSCRIPTION_IDENTIFIER_MAX:
            raise invalid_argument(f"{place}.id is {wish.id}, may be at most {SUBSCRIPTION_IDENTIFIER_MAX}")
        if wish.id and not self._server.settings.mqtt.subscription_identifier_available:
            raise invalid_argument(f"{place}.id must be 0: mqtt.subscription_identifier_available is false")
        if wish.no_local and parse_filter(topic_filter)[0]:
            raise invalid_argument(f"{place}.no_local is not possible for a shared subscription [MQTT-3.8.3-4]")
        return SubscribeFilter(topic_filter, wish.qos, wish.no_local, wish.retain_as_published, wish.retain_handling)

    async def Unsubscribe(self, request: UnsubscribeRequest, context: object) -> Empty:
        """Unsubscribe a client. As on the Go broker, a client without a session is no error."""
        client_id = wanted(request.client_id)
        if not request.topics:
            raise invalid_argument("topics is empty; it needs at least one full filter")
        check_count("topics", len(request.topics))
        response = await self._long_calls.run(self._unsubscribe(client_id, request))
        await committed(self._server)
        return response

    def _unsubscribe(self, client_id: str, request: UnsubscribeRequest) -> Steps[Empty]:
        server = self._server
        filters = [
            topic_field(topic, check_topic_filter, f"topics[{index}]") for index, topic in enumerate(request.topics)
        ]
        for topic_filter in filters:
            if client_id in server.broker.sessions:
                server.broker.unsubscribe(client_id, [topic_filter], server.now())
                server.flush_soon()
            yield
        return Empty()


def check_count(field: str, count: int) -> None:
    if count > FILTERS_MAX:
        raise invalid_argument(f"{field} has {count} entries, may have at most {FILTERS_MAX}; send several requests")


def entry(subscription: Subscription) -> SubscriptionEntry:
    return SubscriptionEntry(
        topic_name=full_filter(subscription.share_name, subscription.topic_filter).decode(),
        id=subscription.identifier,
        qos=subscription.qos,
        no_local=subscription.no_local,
        retain_as_published=subscription.retain_as_published,
        retain_handling=subscription.retain_handling,
        client_id=subscription.session.client_id,
    )
