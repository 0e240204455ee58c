"""One connection of a consumer: requests in, answers out in their order, within bounds of time and bytes."""

# not a core: reads and writes a socket
from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from broker.authorization import ClientIdentity
from broker.config.addresses import socket_name_text
from broker.event_log.turns import Party
from broker.kafka import error_codes as errors
from broker.kafka.asked_partitions import Passed
from broker.kafka.fields import KafkaFault, Values
from broker.kafka.frames import SIZE, Request, api_versions, decode_request, encode_answer
from broker.kafka.group_messages import JOIN_GROUP, SYNC_GROUP
from broker.kafka.login import Login, LoginFault, mechanisms
from broker.kafka.messages import API_VERSIONS, FETCH, LIST_OFFSETS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from broker.listener_facts import ListenerFacts

if TYPE_CHECKING:
    from broker.server.host import Host

REQUEST_BYTES_MAX: Final = 2**20 + 2**16  # a batch of a producer, whom the answer tells that it is refused
LOGIN_BYTES_MAX: Final = 2**16  # of a request before the login
LOGIN_SECONDS: Final = 30.0  # from the connection to the end of the login
LOGIN_LASTS_SECONDS: Final = 600.0
"""After it a client logs in again, on this connection (KIP-368) or on another one: its account may have changed or gone."""
IDLE_SECONDS: Final = 600.0  # between two requests
ARRIVE_SECONDS: Final = 30.0  # for a request to arrive whole
WAITING: Final = (FETCH, LIST_OFFSETS, JOIN_GROUP, SYNC_GROUP)  # requests whose answers may take long
ANSWER_SECONDS: Final = 30.0  # for the client to take a piece of an answer (WRITE_BYTES)
WRITE_BYTES: Final = 2**18  # of an answer that are written at once, or one of its parts


class Closed(Exception):
    """The connection is to be closed. `counter` names the reason in the metrics; "" for none."""

    def __init__(self, counter: str = "", text: str = "") -> None:
        super().__init__(text)
        self.counter = counter


class Server(Protocol):
    """The server that all connections share: broker/kafka/server.py."""

    host: Host
    answered: tuple[int, ...]

    def answer(self, request: Request, connection: KafkaConnection) -> Coroutine[Any, Any, Values | None]: ...

    def party_of(self, addr: str, is_let_in: bool) -> Party: ...

    def room_for(self, size: int) -> AbstractAsyncContextManager[None]: ...

    def sending(self, connection: KafkaConnection, size: int) -> None: ...

    def sent(self, connection: KafkaConnection) -> None: ...

    def let_in(self, connection: KafkaConnection) -> None: ...

    def count(self, reason: str) -> None: ...


class EndingReader(asyncio.StreamReader):
    """has_ended  the client sends no more, or has reset the connection"""

    def __init__(self) -> None:
        super().__init__()
        self.has_ended = False
        self._told: Callable[[], object] | None = None
        self._unread = 0  # bytes that have arrived
        self._more = asyncio.get_running_loop().create_future()

    def feed_data(self, data: Any) -> None:
        super().feed_data(data)
        self._unread += len(data)
        if not self._more.done():
            self._more.set_result(None)

    async def take(self, size: int) -> bytes:
        """As readexactly, which nobody else may call."""
        data = await self.readexactly(size)
        self._unread -= size
        return data

    def when_more(self) -> asyncio.Future[None]:
        """Done when bytes have arrived behind those that were taken."""
        if self._more.done() and not self._unread:
            self._more = asyncio.get_running_loop().create_future()
        return self._more

    def when_ended(self, told: Callable[[], object] | None) -> None:
        """`told` is called when the client ends, or at once. None: nobody is told."""
        self._told = told
        if told is not None and self.has_ended:
            told()

    def _end(self) -> None:
        self.has_ended = True
        if self._told is not None:
            self._told()

    def feed_eof(self) -> None:
        super().feed_eof()
        self._end()

    def set_exception(self, exc: Exception) -> None:
        super().set_exception(exc)
        self._end()


class KafkaConnection:
    """identity  None before the login
    party     whose turns this connection has: before the login that of the strangers of its host
    taken     bytes of answers that the kernel has taken for the client
    passed    what its Fetches found nothing in, as Asked has it, since its login
    """

    def __init__(
        self, server: Server, reader: EndingReader, writer: asyncio.StreamWriter, facts: ListenerFacts
    ) -> None:
        self.identity: ClientIdentity | None = None
        self.addr = socket_name_text(writer.get_extra_info("peername"))
        self.party = server.party_of(self.addr, False)
        self.taken = 0
        self.passed: dict[str, Passed] = {}
        self._server = server
        self._reader = reader
        self._writer = writer
        self._facts = facts
        self._loop = asyncio.get_running_loop()
        self._ends_at = self._loop.time() + LOGIN_SECONDS
        self._mechanism = ""  # of the handshake
        self._login: Login | None = None
        writer.transport.set_write_buffer_limits(0)  # `drain` waits until the kernel has all bytes

    async def serve(self) -> None:
        """Answer requests until the connection ends. Raises Closed, KafkaFault, OSError, IncompleteReadError."""
        while True:
            data = await self._receive()
            request = await self.party.do(partial(decode_request, data, self._server.answered))
            answer = await self._answer(request)
            if answer is None:  # who wants no answer would not hear that it was refused
                raise Closed("produces_refused")
            await self._send(request, answer)
            if self.identity is None and self._login is not None and self._login.is_gone:
                raise Closed

    def when_followed(self) -> asyncio.Future[None]:
        """Done when the client has sent more behind its request."""
        return self._reader.when_more()

    @property
    def transport(self) -> asyncio.WriteTransport:
        return self._writer.transport

    def abort(self) -> None:
        self._writer.transport.abort()

    # --- bytes ---

    async def _receive(self) -> bytes:
        is_known = self.identity is not None or not self._server.host.broker.connect_deciders
        now = self._loop.time()
        if now >= self._ends_at:
            raise Closed("logins_ended" if is_known else "logins_late")
        try:
            async with asyncio.timeout(min(IDLE_SECONDS, self._ends_at - now)):
                size = SIZE.unpack(await self._reader.take(SIZE.size))[0]
            if not 0 < size <= (REQUEST_BYTES_MAX if is_known else LOGIN_BYTES_MAX):
                raise KafkaFault(f"a request of {size} bytes")
            async with self._server.room_for(size), asyncio.timeout(ARRIVE_SECONDS):
                return await self._reader.take(size)
        except TimeoutError:
            raise Closed("connections_idle") from None

    async def _send(self, request: Request, answer: Values) -> None:
        writing = self._write(request, answer)
        left = 1
        while left:
            size, left = await self.party.do(partial(next, writing))
            self._server.sending(self, size + left)  # from here on the client is waited for, not the turn
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    await self._writer.drain()
            except TimeoutError:
                raise Closed("answers_not_taken") from None
            finally:
                self._server.sent(self)
            self.taken += size

    def _write(self, request: Request, answer: Values) -> Iterator[tuple[int, int]]:
        """Write an answer in pieces. Gives the bytes of each one, and of those behind it."""
        parts = encode_answer(request, answer)
        left = sum(map(len, parts))
        for some in in_writes(parts, WRITE_BYTES):
            self._writer.writelines(some)
            size = sum(map(len, some))
            left -= size
            yield size, left

    # --- requests ---

    async def _answer(self, request: Request) -> Values | None:
        if request.key == API_VERSIONS:
            return api_versions(request, self._server.answered)
        assert request.values is not None
        if request.key == SASL_HANDSHAKE:
            return self._handshake(request)
        if request.key == SASL_AUTHENTICATE:
            return await self._authenticate(request)
        if self.identity is None:
            login = self._new_login(request.client_id)
            try:
                await login.without_credentials()
            except LoginFault as fault:
                raise Closed("logins_refused", str(fault)) from None
            self._let_in(login)
        assert self.identity is not None
        answer = self._server.answer(request, self)
        return await (self._while_open(answer) if request.key in WAITING else answer)

    async def _while_open(self, answer: Coroutine[Any, Any, Values | None]) -> Values | None:
        """Wait for an answer as long as its client does. Raises Closed."""
        task = asyncio.current_task()
        assert task is not None
        self._reader.when_ended(task.cancel)
        try:
            return await answer
        except asyncio.CancelledError:
            if self._reader.has_ended:
                raise Closed from None
            raise
        finally:
            self._reader.when_ended(None)

    def _handshake(self, request: Request) -> Values:
        assert request.values is not None
        known = mechanisms(self._server.host)
        error = errors.NONE
        if request.version == 0:  # tokens without a header would follow
            error = errors.UNSUPPORTED_VERSION
        elif request.values["mechanism"] not in known:
            error = errors.UNSUPPORTED_SASL_MECHANISM
        else:
            self._mechanism = request.values["mechanism"]
            self._login = self._new_login(request.client_id)
        return {"error_code": error, "mechanisms": known}

    async def _authenticate(self, request: Request) -> Values:
        assert request.values is not None
        login = self._login
        if login is None:
            return _refusal(errors.ILLEGAL_SASL_STATE, "SaslHandshake comes first")
        try:
            data = await login.proceed(self._mechanism, request.values["auth_bytes"])
        except LoginFault as fault:
            self.identity = None
            login.is_gone = True
            self._server.count("logins_refused")
            return _refusal(errors.SASL_AUTHENTICATION_FAILED, str(fault))
        if login.is_done:
            if self.identity is not None and self.identity.username != login.username:
                raise Closed("logins_refused", "another user than the one who connected")
            self._let_in(login)
        left = self._ends_at - self._loop.time() if login.is_done else 0.0
        return {
            "error_code": errors.NONE,
            "error_message": None,
            "auth_bytes": data,
            "session_lifetime_ms": int(left * 1000) if left < math.inf else 0,
        }

    def _new_login(self, client_id: str) -> Login:
        local = socket_name_text(self._writer.get_extra_info("sockname"))
        return Login(self._server.host, client_id, (self.addr, local), self._facts, _common_name(self._writer))

    def _let_in(self, login: Login) -> None:
        self._login = None
        self.identity = login.identity
        self.passed = {}
        self.party = self._server.party_of(self.addr, True)
        self._server.let_in(self)
        lasts = LOGIN_LASTS_SECONDS if self._server.host.broker.connect_deciders else math.inf
        self._ends_at = min(self._loop.time() + lasts, login.expires_at)


def in_writes(parts: list[bytes], size: int) -> Iterator[list[bytes]]:
    """The parts in their order, in lists of so many bytes, or of one part."""
    some: list[bytes] = []
    left = size
    for part in parts:
        if some and len(part) > left:
            yield some
            some, left = [], size
        some.append(part)
        left -= len(part)
    yield some


def _refusal(error: int, text: str) -> Values:
    return {"error_code": error, "error_message": text, "auth_bytes": b""}


def _common_name(writer: asyncio.StreamWriter) -> str:
    """Of the client's certificate, which TLS has verified; "" without one."""
    certificate: Any = writer.get_extra_info("peercert")  # a dict of tuples of pairs
    for part in (certificate or {}).get("subject", ()):
        for name, value in part:
            if name == "commonName":
                return str(value)
    return ""
