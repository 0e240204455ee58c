"""The service GroupQueues: the queues of shared groups on this node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.api.tokens import Role
from federation.links.pb.link_status_pb2 import GroupQueue, ListGroupQueuesRequest, ListGroupQueuesResponse
from federation.links.pb.link_status_pb2_grpc import GroupQueuesServicer
from federation.links.queues import Queues


class GroupQueuesService(GroupQueuesServicer):
    roles: Final = {"List": Role.READ}

    def __init__(self, node: str, queues: Queues, now: Callable[[], float]) -> None:
        self._node = node
        self._queues = queues
        self._now = now

    async def List(self, request: ListGroupQueuesRequest, context: object) -> ListGroupQueuesResponse:
        return ListGroupQueuesResponse(
            queues=[
                GroupQueue(
                    group=row.group.decode(),
                    policy=row.policy,
                    node=self._node,
                    messages=row.messages,
                    bytes=row.bytes,
                    oldest_seconds=None if row.oldest < 0 else row.oldest,
                    max_length=row.max_length,
                    max_length_bytes=row.max_length_bytes,
                    members=row.members,
                    borrowers=row.borrowers,
                    upstreams=row.upstreams,
                    dropped=row.dropped,
                )
                for row in self._queues.rows(self._now())
            ]
        )
