"""Answers in several parts, with signs of life where none comes for a while."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import TypeVar

Answer = TypeVar("Answer")


async def with_pauses(
    answers: AsyncIterator[Answer], seconds: Callable[[], float]
) -> AsyncGenerator[Answer | None, None]:
    """Each answer, and None where none has come for so long. To be closed by who does not take all."""
    coming: asyncio.Task[Answer | None] | None = None
    try:
        while True:
            coming = coming or asyncio.ensure_future(_next(answers))
            done, _ = await asyncio.wait((coming,), timeout=seconds())
            if not done:
                yield None
                continue
            answer = coming.result()
            coming = None
            if answer is None:
                return
            yield answer
    finally:
        if coming is not None:
            coming.cancel()


async def _next(answers: AsyncIterator[Answer]) -> Answer | None:
    return await anext(answers, None)
