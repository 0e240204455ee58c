"""Calls of gRPC to other members, where their event streams go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

import grpc.aio

from broker.hooks import Members
from federation.shell.dialer import Dialer
from federation.trust import NO_WAY, Reach, reach_of

ANSWER_BYTES_MAX: Final = 16 * 2**20  # where a caller says nothing else
ERROR_CHARS_MAX: Final = 200
OPTIONS: Final = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
    ("grpc.max_send_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 2000),  # longest time to connect; a refusal is followed by the next try as above
    ("grpc.max_reconnect_backoff_ms", 1000),
]


class Request(Protocol):
    """A message of protobuf."""

    def SerializeToString(self) -> bytes: ...


Answer = TypeVar("Answer")


class MemberAway(Exception):
    """A member did not answer, or refused. `code`: of gRPC."""

    def __init__(self, name: str, code: grpc.StatusCode, reason: str) -> None:
        super().__init__(f"node {name}: {reason}")
        self.name = name
        self.code = code
        self.reason = reason


class MemberCalls:
    """One channel for each member that was called, until its address changes or it is forgotten."""

    def __init__(self, members: Members, dialer: Dialer | None = None, bytes_max: int = ANSWER_BYTES_MAX) -> None:
        """`dialer` is that of a node with TLS. `bytes_max`: of an answer; larger ones are faults."""
        self._members = members
        self._dialer = dialer
        self._options = [*OPTIONS, ("grpc.max_receive_message_length", bytes_max)]
        self._channels: dict[str, tuple[Reach, grpc.aio.Channel]] = {}

    async def call(
        self, name: str, method: str, request: Request, read_answer: Callable[[bytes], Answer], seconds: float
    ) -> Answer:
        """Call `/SERVICE/METHOD` of a member. Raises MemberAway."""
        await self._close_former()
        channel = await self._channel(name)
        unary: Any = channel.unary_unary(
            method, request_serializer=type(request).SerializeToString, response_deserializer=read_answer
        )
        try:
            answer: Answer = await unary(request, timeout=seconds)
        except grpc.aio.AioRpcError as error:
            reason = "" if self._dialer is None else self._dialer.fault(name, error)
            reason = reason or error.details() or error.code().name
            raise MemberAway(name, error.code(), reason[:ERROR_CHARS_MAX]) from None
        except grpc.aio.UsageError:  # the channel was closed meanwhile
            raise MemberAway(name, grpc.StatusCode.CANCELLED, "the call was given up") from None
        return answer

    def reach(self, name: str) -> Reach:
        """Return how a member is reached."""
        return self._reaches().get(name, NO_WAY)

    def _reaches(self) -> dict[str, Reach]:
        others = self._members.others()
        if self._dialer is None:
            return {other.name: reach_of(other.tags, False, False) for other in others}
        return {other.name: self._dialer.reach(other.tags) for other in others}

    async def _close_former(self) -> None:
        """Close the channels of members that are gone, or have another address. Other calls go on meanwhile."""
        reaches = self._reaches()
        former = [name for name, (reach, _) in self._channels.items() if reaches.get(name) != reach]
        for channel in [self._channels.pop(name)[1] for name in former]:
            await channel.close()

    async def _channel(self, name: str) -> grpc.aio.Channel:
        reach = self.reach(name)
        if not reach.addr:
            raise MemberAway(name, grpc.StatusCode.NOT_FOUND, reach.fault or "it is no member, or it tells no address")
        target = reach.addr
        if self._dialer is not None:
            target = await self._dialer.target(name, reach.addr, reach.is_tls)
        found = self._channels.get(name)
        if found is not None and found[0] == reach:
            return found[1]
        channel = grpc.aio.insecure_channel(target, options=self._options)
        self._channels[name] = (reach, channel)
        return channel

    async def close(self) -> None:
        """End all calls."""
        channels = [channel for _, channel in self._channels.values()]
        self._channels.clear()
        for channel in channels:
            await channel.close()
