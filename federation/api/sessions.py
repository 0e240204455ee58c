"""The Sessions service: the drain of this node, and where the session of a client is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import grpc
from google.protobuf.empty_pb2 import Empty

from broker.api.clients import wanted
from broker.api.errors import ApiError
from broker.api.fields import timestamp
from broker.api.tokens import Role
from broker.message import NEVER
from federation.api.sessions_of_workers import checked_rate, for_workers
from federation.errors import NotRunning
from federation.node import Node
from federation.sessions.arriving import Epoch
from federation.sessions.drain import Drain as NodeDrain
from federation.sessions.drain import DrainRefused
from federation.sessions.pb.sessions_pb2 import (
    Copies,
    DrainRequest,
    DrainStatus,
    GetSessionRequest,
    Keeper,
    MoveRequest,
    MoveResponse,
    Session,
)
from federation.sessions.pb.sessions_pb2_grpc import SessionsServicer
from federation.shell.drain import DrainControl


class SessionsService(SessionsServicer):
    """`wall_time` returns the Unix seconds of a monotonic instant, `now` the present one."""

    roles: Final = {
        "Drain": Role.ADMIN,
        "Undrain": Role.ADMIN,
        "Move": Role.ADMIN,
        "GetDrain": Role.READ,
        "GetCopies": Role.READ,
        "GetSession": Role.READ,
    }

    def __init__(
        self, node: Node, control: DrainControl, wall_time: Callable[[float], float], now: Callable[[], float]
    ) -> None:
        self._node = node
        self._now = now
        self._control = control
        self.for_workers: Final = for_workers(control.note_rates)
        self._wall_time = wall_time

    async def Drain(self, request: DrainRequest, context: object) -> DrainStatus:
        with _refusals():
            return self._status(self._control.begin(checked_rate(request)))

    async def Undrain(self, request: Empty, context: object) -> DrainStatus:
        with _refusals():
            return self._status(self._control.end())

    async def GetDrain(self, request: Empty, context: object) -> DrainStatus:
        with _refusals():
            return self._status(self._control.drain)

    async def Move(self, request: MoveRequest, context: object) -> MoveResponse:
        with _refusals():
            return MoveResponse(node_name=self._control.move(wanted(request.client_id), request.node_name))

    async def GetCopies(self, request: Empty, context: object) -> Copies:
        found = Copies(node_name=self._node.name)
        if self._node.copies is not None:
            replication = self._node.copies.replication
            since = replication.short_since()
            found.wanted, found.whole = replication.wanted, replication.whole()
            found.short_seconds = 0.0 if since == NEVER else max(0.0, self._now() - since)
            found.keepers.extend(
                Keeper(node_name=name, whole=keeper.is_whole) for name, keeper in replication.keepers.items()
            )
        return found

    async def GetSession(self, request: GetSessionRequest, context: object) -> Session:
        return session_place(self._node, wanted(request.client_id))

    def _status(self, drain: NodeDrain) -> DrainStatus:
        return DrainStatus(
            state=drain.state,
            since=timestamp(self._wall_time(drain.since)),
            rate=drain.rate,
            clients_left=drain.clients_left(),
            sessions_left=drain.sessions_left(),
            sessions_on_way=drain.count_leaving(True),
            clients_closed=drain.clients_closed,
            sessions_given=drain.sessions_given,
            waits_for=drain.waits_for(),
            node_name=self._node.name,
        )


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except DrainRefused as error:
        raise ApiError(grpc.StatusCode.FAILED_PRECONDITION, str(error)) from error
    except NotRunning as error:
        raise ApiError(grpc.StatusCode.UNAVAILABLE, str(error)) from error


def session_place(node: Node, client_id: str) -> Session:
    """The place of the session of a client, as far as the node knows."""
    broker, sessions = node.broker, node.sessions
    found = broker.sessions.get(client_id)
    home = None if sessions is None else sessions.homes.by_client.get(client_id)
    if found is not None:
        place = Session(client_id=client_id, state="here", home=node.name)
        if home is not None and sessions is not None:
            _set_epoch(place, sessions.homes.epoch_of(home))
            if home.arriving is not None:
                place.state = "arriving"
                place.waits_for.extend(dict.fromkeys([*home.arriving.handing, *home.arriving.waiting]))
        if node.copies is not None and found.records is not None:
            replication = node.copies.replication
            place.keepers.extend(
                Keeper(node_name=name, whole=keeper.is_whole) for name, keeper in replication.keepers.items()
            )
            place.short = replication.whole() < replication.wanted
        return place
    if sessions is None:
        return Session(client_id=client_id, state="unknown")
    if home is not None:  # the client waits for the answers of other nodes
        place = Session(client_id=client_id, state="arriving", home=node.name, waits_for=home.awaited or ())
        _set_epoch(place, sessions.homes.epoch_of(home))
        return place
    departings = sessions.moves.departing.get(client_id)
    if departings:
        last = departings[-1]
        waits_for = [name for name in last.waiting if name != node.name] if last.is_handed else [last.home]
        place = Session(client_id=client_id, state="leaving", home=last.home, waits_for=waits_for)
        _set_epoch(place, last.epoch)
        return place
    if client_id in sessions.homes.ended:
        return Session(client_id=client_id, state="ended")
    passed = sessions.moves.passed_on.newest.get(client_id)
    if passed is not None:
        name, epoch = passed
        place = Session(client_id=client_id, state="elsewhere" if name else "ended", home=name)
        _set_epoch(place, epoch)
        return place
    for replica in () if node.copies is None else node.copies.replicas.by_store.values():
        if client_id in replica.by_client:  # a copy of it is here
            return Session(client_id=client_id, state="elsewhere", home=replica.node, store_id=replica.store_id)
    return Session(client_id=client_id, state="unknown")


def _set_epoch(place: Session, epoch: Epoch) -> None:
    place.counter, place.store_id = epoch
