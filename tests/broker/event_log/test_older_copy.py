"""An older copy of the folder is put back, without log.json: its readers are told of the id that it gets."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from broker.event_log import recovery
from event_log_reader import Clock, MakeLog, read_all


@pytest.mark.parametrize("days", [0, -500])  # that the clock is ahead when the copy is put back
async def test_a_copy_knows_its_former_ids_and_gets_a_later_one(
    make_log: MakeLog, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    clock.advance(400 * 86_400)
    ends: dict[str, int] = {}  # id -> next offset under it
    numbers: list[int] = []
    folder = tmp_path / "0"
    for number in range(4):  # a machine that ends, with sync none: each start has an id of its own
        monkeypatch.setattr(recovery, "boot_id", lambda number=number: f"boot {number}")
        folder = tmp_path / str(number)
        log = await make_log(dir=str(folder), sync="none")
        for each in range(10):
            log.append(b"t", b"%d" % each)
        ends[log.log_id] = await log.flush()
        numbers.append(log.lineage.number)
        clock.advance(1)
        shutil.copytree(folder, tmp_path / str(number + 1))
    assert numbers == sorted(set(numbers))
    copy = tmp_path / "4"
    (copy / "log.json").unlink()
    clock.advance(days * 86_400)
    log = await make_log(dir=str(copy), sync="none")
    assert {parent.log_id: parent.end_offset for parent in log.lineage.parents} == ends
    assert log.lineage.number > max(numbers)
    assert len(await read_all(log)) == 40


async def test_a_log_in_an_emptied_folder_gets_a_later_number(make_log: MakeLog, tmp_path: Path, clock: Clock) -> None:
    clock.advance(400 * 86_400)
    log = await make_log()
    await log.stop()
    shutil.rmtree(tmp_path / "log")
    clock.advance(1)
    assert (await make_log()).lineage.number > log.lineage.number
