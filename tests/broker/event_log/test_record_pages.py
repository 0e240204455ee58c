"""Pages of records for people, over REST, with a real log."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest

from api_calls import Rest
from broker.event_log import record_pages
from event_log_reader import AppendingLog, Clock

PATH = "/v1/event_log/records"


async def pages(rest: Rest, query: str) -> list[dict[str, Any]]:
    """All records of a query, page by page."""
    found: list[dict[str, Any]] = []
    offset = "0"
    while True:
        answer = await rest.get(f"{PATH}?{query}&from_offset={offset}")
        found += answer["records"]
        if answer["end"]:
            return found
        assert int(answer["next_offset"]) > int(offset) or found
        offset = answer["next_offset"]


@pytest.mark.parametrize("limit", [1, 3, 7, 200])
async def test_pages_are_the_log(rest: Rest, log: AppendingLog, limit: int) -> None:
    topics = [f"t/{number % 3}" for number in range(20)]
    for number, topic in enumerate(topics):
        log.append(topic.encode(), b"%d" % number, 1, client_id="c")
        if number % 4 == 3:
            await log.flush()
    await log.flush()
    found = await pages(rest, f"limit={limit}")
    assert [(int(record["offset"]), record["topic_name"], record["payload"]) for record in found] == [
        (number, topic, str(number)) for number, topic in enumerate(topics)
    ]
    found = await pages(rest, f"limit={limit}&topic_filter=t/1")
    assert [int(record["offset"]) for record in found] == [n for n, topic in enumerate(topics) if topic == "t/1"]


async def test_from_a_time(rest: Rest, log: AppendingLog, clock: Clock) -> None:
    log.append(b"a", b"before", 0)
    await log.flush()
    clock.advance(3600.0)
    log.append(b"a", b"after", 2)
    await log.flush()
    shown = (await rest.get(f"{PATH}?limit=2"))["records"]
    answer = await rest.get(f"{PATH}?time={shown[1]['time']}")
    assert [record["payload"] for record in answer["records"]] == ["after"]
    assert answer["end"] is True
    assert (await rest.get(f"{PATH}?time=2999-01-01T00:00:00Z"))["records"] == []


async def test_payloads_are_text_bytes_or_a_part(rest: Rest, log: AppendingLog) -> None:
    size = record_pages.PAYLOAD_SHOWN
    payloads = [b"\xff\x00", "ä".encode() * size, b"x" * (size - 1) + "ä".encode(), b""]
    for payload in payloads:
        log.append(b"a", payload, 0)
    await log.flush()
    raw, cut, edge, empty = (await rest.get(PATH))["records"]
    assert (raw["payload"], base64.b64decode(raw["payload_raw"])) == ("", b"\xff\x00")
    assert cut["payload"] == "ä" * (size // 2)
    assert edge["payload"] == "x" * (size - 1)
    assert [int(record["payload_bytes"]) for record in (raw, cut, edge, empty)] == [len(each) for each in payloads]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("from_offset=1&time=2026-01-01T00:00:00Z", ["time", "from_offset"]),
        ("topic_filter=a%23", ["topics[0]"]),
        ("time=yesterday", ["yesterday"]),
        ("time=2026-01-01", ["zone"]),
    ],
)
async def test_what_cannot_be_meant_is_refused(rest: Rest, log: AppendingLog, query: str, words: list[str]) -> None:
    status, answer = await rest.call("GET", f"{PATH}?{query}")
    assert status == 400
    assert all(word in answer["message"] for word in words)


async def test_a_reader_takes_no_turn_for_good(rest: Rest, log: AppendingLog, service: Any) -> None:
    log.append(b"a", b"x", 0)
    await log.flush()
    await asyncio.gather(*(rest.get(PATH) for _ in range(8)))
    assert service.answers.bytes == 0
