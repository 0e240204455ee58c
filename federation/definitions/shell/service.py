"""The definitions of a running node: read from their file, changed by the API and by other nodes, written back.

service = DefinitionsService(server, declared, folder, changed)   # inside a running loop
await service.prepare()      # reads the file
...
await service.stop()
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import grpc

from broker.api.errors import ApiError
from broker.metrics.metric import Metric, counter, gauges
from broker.server.logging import get_logger
from broker.server.private_file import PrivateFile
from broker.server.start_error import StartError
from federation.definitions.definitions import WORDS, Definitions
from federation.definitions.document import FILE_BYTES_MAX, DocumentFault, read_document, write_document
from federation.definitions.entry import COMPONENTS, UPSTREAM, Entry, Key
from federation.definitions.resolution import Resolution
from federation.definitions.shell.probe import probe_upstream

if TYPE_CHECKING:
    from broker.server.host import Host

FILE: Final = "definitions.json"
KEY: Final = "plugins.links"
NO_NODE: Final = "node"
"""Name in versions of a node that is in no cluster."""
EXPIRE_SECONDS: Final = 3600.0  # between two looks for tombstones that are too old


class DefinitionsService:
    """declared  (component, name) -> value of the configuration file, checked by `definitions.parse`
    folder    where the file of definitions is kept; "": in memory only
    changed   is called with the new meaning after each change, whoever made it
    """

    def __init__(
        self, server: Host, declared: dict[Key, object], folder: str, changed: Callable[[Resolution], None]
    ) -> None:
        self._server = server
        self._log = get_logger("definitions")
        self._changed = changed
        self.definitions = Definitions(NO_NODE, declared)
        self._file = PrivateFile(os.path.join(folder, FILE)) if folder else None
        self._made = self._written = 0  # changes
        self._problems: set[str] = set()
        self._writing = asyncio.Lock()
        self.made_here: Callable[[], None] = lambda: None
        """Is called after each change of this node, so that other nodes learn it."""
        self._background: set[asyncio.Task[None]] = set()
        self._expire: asyncio.TimerHandle | None = None

    def resolution(self) -> Resolution:
        """What the definitions mean now."""
        return self.definitions.resolution()

    def metrics(self) -> list[Metric]:
        definitions = self.definitions
        return [
            gauges(
                "gmqtt_definitions",
                "Definitions of links that are in effect, by kind.",
                "component",
                [(component, len(definitions.names(component))) for component in COMPONENTS],
            ),
            counter(
                "gmqtt_definitions_refused_total",
                "Definitions of other nodes that were damaged or too many.",
                definitions.counters.refused,
            ),
            counter(
                "gmqtt_definition_tombstones_dropped_total",
                "Deleted definitions that were forgotten before their time because there were too many.",
                definitions.counters.tombstones_dropped,
            ),
        ]

    def unix_time(self) -> float:
        return self._server.wall_time(self._server.now())

    # --- start and stop

    async def prepare(self) -> None:
        """Read the file. Raises StartError."""
        self.definitions.node = self._server.members.node_name or NO_NODE
        if self._file is not None:
            _make_folder(os.path.dirname(self._file.path))
            self.definitions.merge(await asyncio.to_thread(_read, self._file), self.unix_time())
            self.definitions.take_changes()
        self._tell_problems()
        if self._server.api is not None and self._file is None:
            self._log.warning("definitions that the API makes are lost at the end: there is no data_dir", key=KEY)
        self._expire_later()

    async def stop(self) -> None:
        if self._expire is not None:
            self._expire.cancel()
        while self._background:
            await asyncio.wait(self._background)

    # --- changes by the API

    async def put(self, component: str, name: str, value: object) -> list[str]:
        """Create or replace a definition; gives warnings. Raises DefinitionError; ApiError when it cannot be stored."""
        warnings = self.definitions.put(component, name, value, self.unix_time())
        await self._made_here()
        if component == UPSTREAM and (upstream := self.resolution().upstreams.get(name)) is not None:
            warnings += await probe_upstream(upstream)
        return warnings

    async def put_all(self, definitions: Iterable[tuple[str, str, object]]) -> list[str]:
        """As `put`, for several: all or none."""
        warnings = self.definitions.put_all(definitions, self.unix_time())
        await self._made_here()
        return warnings

    async def delete(self, component: str, name: str) -> bool:
        """Delete a definition; False when there is none. Raises as `put`."""
        is_deleted = self.definitions.delete(component, name, self.unix_time())
        await self._made_here()
        return is_deleted

    async def _made_here(self) -> None:
        if not self._apply("this node"):
            return
        self.made_here()
        try:
            await self._write()
        except OSError as error:
            reason = f"{error.strerror or error}"
            raise ApiError(grpc.StatusCode.DATA_LOSS, f"in effect, but not stored on this node: {reason}") from None

    # --- changes by other nodes

    def merged(self, source: str) -> None:
        """Entries of another node were merged into `definitions`: let them take effect, and store them."""
        if self._apply(source):
            task = asyncio.get_running_loop().create_task(self._write_later())
            self._background.add(task)
            task.add_done_callback(self._background.discard)

    def _apply(self, source: str) -> bool:
        """Let changes take effect; whether there were any."""
        changes = self.definitions.take_changes()
        if not changes:
            return False
        self._made += len(changes)
        for entry in changes:
            what = "definition deleted" if entry.value is None else "definition changed"
            kind = WORDS.get(entry.component, entry.component)
            self._log.info(what, kind=kind, name=entry.name, by=entry.node, source=source)
        self._changed(self.definitions.resolution())
        self._tell_problems()
        return True

    def _tell_problems(self) -> None:
        """Log what is new among the definitions that do not have the effect that they seem to have; the change of another node
        may cause it, too."""
        definitions = self.definitions
        problems, collisions, copies = (
            set(found) for found in (definitions.problems(), definitions.collisions(), definitions.copies())
        )
        for text in sorted(problems - self._problems):
            self._log.warning("a definition has no full effect", reason=text)
        for text in sorted(collisions - self._problems):
            self._log.warning("topic mappings collide", reason=text)
        for text in sorted(copies - self._problems):
            self._log.warning("jobs of a federated queue come as copies, too", reason=text)
        self._problems = problems | collisions | copies

    # --- the file

    async def _write_later(self) -> None:
        try:
            await self._write()
        except OSError:
            return  # it is logged, and written with the next change

    async def _write(self) -> None:
        """Until the file has all changes that were made before the call. Raises OSError."""
        file, made = self._file, self._made
        if file is None:
            return
        async with self._writing:
            if self._written >= made:
                return
            made = self._made
            entries = self.definitions.entries()
            try:
                await asyncio.to_thread(file.change, lambda: write_document(entries))
            except OSError as error:
                self._log.error("definitions not stored", file=file.path, reason=error.strerror or str(error))
                raise
            self._written = made

    def _expire_later(self) -> None:
        self.definitions.expire(self.unix_time())
        self._expire = asyncio.get_running_loop().call_later(EXPIRE_SECONDS, self._expire_later)


def _make_folder(folder: str) -> None:
    """Raises StartError."""
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        return
    except OSError as error:
        raise StartError(f"{KEY}.dir: {folder} cannot be made: {error.strerror or error}") from None


def _read(file: PrivateFile) -> list[Entry]:
    """Raises StartError. The file stays as it is."""
    try:
        return read_document(file.read(FILE_BYTES_MAX))
    except DocumentFault as fault:
        text = f"{fault}; the file is left as it is: repair it, or move it away to begin without its definitions"
        raise StartError(f"{KEY}: {file.path}: {text}") from None
    except OSError as error:
        raise StartError(f"{KEY}: {file.path} cannot be read: {error.strerror or error}") from None
