"""The Membership service: join, leave, force_leave, tags, members, health (wire-federation 5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import grpc
from google.protobuf.empty_pb2 import Empty

from broker.api.errors import ApiError, invalid_argument
from broker.api.tokens import Role
from broker.config.addresses import AddressError, parse_address
from federation.api.gossip_health import health_shown, member_shown
from federation.errors import JoinFailed, NotRunning
from federation.membership import FederationMembership
from federation.pb.federation_pb2 import (
    ForceLeaveRequest,
    GossipHealth,
    JoinRequest,
    ListMembersResponse,
    SetTagsRequest,
    SetTagsResponse,
)
from federation.pb.federation_pb2_grpc import MembershipServicer
from federation.serf.joins import JOIN_ADDRESSES_MAX
from federation.settings import DEFAULT_GOSSIP_PORT


class MembershipService(MembershipServicer):
    roles: Final = {
        "ListMembers": Role.READ,
        "GetHealth": Role.READ,
        "Join": Role.ADMIN,
        "Leave": Role.ADMIN,
        "ForceLeave": Role.ADMIN,
        "SetTags": Role.ADMIN,
    }

    def __init__(self, control: FederationMembership, wall_time: Callable[[float], float]) -> None:
        """`wall_time` returns the Unix seconds of a monotonic instant."""
        self._control = control
        self._wall_time = wall_time

    async def Join(self, request: JoinRequest, context: object) -> Empty:
        if not request.hosts:
            raise invalid_argument('hosts is empty; it needs at least one gossip address, for example "127.0.0.1:8902"')
        if len(request.hosts) > JOIN_ADDRESSES_MAX:
            raise invalid_argument(
                f"hosts has {len(request.hosts)} addresses; at most {JOIN_ADDRESSES_MAX} are allowed"
            )
        hosts = [checked_host(index, text) for index, text in enumerate(request.hosts)]
        with _unavailable():
            await self._control.join(hosts)
        return Empty()

    async def Leave(self, request: Empty, context: object) -> Empty:
        with _refused(), _unavailable():
            await self._control.leave()
        return Empty()

    async def ForceLeave(self, request: ForceLeaveRequest, context: object) -> Empty:
        name = request.node_name
        if not name:
            raise invalid_argument("node_name is empty; it names the failed node")
        with _refused(), _unavailable():
            self._control.force_leave(name, request.prune)
        return Empty()

    async def SetTags(self, request: SetTagsRequest, context: object) -> SetTagsResponse:
        try:
            with _unavailable():
                self._control.change_tags(dict(request.tags), request.delete)
        except ValueError as error:
            raise invalid_argument(f"tags: {error}") from error
        return SetTagsResponse(tags=self._control.tags.told())

    async def ListMembers(self, request: Empty, context: object) -> ListMembersResponse:
        with _unavailable():
            serf = self._control.running_serf()
        shown = [member_shown(member, serf, self._wall_time) for member in serf.members()]
        shown.sort(key=lambda member: (member.node_name, member.name))
        return ListMembersResponse(members=shown)

    async def GetHealth(self, request: Empty, context: object) -> GossipHealth:
        with _unavailable():
            return health_shown(self._control.running_serf(), self._wall_time)


@contextmanager
def _refused() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise ApiError(grpc.StatusCode.FAILED_PRECONDITION, str(error)) from error


@contextmanager
def _unavailable() -> Iterator[None]:
    try:
        yield
    except (JoinFailed, NotRunning) as error:
        raise ApiError(grpc.StatusCode.UNAVAILABLE, str(error)) from error


def checked_host(index: int, text: str) -> str:
    """HOST:PORT of a gossip address, where a missing port is the default one, or srv+NAME. Raises ApiError that names its
    place."""
    try:
        address = parse_address(text, DEFAULT_GOSSIP_PORT, unix_allowed=False, srv_allowed=True)
    except AddressError as error:
        raise invalid_argument(f"hosts[{index}]: {error}") from None
    if address.scheme == "tcp" and not (address.host and address.port):
        raise invalid_argument(f'hosts[{index}]: "{text}" must have a host and a port other than 0')
    return str(address)
