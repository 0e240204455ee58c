"""The Membership service: join, leave, force_leave, members. It knows the membership only through MembershipControl."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import grpc
from google.protobuf.empty_pb2 import Empty

from broker.api.errors import ApiError, invalid_argument, not_found
from broker.config.addresses import AddressError, parse_address
from broker.config.settings import DEFAULT_GOSSIP_PORT
from federation.api.pb.federation_pb2 import (
    DESCRIPTOR,
    ForceLeaveRequest,
    JoinRequest,
    ListMembersResponse,
    Member,
    Status,
)
from federation.api.pb.federation_pb2_grpc import MembershipServicer

if TYPE_CHECKING:
    from broker.api.server import ApiServer
    from federation.plugin import FederationPlugin

HOSTS_MAX: Final = 64  # addresses of one join


class JoinFailed(Exception):
    """None of the hosts let this node in. The text names each with its reason."""


@dataclass(frozen=True, slots=True)
class MemberInfo:
    """One member as this node sees it: addr is HOST:PORT of its gossip, status a number of the enum Status."""

    name: str
    addr: str
    tags: dict[str, str]
    status: int


class NotRunning(Exception):
    """The membership has not started yet, or has been stopped; the call may be repeated."""


class MembershipControl(ABC):
    """What the service asks of the node's membership. Each may raise NotRunning."""

    @abstractmethod
    async def join(self, hosts: list[str]) -> None:
        """Join the nodes at these gossip addresses, HOST:PORT each; one that answers is enough. Raises JoinFailed."""

    @abstractmethod
    async def leave(self) -> None:
        """Leave gracefully, within a bounded time; this node goes on serving its own clients."""

    @abstractmethod
    def force_leave(self, name: str) -> None:
        """Turn a failed member into one that has left. KeyError: no such member; ValueError: the text says why not."""

    @abstractmethod
    def members(self) -> list[MemberInfo]:
        """Every member that is known, this node included."""


class MembershipService(MembershipServicer):
    def __init__(self, control: MembershipControl) -> None:
        self._control = control

    async def Join(self, request: JoinRequest, context: object) -> Empty:
        if not request.hosts:
            raise invalid_argument('hosts is empty; it needs at least one gossip address, for example "127.0.0.1:8902"')
        if len(request.hosts) > HOSTS_MAX:
            raise invalid_argument(f"hosts has {len(request.hosts)} addresses, may have at most {HOSTS_MAX}")
        hosts = [checked_host(index, text) for index, text in enumerate(request.hosts)]
        try:
            await self._control.join(hosts)
        except (JoinFailed, NotRunning) as error:
            raise unavailable(error) from error
        return Empty()

    async def Leave(self, request: Empty, context: object) -> Empty:
        try:
            await self._control.leave()
        except NotRunning as error:
            raise unavailable(error) from error
        return Empty()

    async def ForceLeave(self, request: ForceLeaveRequest, context: object) -> Empty:
        name = request.node_name
        if not name:
            raise invalid_argument("node_name is empty; it names the failed node")
        try:
            self._control.force_leave(name)
        except KeyError:
            raise not_found(f'"{name}" is no member of this federation') from None
        except ValueError as error:
            raise ApiError(grpc.StatusCode.FAILED_PRECONDITION, str(error)) from error
        except NotRunning as error:
            raise unavailable(error) from error
        return Empty()

    async def ListMembers(self, request: Empty, context: object) -> ListMembersResponse:
        try:
            infos = self._control.members()
        except NotRunning as error:
            raise unavailable(error) from error
        members = [
            Member(name=info.name, addr=info.addr, tags=info.tags, status=Status.ValueType(info.status))
            for info in infos
        ]
        return ListMembersResponse(members=members)


def unavailable(error: Exception) -> ApiError:
    return ApiError(grpc.StatusCode.UNAVAILABLE, str(error) or "the federation is not running (yet)")


def register_membership(api: ApiServer, plugin: FederationPlugin) -> None:
    """Serve Membership over both protocols, acting on the plugin."""
    from federation.api.control import PluginControl

    api.register(DESCRIPTOR.services_by_name["Membership"], MembershipService(PluginControl(plugin)))


def checked_host(index: int, text: str) -> str:
    """HOST:PORT of a gossip address; a missing port is the default one. Raises ApiError that names its place."""
    try:
        address = parse_address(text, DEFAULT_GOSSIP_PORT, unix_allowed=False)
    except AddressError as error:
        raise invalid_argument(f"hosts[{index}]: {error}") from None
    if not address.host or not address.port:
        raise invalid_argument(f'hosts[{index}]: "{text}" must have a host and a port other than 0')
    return address.host_port
