"""Calls of plugins of this node to those of other members (`Members` in broker/hooks.py), over gRPC."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import grpc

from broker.errors import MemberFault, MemberLate, MethodUnknown
from broker.hooks import Members
from federation.extension import Extension
from federation.shell.dialer import Dialer
from federation.shell.member_calls import MemberAway, MemberCalls

SERVICE: Final = "gmqttd.members.Plugins"
FAULTS: Final = {
    grpc.StatusCode.DEADLINE_EXCEEDED: MemberLate,
    grpc.StatusCode.UNIMPLEMENTED: MethodUnknown,
    grpc.StatusCode.NOT_FOUND: MethodUnknown,  # it tells no address
}

_untyped: Final[Any] = grpc  # its makers of handlers have no annotations


class Raw:
    """A request that is encoded already."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def SerializeToString(self) -> bytes:
        return self._data


class PluginCalls(Extension):
    def __init__(self, members: Members, dialer: Dialer | None, bytes_max: int) -> None:
        """`bytes_max`: of an answer."""
        self._members = members
        self._calls = MemberCalls(members, dialer, bytes_max)

    def services(self) -> Mapping[str, Mapping[str, Any]]:
        handlers = {
            method: _untyped.unary_unary_rpc_method_handler(answering(answer))
            for method, answer in self._members.served.items()
        }
        return {SERVICE: handlers} if handlers else {}

    def members_changed(self) -> None:
        for changed in self._members.observers:
            changed()

    async def call(self, node: str, method: str, request: bytes, seconds: float) -> bytes:
        """As Members.call."""
        try:
            return await self._calls.call(node, f"/{SERVICE}/{method}", Raw(request), bytes, seconds)
        except MemberAway as away:
            raise FAULTS.get(away.code, MemberFault)(str(away)) from None

    async def stop(self) -> None:
        await self._calls.close()


def answering(answer: Callable[[bytes], Awaitable[bytes]]) -> Callable[[bytes, Any], Awaitable[bytes]]:
    async def serve(request: bytes, context: Any) -> bytes:
        try:
            return await answer(request)
        except MemberFault as fault:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(fault))
            raise AssertionError("abort returned") from None

    return serve
