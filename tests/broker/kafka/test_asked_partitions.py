"""The partitions of a request: each is answered once, in turns."""

from __future__ import annotations

import asyncio
from operator import length_hint
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from broker.kafka.asked_partitions import TURN_PARTITIONS, answer_each, in_turns

named = st.lists(st.tuples(st.sampled_from("ab"), st.lists(st.tuples(st.integers(0, 3), st.integers()))))


@given(named)
def test_each_partition_is_answered_once(asked: list[tuple[str, list[tuple[int, int]]]]) -> None:
    topics = [{"name": name, "partitions": [{"index": i, "value": v} for i, v in parts]} for name, parts in asked]
    answered = []

    async def answer(name: str, each: dict[str, Any]) -> dict[str, Any]:
        answered.append((name, each["index"]))
        return {"value": each["value"]}

    found = asyncio.run(answer_each(topics, ("name", "index"), answer))
    model = {(name, index): value for name, parts in asked for index, value in parts}
    assert {(each["name"], part["index"]): part["value"] for each in found for part in each["partitions"]} == model
    assert len(answered) == len(model)
    assert len({each["name"] for each in found}) == len(found)


async def test_others_have_their_turn() -> None:
    items = iter(range(3 * TURN_PARTITIONS + 1))
    left = []

    async def other() -> None:
        while True:
            left.append(length_hint(items))
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    found = [each async for each in in_turns(items)]
    task.cancel()
    assert left == [2 * TURN_PARTITIONS + 1, TURN_PARTITIONS + 1, 1]
    assert found == list(range(3 * TURN_PARTITIONS + 1))
