"""The other workers of this node, as worker 0 calls their API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Final

import grpc
import grpc.aio

from broker.api.errors import ApiError, is_told

CALL_SECONDS_MAX: Final = 5.0  # for the answer of another worker, or for its connection where there are several answers
AWAY: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
OPTIONS: Final = (
    ("grpc.max_receive_message_length", 64 * 2**20),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 2000),  # longest time to connect: a worker may be busy
    ("grpc.max_reconnect_backoff_ms", 500),
)


class Siblings:
    """Calls over the Unix sockets of the other workers, by their indexes. Made inside a running loop."""

    def __init__(self, paths: Mapping[int, str]) -> None:
        self._paths = paths
        self._channels: dict[int, grpc.aio.Channel] = {}

    @property
    def indexes(self) -> list[int]:
        return list(self._paths)

    def _channel(self, index: int) -> grpc.aio.Channel:
        channel = self._channels.get(index)
        if channel is None:
            channel = self._channels[index] = grpc.aio.insecure_channel(f"unix:{self._paths[index]}", OPTIONS)
        return channel

    async def call(self, index: int, path: str, request: bytes) -> bytes:
        """The encoded answer of one worker to a method of gRPC. Raises ApiError: its own, or UNAVAILABLE."""
        try:
            method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self._channel(index).unary_unary(path)
            # It is waited for a worker that is started again.
            answer = await method(request, timeout=CALL_SECONDS_MAX, wait_for_ready=True)
        except grpc.aio.AioRpcError as error:
            if error.code() in AWAY and not is_told(error.trailing_metadata()):
                raise _away(index) from None
            raise ApiError(error.code(), error.details() or "") from None
        return answer

    async def stream(self, index: int, path: str, request: bytes) -> AsyncGenerator[bytes, None]:
        """The encoded answers of one worker to a method with several. Raises ApiError: its own, or UNAVAILABLE."""
        channel = self._channel(index)
        method: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(path)
        try:
            await asyncio.wait_for(channel.channel_ready(), CALL_SECONDS_MAX)
            async for answer in method(request):
                yield answer
        except TimeoutError:
            raise _away(index) from None
        except grpc.aio.AioRpcError as error:
            raise ApiError(error.code(), error.details() or "") from None

    async def each(self, path: str, request: bytes) -> list[bytes]:
        """The answers of all workers, in their order. Raises the ApiError of the first that has one."""
        return list(await asyncio.gather(*(self.call(index, path, request) for index in self._paths)))

    async def stop(self) -> None:
        for channel in self._channels.values():
            await channel.close()
        self._channels.clear()


def _away(index: int) -> ApiError:
    text = f"worker {index} of this node does not answer; it may be starting, so try again"
    return ApiError(grpc.StatusCode.UNAVAILABLE, text)
