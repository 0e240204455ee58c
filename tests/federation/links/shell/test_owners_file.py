"""The file in which a node remembers where its links have sessions."""

from __future__ import annotations

from pathlib import Path

import pytest

from federation.links.reconnecting import SessionPlace
from federation.links.shell.owners import FILE, SessionsFile

PLACES = {"0000000a": SessionPlace("federation-link-berlin-north", "north.example.com", 1883)}


async def test_the_next_process_reads_the_newest_state(tmp_path: Path) -> None:
    file = SessionsFile(str(tmp_path))
    assert await file.read() == {}
    file.follow({})
    file.follow({"b": PLACES["0000000a"]})
    file.follow(PLACES)
    await file.stop()
    assert await SessionsFile(str(tmp_path)).read() == PLACES
    file.follow({})
    await file.stop()
    assert await SessionsFile(str(tmp_path)).read() == {}


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"[]",
        b"7",
        b'{"format": 2}',
        b'{"format": 1, "sessions": {"a": {"port": "x"}}}',
        b'{"format": 1, "sessions": {}, "plain": [7]}',
        b'{"format": 1, "sessions": {}, "secret": 7}',
        b'{"format": 1, "sessions": {}, "secret": "x"}',
    ],
)
async def test_a_damaged_file_is_as_none_and_is_replaced(tmp_path: Path, data: bytes) -> None:
    (tmp_path / FILE).write_bytes(data)
    file = SessionsFile(str(tmp_path))
    assert await file.read() == {}
    file.follow(PLACES)
    await file.stop()
    assert await file.read() == PLACES


async def test_a_node_without_a_folder_keeps_nothing() -> None:
    file = SessionsFile("")
    file.follow(PLACES)
    await file.stop()
    assert await file.read() == {}


async def test_a_folder_that_is_gone_stops_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    file = SessionsFile(str(folder))
    file.follow(PLACES)
    await file.stop()
    folder.mkdir()
    file.follow(PLACES)
    await file.stop()
    assert await file.read() == PLACES


async def test_the_links_of_an_earlier_build_are_remembered(tmp_path: Path) -> None:
    """Those that were there at the first start of a build with random client identifiers."""
    assert await SessionsFile("").begin(["a"], True) == (frozenset("a"), b"")
    for name, is_new, expected in (("new", True, frozenset[str]()), ("old", False, frozenset("ab"))):
        (tmp_path / name).mkdir()
        file = SessionsFile(str(tmp_path / name))
        await file.read()
        plain, secret = await file.begin(["a", "b"], is_new)
        assert plain == expected
        assert secret
        file = SessionsFile(str(tmp_path / name))  # the file has it before a link connects
        await file.read()
        assert not file.is_missing
        assert await file.begin(["a", "b", "c"], False) == (expected, secret)
    (tmp_path / FILE).write_text('{"format": 1, "sessions": {}}')  # of a build without them
    file = SessionsFile(str(tmp_path))
    await file.read()
    assert (await file.begin(["a"], False))[0] == frozenset("a")


async def test_a_secret_that_cannot_be_kept_is_none(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    file = SessionsFile(str(folder))
    await file.read()
    assert await file.begin(["a"], True) == (frozenset("a"), b"")
    folder.mkdir()
    file.follow(PLACES)
    await file.stop()
    file = SessionsFile(str(folder))
    assert await file.read() == PLACES
    plain, secret = await file.begin(["a", "b"], False)
    assert plain == frozenset("a"), "it may have a session under its plain name"
    assert secret
