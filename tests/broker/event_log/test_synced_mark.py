"""The mark of what is on disk: its file, and files that are none."""

from __future__ import annotations

import pytest

from broker.event_log.synced_mark import decode_mark, encode_mark

ID = "6e0c2f5e-5a3a-4a58-9d3e-0d7f4a1c9f10"


@pytest.mark.parametrize("offset", [0, 1, 2**40])
def test_the_file(offset: int) -> None:
    assert decode_mark(encode_mark(ID, offset), ID) == offset


def test_a_mark_of_another_log_tells_nothing() -> None:
    assert decode_mark(encode_mark(ID, 7), ID.replace("6", "7")) == 0


def test_a_file_that_is_none_tells_nothing() -> None:
    whole = encode_mark(ID, 7)
    damaged = [whole[:at] + bytes((whole[at] ^ 1,)) + whole[at + 1 :] for at in range(len(whole))]
    parts = [whole[:size] for size in range(len(whole))]
    assert {decode_mark(data, ID) for data in [*damaged, *parts, whole + b"\0"]} == {0}
