"""The service of links on free ports of loopback, for links that a test names, with members that it names."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import grpc

from api_calls import api_settings
from broker.api.server import ApiServer
from broker.server.logging import get_logger
from federation.links.ownership_table import (
    Owner,
)
from federation.links.pb import link_status_pb2 as pb
from federation.links.reports import link_row
from federation.links.shell.service import LinksService
from federation.links.status import LinkStatus, has_state
from federation.shell.member_calls import MemberAway


class Nodes:
    """Node `a` that serves, and its members. `statuses` by node; a node with None does not answer. It runs the links that it
    lists; `owners` are those of other links."""

    def __init__(self, statuses: dict[str, list[LinkStatus] | None], owners: dict[str, Owner] | None = None) -> None:
        self.statuses = statuses
        self._owners = owners or {}
        self.restarted: list[tuple[str, str]] = []

    def _list(self, name: str, request: pb.ListLinksRequest) -> pb.ListLinksResponse:
        rows = [link_row(status, 10.0, lambda at: 1_000.0 + at) for status in self.statuses[name] or []]
        return pb.ListLinksResponse(links=[row for row in rows if has_state(row.status, request.state)])

    # --- LinkRunner

    def run_link(self, link_id: str, epoch: int) -> None:
        raise AssertionError("no order is given")

    def drain_link(self, link_id: str, deadline: float) -> None:
        raise AssertionError("no order is given")

    def end_link(self, link_id: str) -> None:
        raise AssertionError("no order is given")

    def set_nodes(self, nodes: Mapping[str, str]) -> None:
        raise AssertionError("no order is given")

    def carried_out(self) -> None:
        raise AssertionError("no order is given")

    def owners_changed(self) -> None:
        raise AssertionError("no order is given")

    def list_here(self, request: pb.ListLinksRequest) -> pb.ListLinksResponse:
        return self._list("a", request)

    def restart_here(self, link_id: str) -> bool:
        return self._restart("a", link_id)

    def _restart(self, name: str, link_id: str) -> bool:
        if any(status.link_id == link_id for status in self.statuses[name] or []):
            self.restarted.append((name, link_id))
            return True
        return False

    # --- Owners

    def members(self) -> list[str]:
        return [name for name in self.statuses if name != "a"]

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
        if self.statuses[name] is None:
            raise MemberAway(name, grpc.StatusCode.UNAVAILABLE, "Connection refused")


@asynccontextmanager
async def links_node(nodes: Nodes) -> AsyncIterator[ApiServer]:
    """The API of node `a`."""
    api = ApiServer(api_settings(["tcp://127.0.0.1:0"], ["tcp://127.0.0.1:0"]), {}, get_logger("api"), None)
    of_nodes: Any = nodes
    api.register(pb.DESCRIPTOR.services_by_name["FederationLinks"], LinksService("a", of_nodes, nodes))
    await api.start()
    try:
        yield api
    finally:
        await api.stop()
