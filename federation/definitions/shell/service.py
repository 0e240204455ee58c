"""The definitions of a running node: read from their file, changed by the API and by other nodes, written back.

service = DefinitionsService(server, declared, folder, changed)   # inside a running loop
await service.prepare()      # reads the file
...
await service.stop()
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import grpc

from broker.api.errors import ApiError
from broker.metrics.metric import Metric, counter, gauge, gauges
from broker.server.logging import get_logger
from broker.server.named_files import make_folder
from federation.cluster_clock import ClusterClock
from federation.definitions.definitions import Definitions
from federation.definitions.document import write_document
from federation.definitions.entry import COMPONENTS, LINK_KEY, UPSTREAM, WORDS, Key
from federation.definitions.error import shown
from federation.definitions.resolution import Resolution
from federation.definitions.shell.probe import probe_upstream
from federation.definitions.shell.stored import KEY, NO_NODE, NOT_KEPT, read_stored, stored_in

if TYPE_CHECKING:
    from broker.server.host import Host

EXPIRE_SECONDS: Final = 3600.0  # between two looks for tombstones that are too old
CLOCK_DIFFERS: Final = "a clock differs from the median of the nodes"


class DefinitionsService:
    """declared  (component, name) -> value of the configuration file, checked by `definitions.parse`
    folder    where the file of definitions is kept; "": in memory only
    changed   is called with the new meaning after each change, whoever made it
    shares_secrets  as that of Definitions
    """

    def __init__(
        self,
        server: Host,
        declared: dict[Key, object],
        folder: str,
        changed: Callable[[Resolution], None],
        shares_secrets: bool = True,
    ) -> None:
        self._server = server
        self._log = get_logger("definitions")
        self._changed = changed
        self.definitions = Definitions(NO_NODE, declared, random.SystemRandom(), shares_secrets)
        self.clock = ClusterClock()
        self._file = stored_in(folder) if folder else None
        self._made = self._written = 0  # changes
        self._logged: set[tuple[str, str]] = set()  # warnings of definitions
        self._writing = asyncio.Lock()
        self.made_here: Callable[[], None] = lambda: None
        """Is called after each change of this node, so that other nodes learn it."""
        self._background: set[asyncio.Task[None]] = set()
        self._expire: asyncio.TimerHandle | None = None

    def resolution(self) -> Resolution:
        """Return the present meaning of the definitions."""
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
                "Definitions of other nodes that were not taken: damaged, too many, with secrets, or by a wrong clock.",
                definitions.counters.refused,
            ),
            counter(
                "gmqtt_definitions_stamped_anew_total",
                "Definitions of this node that a wrong clock had made, and that were stamped with the present time.",
                definitions.counters.stamped_anew,
            ),
            gauge(
                "gmqtt_definitions_kept_here",
                "Definitions with secrets that other nodes do not get.",
                len(definitions.kept_here()),
            ),
            gauge(
                "gmqtt_definitions_clock_correction_seconds",
                "Seconds that are added to the clock of this node because it differs from the median of the nodes.",
                self.clock.correction(),
            ),
            counter(
                "gmqtt_definition_tombstones_dropped_total",
                "Deleted definitions that were forgotten before their time because there were too many.",
                definitions.counters.tombstones_dropped,
            ),
        ]

    def own_time(self) -> float:
        """Unix seconds of this node's clock."""
        return self._server.wall_time(self._server.now())

    def unix_time(self) -> float:
        """Unix seconds to stamp definitions with."""
        return self.clock.time(self.own_time())

    def warnings(self) -> list[tuple[str, str]]:
        """(what, text) of definitions, and clocks, that do not have the effect that they seem to have."""
        return self.definitions.warnings() + self._clock_warnings()

    def _clock_warnings(self) -> list[tuple[str, str]]:
        names = [f"node {shown(name)}" for name in self.clock.differing()]
        if self.clock.correction():
            names.insert(0, "this node, which stamps definitions with the median")
        return [(CLOCK_DIFFERS, f"{name}: set its clock") for name in names]

    # --- start and stop

    async def prepare(self) -> None:
        """Read the file. Raises StartError."""
        self.definitions.node = self._server.members.node_name or NO_NODE
        if self._file is not None:
            make_folder(f"{KEY}.dir", os.path.dirname(self._file.path))
            self.definitions.load(await asyncio.to_thread(read_stored, self._file), self.unix_time())
            self.definitions.take_changes()
        self._tell_warnings()
        if self._server.api is not None and self._file is None:
            self._log.warning(NOT_KEPT, key=KEY)
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
        if self._apply("this node"):
            self.made_here()
        try:  # also where nothing has changed: an earlier change may not be stored
            await self._write()
        except OSError as error:
            reason = f"{error.strerror or error}"
            raise ApiError(grpc.StatusCode.DATA_LOSS, f"in effect, but not stored on this node: {reason}") from None

    # --- changes by other nodes

    def heard_clock(self, node: str, time: float) -> None:
        """Another node has told its clock. Definitions that are ahead of the cluster's time are stamped anew."""
        before, stamped_before = self._clock_warnings(), self.definitions.counters.stamped_anew
        self.clock.heard(node, time, self.own_time())
        self.definitions.correct(self.unix_time())
        self.merged("a wrong clock")
        if self.definitions.counters.stamped_anew != stamped_before:
            self.made_here()  # those that have refused them hear of it at once
        if self._clock_warnings() != before:
            self._tell_warnings()

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
            if entry.component == LINK_KEY:
                continue  # it comes and goes with its upstream
            what = "definition deleted" if entry.value is None else "definition changed"
            kind = WORDS.get(entry.component, entry.component)
            self._log.info(what, kind=kind, name=entry.name, by=entry.node, source=source)
        self._changed(self.definitions.resolution())
        self._tell_warnings()
        return True

    def _tell_warnings(self) -> None:
        """Log what is new among the warnings of the definitions; the change of another node may cause it, too."""
        warnings = set(self.warnings())
        for what, text in sorted(warnings - self._logged):
            self._log.warning(what, reason=text)
        self._logged = warnings

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
