"""Files of staged rows: repeated calls, parts of large rows, earlier processes, bounds, damage."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from broker.event_log import staged_files as module
from broker.event_log.block import is_whole
from broker.event_log.files import Files
from broker.event_log.records import BlockFault
from broker.event_log.staged_block import RowLimits
from broker.event_log.staged_files import RefusedRow, StagedFiles, StagingFault, StagingFull
from row_blocks import a_row, block_of

LIMITS = RowLimits(100_000, 128, True)


def blocks_of(*payloads: bytes) -> bytes:
    return block_of([a_row("t", payload, 1) for payload in payloads])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "q" / "1" / "0-5.rows"


def opened(path: Path, bytes_max: int = 2**30) -> StagedFiles:
    """As a process that finds the file."""
    files = StagedFiles(path.parent.parent.parent, Files(), bytes_max, lambda: LIMITS)
    if path.exists():
        files.add(path)
    return files


def payloads(files: StagedFiles, path: Path, rows: int) -> list[bytes]:
    found = []
    for block in files.blocks(path, rows):
        block.separate()
        at = 0
        for size in block.fields[4::8]:
            found.append(block.heap(at, size))
            at += size
    return found


def test_a_call_that_is_repeated_changes_nothing(path: Path) -> None:
    files = opened(path)
    first, second = blocks_of(b"1", b"2"), blocks_of(b"3") + blocks_of(b"four")
    size = len(first)
    assert files.stage(path, "q", 0, first) == (2, size)
    assert files.stage(path, "q", 0, first) == (2, size)
    assert files.stage(path, "q", size, second) == (4, size + len(second))
    assert files.stage(path, "q", size, second) == (4, size + len(second))
    assert files.stage(path, "q", 0, first) == (4, size + len(second))
    assert payloads(files, path, 4) == [b"1", b"2", b"3", b"four"]
    assert payloads(files, path, 3) == [b"1", b"2", b"3"]
    assert files.bytes == size + len(second) == path.stat().st_size


@pytest.mark.parametrize("position", [1, 1_000])
def test_bytes_that_do_not_follow_the_staged_ones_are_refused(path: Path, position: int) -> None:
    files = opened(path)
    first = blocks_of(b"1", b"2")
    files.stage(path, "q", 0, first)
    with pytest.raises(StagingFault, match=f"position is {position}, but {len(first)} bytes of this partition"):
        files.stage(path, "q", position, first)


def test_nothing_of_a_call_with_a_bad_row_is_kept(path: Path) -> None:
    files = opened(path)
    files.stage(path, "q", 0, blocks_of(b"1", b"2"))
    size = files.bytes
    bad = block_of([a_row("t", b"4"), a_row("a/#")])
    with pytest.raises(RefusedRow, match=r"topic: .* wildcard") as caught:
        files.stage(path, "q", size, blocks_of(b"3") + bad)
    assert caught.value.row == 4
    with pytest.raises(BlockFault, match="has not its checksum"):
        files.stage(path, "q", size, blocks_of(b"3")[:-1] + b"?")
    with pytest.raises(BlockFault, match=r"byte \d+ of blocks begins no block"):
        files.stage(path, "q", size, blocks_of(b"3") + b"x" * 60)
    with pytest.raises(BlockFault, match="is not whole"):
        files.stage(path, "q", size, blocks_of(b"3") + blocks_of(b"4")[:-1])
    assert files.stage(path, "q", size, blocks_of(b"3"))[0] == 3
    assert payloads(files, path, 3) == [b"1", b"2", b"3"]


LARGE = os.urandom(50_000)


def parts_of(block: bytes, size: int = 20_000) -> list[tuple[int, bytes]]:
    return [(at, block[at : at + size]) for at in range(0, len(block), size)]


def test_a_row_that_is_larger_than_a_request_comes_in_parts(path: Path) -> None:
    files = opened(path)
    first = blocks_of(b"1")
    files.stage(path, "q", 0, first)
    for at, part in parts_of(blocks_of(LARGE)):
        rows, _ = files.stage(path, "q", len(first) + at, part)
        assert files.stage(path, "q", len(first) + at, part) == (rows, files.bytes), "a call that is repeated"
    assert rows == 2
    assert files.stage(path, "q", files.bytes, blocks_of(b"3"))[0] == 3
    assert payloads(files, path, 3) == [b"1", LARGE, b"3"]


def test_a_row_in_parts_goes_on_after_a_crash(path: Path) -> None:
    """The process ends in the middle of a write of a part, which the query repeats."""
    parts = parts_of(blocks_of(LARGE))
    opened(path).stage(path, "q", *parts[0])
    path.write_bytes(path.read_bytes() + parts[1][1][:7_000])
    files = opened(path)
    for part in parts[1:]:
        rows, _ = files.stage(path, "q", *part)
    assert rows == 1
    assert payloads(files, path, 1) == [LARGE]


def test_a_row_in_parts_is_checked_at_its_first_part_and_at_its_end(path: Path) -> None:
    files = opened(path)
    with pytest.raises(RefusedRow, match=r"payload of 200000 bytes makes a packet of .*max_packet_size is 100000"):
        files.stage(path, "q", 0, blocks_of(bytes(200_000))[:20_000])
    for name, text in (("a/#", "wildcard"), ("t", "have not its checksum")):
        parts = parts_of(block_of([a_row(name, LARGE)]))
        for part in parts[:-1]:
            files.stage(path, "q", *part)
        at, last = parts[-1]
        if name == "t":
            last = last[:-1] + bytes([last[-1] ^ 1])
        with pytest.raises((RefusedRow, BlockFault), match=text):
            files.stage(path, "q", at, last)
        assert files.bytes == 0
    parts = parts_of(blocks_of(LARGE))
    files.stage(path, "q", *parts[0])
    with pytest.raises(BlockFault, match="more bytes than it"):
        files.stage(path, "q", parts[1][0], bytes(len(LARGE)))


def test_files_of_an_earlier_process_are_read_when_they_are_used(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = opened(path)
    whole = blocks_of(b"1", b"2")
    before.stage(path, "q", 0, whole)
    path.write_bytes(whole + blocks_of(b"3")[:-1])
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", None)
        files = opened(path)
        assert files.bytes == path.stat().st_size
    assert files.rows(path, "q") == 2
    assert files.stage(path, "q", len(whole), blocks_of(b"3"))[0] == 3
    assert payloads(files, path, 3) == [b"1", b"2", b"3"]


def test_rows_are_counted_once_when_the_first_reading_fails(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(path).stage(path, "q", 0, blocks_of(b"1") + blocks_of(b"2"))
    files = opened(path)
    checks = 0

    def check(*arguments: Any) -> bool:
        nonlocal checks
        checks += 1
        if checks == 3:  # of the second block
            raise OSError("cannot be read")
        return is_whole(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(module, "is_whole", check)
        with pytest.raises(OSError, match="cannot be read"):
            files.rows(path, "q")
    assert files.rows(path, "q") == 2


def test_a_file_that_became_damaged_is_named(path: Path) -> None:
    files = opened(path)
    first = blocks_of(b"1", b"2")
    files.stage(path, "q", 0, first + blocks_of(b"3"))
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(StagingFault, match=r"0-5\.rows is damaged behind its row 2"):
        payloads(files, path, 3)
    assert opened(path).rows(path, "q") == 2


class SmallDisk(Files):
    def free_bytes(self, folder: Path) -> int:
        return module.FREE_BYTES_MIN + 100


def test_rows_leave_room_on_the_disk_for_the_log(path: Path, tmp_path: Path) -> None:
    files = StagedFiles(tmp_path, SmallDisk(), 2**30, lambda: LIMITS)
    with pytest.raises(StagingFull, match=r"the disk of .* has \d+ bytes left, of which .* 67108864 for the log"):
        files.stage(path, "q", 0, blocks_of(b"1"))
    assert not path.exists()


def test_staged_bytes_are_bounded(path: Path) -> None:
    size = len(blocks_of(b"1"))
    files = opened(path, 2 * size)
    files.stage(path, "q", 0, blocks_of(b"1"))
    with pytest.raises(
        StagingFull, match=rf"{size} bytes of rows are staged, .*staged_bytes, {2 * size}; commit or abort"
    ):
        files.stage(path, "q", size, blocks_of(b"2", b"3"))
    files.stage(path.with_name("1-5.rows"), "q", 0, blocks_of(b"1"))
    files.forget(path.parent)
    assert files.bytes == 0


@pytest.mark.interpreted
def test_staged_files_are_bounded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STAGED_FILES_MAX", 2)
    files = opened(path)
    for name in ("1-1.rows", "2-1.rows"):
        files.stage(path.with_name(name), "q", 0, blocks_of(b"1"))
    with pytest.raises(StagingFull, match="2 partitions are staged already"):
        files.stage(path, "q", 0, blocks_of(b"1"))
    files.forget(path.parent)
    files.stage(path, "q", 0, blocks_of(b"1"))
