"""The exchanges of definitions of a running node with the other nodes of its cluster, over gRPC."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import grpc

from broker.config.addresses import host_of, is_loopback
from broker.message import NEVER
from broker.server.logging import get_logger
from federation.definitions.exchange import Exchange, ExchangeError, answer
from federation.definitions.pb import definitions_pb2 as pb
from federation.definitions.replication import Outcome, Replication
from federation.extension import Extension
from federation.shell.dialer import Dialer
from federation.shell.member_calls import MemberAway, MemberCalls

if TYPE_CHECKING:
    from broker.server.host import Host
    from federation.definitions.shell.service import DefinitionsService

SERVICE: Final = "gmqtt.definitions.api.DefinitionsExchange"
METHOD: Final = f"/{SERVICE}/Exchange"
CALL_SECONDS_MAX: Final = 10.0
NOT_LOCAL: Final = (
    "it is reached without TLS at an address that is no loopback address, so secrets of this node would leave the machine "
    "unencrypted: set plugins.federation.tls on both, or give both an address of one kind"
)

_untyped: Final[Any] = grpc  # its makers of handlers have no annotations


class DefinitionsCluster(Extension):
    """`start`, then `changed` after each change here, then `stop`.

    tag                 the Serf tag of nodes that have definitions
    secrets_stay_local  those that this node shares go to nodes with TLS, and to nodes of this machine, only
    dialer              that of a node with TLS
    """

    def __init__(
        self,
        host: Host,
        service: DefinitionsService,
        tag: str,
        secrets_stay_local: bool = True,
        dialer: Dialer | None = None,
    ) -> None:
        self._host = host
        self._service = service
        self._tag = tag
        self._needs_loopback = secrets_stay_local and service.definitions.shares_secrets
        self._log = get_logger("definitions")
        self._loop = asyncio.get_running_loop()
        self._calls = MemberCalls(host.members, dialer)
        self._replication = Replication(random.Random())
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._is_running = False
        self._declared = service.definitions.declared_digest()
        self._files: dict[str, int] = {}  # node -> the digest of the definitions in its configuration file
        self._logged: dict[str, str] = {}  # node -> the last reason that was logged
        self._refused: dict[str, str] = {}  # node -> what was last refused of it, as logged

    def start(self) -> None:
        """Exchange from now on."""
        self._is_running = True
        self.members_changed()

    def changed(self) -> None:
        """This node has changed a definition."""
        self._replication.changed(self._host.now())
        self._carry_out()

    async def stop(self) -> None:
        self._is_running = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._calls.close()

    # --- what the federation tells

    def members_changed(self) -> None:
        if not self._is_running:
            return
        others = self._host.members.others()
        names = [other.name for other in others if other.status == "ALIVE" and self._tag in other.tags]
        self._logged = {name: reason for name, reason in self._logged.items() if name in names}
        self._files = {name: digest for name, digest in self._files.items() if name in names}
        self._refused = {name: text for name, text in self._refused.items() if name in names}
        self._service.clock.set_members(names)
        self._replication.set_members(names, self._host.now())
        self._carry_out()

    def services(self) -> Mapping[str, Mapping[str, Any]]:
        handler = _untyped.unary_unary_rpc_method_handler(
            self._answer,
            request_deserializer=pb.ExchangeRequest.FromString,
            response_serializer=pb.ExchangeAnswer.SerializeToString,
        )
        return {SERVICE: {"Exchange": handler}}

    # --- exchanges

    def _carry_out(self) -> None:
        """Begin the exchanges that are due, and set the timer."""
        if not self._is_running:
            return
        for name in self._replication.take_exchanges(self._host.now()):
            task = self._loop.create_task(self._exchange(name))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        at = self._replication.next_timeout()
        if at != NEVER:
            self._timer = self._loop.call_at(at, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        self._carry_out()

    async def _exchange(self, name: str) -> None:
        outcome, reason = Outcome.DONE, ""
        try:
            await self._run(name)
        except MemberAway as away:
            outcome = Outcome.UNKNOWN if away.code is grpc.StatusCode.UNIMPLEMENTED else Outcome.FAILED
            reason = away.reason
        except ExchangeError as error:
            outcome, reason = Outcome.FAILED, str(error)
        except Exception as error:  # of what took effect: the exchange is over all the same
            outcome, reason = Outcome.FAILED, "internal error"
            self._host.plugin_error(error)
        if reason and reason != self._logged.get(name):
            self._log.warning("definitions are not exchanged with a node", node=name, reason=reason)
        self._logged[name] = reason
        self._replication.exchange_over(name, outcome, self._host.now())
        self._carry_out()

    async def _run(self, name: str) -> None:
        reach = self._calls.reach(name)
        if self._needs_loopback and reach.addr and not (reach.is_tls or is_loopback(host_of(reach.addr))):
            raise ExchangeError(NOT_LOCAL)
        exchange = Exchange(self._service.definitions)
        while (request := exchange.request()) is not None:
            request.node, request.declared = self._host.members.node_name, self._declared
            request.time = self._own_milliseconds()
            found = await self._calls.call(name, METHOD, request, pb.ExchangeAnswer.FromString, CALL_SECONDS_MAX)
            self._heard_clock(name, found.time)
            taken = exchange.receive(found, self._service.unix_time())
            self._name_refused(name)
            if taken:
                self._service.merged(name)

    async def _answer(self, request: pb.ExchangeRequest, context: Any) -> pb.ExchangeAnswer:
        if not self._is_running:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "definitions are not there yet, or no more")
        is_member = any(other.name == request.node for other in self._host.members.others())
        name = request.node if is_member else "another node"
        if is_member:  # what is remembered is bounded by the members
            self._heard_clock(name, request.time)
            self._compare_files(request)
        try:
            found = answer(self._service.definitions, request, self._service.unix_time())
        except ExchangeError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        self._name_refused(name)
        if request.definitions:
            self._service.merged(name)
        found.time = self._own_milliseconds()
        return found

    def _own_milliseconds(self) -> int:
        return max(1, int(self._service.own_time() * 1000))

    def _heard_clock(self, name: str, milliseconds: int) -> None:
        if milliseconds:
            self._service.heard_clock(name, milliseconds / 1000)

    def _name_refused(self, name: str) -> None:
        """Log what was not taken of a node, until it is something else."""
        refused = sorted(self._service.definitions.take_refused())
        if refused and refused[0] != self._refused.get(name):
            self._log.warning("definitions of a node are refused", node=name, reason=refused[0], count=len(refused))
            self._refused[name] = refused[0]

    def _compare_files(self, request: pb.ExchangeRequest) -> None:
        """Any node may run a link, so a difference between the configuration files is logged, once."""
        name = request.node
        if self._files.get(name, self._declared) != request.declared and request.declared != self._declared:
            text = "the definitions in the configuration file of a node are others than here; each node needs the same"
            self._log.warning(text, node=name)
        self._files[name] = request.declared
