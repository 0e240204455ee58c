"""The other workers of this node, as worker 0 calls their API, and the figures that each gives."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final

import grpc
import grpc.aio

from broker.api.errors import ApiError
from broker.metrics.metric import Kind, Metric

CALL_SECONDS_MAX: Final = 5.0  # for the answer of another worker
FIGURES: Final = "/gmqtt.workers/Figures"  # not part of the API: JSON, between workers of one node
OPTIONS: Final = (
    ("grpc.max_receive_message_length", 64 * 2**20),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
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

    async def call(self, index: int, path: str, request: bytes) -> bytes:
        """The encoded answer of one worker to a method of gRPC. Raises ApiError: its own, or UNAVAILABLE."""
        channel = self._channels.get(index)
        if channel is None:
            channel = self._channels[index] = grpc.aio.insecure_channel(f"unix:{self._paths[index]}", OPTIONS)
        try:
            method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(path)
            # It is waited for a worker that is started again.
            answer = await method(request, timeout=CALL_SECONDS_MAX, wait_for_ready=True)
        except grpc.aio.AioRpcError as error:
            if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                text = f"worker {index} of this node does not answer; it may be starting, so try again"
                raise ApiError(grpc.StatusCode.UNAVAILABLE, text) from None
            raise ApiError(error.code(), error.details() or "") from None
        return answer

    async def each(self, path: str, request: bytes) -> list[bytes]:
        """The answers of all workers, in their order. Raises the ApiError of the first that has one."""
        return list(await asyncio.gather(*(self.call(index, path, request) for index in self._paths)))

    async def stop(self) -> None:
        for channel in self._channels.values():
            await channel.close()
        self._channels.clear()


def encoded_figures(not_ready: list[str], metrics: list[Metric]) -> bytes:
    """The figures of this worker."""
    told = [
        [
            one.name,
            one.kind.value,
            one.help,
            one.labels,
            [[list(labels), value] for labels, value in one.samples.items()],
        ]
        for one in metrics
    ]
    return json.dumps([not_ready, told]).encode()


def decoded_figures(data: bytes) -> tuple[list[str], list[Metric]]:
    not_ready, told = json.loads(data)
    return not_ready, [
        Metric(name, Kind(kind), text, tuple(labels), {tuple(key): value for key, value in samples})
        for name, kind, text, labels, samples in told
    ]


def joined_metrics(by_worker: Mapping[int, list[Metric]]) -> list[Metric]:
    """One metric for each name: counters of all workers are added, gauges have the label `worker`."""
    found: dict[str, tuple[Metric, dict[tuple[str, ...], float]]] = {}
    for index, metrics in sorted(by_worker.items()):
        for one in metrics:
            _, samples = found.setdefault(one.name, (one, {}))
            for labels, value in one.samples.items():
                if one.kind is Kind.COUNTER:
                    samples[labels] = samples.get(labels, 0.0) + value
                else:
                    samples[(*labels, str(index))] = value
    return [
        Metric(
            name,
            one.kind,
            one.help,
            one.labels if one.kind is Kind.COUNTER else (*one.labels, "worker"),
            samples,
        )
        for name, (one, samples) in found.items()
    ]


class SiblingFigures:
    """The last figures of the other workers, asked for every LOOK_SECONDS: health checks are answered without waiting."""

    LOOK_SECONDS: Final = 1.0

    def __init__(self, siblings: Siblings, log: Any) -> None:
        self._siblings = siblings
        self._log = log
        self._task: asyncio.Task[None] | None = None
        self._not_ready: dict[int, list[str]] = {index: ["it is starting"] for index in siblings.indexes}
        self.metrics: dict[int, list[Metric]] = {}

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        await self._siblings.stop()

    def not_ready(self) -> list[str]:
        return [f"worker {index}: {reason}" for index, reasons in self._not_ready.items() for reason in reasons]

    async def look(self) -> None:
        """Ask all of them now."""
        await asyncio.gather(*(self._ask(index) for index in self._siblings.indexes))

    async def _run(self) -> None:
        while True:
            try:
                await self.look()
            except Exception as error:
                self._log.error("fault in asking other workers", exc_info=error)
            await asyncio.sleep(self.LOOK_SECONDS)

    async def _ask(self, index: int) -> None:
        try:
            answer = decoded_figures(await self._siblings.call(index, FIGURES, b""))
        except ApiError as error:
            self._not_ready[index] = [error.text]
            self.metrics.pop(index, None)
        else:
            self._not_ready[index], self.metrics[index] = answer
