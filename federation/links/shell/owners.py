"""The ownership of links on a running node: its tables go to the other members over gRPC, its orders to the links, and what it
knows of sessions at upstreams to a file."""

from __future__ import annotations

import asyncio
import os
import random
import secrets
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import grpc

from broker.hooks import OtherNode
from broker.message import NEVER
from broker.server.logging import get_logger
from broker.server.private_file import PrivateFile
from federation.definitions.resolution import LINKS_MAX
from federation.definitions.uri import URI_BYTES_MAX
from federation.extension import Extension
from federation.links.ownership import Ownership
from federation.links.ownership_table import Phase, Places, Row, Table, Telling, decode_places, encode_places
from federation.links.pb import link_status_pb2 as pb
from federation.links.reconnecting import SessionPlace
from federation.shell.member_calls import MemberAway, MemberCalls
from federation.tags import TAG_LINKS
from federation.trust import Reach

if TYPE_CHECKING:
    from broker.server.host import Host
    from federation.plugin import FederationPlugin

SERVICE: Final = "gmqtt.links.api.LinkOwnership"
"""Serf tag of a node that can run links; its value is the version of this service."""
VERSION: Final = "2"
WITHOUT_QUEUES: Final = "1"  # version of nodes whose queues have no consumers in others of their cluster
CALL_SECONDS_MAX: Final = 2.0
LEAVE_SECONDS_MAX: Final = 0.8
"""Longest wait of a node that leaves until its links are drained and the other members know."""
EPOCH_MAX: Final = 2**62
LINK_ID_CHARS_MAX: Final = 64
SESSION_CHARS_MAX: Final = URI_BYTES_MAX  # a client identifier is shorter
PHASES: Final = frozenset(phase.value for phase in Phase)


class Owners(Extension):
    """`prepare`, `start`, then `set_links` with each change of the definitions, then `stop`. At the end of each turn
    `turn_ended`, and while `take_changed`, the orders of the ownership.

    federation  the plugin; None for a node without it, which runs all of its links
    ownership   the core; one that takes no part before `start` and after `stop`
    sessions    where links have sessions, as far as this node knows; before `start` those that the process before knew
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self.federation: FederationPlugin | None = None
        self.ownership = Ownership("", 0, 0)
        self.sessions: dict[str, SessionPlace] = {}
        self._log = get_logger("links")
        self._loop = asyncio.get_running_loop()
        self._calls = MemberCalls(host.members)
        self._tellings: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._is_running = False
        self._has_left = False
        self._has_changed = False
        self._drained: asyncio.Event | None = None

    # --- start and stop

    def prepare(self, federation: FederationPlugin | None) -> None:
        """All plugins are there. One of them may have changed who knows the members."""
        self.federation = federation
        self._calls = MemberCalls(self._host.members, None if federation is None else federation.dialer)

    def start(self) -> None:
        """Links are claimed from now on; a node with others to join waits for them first."""
        now = self._host.now()
        epoch_min = int(self._host.wall_time(now) * 1000)
        self.ownership = Ownership(self._host.members.node_name, random.getrandbits(63), epoch_min, self.sessions)
        self.ownership.join(self.federation is not None and self.federation.membership.has_seeds, now)
        self._is_running = True
        self.members_changed()

    def set_links(self, link_ids: Iterable[str]) -> None:
        """The links of the definitions, as Ownership.set_links."""
        self.ownership.set_links(link_ids, self._host.now())
        self._carry_out()

    def released(self, link_ids: Iterable[str]) -> None:
        """Links are drained."""
        for link_id in link_ids:
            self.ownership.released(link_id, self._host.now())
        self._carry_out()

    def set_sessions(self, places: Mapping[str, SessionPlace | None]) -> None:
        """Links that run here have their sessions at these places, as Ownership.set_sessions."""
        if self._is_running:
            if self.ownership.set_sessions(places):
                self._carry_out()
            self.sessions = self.ownership.sessions()

    async def stop(self) -> None:
        self._is_running = False
        self.ownership = Ownership("", 0, 0)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for task in self._tellings:
            task.cancel()
        await asyncio.gather(*self._tellings, return_exceptions=True)
        await self._calls.close()

    # --- what the federation tells

    def members_changed(self) -> None:
        if not self._is_running:
            return
        now = self._host.now()
        had_left = self._has_left
        self._has_left = self.federation is not None and self.federation.node.has_left
        if self._has_left and not had_left:
            self.ownership.leave(now)
        elif had_left and not self._has_left:
            self.ownership.join(True, now)
        self.ownership.set_members(self.members(), now)
        self._carry_out()

    def turn_ended(self) -> None:
        """Look whether the turn has brought the interest of other nodes."""
        if self.ownership.waits_until_ready() and self._knows_interest():
            self.ownership.ready(self._host.now())
            self._carry_out()

    def _knows_interest(self) -> bool:
        """Return whether all living members have told once what they subscribe to."""
        if self.federation is None:
            return True
        living = [other.name for other in self._host.members.others() if other.status == "ALIVE"]
        return self.federation.node.receivers.know_interest(living)

    def take_changed(self) -> bool:
        """Return whether there may be orders, other members, or other owners since the last call."""
        has_changed, self._has_changed = self._has_changed, False
        return has_changed

    async def before_leave(self) -> None:
        """Drain the links, and let the other members know."""
        self._drained = asyncio.Event()
        self.ownership.leave(self._host.now())
        self._carry_out()
        try:
            await asyncio.wait_for(self._drained.wait(), LEAVE_SECONDS_MAX)
        except TimeoutError:
            self._log.warning("links are not drained before the leave", seconds=LEAVE_SECONDS_MAX)

    # --- what operators ask

    def members(self) -> list[str]:
        """The living members with links, without this node."""
        return [other.name for other in self._living()]

    def _living(self) -> list[OtherNode]:
        if self.federation is None or self.federation.node.has_left:
            return []
        others = self._host.members.others()
        return [other for other in others if other.status in ("ALIVE", "LEAVING") and TAG_LINKS in other.tags]

    def nodes_with_queues(self) -> dict[str, Reach]:
        """Return the members whose queues this node may consume, and how they are reached, by name."""
        names = [other.name for other in self._living() if other.tags[TAG_LINKS] != WITHOUT_QUEUES]
        return {name: self._calls.reach(name) for name in names}

    def is_alone(self) -> bool:
        """Return whether no other node of this cluster may run links. The workers of a node, which stop and start together, are
        one."""
        members, worker = self._host.members, self._host.worker
        own = {} if worker is None else worker.place.siblings(members.node_name)
        return self.federation is None or not any(
            TAG_LINKS in other.tags and other.name not in own for other in members.others()
        )

    async def list_at(self, name: str, request: pb.ListLinksRequest) -> pb.ListLinksResponse:
        """The links of another member. Raises MemberAway."""
        method = f"/{SERVICE}/ListHere"
        return await self._calls.call(name, method, request, pb.ListLinksResponse.FromString, CALL_SECONDS_MAX)

    async def restart_at(self, name: str, link_id: str) -> None:
        """Restart a link that another member runs. Raises MemberAway."""
        request = pb.RestartLinkRequest(id=link_id)
        method = f"/{SERVICE}/RestartHere"
        await self._calls.call(name, method, request, pb.RestartLinkResponse.FromString, CALL_SECONDS_MAX)

    # --- what other members ask

    async def tell(self, request: pb.OwnerTable, context: Any) -> pb.OwnerTable:
        if not self._is_running:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "links have not started, or have stopped")
        try:
            self.ownership.handle_table(read_table(request), self._host.now())
        except ValueError as fault:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(fault))
        self._carry_out()
        return write_table(self.ownership.table())

    # --- orders, tables, time

    def _carry_out(self) -> None:
        """Tell the other members, set the timer, and ask for the end of the turn, in which the orders are taken."""
        self._has_changed = True
        self._host.flush_soon()
        for telling in self.ownership.take_tables(self._host.now()):
            task = self._loop.create_task(self._tell_member(telling))
            self._tellings.add(task)
            task.add_done_callback(self._tellings.discard)
        if self._drained is not None and self.ownership.has_left():
            self._drained.set()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        at = self.ownership.next_timeout()
        if at != NEVER:
            self._timer = self._loop.call_at(at, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        self.ownership.handle_timeout(self._host.now())
        self._carry_out()

    async def _tell_member(self, telling: Telling) -> None:
        name, table = telling
        try:
            answer = await self._calls.call(
                name, f"/{SERVICE}/Tell", write_table(table), pb.OwnerTable.FromString, CALL_SECONDS_MAX
            )
            self.ownership.handle_answer(name, table.serial, read_table(answer), self._host.now())
        except Exception as fault:  # whatever it is, the member is told again
            if isinstance(fault, MemberAway | ValueError):
                self._log.debug("the owners of links are not told to a member", node=name, reason=str(fault))
            else:
                self._host.plugin_error(fault)
            self.ownership.telling_failed(name, self._host.now())
        self._carry_out()


def write_table(table: Table) -> pb.OwnerTable:
    """A table for the wire."""
    rows = [
        pb.OwnerRow(
            link_id=row.link_id,
            phase=pb.Phase.ValueType(row.phase),
            epoch=row.epoch,
            session=None if row.session is None else pb.LinkSession(**row.session._asdict()),
        )
        for row in table.rows
    ]
    return pb.OwnerTable(node=table.node, incarnation=table.incarnation, serial=table.serial, rows=rows)


def read_table(found: pb.OwnerTable) -> Table:
    """A table from the wire. Raises ValueError. A later version may have further phases: they count as running."""
    if not found.node:
        raise ValueError("node: the table has no name of its node")
    if len(found.rows) > LINKS_MAX:
        raise ValueError(f"rows: {len(found.rows)} links, at most {LINKS_MAX}")
    rows: list[Row] = []
    for row in found.rows:
        if not 0 < len(row.link_id) <= LINK_ID_CHARS_MAX:
            raise ValueError(f"rows: an id has {len(row.link_id)} characters, may have 1 to {LINK_ID_CHARS_MAX}")
        if row.epoch > EPOCH_MAX:
            raise ValueError(f"rows: the epoch of {row.link_id} is {row.epoch}, at most {EPOCH_MAX}")
        phase = Phase(int(row.phase)) if int(row.phase) in PHASES else Phase.RUNS
        rows.append(Row(row.link_id, phase, row.epoch, _session_of(row)))
    return Table(found.node, found.incarnation, found.serial, tuple(rows))


def _session_of(row: pb.OwnerRow) -> SessionPlace | None:
    if not row.HasField("session"):
        return None
    found = row.session
    size = max(len(found.client_id), len(found.host))
    if size > SESSION_CHARS_MAX:
        raise ValueError(
            f"rows: the session of {row.link_id} has a text of {size} characters, at most {SESSION_CHARS_MAX}"
        )
    return SessionPlace(found.client_id, found.host, found.port)


FILE: Final = "link-sessions.json"
FILE_BYTES_MAX: Final = 16 * 2**20
SECRET_BYTES: Final = 16


class SessionsFile:
    """`folder`: "" for a node that keeps nothing. The file is written by one thread at a time, the newest state only.

    is_missing  `read` has found no file
    """

    def __init__(self, folder: str) -> None:
        self.is_missing = True
        self._plain: frozenset[str] | None = None  # None before `begin` where the file does not say it
        self._secret = ""
        self._file = PrivateFile(os.path.join(folder, FILE)) if folder else None
        self._log = get_logger("links")
        self._wanted: Places = {}
        self._written: Places | None = None  # None before a file, and after a failure: the next call tries again
        self._writing: asyncio.Task[None] | None = None

    async def read(self) -> Places:
        """The sessions of the process before. None are known where the file cannot be read, which is logged."""
        file = self._file
        if file is None:
            return {}
        try:
            data = await asyncio.to_thread(file.read, FILE_BYTES_MAX)
            self.is_missing = not data
            places, self._plain, self._secret = decode_places(data)
        except (OSError, ValueError) as error:
            self._log.warning("sessions of links not known", file=file.path, reason=str(error))
            return {}
        self._wanted = places
        if self._plain is not None:
            self._written = places
        return places

    async def begin(self, link_ids: Iterable[str], is_new: bool) -> tuple[frozenset[str], bytes]:
        """Return (the links that never get a client identifier with a random part, the secret of which those of the others
        are made), for `Links`; the secret is b"" where the file does not have it, which is logged. The former are the links
        of a node that an earlier build has run: they may have sessions of which nothing is known. `is_new`: no build has."""
        plain = frozenset(link_ids)
        if self._file is None:
            return plain, b""
        if self._plain is None:
            self._plain = frozenset() if is_new else plain
            self._written = None
        if not self._secret:
            self._secret = secrets.token_hex(SECRET_BYTES)
            self._written = None
        self.follow(self._wanted)
        await self.stop()
        if self._written is None:
            self._plain, self._secret = plain, ""
        return self._plain, bytes.fromhex(self._secret)

    def follow(self, places: Places) -> None:
        """The sessions are these now."""
        self._wanted = places
        if self._file is not None and self._writing is None and places != self._written:
            self._writing = asyncio.get_running_loop().create_task(self._write(self._file))

    async def _write(self, file: PrivateFile) -> None:
        while (places := self._wanted) != self._written:
            data = encode_places(places, self._plain, self._secret)
            try:
                await asyncio.to_thread(_store, file, data)
            except OSError as error:
                self._log.error("sessions of links not stored", file=file.path, reason=error.strerror or str(error))
                self._written = None
                break
            self._written = places
        self._writing = None

    async def stop(self) -> None:
        """Until the newest state is written."""
        if self._writing is not None:
            await self._writing


def _store(file: PrivateFile, data: bytes) -> None:
    file.change(lambda: data)
