"""The memory of the process and of the machine."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from broker.server.memory_watch import give_back, group_limits, machine_bytes, memory_limit, resident_bytes


def test_the_memory_of_this_process_is_known() -> None:
    assert 2**20 < resident_bytes() < machine_bytes()


@pytest.mark.parametrize(
    ("text", "expected"), [("0", 0), ("512MiB", 2**29), ("100%", machine_bytes()), ("50%", machine_bytes() * 50 // 100)]
)
def test_a_limit_is_a_size_or_a_share(text: str, expected: int) -> None:
    assert memory_limit(text) == expected


def test_limits_of_control_groups(tmp_path: Path) -> None:
    """Of the own one and of those around it; `max` is no limit."""
    own = tmp_path / "groups" / "outer" / "own"
    own.mkdir(parents=True)
    (own / "memory.max").write_text("max\n")
    (own.parent / "memory.max").write_text("1073741824\n")
    file = tmp_path / "cgroup"
    file.write_text("1:name=systemd:/other\n0::/outer/own\n")
    assert group_limits(file, tmp_path / "groups") == [2**30]
    assert group_limits(tmp_path / "missing", tmp_path) == []


def test_free_memory_is_given_back() -> None:
    if platform.libc_ver()[0] != "glibc":
        pytest.skip("only glibc is asked to give free memory back")
    blocks = [bytes(20_000) for _ in range(5_000)]
    kept = blocks[::50]  # the heap cannot shrink at its end
    taken = resident_bytes()
    blocks.clear()
    give_back()
    assert len(kept) == 100
    assert resident_bytes() < taken - 50 * 2**20
