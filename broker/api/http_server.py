"""The REST side of the API: listeners, the bounds of their connections, bodies that arrive, answers that leave.

A connection whose client sends or takes nothing costs its place only while no other one needs it: at CONNECTIONS_MAX
connections, or BODIES_BYTES_MAX bytes of bodies that arrive, the oldest connection that runs no call is closed.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import Any, Final

import grpc
from aiohttp import hdrs, web

from broker.api.browser_guard import BrowserGuard
from broker.api.docs_page import OPENAPI_PATH, docs_response
from broker.api.errors import ApiError, invalid_argument, not_found
from broker.api.gateway import REQUEST_BYTES_MAX, Gateway, MethodNotAllowed
from broker.api.guard import ApiGuard
from broker.api.pages import HEALTH_PATHS, Page, PageMaker
from broker.api.pauses import with_pauses
from broker.api.site import Site
from broker.api.tokens import Role
from broker.api.transcoding import one_line
from broker.config.addresses import Address, is_loopback
from broker.config.settings_listeners import ApiListener
from broker.server.entrance import Entrance
from broker.server.socket_files import check_socket_path, remove_socket_files
from broker.server.start_error import bind_error
from broker.server.tls_context import HTTP_PROTOCOLS, LiveContext

CONNECTIONS_MAX: Final = 256  # over REST, of all listeners together
BODIES_BYTES_MAX: Final = 64 * 1024 * 1024  # of all bodies that are arriving
KEEP_ALIVE_SECONDS: Final = 75.0  # for the next header of a connection to arrive whole
BODY_SECONDS_MAX: Final = 30.0  # for a body to arrive
ANSWER_SECONDS_MAX: Final = 30.0  # for the client to take an answer
FIRST_EVENT_SECONDS: Final = 0.2  # to the begin of an answer in several parts, if none comes by then
EVENT_SECONDS: Final = 15.0  # between two signs of life in such an answer
STOP_SECONDS_MAX: Final = 0.5  # for calls that run when the node stops; its whole stop has 5 s
BACKLOG: Final = 128  # connections that the kernel keeps until they are accepted

HTTP_CONTENT_TOO_LARGE: Final = 413
HTTP_CLIENT_CLOSED_REQUEST: Final = 499


class BadRequests(logging.Handler):
    """The handler of aiohttp's log. Any client causes its lines with bytes that are no HTTP: one line at debug, no traceback.

    Faults of calls are logged by the methods and the gateway.
    """

    def __init__(self, log: Any) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self._log.debug("bad HTTP request", text=record.getMessage(), error=repr(error))


class HttpServer:
    """Listeners that serve the calls of a gateway (None: no calls), pages by their path, and the `site` for browsers, if there
    is one. `addresses` are known after `open`, with real ports."""

    def __init__(self, gateway: Gateway | None, pages: Mapping[str, PageMaker], guard: ApiGuard, log: Any) -> None:
        self.addresses: list[str] = []
        self.connections_dropped = 0
        self.web_pages_refused = 0
        self.site: Site | None = None
        self._gateway = gateway
        self._pages = pages
        self._guard = guard
        self._log = log
        self._socket_paths: list[str] = []
        self.contexts: list[LiveContext] = []
        self._listening: list[asyncio.Server] = []
        self._servers: list[BoundedServer] = []
        self.entrance = Entrance(lambda: CONNECTIONS_MAX, self._count_dropped)
        self._arriving: dict[web.RequestHandler, int] = {}  # bytes of each body that is arriving
        self._http_log = logging.Logger("http")  # without a parent that would print its lines
        self._http_log.addHandler(BadRequests(log))

    async def open(self, key: str, tls_key: str, listener: ApiListener) -> None:
        """Open one listener; raises StartError that names the key of the address or of `tls`, and the fault."""
        loop = asyncio.get_running_loop()
        address = listener.address
        server = BoundedServer(self, self._http_log)
        live = None
        if listener.tls is not None:
            live = LiveContext(listener.tls, tls_key, HTTP_PROTOCOLS)
            self.contexts.append(live)
        make = self.entrance.behind(live, server)
        try:
            if address.is_unix:
                check_socket_path(key, address)
                listening = await loop.create_unix_server(make, address.path, backlog=BACKLOG)
                self._socket_paths.append(address.path)
            else:
                listening = await loop.create_server(make, address.host or None, address.port, backlog=BACKLOG)
        except OSError as error:
            raise bind_error(error, str(address), key) from error
        # Browsers reach no unix socket.
        names = [sock.getsockname() for sock in listening.sockets]
        on_loopback = all(isinstance(name, tuple) and is_loopback(name[0]) for name in names)
        server.guard = BrowserGuard(listener.allowed_hosts, on_loopback)
        self._listening.append(listening)
        self._servers.append(server)
        port = 0 if address.is_unix else listening.sockets[0].getsockname()[1]
        self.addresses.append(str(bound_address(address, port)))

    async def close(self) -> None:
        """Take no new connections; calls that run have STOP_SECONDS_MAX. May be called twice."""
        for listening in self._listening:
            listening.close()
        await asyncio.sleep(0)  # requests that have arrived begin
        for server in self._servers:
            server.pre_shutdown()
        await asyncio.gather(*(server.shutdown(STOP_SECONDS_MAX) for server in self._servers))
        self.entrance.close()
        self._listening.clear()
        self._servers.clear()
        self.contexts.clear()
        self.addresses.clear()
        remove_socket_files(self._socket_paths)

    # --- bounds ---

    def _count_dropped(self) -> None:
        self.connections_dropped += 1

    def _drop(self, handler: web.RequestHandler) -> None:
        self._count_dropped()
        self._arriving.pop(handler, None)
        if handler.transport is not None:
            handler.transport.abort()

    # --- one request ---

    async def handle(self, guard: BrowserGuard, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request, within bounds of time for its body and for the answer."""
        try:
            response = await self._answer(guard, request)
        except ApiError as error:
            response = error_response(error)
        except ConnectionError:
            return web.Response(status=HTTP_CLIENT_CLOSED_REQUEST)
        if response.prepared:  # a stream, which has ended
            return response
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                await response.prepare(request)
                await response.write_eof()
        except TimeoutError:
            self._drop(request.protocol)
        return response

    async def _answer(self, guard: BrowserGuard, request: web.BaseRequest) -> web.StreamResponse:
        headers = request.headers
        refusal = guard.refusal(
            headers.getall(hdrs.HOST, []), headers.getall(hdrs.ORIGIN, []), headers.getall("Sec-Fetch-Site", [])
        )
        if refusal:
            self.web_pages_refused += 1
            raise ApiError(grpc.StatusCode.PERMISSION_DENIED, refusal)
        gateway = self._gateway
        make_page = self._pages.get(request.path)
        authorizations = headers.getall(hdrs.AUTHORIZATION, [])
        if self.site is not None:
            file = await self.site.response(request, guard.on_loopback)
            if file is not None:
                return file
            authorizations = self.site.authorizations(request)
        if make_page is not None:
            if request.path not in HEALTH_PATHS:
                self._guard.check(authorizations, Role.READ)
            return await page_response(request.method, make_page)
        if gateway is None:
            paths = ", ".join(self._pages)
            raise not_found(f"there is no {request.rel_url.raw_path}; this address has {paths}")
        if request.method == hdrs.METH_GET:
            if request.path == OPENAPI_PATH:
                return json_response(gateway.openapi())
            docs_page = await docs_response(request.path)
            if docs_page is not None:
                return docs_page
        route, path_fields = gateway.find(request.method, request.rel_url.raw_path)
        caller = self._guard.check(authorizations, route.method.role)
        body = await self._read_body(request)
        transport = request.transport
        if transport is None:
            raise ConnectionResetError
        self.entrance.places.hold(transport)
        try:
            if route.method.is_stream:
                last_event = headers.get("Last-Event-ID", "")
                return await self._stream(
                    request,
                    gateway.stream(route, path_fields, list(request.query.items()), last_event, caller),
                    lambda: self._guard.check(authorizations, route.method.role),
                )
            return json_response(await gateway.call(route, path_fields, list(request.query.items()), body, caller))
        finally:
            self.entrance.places.release(transport)

    async def _stream(
        self, request: web.BaseRequest, events: AsyncIterator[str], check: Callable[[], object]
    ) -> web.StreamResponse:
        """Send events as they come, and a comment where none came for a while, so that a connection that is gone is seen. A
        client that does not take them within ANSWER_SECONDS_MAX is dropped. `check` raises ApiError where the token does not
        suffice any more, which ends the stream. Raises ApiError before the first byte."""
        response = web.StreamResponse(headers={hdrs.CONTENT_TYPE: "text/event-stream", hdrs.CACHE_CONTROL: "no-store"})

        def seconds() -> float:
            # The first one may be an error, which is no event.
            return EVENT_SECONDS if response.prepared else FIRST_EVENT_SECONDS

        try:
            async with aclosing(with_pauses(events, seconds)) as texts:
                async for text in texts:
                    check()
                    async with asyncio.timeout(ANSWER_SECONDS_MAX):
                        await response.prepare(request)
                        await response.write((text or ": nothing happened\n\n").encode())
            await response.prepare(request)
            await response.write_eof()
        except ApiError:
            if not response.prepared:
                raise
            await response.write_eof()
        except TimeoutError:
            self._drop(request.protocol)
        except ConnectionError:
            pass
        return response

    async def _read_body(self, request: web.BaseRequest) -> bytes:
        """The whole body. Raises ApiError for one that is late, too large or wrong, ConnectionError when its client goes."""
        if not request.can_read_body:
            return b""
        if request.headers.get(hdrs.EXPECT, "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0
        body = bytearray()
        self._arriving[request.protocol] = 0
        try:
            async with asyncio.timeout(BODY_SECONDS_MAX):
                while chunk := await request.content.readany():
                    body += chunk
                    if len(body) > REQUEST_BYTES_MAX:
                        text = f"the body is larger than {REQUEST_BYTES_MAX} bytes"
                        raise ApiError(grpc.StatusCode.RESOURCE_EXHAUSTED, text, HTTP_CONTENT_TOO_LARGE)
                    self._arriving[request.protocol] = len(body)
                    self._bound_bodies()
        except TimeoutError:
            text = f"the body did not arrive within {BODY_SECONDS_MAX:.0f} s"
            raise ApiError(grpc.StatusCode.DEADLINE_EXCEEDED, text) from None
        except (ApiError, ConnectionError):
            raise
        except Exception as error:  # a broken encoding: only the client causes it
            raise invalid_argument(f"the body cannot be read: {one_line(error)}") from None
        finally:
            self._arriving.pop(request.protocol, None)
        return bytes(body)

    def _bound_bodies(self) -> None:
        while sum(self._arriving.values()) > BODIES_BYTES_MAX:
            self._drop(next(iter(self._arriving)))


class BoundedServer(web.Server):
    """aiohttp's server of one listener; it tells the entrance which connections come and go."""

    def __init__(self, owner: HttpServer, log: logging.Logger) -> None:
        super().__init__(self._handle, access_log=None, logger=log, keepalive_timeout=KEEP_ALIVE_SECONDS)
        self.guard = BrowserGuard((), True)
        self._owner = owner
        self._transports: dict[Any, asyncio.Transport] = {}  # a handler forgets its own before the end

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        return await self._owner.handle(self.guard, request)

    def connection_made(self, handler: Any, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self._transports[handler] = transport
        self._owner.entrance.admits(transport)

    def connection_lost(self, handler: Any, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self._owner.entrance.places.discard(self._transports.pop(handler))


def bound_address(address: Address, port: int) -> Address:
    return address if address.is_unix else Address("tcp", address.host, port)


async def page_response(method: str, make_page: PageMaker) -> web.Response:
    """A page for GET or HEAD. Raises ApiError for another method."""
    if method not in (hdrs.METH_GET, hdrs.METH_HEAD):
        raise MethodNotAllowed(f"{method} is not possible here, only GET and HEAD", [hdrs.METH_GET, hdrs.METH_HEAD])
    made = make_page()
    page = made if isinstance(made, Page) else await made
    headers = {hdrs.CONTENT_TYPE: page.content_type, hdrs.CACHE_CONTROL: "no-store"}
    return web.Response(body=page.body, status=page.status, headers=headers)


def json_response(text: str, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(body=text.encode(), status=status, headers=headers, content_type="application/json")


def error_response(error: ApiError) -> web.Response:
    # ASCII only: the text may quote a lone surrogate of the request's JSON, which UTF-8 cannot carry.
    text = json.dumps({"code": error.number, "message": error.text, "details": []})
    headers: dict[str, str] = {}
    if isinstance(error, MethodNotAllowed):
        headers = {hdrs.ALLOW: ", ".join(error.allowed)}
    elif error.code is grpc.StatusCode.UNAUTHENTICATED:
        headers = {hdrs.WWW_AUTHENTICATE: "Bearer"}
    return json_response(text, error.http_status, headers)
