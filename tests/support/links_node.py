"""The service of links on free ports of loopback, for links that a test names, with members that it names."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import grpc

from api_calls import api_settings
from broker.api.server import ApiServer
from broker.hooks import Members
from broker.server.logging import get_logger
from federation.definitions.policy import parse_policy
from federation.definitions.resolution import LinkPlan
from federation.definitions.upstream import parse_upstream
from federation.links.ownership_table import Claim, Owner
from federation.links.pb import link_status_pb2 as pb
from federation.links.reports import link_row
from federation.links.shell.service import LinksService
from federation.links.status import LinkStatus, has_state
from federation.shell.member_calls import MemberAway


def a_plan(link_id: str, upstream: str, kind: str = "topics", **keys: Any) -> LinkPlan:
    """A link with one policy. `keys` are those of the upstream."""
    policy = parse_policy("p", {"pattern": "a/#", "definition": {"federation-upstream": upstream}})
    return LinkPlan(link_id, kind, parse_upstream(upstream, {"uri": f"mqtt://{upstream}", **keys}), (policy,))


class Nodes:
    """Node `a` that serves, and its members. `statuses_of` by node; a node with None does not answer. It runs the links that it
    lists; `owners` are those of other links."""

    def __init__(self, statuses: dict[str, list[LinkStatus] | None], owners: dict[str, Owner] | None = None) -> None:
        self.statuses_of = statuses
        self._owners = owners or {}
        self.restarted: list[tuple[str, str]] = []
        self.epochs = {"0000000a": 5}

    def _list(self, name: str, request: pb.ListLinksRequest) -> pb.ListLinksResponse:
        rows = [link_row(status, 10.0, lambda at: 1_000.0 + at) for status in self.statuses_of[name] or []]
        return pb.ListLinksResponse(links=[row for row in rows if has_state(row.status, request.state)])

    # --- Links

    def statuses(self, now: float) -> list[LinkStatus]:
        return self.statuses_of["a"] or []

    def plans(self) -> dict[str, LinkPlan]:
        return {}

    def restart(self, link_id: str, now: float) -> bool:
        return self._restart("a", link_id)

    def _restart(self, name: str, link_id: str) -> bool:
        if any(status.link_id == link_id for status in self.statuses_of[name] or []):
            self.restarted.append((name, link_id))
            return True
        return False

    # --- Owners, and their Ownership

    @property
    def ownership(self) -> Nodes:
        return self

    def members(self) -> list[str]:
        return [name for name in self.statuses_of if name != "a"]

    def waiting(self) -> list[Claim]:
        return []

    def owner(self, link_id: str) -> Owner | None:
        return self._owners.get(link_id)

    async def list_at(self, name: str, request: pb.ListLinksRequest) -> pb.ListLinksResponse:
        self._check(name)
        return self._list(name, request)

    async def restart_at(self, name: str, link_id: str) -> None:
        self._check(name)
        if not self._restart(name, link_id):
            raise MemberAway(name, grpc.StatusCode.NOT_FOUND, "it does not run the link")

    def _check(self, name: str) -> None:
        if self.statuses_of[name] is None:
            raise MemberAway(name, grpc.StatusCode.UNAVAILABLE, "Connection refused")


@asynccontextmanager
async def links_node(nodes: Nodes) -> AsyncIterator[ApiServer]:
    """The API of node `a`."""
    api = ApiServer(api_settings(["tcp://127.0.0.1:0"], ["tcp://127.0.0.1:0"]), {}, get_logger("api"), None)
    of_nodes: Any = nodes
    host: Any = SimpleNamespace(
        members=Members("a"), now=lambda: 10.0, wall_time=lambda at: 1_000.0 + at, flush_soon=lambda: None
    )
    api.register(pb.DESCRIPTOR.services_by_name["FederationLinks"], LinksService(host, of_nodes, of_nodes))
    await api.start()
    try:
        yield api
    finally:
        await api.stop()
