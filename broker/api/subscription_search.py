"""The search of SubscriptionService.Filter: by kind of filter and by topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.api.errors import invalid_argument
from broker.api.fields import topic_field
from broker.api.long_calls import Steps
from broker.api.pb.admin_pb2 import (
    SUB_FILTER_TYPE_NON_SHARED,
    SUB_FILTER_TYPE_SHARED,
    SUB_FILTER_TYPE_SYS,
    SUB_MATCH_TYPE_MATCH_FILTER,
    SUB_MATCH_TYPE_MATCH_NAME,
    SUB_MATCH_TYPE_MATCH_UNSPECIFIED,
    FilterSubscriptionRequest,
)
from broker.routing.names import check_topic_filter, check_topic_name, filter_matches, full_filter

if TYPE_CHECKING:
    from broker.routing.subscription import Subscription
    from broker.session.session import Session

LIMIT_DEFAULT: Final = 20
LIMIT_MAX: Final = 1000

FILTER_TYPES: Final = {
    str(int(kind)): int(kind) for kind in (SUB_FILTER_TYPE_SYS, SUB_FILTER_TYPE_SHARED, SUB_FILTER_TYPE_NON_SHARED)
}


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
