"""The services of the API for links and for the queues of shared groups."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import grpc

from broker.api.errors import ApiError, invalid_argument, not_found
from broker.api.tokens import Role
from federation.links.pb.link_status_pb2 import (
    GroupQueue,
    Link,
    ListGroupQueuesRequest,
    ListGroupQueuesResponse,
    ListLinksRequest,
    ListLinksResponse,
    RestartLinkRequest,
    RestartLinkResponse,
)
from federation.links.pb.link_status_pb2_grpc import FederationLinksServicer, GroupQueuesServicer
from federation.links.queues import Queues
from federation.links.reports import in_order
from federation.links.status import STATES
from federation.shell.member_calls import MemberAway

if TYPE_CHECKING:
    from federation.links.shell.owners import LinkRunner, Owners


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
                    borrowers=row.downstreams,
                    upstreams=row.upstreams,
                    dropped=row.dropped,
                )
                for row in self._queues.rows(self._now())
            ]
        )


SERVICE_UNAVAILABLE: Final = 503


class LinksService(FederationLinksServicer):
    roles: Final = {"List": Role.READ, "Restart": Role.ADMIN}

    def __init__(self, node: str, owners: Owners, runner: LinkRunner) -> None:
        self._node = node
        self._owners = owners
        self._runner = runner

    async def List(self, request: ListLinksRequest, context: object) -> ListLinksResponse:
        if request.state and request.state not in STATES:
            raise invalid_argument(f'state is "{request.state[:100]}", may be {", ".join(STATES)}')
        rows: list[Link] = list(self._runner.list_here(request).links)
        unanswered: list[str] = []
        names = [] if request.here else self._owners.members()
        asked = ListLinksRequest(state=request.state, here=True)
        answers = await asyncio.gather(*(self._owners.list_at(name, asked) for name in names), return_exceptions=True)
        for name, answer in zip(names, answers, strict=True):
            if isinstance(answer, ListLinksResponse):
                rows += answer.links
            elif isinstance(answer, MemberAway):
                unanswered.append(name)
            else:
                raise answer
        return ListLinksResponse(links=in_order(rows), unanswered=sorted(unanswered))

    async def Restart(self, request: RestartLinkRequest, context: object) -> RestartLinkResponse:
        owner = self._owners.owner(request.id)
        if owner is None:
            return await self._restart_everywhere(request.id)
        if self._runner.restart_here(request.id):
            return RestartLinkResponse(nodes=[self._node])
        if owner.node == self._node:
            raise _not_now(f"this node is about to run the link {request.id}; try again")
        try:
            await self._owners.restart_at(owner.node, request.id)
        except MemberAway as fault:
            raise _not_now(f"the link {request.id} is not restarted: it falls to {fault}") from None
        return RestartLinkResponse(nodes=[owner.node])

    async def _restart_everywhere(self, link_id: str) -> RestartLinkResponse:
        """A link without an owner: each node runs the links for its own queues."""
        restarted = [self._node] if self._runner.restart_here(link_id) else []
        names = self._owners.members()
        calls = (self._owners.restart_at(name, link_id) for name in names)
        away: list[str] = []
        for name, answer in zip(names, await asyncio.gather(*calls, return_exceptions=True), strict=True):
            if answer is None:
                restarted.append(name)
            elif not isinstance(answer, MemberAway):
                raise answer
            elif answer.code is not grpc.StatusCode.NOT_FOUND:
                away.append(str(answer))
        if away:
            done = f"the link {link_id[:100]} is restarted on {', '.join(sorted(restarted)) or 'no node'}"
            raise _not_now(f"{done}; no answer from {'; '.join(away)}")
        if not restarted:
            raise not_found(f'there is no link "{link_id[:100]}"')
        return RestartLinkResponse(nodes=sorted(restarted))


def _not_now(text: str) -> ApiError:
    """503 over REST. Over gRPC its code would look as if the node that is asked did not answer."""
    return ApiError(grpc.StatusCode.FAILED_PRECONDITION, text, SERVICE_UNAVAILABLE)
