"""The membership of a node: its gossip, the log of its members, conflicts of its name, and the calls of the API."""

# not a core: runs in the loop
from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Final

from broker.config.addresses import Address
from broker.errors import MemberFault
from broker.hooks import Members, OtherNode
from broker.server.logging import get_logger
from federation.errors import JoinFailed, NotRunning
from federation.member_tags import MemberTags
from federation.node import Node
from federation.serf.events import (
    Event,
    Member,
    MemberEvent,
    MemberFailed,
    MemberJoin,
    MemberLeave,
    MemberReap,
    MemberUpdate,
    NameConflict,
)
from federation.serf.leaving import SerfPhase
from federation.serf.retry_join import RetryJoin
from federation.serf.serf import Serf
from federation.settings import FederationSettings
from federation.shell.gossip import GossipShell
from federation.shell.gossip_sockets import GossipSockets
from federation.shell.key_control import KeyControl
from federation.shell.keyring_file import KeyringFile
from federation.shell.plugin_calls import PluginCalls
from federation.shell.snapshot_file import SnapshotFile, SnapshotWriter

LEAVE_AT_STOP_SECONDS_MAX: Final = 2.5
"""Longest wait at the stop of the process until the leave is broadcast."""
LEAVE_BY_API_SECONDS_MAX: Final = 15.0
"""Longest wait for a leave by the API."""

_MEMBER_LINES: Final[dict[type[MemberEvent], str]] = {
    MemberJoin: "member joined",
    MemberLeave: "member left",
    MemberFailed: "member failed",
    MemberUpdate: "member updated",
    MemberReap: "member forgotten",
}


class FederationMembership(Members):
    """`node` gets the events of members; `members_changed` is called after it got them.

    `before_leave` is awaited before a leave, `stop_soon` is called with the reason for which the process must end.
    `has_siblings`: other workers of the node know this one as a member.
    """

    def __init__(
        self,
        node: Node,
        settings: FederationSettings,
        members_changed: Callable[[], None],
        before_leave: Callable[[], Awaitable[None]],
        stop_soon: Callable[[str], None],
        key: str,
        has_siblings: bool,
    ) -> None:
        super().__init__(settings.node_name)
        self._node = node
        self._settings = settings
        self._members_changed = members_changed
        self._before_leave = before_leave
        self._stop_soon = stop_soon
        self._key = key
        self._has_siblings = has_siblings
        self._log = get_logger("federation")
        self._loop = asyncio.get_running_loop()
        self.tags = MemberTags({})
        self.listeners: list[Callable[[list[Event]], None]] = []
        self.plugin_calls: PluginCalls | None = None
        self._gossip: GossipShell | None = None
        self._keys: KeyControl | None = None
        self._retry_join: RetryJoin | None = None
        self._snapshot_file: SnapshotFile | None = None
        self._snapshot: SnapshotWriter | None = None
        self._retry_deadline: asyncio.TimerHandle | None = None
        self._is_stopping = False
        self._lost_name = False

    # --- start and stop

    def open_snapshot(self, path_of: Callable[[str], str]) -> None:
        """Read the snapshot, where there is one. Raises StartError."""
        settings = self._settings
        if settings.snapshot_path:
            path = Path(path_of(settings.snapshot_path))
            self._snapshot_file = SnapshotFile(path, settings.rejoin_after_leave, f"{self._key}.snapshot_path")
            unknown = self._snapshot_file.contents.unknown
            if unknown:
                self._log.warning("lines of the snapshot are skipped: nothing known", path=str(path), lines=unknown)

    @property
    def has_seeds(self) -> bool:
        """There are nodes to join at the start: those of the settings, or members of the snapshot."""
        return bool(self._settings.retry_join) or bool(self._known())

    @property
    def joins_others(self) -> bool:
        """Some of these are no workers of this node."""
        siblings = self._node.siblings
        return len(set(self._settings.retry_join)) > len(siblings) or not self._known().keys() <= siblings.keys()

    def _known(self) -> dict[str, str]:
        """Gossip addresses of the members in the snapshot, by name."""
        file = self._snapshot_file
        members = {} if file is None else file.contents.members
        return {name: Address("tcp", *at).host_port for name, at in members.items() if name != self._node.name}

    def _known_hosts(self) -> list[str]:
        """Those addresses in random order."""
        hosts = list(self._known().values())
        random.shuffle(hosts)
        return hosts

    async def start(self, serf: Serf, sockets: GossipSockets, keyring_file: KeyringFile | None = None) -> None:
        """Run the gossip and join the seeds. The sockets are closed by `stop`. Changed keys are written to `keyring_file`."""
        settings = self._settings
        if self._snapshot_file is not None:
            serf.restore_times(*self._snapshot_file.contents.clocks)
            self._snapshot = SnapshotWriter(self._snapshot_file, serf, self._log)
        if self.has_seeds:
            hosts = [str(address) for address in settings.retry_join]
            self._retry_join = RetryJoin(
                hosts, settings.retry_interval, settings.retry_timeout, self._loop.time(), self._known_hosts()
            )
            if settings.retry_join and settings.retry_timeout_action == "exit":
                self._retry_deadline = self._loop.call_later(settings.retry_timeout, self._retry_over, self._retry_join)
        self.tags = MemberTags(serf.config.tags)
        self._gossip = GossipShell(serf, sockets, self.receive_events, self._log, self._retry_join)
        self._keys = KeyControl(self._gossip, keyring_file, self._log)
        await self._gossip.start()

    @property
    def keys(self) -> KeyControl:
        """Raises NotRunning."""
        self._running()
        assert self._keys is not None
        return self._keys

    @property
    def serf(self) -> Serf | None:
        """The core of the membership; None before the start."""
        return None if self._gossip is None else self._gossip.serf

    async def leave_at_stop(self) -> None:
        """Leave gracefully before the process stops."""
        self._is_stopping = True
        gossip = self._gossip
        if gossip is None or gossip.stopped:
            return
        if self._lost_name:
            # Others would take a leave of this name for the leave of the node that keeps the name.
            await gossip.stop()
        else:
            await self._before_leave()
            if gossip.serf.phase != SerfPhase.LEFT and not await gossip.leave(LEAVE_AT_STOP_SECONDS_MAX):
                self._log.warning(
                    "left before all members could be told", node=self._node.name, seconds=LEAVE_AT_STOP_SECONDS_MAX
                )
        self._node.stopped()
        self._members_changed()

    async def stop(self) -> None:
        """Close everything at once."""
        if self._retry_deadline is not None:
            self._retry_deadline.cancel()
        if self._gossip is not None:
            await self._gossip.stop()
        if self._snapshot is not None:
            await self._snapshot.stop()
        elif self._snapshot_file is not None:
            self._snapshot_file.close()
        if self._keys is not None:
            await self._keys.stop()

    # --- events

    def receive_events(self, events: list[Event]) -> None:
        """Log the events of Serf and pass them on."""
        for event in events:
            if isinstance(event, NameConflict):
                self._name_conflict(event)
            elif isinstance(event, MemberEvent) and event.member.name != self._node.name:
                member = event.member
                log = self._log.warning if isinstance(event, MemberFailed) else self._log.info
                addr = Address("tcp", member.ip, member.port).host_port
                log(_MEMBER_LINES[type(event)], node=member.name, addr=addr, tags=member.tags)
        if self._snapshot is not None:
            self._snapshot.note_events(events)
        if self._keys is not None:
            self._keys.receive(events)
        self._node.member_events(events, self._loop.time())
        self._follow_phase()
        self._members_changed()
        for listener in self.listeners:
            listener(events)

    def _follow_phase(self) -> None:
        """A join by the API made this node a member again after a leave: the node opens its event streams again."""
        gossip = self._gossip
        is_alive = gossip is not None and gossip.serf.phase == SerfPhase.ALIVE
        if gossip is not None and is_alive and self._node.has_left and not self._is_stopping:
            self._node.joined(gossip.serf.members(), self._loop.time())

    def _name_conflict(self, conflict: NameConflict) -> None:
        other = Address("tcp", conflict.ip, conflict.port).host_port
        if conflict.lost and self._is_alone():
            # A join by the API was refused and has reported it. The node goes on serving its clients.
            self._log.error("not joined: the name of this node is taken", node=conflict.name, other=other)
        elif conflict.lost:
            self._lost_name = True
            self._stop_soon(
                f"the node name {conflict.name!r} belongs to another node of the federation, at {other}; "
                f"give this one another {self._key}.node_name"
            )
        elif conflict.ours:
            self._log.error("another node has the name of this one", node=conflict.name, other=other)
        else:
            self._log.warning("two nodes have one name", node=conflict.name, other=other)

    def _is_alone(self) -> bool:
        gossip = self._gossip
        is_joining = self._retry_join is not None and bool(self._retry_join.pending)
        return gossip is not None and not is_joining and gossip.serf.alive_others() == 0

    def _left(self) -> None:
        self._node.left()
        self._members_changed()

    def _retry_over(self, retry_join: RetryJoin) -> None:
        if not retry_join.reached and retry_join.pending:
            hosts = ", ".join(retry_join.pending)
            self._stop_soon(
                f"{self._key}.retry_join: {hosts} did not answer within {self._settings.retry_timeout:g} s "
                "and retry_timeout_action is exit"
            )

    # --- calls of the API, each of which may raise NotRunning

    async def join(self, hosts: list[str], replay: bool = True) -> int:
        """Join through the nodes at these gossip addresses (HOST:PORT), with user events of before the join where `replay` is
        true. Gives the number of those that answered; raises JoinFailed when none does."""
        gossip = self._running()
        try:
            errors = await gossip.join(hosts, not replay)
        except JoinFailed as error:
            self._log.warning("join by the API failed", hosts=hosts, errors=error.errors)
            raise
        finally:
            self._follow_phase()
            self._members_changed()
        if errors:
            self._log.warning("joined by the API, but not all hosts answered", hosts=hosts, errors=errors)
        else:
            self._log.info("joined by the API", hosts=hosts)
        return len(dict.fromkeys(hosts)) - len(errors)

    def flush(self) -> None:
        """Send what calls to Serf have caused; its events go to `listeners`."""
        if self._gossip is not None:
            self._gossip.flush()

    async def leave(self) -> None:
        """Leave gracefully, within a bounded time. The node serves its own clients on. ValueError for a node with workers."""
        gossip = self._running()
        if self._has_siblings:
            raise ValueError(
                "workers of one node reach each other as members, so that its clients would be parted by a leave; "
                "drain the node and stop it instead"
            )
        await self._before_leave()
        is_told = await gossip.leave(LEAVE_BY_API_SECONDS_MAX)
        self._left()
        if is_told:
            self._log.info("left by the API, retry_join rests until a join", node=self._node.name)
        else:
            self._log.warning(
                "left by the API before all members could be told, retry_join rests until a join", node=self._node.name
            )

    def force_leave(self, name: str, prune: bool = False) -> None:
        """Turn a failed member into one that has left, and give up what waits for it; `prune`: forget it at once, too.

        An unknown name may be known to other members; what waits here for it is given up, too. ValueError for the node's own
        name.
        """
        gossip = self._running()
        is_known = gossip.serf.member(name) is not None
        gossip.serf.force_leave(name, self._loop.time(), prune)
        if not is_known and self._node.forget(name):
            self._members_changed()
            self._log.info("what waited for a node is given up: it is no member", node=name)
        gossip.flush()
        self._log.info("made to leave by the API", node=name, prune=prune, known=is_known)

    def set_state_tags(self, state: dict[str, str]) -> None:
        """Tell other members these tags beside the node's own and those of the operator."""
        self._running()
        self.tags.state = state
        self._tell_tags()

    def change_tags(self, tags: dict[str, str], delete: Iterable[str]) -> None:
        """Delete tags of the operator, then set others, until the process ends. ValueError for the node's own tags, and for
        more than fit."""
        self._running()
        self.tags.change(tags, delete)
        self._tell_tags()
        self._log.info("tags changed by the API", tags=self.tags.told())

    def _tell_tags(self) -> None:
        gossip = self._running()
        gossip.serf.set_tags(self.tags.told(), self._loop.time())
        gossip.flush()

    def members(self) -> list[Member]:
        return self._running().serf.members()

    def running_serf(self) -> Serf:
        """The core of the membership. Raises NotRunning."""
        return self._running().serf

    def _running(self) -> GossipShell:
        if self._gossip is None or self._gossip.stopped:
            raise NotRunning
        return self._gossip

    async def call(self, node: str, method: str, request: bytes, seconds: float) -> bytes:
        if self.plugin_calls is None:
            raise MemberFault("the federation does not run")
        return await self.plugin_calls.call(node, method, request, seconds)

    def others(self) -> list[OtherNode]:
        """There are none before the federation starts and after it stops."""
        try:
            members = self.members()
        except NotRunning:
            return []
        return [
            OtherNode(member.name, member.status.name, member.tags)
            for member in members
            if member.name != self.node_name
        ]
