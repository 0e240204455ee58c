"""TopicService: who gets the messages of a topic, by which rules, and how many messages topics have."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Final, cast

import grpc

from broker.api.errors import ApiError, invalid_argument
from broker.api.fields import topic_field
from broker.api.long_calls import LongCalls, Steps
from broker.api.merged_topics import LIMIT_DEFAULT, LIMIT_MAX, RECEIVERS_MAX, explain, traffic
from broker.api.pb.admin_pb2 import (
    Access,
    ExplainTopicRequest,
    ExplainTopicResponse,
    TopicGroup,
    TopicNode,
    TopicReceiver,
    TrafficRequest,
    TrafficResponse,
    WatchedMessage,
    WatchRequest,
)
from broker.api.pb.admin_pb2_grpc import TopicServiceServicer
from broker.api.tokens import Role
from broker.api.traffic import Traffic
from broker.api.watch import wanted_filter, watch
from broker.authorization import ClientIdentity, Verdict
from broker.routing.names import check_topic_filter, check_topic_name, full_filter
from broker.routing.subscription import FilterEntry, Subscription

if TYPE_CHECKING:
    from broker.server.host import Host
    from broker.session.session import Session

SECONDS_DEFAULT: Final = 2
SECONDS_MAX: Final = 10
WATCHING_MAX: Final = 16  # calls at once
WATCHER_PREFIX: Final = "$api/"  # of client identifiers in `Explain`
COUNTING_MAX: Final = 16  # calls that count at once
ALL_ALLOWED: Final = "there are no rules: no plugin judges topics"


class TopicService(TopicServiceServicer):
    roles: Final = {"Explain": Role.READ, "Traffic": Role.READ, "Watch": Role.WRITE}
    for_workers: Final = {
        "Explain": explain,
        "Traffic": traffic,
    }

    def __init__(self, server: Host, long_calls: LongCalls) -> None:
        self._server = server
        self._long_calls = long_calls
        self._counting = 0
        self._watching = 0
        self._watched = 0  # calls until now

    async def Explain(self, request: ExplainTopicRequest, context: object) -> ExplainTopicResponse:
        topic = topic_field(request.topic_name, check_topic_name, "topic_name")
        return await self._long_calls.run(self._explain(topic, request))

    def _explain(self, topic: bytes, request: ExplainTopicRequest) -> Steps[ExplainTopicResponse]:
        broker = self._server.broker
        response = ExplainTopicResponse(
            topic_name=request.topic_name,
            node_name=self._server.members.node_name,
            retained=broker.retained.get(topic) is not None,
        )
        groups: dict[bytes, TopicGroup] = {}
        for value in broker.router.tree.match(topic):
            entry = cast(FilterEntry, value)
            matching = list(entry.subscriptions.values())
            for share_name, group in (entry.groups or {}).items():
                full = full_filter(share_name, entry.topic_filter)
                groups[full] = TopicGroup(group=full.decode())
                members = [*group.members(), *([group.queue] if group.queue is not None else [])]
                matching += [cast(Subscription, member) for member in members]
            for subscription in matching:
                response.receivers_count += 1
                if len(response.receivers) < RECEIVERS_MAX:
                    response.receivers.append(self._receiver(subscription, topic))
                yield
        remote = broker.forwarder.route(topic)
        if remote is not None:
            response.nodes.extend(TopicNode(node_name=peer.name, reached=peer.reachable) for peer in remote.peers)
            for remote_group in remote.groups:
                full = full_filter(remote_group.share_name, remote_group.topic_filter)
                group_shown = groups.setdefault(full, TopicGroup(group=full.decode()))
                group_shown.nodes.extend(peer.name for peer in remote_group.peers)
        response.groups.extend(groups.values())
        response.linked = broker.router.lookup(topic).bridge is not None
        if request.client_id or request.username:
            session = broker.sessions.get(request.client_id)
            response.has_session = session is not None
            identity = (
                ClientIdentity(request.client_id, request.username, "") if session is None else session.identity()
            )
            response.publish.CopyFrom(self._access(identity, topic, True))
            response.read.CopyFrom(self._access(identity, topic, False))
        return response

    def _receiver(self, subscription: Subscription, topic: bytes) -> TopicReceiver:
        session = cast("Session", subscription.session)
        state = "queue" if session.is_group_queue else "away" if session.connection is None else "connected"
        return TopicReceiver(
            client_id=session.client_id,
            topic_filter=full_filter(subscription.share_name, subscription.topic_filter).decode(),
            qos=subscription.qos,
            state=state,
            link_domain="" if session.bridge_end is None else session.bridge_end.name,
            read=self._access(session.identity(), topic, False),
        )

    def _access(self, client: ClientIdentity, topic: bytes, publishes: bool) -> Access:
        """Sum up what all authorizers say, as `Authorization` does, with the rule of the one that decides."""
        authorization = self._server.broker.authorization
        if client.is_node:
            return Access(allowed=True, reason="a node of the cluster: the message was judged where it was published")
        if authorization is None:
            return Access(allowed=True, reason=ALL_ALLOWED)
        ask = authorization.may_publish if publishes else authorization.may_read
        allowed = ask(client, topic)
        reasons: list[str] = []
        for authorizer in authorization.authorizers:
            asked = authorizer.may_publish if publishes else authorizer.may_read
            try:
                verdict = asked(client, topic)
                if (verdict is Verdict.ALLOW) == allowed and verdict is not Verdict.NO_OPINION:
                    reasons.append(authorizer.reason(client, topic, publishes))
            except Exception as error:
                reasons.append(f"{type(authorizer).__name__} has failed, which denies: {error}")
        return Access(allowed=allowed, reason="; ".join(filter(None, reasons)) or "no rule allows it")

    async def Watch(self, request: WatchRequest, context: object) -> AsyncIterator[WatchedMessage]:
        topic_filter = wanted_filter(request)
        if self._watching >= WATCHING_MAX:
            raise ApiError(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{WATCHING_MAX} calls watch already")
        self._watching += 1
        self._watched += 1
        try:
            async with aclosing(
                watch(self._server, f"{WATCHER_PREFIX}{self._watched}", topic_filter, request.retained)
            ) as messages:
                async for message in messages:
                    yield message
        finally:
            self._watching -= 1

    async def Traffic(self, request: TrafficRequest, context: object) -> TrafficResponse:
        seconds = request.seconds or SECONDS_DEFAULT
        if seconds > SECONDS_MAX:
            raise invalid_argument(f"seconds is {seconds}, may be 1 to {SECONDS_MAX}")
        topic_filter = b"#"
        if request.topic_filter:
            topic_filter = topic_field(request.topic_filter, check_topic_filter, "topic_filter")
        if self._counting >= COUNTING_MAX:
            text = f"{COUNTING_MAX} calls count messages already"
            raise ApiError(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
        counted = Traffic(b"" if topic_filter == b"#" else topic_filter)
        broker = self._server.broker
        self._counting += 1
        broker.add_tap(counted)
        begin = self._server.now()
        try:
            await asyncio.sleep(seconds)
        finally:
            self._counting -= 1
            broker.remove_tap(counted)
        return counted.response(self._server.now() - begin, min(request.limit or LIMIT_DEFAULT, LIMIT_MAX))
