"""Tables of owners on the wire: what is written is read, what no node writes is refused with its field, and every member is
told."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.hooks import Members, OtherNode
from broker.workers.shares import Place
from federation.definitions.resolution import LINKS_MAX
from federation.links.ownership_table import (
    Phase,
    Row,
    Table,
)
from federation.links.pb import link_status_pb2 as pb
from federation.links.reconnecting import SessionPlace
from federation.links.shell.owners import EPOCH_MAX, LINK_ID_CHARS_MAX, VERSION, Owners, read_table, write_table
from federation.shell.member_calls import MemberCalls
from federation.tags import TAG_LINKS
from waiting import DEADLINE


def test_a_table_is_read_as_it_was_written() -> None:
    sessions = (None, SessionPlace("federation-link-berlin-north", "north.example.com", 65_535))
    rows = tuple(Row(f"{phase:08x}", phase, 1_763_840_000_000 + phase, sessions[phase % 2]) for phase in Phase)
    table = Table("node", 2**63 - 1, 7, rows)
    assert read_table(pb.OwnerTable.FromString(write_table(table).SerializeToString())) == table


def test_a_phase_of_a_later_version_counts_as_running() -> None:
    found = pb.OwnerTable(node="n")
    found.rows.append(pb.OwnerRow.FromString(b"\x0a\x010\x10\x63\x18\x05"))
    assert read_table(found).rows == (Row("0", Phase.RUNS, 5),)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (pb.OwnerTable(), "node: the table has no name"),
        (pb.OwnerTable(node="n", rows=[pb.OwnerRow(link_id="")]), "an id has 0 characters"),
        (pb.OwnerTable(node="n", rows=[pb.OwnerRow(link_id="x" * (LINK_ID_CHARS_MAX + 1))]), "an id has 65 characters"),
        (pb.OwnerTable(node="n", rows=[pb.OwnerRow(link_id="0", epoch=EPOCH_MAX + 1)]), "the epoch of 0 is"),
        (pb.OwnerTable(node="n", rows=[pb.OwnerRow(link_id="0")] * (LINKS_MAX + 1)), "at most 10000"),
        (
            pb.OwnerTable(node="n", rows=[pb.OwnerRow(link_id="0", session=pb.LinkSession(host="h" * 2049))]),
            "the session of 0 has a text of 2049 characters",
        ),
    ],
)
def test_faulty_tables_are_refused(table: pb.OwnerTable, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_table(table)


class OneOther(Members):
    def others(self) -> list[OtherNode]:
        return [OtherNode("b", "ALIVE", {TAG_LINKS: VERSION})]


class Others(Members):
    def __init__(self, node_name: str, *others: str) -> None:
        super().__init__(node_name)
        self.all = [OtherNode(name, "ALIVE", {TAG_LINKS: VERSION}) for name in others]

    def others(self) -> list[OtherNode]:
        return self.all


@pytest.mark.parametrize(
    ("own", "index", "others", "is_alone"),
    [
        ("a", -1, (), True),
        ("a", -1, ("a/1",), False),
        ("a", 0, ("a/1", "a/2"), True),
        ("a/1", 1, ("a", "a/2"), True),
        ("a/1", 1, ("a", "b"), False),
        ("a", 0, ("a/3",), False),
    ],
)
async def test_workers_of_a_node_are_alone_together(
    own: str, index: int, others: tuple[str, ...], is_alone: bool
) -> None:
    """index: of the worker, -1 for a node without."""
    place = Place(index, 3, True, dict.fromkeys(range(3), 0), "")
    host = SimpleNamespace(members=Others(own, *others), worker=None if index < 0 else SimpleNamespace(place=place))
    owners = Owners(cast(Any, host))
    owners.prepare(cast(Any, SimpleNamespace(dialer=None)))
    assert owners.is_alone() is is_alone


async def test_a_member_is_told_again_after_any_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    is_told = asyncio.Event()
    faults: list[Exception] = []

    async def call(*_: Any) -> pb.OwnerTable:
        if not faults:
            raise RuntimeError("surprise")
        is_told.set()
        return write_table(Table("b", 1, 1, ()))

    monkeypatch.setattr(MemberCalls, "call", call)
    loop = asyncio.get_running_loop()
    host = SimpleNamespace(
        members=OneOther("a"),
        now=loop.time,
        wall_time=lambda at: at,
        plugin_error=faults.append,
        flush_soon=lambda: None,
    )
    node = SimpleNamespace(has_left=False, receivers=SimpleNamespace(know_interest=lambda _: True))
    federation = SimpleNamespace(node=node, membership=SimpleNamespace(has_seeds=False), dialer=None)
    owners = Owners(cast(Any, host))
    owners.prepare(cast(Any, federation))
    owners.start()
    await asyncio.wait_for(is_told.wait(), DEADLINE)
    assert [str(fault) for fault in faults] == ["surprise"]
    await owners.stop()
