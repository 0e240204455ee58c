"""The file of definitions: what is written is read, damage is told with its place."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.definitions.document import DocumentFault, read_document, write_document
from federation.definitions.entry import Entry, canonical
from federation.hybrid_clock import CLOCK_MAX

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
values = st.none() | st.recursive(
    st.integers(-(2**53), 2**53) | st.booleans() | names, lambda inner: st.lists(inner) | st.dictionaries(names, inner)
).map(canonical)


@given(
    st.lists(st.builds(Entry, names, names, st.integers(1, 2**60), names, values), unique_by=lambda entry: entry.key)
)
def test_a_written_file_is_read_as_the_same_entries(entries: list[Entry]) -> None:
    found = read_document(write_document(entries))
    assert sorted(found, key=lambda entry: entry.key) == sorted(entries, key=lambda entry: entry.key)


def test_an_empty_file_has_no_entries() -> None:
    assert read_document(b"") == []


GOOD = {"component": "policy", "name": "p", "clock": 1, "node": "n", "value": 1}


@pytest.mark.parametrize(
    ("data", "part"),
    [
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "key format"),
        (b'{"format": 2}', "its format is 2"),
        (b'{"format": 1}', "key entries"),
        (b'{"format": 1, "entries": [1]}', "entries[0]"),
    ],
)
def test_a_damaged_file_is_refused(data: bytes, part: str) -> None:
    with pytest.raises(DocumentFault) as caught:
        read_document(data)
    assert part in str(caught.value)


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"clock": "1"}, "entries[1].clock"),
        ({"clock": True}, "entries[1].clock"),
        ({"clock": 0}, "entries[1]: the clock"),
        ({"name": None}, "entries[1].name"),
        ({"deleted": True}, "exactly one"),
    ],
)
def test_a_damaged_entry_is_refused_with_its_place(change: dict[str, object], part: str) -> None:
    data = json.dumps({"format": 1, "entries": [GOOD, GOOD | change]}).encode()
    with pytest.raises(DocumentFault) as caught:
        read_document(data)
    assert part in str(caught.value)


def test_a_clock_beyond_all_others_does_not_make_the_file_unreadable() -> None:
    data = json.dumps({"format": 1, "entries": [GOOD | {"clock": CLOCK_MAX * 1000}]}).encode()
    (entry,) = read_document(data)
    assert entry.fault() == ""
