"""The services of the API for links and for the queues of shared groups, and what the nodes of a cluster ask each other about
their links."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import grpc

from broker.api.errors import ApiError, invalid_argument, not_found
from broker.api.tokens import Role
from federation.extension import Extension
from federation.links.links import Links
from federation.links.pb.link_status_pb2 import (
    Link,
    ListGroupQueuesRequest,
    ListGroupQueuesResponse,
    ListLinksRequest,
    ListLinksResponse,
    OwnerTable,
    RestartLinkRequest,
    RestartLinkResponse,
)
from federation.links.pb.link_status_pb2_grpc import FederationLinksServicer, GroupQueuesServicer
from federation.links.queues import Queues
from federation.links.reports import in_order, link_row
from federation.links.shell.owners import SERVICE, Owners
from federation.links.status import STATES, LinkState, LinkStatus, has_state
from federation.shell.member_calls import MemberAway

if TYPE_CHECKING:
    from broker.server.host import Host

_untyped: Final[Any] = grpc  # its makers of handlers have no annotations


class GroupQueuesService(GroupQueuesServicer):
    roles: Final = {"List": Role.READ}

    def __init__(self, host: Host, queues: Queues) -> None:
        self._host = host
        self._queues = queues

    async def List(self, request: ListGroupQueuesRequest, context: object) -> ListGroupQueuesResponse:
        return ListGroupQueuesResponse(queues=self._queues.rows(self._host.now()))


WAITS: Final = "starts when the other nodes do not run the link any more, at the latest at the deadline"


class LinksService(FederationLinksServicer, Extension):
    roles: Final = {"List": Role.READ, "Restart": Role.ADMIN}

    def __init__(self, host: Host, links: Links, owners: Owners) -> None:
        self._host = host
        self._links = links
        self._owners = owners

    # --- this node

    def statuses(self, now: float) -> list[LinkStatus]:
        """The links that run here or are about to."""
        found = self._links.statuses(now)
        plans = self._links.plans()
        for claim in self._owners.ownership.waiting():
            plan = plans.get(claim.link_id)
            if plan is not None and claim.link_id not in self._links.by_id:
                row = LinkStatus(plan, LinkState.STARTING, claim.since, claim.since, deadline=claim.deadline)
                found.append(replace(row, next_step=WAITS, node=self._host.members.node_name, epoch=claim.epoch))
        return found

    def list_here(self, request: ListLinksRequest) -> ListLinksResponse:
        now = self._host.now()
        rows = [link_row(status, now, self._host.wall_time) for status in self.statuses(now)]
        return ListLinksResponse(links=in_order(row for row in rows if has_state(row.status, request.state)))

    def restart_here(self, link_id: str) -> bool:
        """Return whether the link runs here."""
        self._host.flush_soon()
        return self._links.restart(link_id, self._host.now())

    # --- what other nodes ask

    def services(self) -> Mapping[str, Mapping[str, Any]]:
        def handler(serve: Callable[..., Any], request: Any, answer: Any) -> Any:
            return _untyped.unary_unary_rpc_method_handler(
                serve, request_deserializer=request.FromString, response_serializer=answer.SerializeToString
            )

        return {
            SERVICE: {
                "Tell": handler(self._owners.tell, OwnerTable, OwnerTable),
                "ListHere": handler(self._list_here, ListLinksRequest, ListLinksResponse),
                "RestartHere": handler(self._restart_here, RestartLinkRequest, RestartLinkResponse),
            }
        }

    async def _list_here(self, request: ListLinksRequest, context: Any) -> ListLinksResponse:
        return self.list_here(request)

    async def _restart_here(self, request: RestartLinkRequest, context: Any) -> RestartLinkResponse:
        if not self.restart_here(request.id):
            await context.abort(grpc.StatusCode.NOT_FOUND, "it does not run the link")
        return RestartLinkResponse(nodes=[self._host.members.node_name])

    # --- the API

    async def List(self, request: ListLinksRequest, context: object) -> ListLinksResponse:
        if request.state and request.state not in STATES:
            raise invalid_argument(f'state is "{request.state[:100]}", may be {", ".join(STATES)}')
        rows: list[Link] = list(self.list_here(request).links)
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
        owner = self._owners.ownership.owner(request.id)
        if owner is None:
            return await self._restart_everywhere(request.id)
        node = self._host.members.node_name
        if self.restart_here(request.id):
            return RestartLinkResponse(nodes=[node])
        if owner.node == node:
            raise _not_now(f"this node is about to run the link {request.id}; try again")
        try:
            await self._owners.restart_at(owner.node, request.id)
        except MemberAway as fault:
            raise _not_now(f"the link {request.id} is not restarted by its owner, {fault}") from None
        return RestartLinkResponse(nodes=[owner.node])

    async def _restart_everywhere(self, link_id: str) -> RestartLinkResponse:
        """A link without an owner: each node runs the links for its own queues."""
        restarted = [self._host.members.node_name] if self.restart_here(link_id) else []
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
    return ApiError(grpc.StatusCode.UNAVAILABLE, text)
