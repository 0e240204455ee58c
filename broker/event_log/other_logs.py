"""Calls of the service EventLog that ask for the log of another member: this node asks it, and answers what others ask."""

# not a core: calls other nodes
from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeVar

import grpc
from google.protobuf.message import DecodeError

from broker.api.errors import ApiError, not_found
from broker.errors import MemberFault
from broker.event_log.pb.event_log_pb2 import (
    DescribeLogRequest,
    ListRecordsRequest,
    ListRecordsResponse,
    LogDescription,
)
from broker.hooks import Members

TAG_STREAM: Final = "log"  # of members whose log the others may read; its value is the version of the calls
TAG_VALUE: Final = "1"
CALL_SECONDS: Final = 5.0  # for the answer of another member

Request = TypeVar("Request", DescribeLogRequest, ListRecordsRequest)
Answer = TypeVar("Answer", LogDescription, ListRecordsResponse)


class Encodable(Protocol):
    """A message of protobuf."""

    def SerializeToString(self) -> bytes: ...


class OtherLogs:
    """`node` is the name of this one."""

    def __init__(self, node: str, members: Members) -> None:
        self._node = node
        self._members = members

    def has(self, node: str) -> bool:
        """Return whether the request is for another member. Raises ApiError for a name that no member has."""
        if node in ("", self._node):
            return False
        if all(other.name != node for other in self._members.others()):
            raise not_found(f'there is no member "{node[:100]}"')
        return True

    async def ask(self, method: str, request: Request, answer: type[Answer]) -> Answer:
        """Raises ApiError when the member does not answer, or refuses."""
        asked = type(request)()
        asked.CopyFrom(request)
        asked.ClearField("node")
        try:
            data = await self._members.call(request.node, method, asked.SerializeToString(), CALL_SECONDS)
            return answer.FromString(data)
        except (MemberFault, DecodeError) as fault:
            raise ApiError(grpc.StatusCode.UNAVAILABLE, str(fault)) from None

    def serve(
        self, method: str, request: type[Request], answer: Callable[[Request, object], Awaitable[Encodable]]
    ) -> None:
        """Answer what other members ask of this one: `answer` is the method of the service."""

        async def served(data: bytes) -> bytes:
            try:
                return (await answer(request.FromString(data), None)).SerializeToString()
            except ApiError as error:
                raise MemberFault(error.text) from None
            except DecodeError as error:
                raise MemberFault(str(error)) from None

        self._members.served[method] = served
