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
from broker.api.merging import Merged
from broker.api.pb.admin_pb2 import (
    SUB_FILTER_TYPE_NON_SHARED,
    SUB_FILTER_TYPE_SHARED,
    SUB_FILTER_TYPE_SYS,
    SUB_MATCH_TYPE_MATCH_FILTER,
    SUB_MATCH_TYPE_MATCH_NAME,
    SUB_MATCH_TYPE_MATCH_UNSPECIFIED,
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
from broker.api.tokens import Role
from broker.codec.packets import SubscribeFilter
from broker.codec.reason_codes import NOT_AUTHORIZED, QUOTA_EXCEEDED, reason_name
from broker.routing.names import check_topic_filter, check_topic_name, filter_matches, full_filter, parse_filter
from broker.server.committed import committed

if TYPE_CHECKING:
    from broker.routing.subscription import Subscription
    from broker.server.host import Host
    from broker.session.session import Session

LIMIT_DEFAULT: Final = 20
LIMIT_MAX: Final = 1000

FILTER_TYPES: Final = {
    str(int(kind)): int(kind) for kind in (SUB_FILTER_TYPE_SYS, SUB_FILTER_TYPE_SHARED, SUB_FILTER_TYPE_NON_SHARED)
}
SUBSCRIPTION_IDENTIFIER_MAX: Final = 268_435_455  # [MQTT5 3.8.2.1.2]
FILTERS_MAX: Final = 1000  # of one request
REFUSED: Final = 0x80  # the lowest reason code of SUBACK that refuses a subscription
REFUSAL_CODES: Final = {
    NOT_AUTHORIZED: grpc.StatusCode.PERMISSION_DENIED,
    QUOTA_EXCEEDED: grpc.StatusCode.RESOURCE_EXHAUSTED,
}


class SubscriptionService(SubscriptionServiceServicer):
    roles: Final = {"List": Role.READ, "Filter": Role.READ, "Subscribe": Role.WRITE, "Unsubscribe": Role.WRITE}
    for_workers: Final = {
        "List": Merged.page,
        "Filter": Merged.one_after_the_other,
        "Subscribe": Merged.by_who_knows,
        "Unsubscribe": Merged.at_each,
    }

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
                reason = server.broker.refusal or reason_name(code)
                text = f"subscriptions[{index}].topic_name: {wish.topic_name} is refused: {reason}"
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


class Search:
    """One search, made of a request. Raises ApiError for a wrong request."""

    def __init__(self, request: FilterSubscriptionRequest) -> None:
        self.client_id = request.client_id
        self.kinds = parse_kinds(request.filter_type)
        self.match_type = request.match_type
        self.topic = request.topic_name.encode()
        if request.limit < 0 or request.limit > LIMIT_MAX:
            raise invalid_argument(f"limit is {request.limit}, may be 1 to {LIMIT_MAX}, or 0 for {LIMIT_DEFAULT}")
        self.limit = request.limit or LIMIT_DEFAULT
        if request.match_type == SUB_MATCH_TYPE_MATCH_UNSPECIFIED:
            if self.topic:
                raise invalid_argument(
                    "match_type must be set with topic_name: 1 the same filter, 2 filters that match"
                )
        elif request.match_type not in (SUB_MATCH_TYPE_MATCH_NAME, SUB_MATCH_TYPE_MATCH_FILTER):
            raise invalid_argument(f"match_type is {request.match_type}, may be 0, 1 or 2")
        elif not self.topic:
            raise invalid_argument("topic_name must be set with match_type")
        else:
            check = check_topic_filter if request.match_type == SUB_MATCH_TYPE_MATCH_NAME else check_topic_name
            topic_field(request.topic_name, check, "topic_name")

    def run(self, sessions: dict[str, Session]) -> Steps[list[Subscription]]:
        """The subscriptions that fit, at most `limit`. Changes between two steps may be missed."""
        found: list[Subscription] = []
        if self.client_id:
            session = sessions.get(self.client_id)
            searched = [] if session is None else [session]
        else:
            searched = list(sessions.values())
        for session in searched:
            for subscription in list(session.subscriptions.values()):
                if self.fits(subscription):
                    found.append(subscription)
                    if len(found) == self.limit:
                        return found
                yield
            yield
        return found

    def fits(self, subscription: Subscription) -> bool:
        if kind_of(subscription) not in self.kinds:
            return False
        if self.match_type == SUB_MATCH_TYPE_MATCH_NAME:
            return full_filter(subscription.share_name, subscription.topic_filter) == self.topic
        return not self.topic or filter_matches(subscription.topic_filter, self.topic)


def parse_kinds(text: str) -> frozenset[int]:
    """The kinds that `filter_type` names: numbers joined by commas; every kind when it names none. Raises ApiError."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        if word not in FILTER_TYPES:
            raise invalid_argument(
                f'filter_type has "{word}"; it is 1 (system), 2 (shared), 3 (others), joined by commas'
            )
    return frozenset(FILTER_TYPES[word] for word in words or FILTER_TYPES)


def kind_of(subscription: Subscription) -> int:
    if subscription.share_name:
        return SUB_FILTER_TYPE_SHARED
    return SUB_FILTER_TYPE_SYS if subscription.topic_filter.startswith(b"$") else SUB_FILTER_TYPE_NON_SHARED
