"""Pages of records for people: what ListRecords answers."""

from __future__ import annotations

from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from broker.event_log.log import EventLog
from broker.event_log.pb.event_log_pb2 import ListRecordsResponse, LogRecord
from broker.event_log.readers import ANSWER_BYTES_MAX
from broker.event_log.records import Record, records
from broker.event_log.selection import Selection

RECORDS_DEFAULT: Final = 20
RECORDS_MAX: Final = 200
PAYLOAD_SHOWN: Final = 4096  # bytes of each


async def page_of_records(log: EventLog, start: int, filters: list[bytes], limit: int) -> ListRecordsResponse:
    """Up to `limit` records from the offset on, of at most ANSWER_BYTES_MAX of blocks. Raises LogFault."""
    most = min(limit or RECORDS_DEFAULT, RECORDS_MAX)
    first, end = max(start, log.first_offset), log.next_offset

    def page(blocks: list[memoryview], first_offset: int, next_offset: int) -> ListRecordsResponse:
        topics = Selection(filters) if filters else None
        found: list[LogRecord] = []
        for record in records(b"".join(blocks)):
            if record.offset < first or (topics is not None and not topics.has(record.topic.encode())):
                continue
            if record.offset >= end or len(found) == most:
                next_offset = min(record.offset, next_offset)
                break
            found.append(_shown(record))
        return ListRecordsResponse(records=found, next_offset=min(next_offset, end), end=next_offset >= end)

    if first >= end:
        return ListRecordsResponse(next_offset=end, end=True)
    answer, _ = await log.readers.read_as(log.log_id, first, end, ANSWER_BYTES_MAX, filters, page)
    return answer


def _shown(record: Record) -> LogRecord:
    time = Timestamp()
    time.FromNanoseconds(record.time_ns)
    part = record.payload[:PAYLOAD_SHOWN]
    try:
        text, raw = part.decode(), b""
    except UnicodeDecodeError as error:
        is_cut = len(part) < len(record.payload) and error.start >= PAYLOAD_SHOWN - 3
        text, raw = (part[: error.start].decode(), b"") if is_cut else ("", part)
    return LogRecord(
        offset=record.offset,
        time=time,
        topic_name=record.topic,
        payload=text,
        payload_raw=raw,
        payload_bytes=len(record.payload),
        qos=record.qos,
        retained=record.retain,
        client_id=record.client_id or "",
        username=record.user_name or "",
    )
