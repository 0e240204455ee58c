"""The listeners of Kafka's protocol, the connections of consumers and their bounds."""

# not a core: sockets
from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

from broker.config.addresses import Address, socket_name_text
from broker.event_log.turns import Party, ReaderTurns
from broker.kafka.asked_partitions import Asked
from broker.kafka.connection import Closed, EndingReader, KafkaConnection
from broker.kafka.fields import KafkaFault, Values
from broker.kafka.frames import APIS, Request
from broker.kafka.messages import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from broker.kafka.settings import KafkaSettings
from broker.listener_facts import ListenerFacts
from broker.server.entrance import Entrance
from broker.server.start_error import bind_error
from broker.server.tls_context import LiveContext

if TYPE_CHECKING:
    from broker.server.host import Host

LARGE_BYTES: Final = 2**16  # of a request that counts for LARGE_AT_ONCE
LARGE_AT_ONCE: Final = 16  # large requests that arrive at the same time; further ones wait
UNSENT_BYTES_MAX: Final = 64 * 2**20
"""Bytes of the answers whose clients are waited for. Policy: the connection whose client has taken nothing for longest is
closed. An answer that waits for a turn of the node does not count: each connection has one at most."""
KERNEL_BYTES: Final = 2**16
"""Of an answer that the kernel takes beyond what the client has room for. Policy: the next request of a connection waits until
the kernel has all of the answer, so one that does not read costs few answers, not those that fill the kernel's 4 MiB."""
BACKLOG: Final = 128  # connections that the kernel keeps until they are accepted
CLOSED: Final = (
    *("answers_not_taken", "connections_idle", "connections_refused", "logins_ended", "logins_late", "logins_refused"),
    *("produces_refused", "requests_bad"),
)
"""Why connections were closed, or logins refused: the labels of a counter."""

Handler = Callable[[Asked], Awaitable[Values | None]]


class KafkaServer:
    """handlers  by API key; more may be added before `open`
    addresses  of the listeners, with real ports
    requests   by the name of their API
    closed     by reason (CLOSED)
    """

    def __init__(
        self, host: Host, settings: KafkaSettings, handlers: dict[int, Handler], turns: ReaderTurns, log: Any
    ) -> None:
        self.host = host
        self.handlers = handlers
        self.answered = (API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE, *handlers)
        self.addresses: list[str] = []
        self.requests: Counter[str] = Counter()
        self.closed: Counter[str] = Counter(dict.fromkeys(CLOSED, 0))
        self.context: LiveContext | None = None
        self._settings = settings
        self._turns = turns
        self._strangers = Party(turns)  # all who have not logged in
        self._parties: WeakValueDictionary[tuple[str, bool], Party] = (
            WeakValueDictionary()
        )  # by host, and who is let in
        self._log = log
        self._listening: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()  # of all connections
        self._entrance = Entrance(lambda: settings.max_connections, lambda: self.count("connections_refused"))
        self._large = asyncio.Semaphore(LARGE_AT_ONCE)
        self._unsent: dict[KafkaConnection, int] = {}  # the one that waits longest first

    def __len__(self) -> int:
        return len(self._entrance.places)

    async def open(self, key: str) -> None:
        """Raises StartError that names the key."""
        tls = self._settings.tls
        if tls is not None:
            self.context = LiveContext(tls, f"{key}.tls", ())
        for index, address in enumerate(self._settings.listeners):
            await self._open(f"{key}.listeners[{index}]", address)

    async def _open(self, key: str, address: Address) -> None:
        facts = ListenerFacts(address.host_port, "tcp" if self.context is None else "tls")
        loop = asyncio.get_running_loop()

        def made() -> asyncio.StreamReaderProtocol:
            reader = EndingReader()
            return asyncio.StreamReaderProtocol(reader, lambda _, writer: self._serve(facts, reader, writer))

        try:
            make = self._entrance.behind(self.context, made)
            opened = await loop.create_server(make, address.host or None, address.port, backlog=BACKLOG)
        except OSError as error:
            raise bind_error(error, address.host_port, key) from error
        self._listening.append(opened)
        for sock in opened.sockets:  # connections inherit it
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, KERNEL_BYTES)
        self.addresses += [socket_name_text(sock.getsockname()) for sock in opened.sockets]

    async def close(self) -> None:
        """Close the listeners and all connections. May be called twice."""
        for opened in self._listening:
            opened.close()
        self._listening.clear()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._entrance.close()

    # --- connections ---

    async def _serve(self, facts: ListenerFacts, reader: EndingReader, writer: asyncio.StreamWriter) -> None:
        connection = KafkaConnection(self, reader, writer, facts)
        if not self._entrance.admits(writer.transport):
            return
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await connection.serve()
        except Closed as reason:
            if reason.counter:
                self.count(reason.counter)
            self._log.debug("Kafka connection closed", client=connection.addr, reason=reason.counter, text=str(reason))
        except KafkaFault as fault:
            self.count("requests_bad")
            self._log.debug("bad request of Kafka's protocol", client=connection.addr, fault=str(fault))
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client has gone
        except asyncio.CancelledError:
            pass  # the node stops
        except Exception as error:
            self._log.error("fault in handling a Kafka client", client=connection.addr, exc_info=error)
        finally:
            self._tasks.discard(task)
            self._entrance.places.discard(writer.transport)
            self._unsent.pop(connection, None)
            connection.abort()

    def let_in(self, connection: KafkaConnection) -> None:
        """It is logged in, or has asked for something where no login is needed: it makes room for nobody."""
        self._entrance.places.hold(connection.transport)

    def count(self, reason: str) -> None:
        self.closed[reason] += 1

    async def answer(self, request: Request, connection: KafkaConnection) -> Values | None:
        """The answer of a client that is let in. None: it wants none, and is refused."""
        self.requests[APIS[request.key].name] += 1
        assert request.values is not None
        assert connection.identity is not None
        asked = Asked(
            request.version,
            request.client_id,
            request.values,
            connection.identity,
            connection.addr,
            connection.taken,
            connection.when_followed(),
            connection.party,
            connection.passed,
        )
        return await self.handlers[request.key](asked)

    # --- bounds ---

    def party_of(self, addr: str, is_let_in: bool) -> Party:
        """All connections of a host have turns like one, and before they log in all hosts together."""
        key = addr.rpartition(":")[0], is_let_in
        party = self._parties.get(key)
        if party is None:
            party = self._parties[key] = Party(self._turns if is_let_in else self._strangers)
        return party

    @asynccontextmanager
    async def room_for(self, size: int) -> AsyncIterator[None]:
        """While a request of this size arrives."""
        if size <= LARGE_BYTES:
            yield
        else:
            async with self._large:
                yield

    def sending(self, connection: KafkaConnection, size: int) -> None:
        """A piece of an answer was handed over: until `sent`, note `size` bytes, of it and of what follows in the answer, and
        close those that have waited longest where all have too many."""
        self._unsent[connection] = size
        while sum(self._unsent.values()) > UNSENT_BYTES_MAX and len(self._unsent) > 1:
            slowest = next(iter(self._unsent))
            del self._unsent[slowest]
            self.count("answers_not_taken")
            slowest.abort()

    def sent(self, connection: KafkaConnection) -> None:
        self._unsent.pop(connection, None)
