"""`gmqttd store check | export | import | compact`, on a store with records of all kinds."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from broker.codec import properties as props
from broker.codec.packets import PubRec, Will
from broker.routing.retained import STAMP_BYTES
from broker.server.cli import main
from broker.store.journal import Journal
from broker.store.kinds import (
    COPY,
    DELETION,
    DEPARTING,
    ENDED,
    HEAD,
    HOME,
    INTEREST,
    KEEPERS,
    MESSAGE,
    OUTBOX,
    OUTGOING,
    POSITION,
    RECEIVED,
    REPLICA,
    RETAINED,
    RUN,
    SESSION,
    STORE,
    SUBSCRIPTION,
    TOMBSTONE,
    WILL,
)
from broker.store.offline import FIELDS, KIND_NAMES, OPTIONAL, export_lines, import_lines, new_ids, renamed
from broker.store.sqlite_store import FILE_NAME, SqliteStore
from broker.store.store import VERSION, StoreFault, pack_record
from federation.links.bridging.bridging import bridging_of
from federation.sessions.wire import COPIED
from repository import ROOT

STORES = ROOT / "tests" / "data" / "stores"


class Folder:
    """A configuration with a store, in a folder of its own."""

    def __init__(self, path: Path) -> None:
        path.mkdir()
        self.data = path / "data"
        self.config = path / "node.yml"
        self.config.write_text("data_dir: data\n")

    def call(self, *arguments: str, text: str | None = None) -> Result:
        return CliRunner().invoke(main, ["store", arguments[0], "-c", str(self.config), *arguments[1:]], input=text)

    def write(self, records: dict[int, Any]) -> None:
        store = SqliteStore(self.data)
        store.open()
        store.commit([(number, pack_record(record)) for number, record in records.items()])
        store.close()


@pytest.fixture
def records(make_world: Any) -> dict[int, Any]:
    """At least one record of each kind."""
    world = make_world(max_inflight=2)
    stored: dict[int, Any] = {}
    world.keep(Journal(), stored, 1e9)
    will = Will("w/ü".encode(), b"\xff", 1, True, b"\x01\x01", 60, 5)
    client = world.connect("clïent", expiry=100, auto=False, will=will)
    client.subscribe("grüße/#".encode(), b"$share/g/x", qos=2, identifier=7)
    for number in range(4):
        world.publish("grüße/a".encode(), b"\0%d\xff" % number, qos=2, retain=True, message_expiry_interval=60)
    client.send(PubRec(client.take_publishes()[0].packet_id))
    client.publish(b"a", qos=2, packet_id=9)
    world.connect("without will", expiry=0xFFFFFFFF)
    arriving = (1_800_000_000_000, "0f" * 16, False, ("n2",), ("n2", "n3"), ("n3",))
    leaving = next(number for number, record in stored.items() if record[:2] == (SESSION, "without will"))
    stored |= {
        1001: (
            OUTBOX,
            "n2",
            1 << 40 | 1,
            0,
            1e9,
            2,
            2,
            b"\0frames",
            ((7, -4, 1e9 + 60),),
            (("grüße/a".encode(), False),),
        ),
        1002: (POSITION, "0f" * 16, 1 << 40 | 9, 3),
        1004: (POSITION, "0f" * 16, 1 << 40 | 9, 3, "n2"),
        1003: (INTEREST, "n2", ((b"", "grüße/#".encode(), b""), (b"s", b"a", b"note"))),
        1005: (TOMBSTONE, "grüße/b".encode(), b"\xff" * STAMP_BYTES),
        1006: (RETAINED, b"stamped", b"x", 1, True, b"", 0.0, "", b"", b"\0" * 15 + b"\1"),
        1011: (HOME, "clïent", 1_800_000_000_000, True, arriving),
        1008: (DEPARTING, leaving, 1_800_000_000_001, "0f" * 16, 3, "n2", ("n2",), False, None),
        1009: (ENDED, "gone", 1_800_000_000_000),
        1010: (HEAD, "n2", "coming", ((SESSION, "coming"), (RECEIVED, 0, 7))),
        1012: (REPLICA, "n2", "0f" * 16, 3, 1, 17, True, ("n1", "n3")),
        1013: (COPY, 1012, 5, (RECEIVED, 4, 7)),
        1016: (RUN, 1012, b"\x81\x05\xc0"),
        1014: (KEEPERS, 2, ("n2",)),
        1017: (DELETION, "grüße/c".encode(), b"1 time=7 path="),
    }
    session = next(record for record in stored.values() if record[0] == SESSION)
    stored[1018] = (WILL, *session[1:14])
    stored[1007] = (SESSION, "left groups", *session[2:14], b"", (b"$share/g/x",))
    assert {record[0] for record in stored.values()} == set(KIND_NAMES) - {STORE}
    return stored


@pytest.fixture
def link_records(make_world: Any) -> dict[int, Any]:
    """Records of a link, its interest, and messages with headers."""
    world = make_world()
    bridging_of(world.broker)
    stored: dict[int, Any] = {}
    world.keep(Journal(), stored, 1e9)
    header = {"properties": {props.USER_PROPERTY: [("gmqttd-link", "1 domain=paris max-hops=3 relays=1")]}}
    client = world.connect("link", expiry=100, auto=False, **header)
    client.subscribe(b"#", qos=1, pairs=[("gmqttd-link", "1 hops=2 path=oslo,paris")])
    world.publish(b"a", qos=1, retain=True)
    return stored


@pytest.fixture
def folder(tmp_path: Path, records: dict[int, Any]) -> Folder:
    folder = Folder(tmp_path / "one")
    folder.write(records)
    return folder


def test_fields_have_names(records: dict[int, Any]) -> None:
    for kind, *values in records.values():
        assert 0 <= len(values) - len(FIELDS[kind]) <= len(OPTIONAL.get(kind, ()))


FURTHER: list[tuple[Any, ...]] = [
    (HOME, "clïent", 9, False, None, ("0f" * 16, 7, 8, 12, 3)),
    (HOME, "clïent", 9, False, None, None, (("0f" * 16, 3), ("1e" * 16, 4))),
    (
        *(HOME, "clïent", 9, False, (9, "2d" * 16, False, (), ("n2",), ("n3",)), None, ()),
        ((("n2", "0f" * 16),), (("n2", "n3", 3, "0f" * 16),)),
    ),
    (
        *(DEPARTING, SESSION, 9, "0f" * 16, 3, "n2", ("n2",), False, (9, "2d" * 16, False, (), ("n2",), ("n3",))),
        *(("0f" * 16, 7, 8, 12, 3), (("0f" * 16, 3),), ((("n2", "0f" * 16),), ())),
    ),
    (SUBSCRIPTION, SESSION, "grüße/#".encode(), 1, False, False, 0, 0, (), b"\xff\x00 7"),
    (SUBSCRIPTION, SESSION, b"a", 1, False, False, 0, 0, (b"1 hops=2 path=oslo",), b"7"),
    (OUTGOING, SESSION, 0, 1, False, (), 0.0, 3, 2, "$share/g/grüße".encode()),
]
"""Records with values that most of their kind do not have; SESSION in place of the number of a session's record."""


@pytest.mark.parametrize("record", FURTHER, ids=lambda record: f"{KIND_NAMES[record[0]]}-{len(record)}")
def test_further_values_are_exported_and_imported(
    record: tuple[Any, ...], records: dict[int, Any], tmp_path: Path
) -> None:
    one, two = Folder(tmp_path / "one"), Folder(tmp_path / "two")
    session = next(number for number, stored in records.items() if stored[0] == SESSION)
    if record[0] != HOME:
        record = (record[0], session, *record[2:])
    one.write({session: records[session], 2000: record})
    exported = one.call("export")
    assert exported.exit_code == 0
    assert two.call("import", "-", text=exported.stdout).exit_code == 0
    store = SqliteStore(two.data)
    store.open()
    assert dict(store.records())[2000] == pack_record(record)
    store.close()
    assert two.call("check").exit_code == 0


def test_records_of_links_are_exported_and_imported(link_records: dict[int, Any], tmp_path: Path) -> None:
    one, two = Folder(tmp_path / "one"), Folder(tmp_path / "two")
    one.write(link_records)
    exported = one.call("export")
    lines = [json.loads(line) for line in exported.stdout.splitlines()[1:]]
    assert [line["wants"] for line in lines if line["kind"] == "subscription"] == [["1 hops=2 path=oslo,paris"]]
    assert [line["link"] for line in lines if line["kind"] == "session"] == ["1 domain=paris max-hops=3 relays=1"]
    assert [line["link"][-12:] for line in lines if line["kind"] in ("message", "retained")] == [" seq=1 path="] * 2
    (tmp_path / "export").write_text(exported.stdout, encoding="utf-8")
    assert two.call("import", str(tmp_path / "export")).exit_code == 0
    assert two.call("export").stdout == exported.stdout
    assert two.call("check").exit_code == 0


def test_check_counts_the_records(folder: Folder, records: dict[int, Any]) -> None:
    result = folder.call("check")
    assert (result.exit_code, result.stderr) == (0, "")
    assert f"{len(records)} good records" in result.stdout
    assert ", 3 of kind session, 2 of kind subscription" in result.stdout


def test_check_names_damaged_records(folder: Folder, records: dict[int, Any]) -> None:
    session = min(records)
    store = SqliteStore(folder.data)
    store.open()
    packed = dict(store.records())
    store.commit([(2000, b""), (2001, pack_record((99,))), (2002, packed[session][:-1] + b"\0")])
    store.commit([(2003, pack_record((SESSION, "too short")))])
    store.close()
    before = (folder.data / FILE_NAME).read_bytes()
    result = folder.call("check")
    assert result.exit_code == 1
    assert f"{len(records)} good records" in result.stdout
    faults = result.stderr.splitlines()
    assert [fault.split(" ")[1] for fault in faults] == ["2000", "2001", "2002", "2003"]
    assert (folder.data / FILE_NAME).read_bytes() == before


def test_an_export_is_imported_elsewhere(folder: Folder, tmp_path: Path) -> None:
    exported = folder.call("export")
    assert exported.exit_code == 0
    lines = [json.loads(line) for line in exported.stdout.splitlines()]
    assert lines[0] == {"gmqttd_store": VERSION}
    assert {line["kind"] for line in lines[1:]} == set(KIND_NAMES.values()) - {"store"}
    assert next(line["topic"] for line in lines if line.get("kind") == "retained") == "grüße/a"
    other = Folder(tmp_path / "two")
    (tmp_path / "export").write_text(exported.stdout, encoding="utf-8")
    result = other.call("import", str(tmp_path / "export"))
    assert result.stdout == f"{len(lines) - 1} records imported\n"
    assert other.call("export").stdout == exported.stdout
    again = other.call("import", str(tmp_path / "export"))
    assert (again.exit_code, again.stderr) == (1, "gmqttd: the store has records; --replace imports in place of them\n")
    assert other.call("import", "--replace", "-", text=exported.stdout).exit_code == 0
    assert other.call("compact").exit_code == 0
    assert other.call("export").stdout == exported.stdout


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "the file is empty"),
        ("{}\n", "line 1 is not a line of an export"),
        ("[]\n", "line 1 is not a line of an export"),
        ('{"gmqttd_store": 99}\n', "line 1: version 99, this gmqttd reads versions up to"),
        (
            '{"gmqttd_store": 1}\n{"number": 1, "kind": "received", "session": 7, "packet_id": 1}\n',
            "refers to record 7",
        ),
        ('{"gmqttd_store": 1}\n{"number": 1, "kind": "other"}\n', "line 2 is not a line of an export"),
        ('{"gmqttd_store": 1}\n{"number": "1", "kind": "received", "session": 7, "packet_id": 1}\n', "whole number"),
    ],
)
def test_a_file_that_is_no_export_changes_nothing(folder: Folder, text: str, expected: str) -> None:
    before = folder.call("export").stdout
    result = folder.call("import", "--replace", "-", text=text)
    assert result.exit_code == 1
    assert expected in result.stderr
    assert folder.call("export").stdout == before


@pytest.mark.parametrize("command", ["check", "export", "compact"])
def test_a_store_that_is_not_there(tmp_path: Path, command: str) -> None:
    folder = Folder(tmp_path / "empty")
    result = folder.call(command)
    assert (result.exit_code, "there is no store" in result.stderr) == (1, True)
    assert not folder.data.exists()
    folder.config.write_text("mqtt: {maximum_qos: 1}\n")
    assert "persistence.type is memory" in folder.call(command).stderr


def test_the_store_of_a_running_node_is_refused(folder: Folder) -> None:
    node = SqliteStore(folder.data)
    node.open()
    for command in ("check", "export", "compact"):
        result = folder.call(command)
        assert (result.exit_code, "another process uses it" in result.stderr) == (1, True)
    node.close()


@pytest.mark.parametrize("version", range(1, VERSION + 1))
def test_a_store_of_each_version_is_read(tmp_path: Path, version: int) -> None:
    """A store that a gmqttd of that version has written, and its export. It is migrated when it is opened."""
    folder = Folder(tmp_path / "old")
    folder.data.mkdir()
    shutil.copy(STORES / f"version{version}.db", folder.data / FILE_NAME)
    assert folder.call("check").exit_code == 0
    lines = (STORES / f"version{version}.jsonl").read_text(encoding="utf-8").splitlines()
    assert folder.call("export").stdout.splitlines()[1:] == lines[1:]


def test_stores_that_know_each_other_do_so_by_new_ids(tmp_path: Path) -> None:
    """Also where the id of the other one is in a frame that waits for it."""
    ids = ["a" * 32, "b" * 32]
    records: list[tuple[Any, ...]] = [
        (STORE, ids[0], 3, (ids[1],), ((7, 9), (12, 20)), 31),
        (POSITION, ids[1], 5, 5),
        (OUTBOX, "node/1", 1, 0, 0, 1, (), b"\x20" + ids[1].encode(), (), ()),
    ]
    lines = list(export_lines(enumerate(records, 1), ids[0]))
    given = new_ids([lines[0], json.dumps({"gmqttd_store": VERSION, "store_id": ids[1]})], random.Random(1))
    assert set(given) == set(ids)
    assert len({*given, *given.values()}) == 4
    found = [renamed(record, given) for _, record in import_lines(lines)]
    assert all(renamed(record, {}) == record for record in records)
    assert found[0] == (STORE, given[ids[0]], 3, (given[ids[1]],), ((7, 9), (12, 20)), 31)
    assert found[1] == (POSITION, given[ids[1]], 5, 5)
    assert found[2][7] == b"\x20" + given[ids[1]].encode()


def test_what_clients_have_chosen_has_no_new_ids() -> None:
    """A client may have published what the metrics of its node say, and be named like its store."""
    old, new = "a" * 32, "b" * 32
    text = b'{"store_id": "%s"}' % old.encode()
    will = (text, text, 1, False, b"", None, 0)
    session = (SESSION, old, old, None, 5, 60, "", "", 1.0, 2.0, 60, 3.0, will, 0.0)
    message = (MESSAGE, text, text, 1, False, b"", 0.0, old)
    subscription = (SUBSCRIPTION, 1, text, 1, False, False, 0, 0)
    outgoing = (OUTGOING, 0, message, 1, False, (), 0.0, 0, 0)
    own = [
        session,
        (WILL, *session[1:]),
        message,
        (RETAINED, *message[1:]),
        subscription,
        outgoing,
        (TOMBSTONE, text, b""),
    ]
    for record in own:
        assert renamed(record, {old: new}) == record
    copied, ended = (COPIED, old, 5), (ENDED, old, 7)
    head = renamed((HEAD, "node/1", old, (*own, copied)), {old: new})
    assert head == (HEAD, "node/1", old, (*own, (COPIED, new, 5)))
    assert renamed(ended, {old: new}) == ended


@pytest.mark.parametrize("header", ["text", "[]", '{"gmqttd_store": 2, "store_id": "a"}', '{"store_id": 5}'])
def test_a_first_line_that_is_of_no_export(header: str) -> None:
    with pytest.raises(StoreFault, match="line 1"):
        new_ids([header], random.Random(1))
