"""Calls of the API of one node of a federation, for commands: over gRPC, to the first of `servers` that answers."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Final

import grpc

from gmqttctl.channel import away_reason, open_channel
from gmqttctl.connection import Connection
from gmqttctl.errors import CommandError, NodeError

ANSWER_SECONDS: Final = 30.0


class Refused(CommandError):
    """The node refused a call; the text is the node's."""


class NodeCalls:
    """A context manager. `missing` is told when the node does not have the service."""

    def __init__(self, connection: Connection, missing: str) -> None:
        self._servers = connection.servers
        self._server = 0  # index of the one that is asked
        self._connection = connection
        self._missing = missing
        self._metadata = connection.metadata
        self._channel = open_channel(self._servers[0], connection)

    def __enter__(self) -> NodeCalls:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._channel.close()

    def call(self, stub: Callable[[grpc.Channel], Any], method: str, request: Any) -> Any:
        """The answer. Raises Refused, and NodeError when no server answers or the answer is a fault."""
        while True:
            try:
                return getattr(stub(self._channel), method)(request, timeout=ANSWER_SECONDS, metadata=self._metadata)
            except grpc.RpcError as error:
                code, text = error.code(), error.details() or ""
            address = self._servers[self._server]
            if code is grpc.StatusCode.UNAVAILABLE and self._server + 1 < len(self._servers):
                self._server += 1
                self._channel.close()
                self._channel = open_channel(self._servers[self._server], self._connection)
                continue
            if code is grpc.StatusCode.UNIMPLEMENTED:
                raise NodeError(address, self._missing)
            if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                raise NodeError(address, f"no answer: {away_reason(text)}; --servers names the gRPC API of a node")
            if code is grpc.StatusCode.UNAUTHENTICATED and not self._metadata:
                raise Refused("the node asks for a token: --token or GMQTTCTL_TOKEN")
            raise Refused(text)
