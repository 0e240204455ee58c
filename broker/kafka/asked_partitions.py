"""What clients ask: each partition that a request names is answered once, and others have their turn between them."""

# not a core: gives turns of the loop
from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Final, NamedTuple, TypeVar

from broker.authorization import ClientIdentity
from broker.event_log.turns import Party
from broker.kafka.fields import Values

TURN_PARTITIONS: Final = 200  # that one request handles in a turn of the loop

T = TypeVar("T")


class Passed(NamedTuple):
    """A Fetch has found no record of a topic from `offset` to before `next_offset`, under rules of this number."""

    offset: int
    next_offset: int
    rules: int


class Asked(NamedTuple):
    """A request of a client that is let in.

    addr      HOST:PORT of it
    taken     bytes of answers that the client has taken on this connection
    followed  done when the client has sent more behind it
    party     in whose turns the answer is made
    passed    by topic, of the last Fetch on this connection: kafka-go 0.4 does not go on behind an answer without records
    """

    version: int
    client_id: str
    values: Values
    identity: ClientIdentity
    addr: str
    taken: int
    followed: asyncio.Future[None]
    party: Party
    passed: dict[str, Passed]


async def in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """The items, with a turn of the loop behind TURN_PARTITIONS of them."""
    for number, item in enumerate(items, 1):
        yield item
        if number % TURN_PARTITIONS == 0:
            await asyncio.sleep(0)


async def answer_each(
    topics: Iterable[Values], names: tuple[str, str], answer: Callable[[str, Values], Awaitable[Values]]
) -> list[Values]:
    """The topics of the answer. names: the fields with the name of a topic and the number of a partition, in the request as in
    the answer. Of a partition that is named twice the last one counts."""
    topic_field, partition_field = names
    wanted = {(topic[topic_field], each[partition_field]): each for topic in topics for each in topic["partitions"]}
    found: dict[str, list[Values]] = {}
    async for (name, index), each in in_turns(wanted.items()):
        found.setdefault(name, []).append({partition_field: index, **await answer(name, each)})
    return [{topic_field: name, "partitions": partitions} for name, partitions in found.items()]
