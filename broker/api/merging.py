"""The API of a node with several workers: how worker 0 answers for all of them.

A servicer says in `for_workers` for which methods, by their names. Every other call is answered by worker 0 alone: what it asks
for is the same at all workers, or is one of the federation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

import grpc
from google.protobuf.message import Message

from broker.api.errors import ApiError
from broker.api.fields import page_bounds
from broker.api.method import ApiMethod
from broker.api.siblings import Siblings

Call: TypeAlias = Callable[[Message, object], Awaitable[Any]]

# Fields of Node that tell of one worker's clients; all else is the same at all workers, or that of worker 0.
ADDED: Final = (
    *("clients_connected", "sessions", "subscriptions", "messages_waiting", "bytes_received", "bytes_sent"),
    *("messages_received", "messages_sent", "dropped", "refused"),
)


class Merged:
    """Takes the place of a method's handler (`ApiMethod.handler`).

    own      the handler, for the answer of worker 0
    indexes  of the other workers
    """

    def __init__(self, method: ApiMethod, siblings: Siblings) -> None:
        descriptor = method.descriptor
        self.own: Call = method.handler
        self.siblings = siblings
        self.indexes = siblings.indexes
        self._path = f"/{descriptor.containing_service.full_name}/{descriptor.name}"
        self._answer = method.response_class

    async def call(self, index: int, request: Message) -> Any:
        """The answer of one other worker. Raises ApiError."""
        answer = self._answer()
        answer.ParseFromString(await self.siblings.call(index, self._path, request.SerializeToString()))
        return answer

    async def all(self, request: Message, context: object) -> list[Any]:
        """The answers of all workers, this one's first."""
        calls = [self.call(index, request) for index in self.indexes]
        return list(await asyncio.gather(self.own(request, context), *calls))

    async def by_who_knows(self, request: Message, context: object) -> Any:
        """The first answer that is not NOT_FOUND."""
        try:
            return await self.own(request, context)
        except ApiError as error:
            if not is_unknown(error):
                raise
            fault = error
        for index in self.indexes:
            try:
                return await self.call(index, request)
            except ApiError as error:
                if not is_unknown(error):
                    fault = error
        raise fault

    async def at_each(self, request: Message, context: object) -> Any:
        """Carried out at all workers: what one does not know is no error there."""
        answer = await self.own(request, context)
        for index in self.indexes:
            try:
                await self.call(index, request)
            except ApiError as error:
                if not is_unknown(error):
                    raise
        return answer

    async def one_after_the_other(self, request: Message, context: object) -> Any:
        """All lists as one."""
        first, *others = await self.all(request, context)
        for other in others:
            first.MergeFrom(other)
        return first

    async def newest_first(self, request: Message, context: object) -> Any:
        """The events of all workers, by their time."""
        answer = await self.one_after_the_other(request, context)
        answer.events.sort(key=lambda event: (event.time.seconds, event.time.nanos), reverse=True)
        return answer

    async def in_one_file(self, request: Message, context: object) -> Any:
        """Carried out here. Other workers that use the tokens of the same file read it again, as List has them do."""
        answer = await self.own(request, context)
        path = f"{self._path.rpartition('/')[0]}/List"
        for index in self.indexes:
            try:
                await self.siblings.call(index, path, b"")
            except ApiError as error:
                if error.code is not grpc.StatusCode.FAILED_PRECONDITION:  # a worker that has no API and no tokens
                    raise
        return answer

    async def page(self, request: Any, context: object) -> Any:
        """A page of the lists of all workers, one after the other."""
        offset, size = page_bounds(request.page, request.page_size)
        answer: Any = self._answer()
        before = 0
        for index in (None, *self.indexes):
            missing = size - len(entries_of(answer))
            start = max(0, offset - before)
            number, skipped = divmod(start, size)
            part = await self._part(index, request, context, number + 1, size if missing else 1)
            entries = list(entries_of(part))
            if skipped:  # what is asked for of this worker begins within one of its pages
                entries += entries_of(await self._part(index, request, context, number + 2, size))
            entries_of(answer).extend(entries[skipped : skipped + missing])
            before += part.total_count
        answer.total_count = before
        return answer

    async def _part(self, index: int | None, request: Any, context: object, page: int, size: int) -> Any:
        asked = type(request)()
        asked.CopyFrom(request)
        asked.page, asked.page_size = page, size
        return await (self.own(asked, context) if index is None else self.call(index, asked))

    async def node(self, request: Message, context: object) -> Any:
        """The figures of all workers together."""
        first, *others = await self.all(request, context)
        for other in others:
            for name in ADDED:
                add(first, other, name)
        return first

    async def alarms(self, request: Message, context: object) -> Any:
        """Those of this worker, and what others say besides. One that does not answer is among the reasons of this one."""
        answer: Any = await self.own(request, context)
        told = {alarm.text for alarm in answer.alarms}
        calls = [self.call(index, request) for index in self.indexes]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        for index, other in zip(self.indexes, answers, strict=True):
            if isinstance(other, ApiError):
                continue
            if isinstance(other, BaseException):
                raise other
            for alarm in other.alarms:
                text = f"worker {index}: {alarm.text}"
                if told.isdisjoint((alarm.text, text)):
                    answer.alarms.add(level=alarm.level, text=text)
        return answer


def is_unknown(error: ApiError) -> bool:
    return error.code is grpc.StatusCode.NOT_FOUND


def entries_of(answer: Any) -> Any:
    """The one list of an answer."""
    (name,) = (field.name for field in answer.DESCRIPTOR.fields if field.is_repeated)
    return getattr(answer, name)


def add(one: Any, other: Any, name: str) -> None:
    """Add a field of numbers: one, a list of equal length, or by key."""
    ours, theirs = getattr(one, name), getattr(other, name)
    if isinstance(ours, int):
        setattr(one, name, ours + theirs)
    elif hasattr(ours, "items"):
        for key, value in theirs.items():
            ours[key] += value
    else:
        for index, value in enumerate(theirs):
            ours[index] += value


How: TypeAlias = Callable[[Merged, Any, object], Awaitable[Any]]


def merge(method: ApiMethod, siblings: Siblings, how: How) -> None:
    """Have worker 0 answer for all workers."""
    merged = Merged(method, siblings)

    async def call(request: Message, context: object) -> Any:
        return await how(merged, request, context)

    method.handler = call
