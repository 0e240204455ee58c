"""The commands `gmqttctl backup` and `restore`."""

# not a core: commands
from __future__ import annotations

import io
import json
import random
import re
import tarfile
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace as replaced
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Final

import click

from broker import __version__
from broker.config.loader import load
from broker.config.settings import Settings
from broker.server.named_files import folder_of, path_in
from broker.server.private_file import PrivateFile
from broker.server.worker_folders import leaving_workers
from broker.store.offline import batch_of, free_store, new_ids
from broker.store.store import StoreFault
from broker.workers.shares import FEDERATION, Place, worker_folder
from federation.definitions.commands import exported
from federation.services import DEFINITIONS
from gmqttctl.command import Command
from gmqttctl.connection import read_one_server
from gmqttctl.connection_options import connection_options
from gmqttctl.errors import CommandError, NotServed
from gmqttctl.listing import confirm, yes_option
from gmqttctl.node_calls import NodeCalls
from gmqttctl.private_output import private_output
from gmqttctl.service import BACKUP, NODE
from gmqttctl.text import printable

MANIFEST: Final = "backup.json"
STORE: Final = "store.jsonl"
STORES: Final = re.compile(r"store(?:-([1-9][0-9]{0,2}))?\.jsonl")  # and those of further workers
DEFINITIONS_FILE: Final = "definitions.json"
AUTH_FILES: Final = {"accounts.yml": "password_file", "acl": "acl_file"}
FORMAT: Final = 1


@click.command(cls=Command, example="gmqttctl backup --server node1:8084 node1.tar.gz")
@connection_options
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def backup(connection: dict[str, str], file: Path) -> None:
    """Write what one node keeps to FILE, while it runs: its store with sessions, queued and retained messages, its accounts and
    rules, and the definitions of links, with their passwords. FILE is readable by its owner only. Each node has a store of
    its own; one with several workers has as many, which are of one moment."""
    with private_output(file) as opened:
        names = _write_archive(connection, opened)
    click.echo(f"{file}: {', '.join(names) or 'nothing but the name of the node: it keeps nothing'}")


def _write_archive(connection: dict[str, str], opened: IO[bytes]) -> list[str]:
    """The names of its parts."""
    names: list[str] = []
    with NodeCalls(read_one_server(connection)) as calls, tarfile.open(fileobj=opened, mode="w:gz") as archive:
        node = calls.call(NODE, "Get")
        manifest = {"format": FORMAT, "gmqttd": __version__, "node": node.node_name, "unix_time": int(time.time())}
        _add(archive, MANIFEST, io.BytesIO(json.dumps(manifest).encode()))
        for name, part in _parts(calls):
            _add(archive, name, part)
            names.append(name)
        try:
            found = calls.call(DEFINITIONS, "Export")
        except NotServed:
            pass
        else:
            _add(archive, DEFINITIONS_FILE, io.BytesIO(exported(found).encode()))
            names.append(DEFINITIONS_FILE)
    if STORE not in names:
        click.echo("warning: the node has no store: sessions and retained messages are in memory only", err=True)
    return names


def _parts(calls: NodeCalls) -> Iterator[tuple[str, IO[bytes]]]:
    """(name, content) of each part that the node gives; the content is a file on disk until the next one."""
    name = ""
    with TemporaryFile() as content:
        for piece in calls.stream(BACKUP, "Backup"):
            if name and piece.name != name:
                yield name, content
                content.seek(0)
                content.truncate()
            name = piece.name
            content.write(piece.data)
        if name:
            yield name, content


def _add(archive: tarfile.TarFile, name: str, content: IO[bytes]) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mtime, entry.mode = content.seek(0, io.SEEK_END), int(time.time()), 0o600
    content.seek(0)
    archive.addfile(entry, content)


@click.command(cls=Command, example="gmqttctl restore node1.tar.gz -c /etc/gmqtt/gmqttd.yml")
@click.option("-c", "--config", "config_file", required=True, metavar="FILE", help="The configuration of the node.")
@click.option("--replace", is_flag=True, help="In place of records, accounts and rules that there are.")
@yes_option
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def restore(config_file: str, replace: bool, is_sure: bool, file: Path) -> None:
    """Bring a backup of a node to the machine of this configuration, before the node is started: the store, accounts and rules.
    The stores of several workers become those of as many; a node with another number of `workers` moves their sessions when
    it starts. Definitions of links are written beside FILE, for `gmqttctl definitions import` when the node runs."""
    loaded = load(config_file)
    if loaded.settings is None:
        raise CommandError("; ".join(str(fault) for fault in loaded.faults))
    settings, folder = loaded.settings, folder_of(config_file)
    if replace:
        confirm(f"Replace the store, accounts and rules of {config_file} by those of the backup?", is_sure)
    with _opened(file) as (archive, names):
        targets = {name: _target(settings, folder, key) for name, key in AUTH_FILES.items() if name in names}
        for name, target in targets.items():
            if target is None:
                key = f"plugins.auth.{AUTH_FILES[name]}"
                raise CommandError(f"the backup has {name}, and {config_file} does not set {key}, where it would go")
            if target.exists() and not replace:
                raise CommandError(f"{target} exists; --replace writes in place of it")
        _restore_stores(archive, list(filter(STORES.fullmatch, names)), settings, folder, replace)
        for name, target in targets.items():
            assert target is not None
            data = _member(archive, name).read()
            _write(target, data)
            click.echo(f"{target}: {len(data)} bytes")
        if DEFINITIONS_FILE in names:
            beside = file.with_name(f"{file.name}.{DEFINITIONS_FILE}")
            _write(beside, _member(archive, DEFINITIONS_FILE).read())
            click.echo(f"{beside}: when the node runs, gmqttctl definitions import {beside}")


def _restore_stores(archive: tarfile.TarFile, names: list[str], settings: Settings, folder: str, replace: bool) -> None:
    """Each store to the folder of its worker; none where one cannot be. Raises CommandError."""
    stores = dict(sorted((int((STORES.fullmatch(name) or [0, 0])[1] or 0), name) for name in names))
    if len(stores) > 1:
        _check_workers(archive, len(stores), settings)
    others = leaving_workers(settings, path_in(folder, settings.data_dir), max(len(stores), 1))
    if stores and others:
        path = worker_folder(path_in(folder, settings.data_dir), others[0])
        raise CommandError(f"{path} is of a worker that the backup does not have; move it away")
    ids: dict[str, str] = {}
    for name in stores.values():
        with _faults_of(name):
            ids |= new_ids([_member(archive, name).readline().decode(errors="replace")], random.SystemRandom())
    batches = []
    for name in stores.values():
        with _faults_of(name), io.TextIOWrapper(_member(archive, name), encoding="utf-8") as lines:
            batches.append(batch_of(settings, lines, ids))
    with ExitStack() as locked:
        targets = []
        for index, name in stores.items():
            of_worker = replaced(settings, data_dir=worker_folder(settings.data_dir, index))
            with _faults_of(name):
                targets.append(locked.enter_context(free_store(of_worker, folder, replace)))
        for (index, name), store, batch in zip(stores.items(), targets, batches, strict=True):
            with _faults_of(name):
                store.replace(batch)
            click.echo(f"{len(batch)} records of the store" + (f" of worker {index}" if len(stores) > 1 else ""))


@contextmanager
def _faults_of(name: str) -> Iterator[None]:
    """Raise CommandError for faults of a store of the backup."""
    try:
        yield
    except (StoreFault, UnicodeDecodeError) as fault:
        raise CommandError(f"{name}: {fault}") from None


def _check_workers(archive: tarfile.TarFile, count: int, settings: Settings) -> None:
    """Raise CommandError where the node of these settings would not find what its workers have for each other."""
    if settings.store_type == "redis":
        raise CommandError(
            f"the backup has the stores of {count} workers, which go to a data_dir; set persistence.type sqlite"
        )
    place = Place(0, count, FEDERATION in settings.plugin_order, {0: 0}, "")
    name = settings.plugins.federation.for_worker(place, settings).node_name
    before = _node_of(archive)
    if name != before:
        key = FEDERATION if FEDERATION in settings.plugin_order else "event_log"
        raise CommandError(
            f"the workers of the backup are those of the node {printable(before)}, and have messages for each other by "
            f"this name; set plugins.{key}.node_name: {printable(before)} in place of {printable(name)}"
        )


def _target(settings: Settings, folder: str, key: str) -> Path | None:
    auth = getattr(settings.plugins, "auth", None) if "auth" in settings.plugin_order else None
    file = getattr(auth, key, "")
    return Path(path_in(folder, file)) if file else None


@contextmanager
def _opened(file: Path) -> Iterator[tuple[tarfile.TarFile, set[str]]]:
    """The archive and the names of its parts. Raises CommandError for a file that is no whole backup."""
    try:
        with tarfile.open(file, "r:gz") as archive:
            names = set(archive.getnames())
            if MANIFEST not in names:
                raise CommandError(f"{file} is no backup of gmqttctl: it has no {MANIFEST}")
            click.echo(f"backup of the node {printable(_node_of(archive))}")
            yield archive, names
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror or error}") from None
    except (tarfile.TarError, EOFError, zlib.error, ValueError) as error:
        raise CommandError(f"{file} is no whole backup of gmqttctl: {error}") from None


def _node_of(archive: tarfile.TarFile) -> str:
    """The name of the node, of a manifest that this gmqttctl reads. Raises CommandError, and ValueError for other text."""
    manifest: Any = json.loads(_member(archive, MANIFEST).read())
    known = manifest if isinstance(manifest, dict) else {}
    if known.get("format") != FORMAT:
        raise CommandError(
            f"{MANIFEST} of the backup has the format {known.get('format')!a}, this gmqttctl reads {FORMAT}"
        )
    node = known.get("node")
    if not isinstance(node, str):
        raise CommandError(f"{MANIFEST} of the backup has the node {node!a}, must be the name of one")
    return node


def _member(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    found = archive.extractfile(name)
    if found is None:
        raise CommandError(f"{name} of the backup is no file")
    return found


def _write(target: Path, data: bytes) -> None:
    try:
        PrivateFile(str(target)).change(lambda: data)
    except OSError as error:
        raise CommandError(f"{target} cannot be written: {error.strerror or error}") from None
