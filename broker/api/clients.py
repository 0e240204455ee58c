"""ClientService: the clients that have a session on this node."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

import grpc
from google.protobuf.empty_pb2 import Empty

from broker.api import client_history
from broker.api.errors import ApiError, invalid_argument, not_found
from broker.api.fields import page_bounds, timestamp
from broker.api.long_calls import LongCalls, Steps
from broker.api.merging import Merged
from broker.api.pb.admin_pb2 import (
    Client,
    ClientEvent,
    ClientHistory,
    DeleteClientRequest,
    GetClientRequest,
    GetClientResponse,
    ListClientRequest,
    ListClientResponse,
    ReleaseClientRequest,
)
from broker.api.pb.admin_pb2_grpc import ClientServiceServicer
from broker.api.tokens import Role
from broker.server.committed import committed
from broker.server.logging import get_logger

if TYPE_CHECKING:
    from broker.server.host import Host
    from broker.session.session import Session


class ClientService(ClientServiceServicer):
    roles: Final = {
        "List": Role.READ,
        "Get": Role.READ,
        "History": Role.READ,
        "Delete": Role.WRITE,
        "Release": Role.ADMIN,
    }
    for_workers: Final = {
        "List": Merged.page,
        "Get": Merged.by_who_knows,
        "History": Merged.newest_first,
        "Delete": Merged.at_each,
        "Release": Merged.by_who_knows,
    }

    def __init__(self, server: Host, long_calls: LongCalls) -> None:
        self._server = server
        self._long_calls = long_calls
        self._log = get_logger("api")
        self._history = client_history.ClientHistory(server.now)

    def start(self) -> None:
        """Keep what becomes of clients from now on."""
        self._server.broker.add_observer(self._history)

    def stop(self) -> None:
        self._server.broker.remove_observer(self._history)

    async def List(self, request: ListClientRequest, context: object) -> ListClientResponse:
        bounds = page_bounds(request.page, request.page_size)
        filters = [field for field, _ in request.ListFields() if field.name not in ("page", "page_size")]
        if filters:
            return await self._long_calls.run(self._found(request, *bounds))
        return await self._long_calls.run(self._page(*bounds))

    def _page(self, offset: int, count: int) -> Steps[ListClientResponse]:
        sessions = self._server.broker.sessions
        response = ListClientResponse(total_count=len(sessions))
        for session in list(islice(sessions.values(), offset, offset + count)):
            response.clients.append(self._client(session))
            yield
        return response

    def _found(self, request: ListClientRequest, offset: int, count: int) -> Steps[ListClientResponse]:
        """A page of the clients that the request asks for. All sessions are looked at, in steps."""
        response = ListClientResponse()
        for session in list(self._server.broker.sessions.values()):
            if is_asked_for(session, request):
                if offset <= response.total_count < offset + count:
                    response.clients.append(self._client(session))
                response.total_count += 1
            yield
        return response

    async def Get(self, request: GetClientRequest, context: object) -> GetClientResponse:
        return GetClientResponse(client=self._client(known_session(self._server, request.client_id)))

    async def History(self, request: GetClientRequest, context: object) -> ClientHistory:
        wall_time = self._server.wall_time
        return ClientHistory(
            events=[
                ClientEvent(
                    time=timestamp(wall_time(event.at)), kind=event.kind, remote_addr=event.addr, text=event.text
                )
                for event in self._history.of(wanted(request.client_id))
            ]
        )

    async def Delete(self, request: DeleteClientRequest, context: object) -> Empty:
        server = self._server
        if server.broker.close_client(wanted(request.client_id), request.clean_session, server.now()):
            self._log.info("client ended by the API", client_id=request.client_id, clean_session=request.clean_session)
        server.flush_soon()
        await committed(server)
        return Empty()

    async def Release(self, request: ReleaseClientRequest, context: object) -> Empty:
        session = known_session(self._server, request.client_id)
        if session.bridge_end is None:
            text = f'the session of "{request.client_id}" is of no link: any client of this id takes it up'
            raise ApiError(grpc.StatusCode.FAILED_PRECONDITION, text)
        session.bridge_end.is_released = True
        self._log.info("session of a link released by the API", client_id=request.client_id, username=session.username)
        return Empty()

    def _client(self, session: Session) -> Client:
        packets_received, packets_received_bytes, packets_sent, packets_sent_bytes = session.traffic()
        client = Client(
            client_id=session.client_id,
            username=session.username,
            keep_alive=session.keep_alive,
            version=session.version,
            remote_addr=session.remote_addr,
            local_addr=session.local_addr,
            connected_at=timestamp(self._server.wall_time(session.connected_at)),
            session_expiry=session.expiry_interval,
            max_inflight=session.inflight_max,
            inflight_len=session.inflight_length(),
            max_queue=session.queue_max,
            queue_len=session.queue_length(),
            subscriptions_current=len(session.subscriptions),
            subscriptions_total=session.subscriptions_total,
            packets_received_bytes=packets_received_bytes,
            packets_received_nums=packets_received,
            packets_send_bytes=packets_sent_bytes,
            packets_send_nums=packets_sent,
            message_dropped=session.messages_dropped,
            link_domain="" if session.bridge_end is None else session.bridge_end.name,
        )
        if session.connection is None:
            client.disconnected_at.CopyFrom(timestamp(self._server.wall_time(session.disconnected_at)))
        return client


def is_asked_for(session: Session, request: ListClientRequest) -> bool:
    """Return whether a client has everything that the request names."""
    return (
        session.client_id.startswith(request.client_id)
        and (not request.username or session.username == request.username)
        and session.remote_addr.startswith(request.remote_addr)
        and (not request.version or session.version == request.version)
        and (not request.HasField("connected") or (session.connection is not None) == request.connected)
        and (not request.HasField("link") or (session.bridge_end is not None) == request.link)
    )


def wanted(client_id: str) -> str:
    """The client id of a request. Raises ApiError when it is missing."""
    if not client_id:
        raise invalid_argument("client_id is empty; it names the client")
    return client_id


def known_session(server: Host, client_id: str) -> Session:
    """The session of a client. Raises ApiError when it has none here."""
    session = server.broker.sessions.get(wanted(client_id))
    if session is None:
        raise no_session(client_id)
    return session


def no_session(client_id: str) -> ApiError:
    return not_found(f'client "{client_id}" has no session on this node')
