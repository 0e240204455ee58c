"""`gmqttctl restore` of a backup of workers: all of their stores, or none."""

from __future__ import annotations

import io
import json
import tarfile
from typing import TYPE_CHECKING, Final

import pytest
import yaml
from click.testing import CliRunner

from broker.store.kinds import STORE
from broker.store.offline import export_lines
from broker.store.sqlite_store import SqliteStore
from broker.store.store import pack_record
from gmqttctl.cli import main

if TYPE_CHECKING:
    from pathlib import Path

IDS: Final = ("a" * 32, "b" * 32)
MANIFEST: Final = {"format": 1, "node": "n1"}


def parts() -> dict[str, str]:
    """The names of a backup, and their content."""
    stores = {
        name: "\n".join(export_lines([(1, (STORE, store_id, 3))], store_id))
        for name, store_id in zip(("store.jsonl", "store-1.jsonl"), IDS, strict=True)
    }
    return {"backup.json": json.dumps(MANIFEST), **stores}


def restore(folder: Path, found: dict[str, str]) -> tuple[int, str]:
    """(exit code, output)."""
    file, node = folder / "node.tar.gz", folder / "gmqttd.yml"
    with tarfile.open(file, "w:gz") as archive:
        for name, text in found.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    federation = {"federation": {"node_name": "n1"}}
    config = {"workers": 2, "data_dir": str(folder / "data"), "plugin_order": ["federation"], "plugins": federation}
    node.write_text(yaml.safe_dump(config))
    result = CliRunner().invoke(main, ["restore", str(file), "-c", str(node)], catch_exceptions=False)
    return result.exit_code, result.output


def records(folder: Path) -> int:
    store = SqliteStore(folder)
    store.open()
    count = sum(1 for _ in store.records())
    store.close()
    return count


def test_stores_go_to_the_folders_of_their_workers(tmp_path: Path) -> None:
    code, said = restore(tmp_path, parts())
    assert code == 0, said
    assert [records(tmp_path / "data"), records(tmp_path / "data" / "worker-1")] == [1, 1]


@pytest.mark.parametrize("damaged", ["store.jsonl", "store-1.jsonl"])
def test_a_damaged_store_keeps_out_the_others(tmp_path: Path, damaged: str) -> None:
    found = parts()
    found[damaged] += '\n{"number": 2}'
    code, said = restore(tmp_path, found)
    assert (code, f"{damaged}: line 3" in said) == (1, True), said
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("full", [0, 1])
def test_a_store_that_has_records_keeps_out_the_others(tmp_path: Path, full: int) -> None:
    (tmp_path / "data").mkdir()
    folders = [tmp_path / "data", tmp_path / "data" / "worker-1"]
    store = SqliteStore(folders[full])
    store.open()
    store.commit([(number, pack_record((STORE, IDS[0], 3))) for number in (1, 2)])
    store.close()
    code, said = restore(tmp_path, parts())
    assert (code, "--replace" in said, ("store.jsonl", "store-1.jsonl")[full] in said) == (1, True, True), said
    assert [records(folders[full]), records(folders[1 - full])] == [2, 0]


@pytest.mark.parametrize(
    ("manifest", "expected"),
    [('{"format": 1}', "node"), ('{"format": 1, "node": 5}', "node"), ('{"format": 2}', "format 2"), ("[]", "format")],
)
def test_a_manifest_that_says_too_little_is_told(tmp_path: Path, manifest: str, expected: str) -> None:
    code, said = restore(tmp_path, {**parts(), "backup.json": manifest})
    assert (code, "backup.json" in said, expected in said) == (1, True, True), said
    assert not (tmp_path / "data").exists()
