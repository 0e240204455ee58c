"""A start with a last segment that something happened to at any byte: the records before that stay."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.event_log import recovery
from broker.event_log.files import Files
from broker.event_log.identity import LogIdentity
from broker.event_log.recovery import recover, save_identity, save_mark
from broker.event_log.segment import segment_name
from broker.event_log.settings import EventLogSettings
from effort import effort
from event_log_reader import AppendingLog

BLOCKS = 8


@pytest.fixture
async def whole(tmp_path: Path) -> tuple[Path, list[int]]:
    """A folder with one segment of blocks with one record; where each block begins, and the last one ends."""
    folder = tmp_path / "whole"
    log = AppendingLog(EventLogSettings(dir=str(folder)), "n1")
    await log.start()
    places = [log.segments[0].size]
    for number in range(BLOCKS):
        log.append(b"t", b"%04d" % number * (300 * number))
        await log.flush()
        places.append(log.segments[0].size)
    await log.stop()
    for path in folder.glob("*.index"):
        path.unlink()
    log_id = "00000000-0000-0000-0000-000000000001"
    save_identity(folder, Files(), LogIdentity(log_id, "n1", "commit", recovery.boot_id()))
    save_mark(folder, Files(), log_id, BLOCKS)
    return folder, places


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=effort(120))
@given(data=st.data())
def test_a_start_keeps_all_records_before_the_fault(whole: tuple[Path, list[int]], data: st.DataObject) -> None:
    origin, places = whole
    folder = origin.with_name("damaged")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(origin, folder)
    path = folder / segment_name(0)
    content = path.read_bytes()
    kind = data.draw(st.sampled_from(["cut", "flip", "zeros", "append"]))
    at = len(content) if kind == "append" else data.draw(st.integers(0, len(content) - 1))
    if kind == "cut":
        os.truncate(path, at)
    elif kind == "flip":
        path.write_bytes(content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :])
    elif kind == "zeros":
        end = min(len(content), at + data.draw(st.integers(1, 600)))
        path.write_bytes(content[:at] + bytes(end - at) + content[end:])
    else:
        path.write_bytes(content + data.draw(st.binary(min_size=1, max_size=200)))
    before = sum(place <= at for place in places[1:])
    found = recover(folder, Files(), "n1", "commit", 0)
    end_offset = found.segments[0].end_offset if found.segments else 0
    assert before <= end_offset <= BLOCKS
    assert end_offset == before or kind == "zeros", "zeros may be where zeros were"
    assert (found.identity.next_offset, found.lost) == (BLOCKS, "")
    # A start afterwards sees the same, and nothing more to mend.
    again = recover(folder, Files(), "n1", "commit", 0)
    assert (again.segments[0].end_offset if again.segments else 0, again.torn_bytes) == (end_offset, 0)
    assert (again.damaged, again.lost) == ([], "")
