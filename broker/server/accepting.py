"""The listeners of one worker: takes connections, or passes their sockets to the worker that has the fewest.

The kernel spreads connections by a hash of their addresses, evenly on average only. A socket is passed before a byte of it is
read, so that it makes no difference what the client speaks. A worker that has no room for clients, or hangs, has few
connections: it gets none.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Callable
from typing import Any, Final

from broker.server.shared_sockets import bound, stream_addresses
from broker.server.worker import Worker

ACCEPTED_MAX: Final = 64  # in one turn of the loop, of one listener
PAUSE_SECONDS: Final = 1.0  # after the system had no descriptor or memory for a connection
SLACK: Final = 4  # a worker passes on from so many more connections than the one with the fewest …
SLACK_SHARE: Final = 32  # … and a part of that one's number
TAKES_SECONDS: Final = 2.0  # so long after its last word a worker is taken for one that takes clients
TELL_SECONDS: Final = 0.5  # between two words
SOCKETS: Final = "sockets"  # the Unix sockets on which a worker takes sockets of others
HEAD_BYTES: Final = 2  # number of the listener

MakeProtocol = Callable[[], asyncio.Protocol]


def passes(own: int, least: int) -> bool:
    """Return whether a worker with so many connections passes the next one to the worker with the fewest."""
    return own > least + SLACK + least // SLACK_SHARE


class Accepting:
    """`listen` for each listener, then `start`, then `close`.

    connections  of this worker, told by its owner
    has_room     whether it takes clients now, likewise
    passed       sockets that were given to other workers
    """

    def __init__(self, worker: Worker, connections: Callable[[], int], has_room: Callable[[], bool], log: Any) -> None:
        self.passed = 0
        self._worker = worker
        self._connections = connections
        self._has_room = has_room
        self._telling: asyncio.TimerHandle | None = None
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._listening: list[socket.socket] = []
        self._makers: dict[int, MakeProtocol] = {}
        self._own: set[int] = set()
        self._from_others: socket.socket | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def listen(
        self, number: int, host: str, port: int, backlog: int, make: MakeProtocol, is_own: bool
    ) -> list[socket.socket]:
        """Open an address of the listener with this number; is_own: no other worker has it. Returns its sockets. Raises
        OSError."""
        if is_own:
            self._own.add(number)
        opened: list[socket.socket] = []
        for family, address in stream_addresses(host, port):
            opened.append(bound(family, address, True))
            self.listen_on(number, opened[-1], backlog, make)
        return opened

    def listen_on(self, number: int, sock: socket.socket, backlog: int, make: MakeProtocol) -> None:
        """Take connections from a bound socket. One that the workers have in common stays with the others when it is closed
        here, and so does its file. Raises OSError."""
        self._makers[number] = make
        self._listening.append(sock)
        sock.setblocking(False)
        sock.listen(backlog)
        self._loop.add_reader(sock.fileno(), self._accept, number, sock)

    def start(self) -> None:
        """Take sockets of other workers. Raises OSError."""
        path = self._worker.path(SOCKETS, self._worker.place.index)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # of an earlier process
        sock = self._from_others = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        sock.setblocking(False)
        sock.bind(path)
        self._loop.add_reader(sock.fileno(), self._take, sock)
        self._tell()

    def _tell(self) -> None:
        """Tell the others whether this worker takes clients."""
        self._telling = self._loop.call_later(TELL_SECONDS, self._tell)
        self._say(self._has_room())

    def _say(self, has_room: bool) -> None:
        until = time.monotonic() + TAKES_SECONDS if has_room else 0.0
        self._worker.counts.takes(self._worker.place.index, until)

    def _accept(self, number: int, listening: socket.socket) -> None:
        for _ in range(ACCEPTED_MAX):
            try:
                sock, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._log.error("no connection can be taken now", reason=error.strerror or str(error))
                self._loop.remove_reader(listening.fileno())
                self._loop.call_later(PAUSE_SECONDS, self._go_on, number, listening)
                return
            index = self._worker.place.index if number in self._own else self._taker()
            if index == self._worker.place.index or not self._pass(index, number, sock):
                self._serve(number, sock)

    def _taker(self) -> int:
        """Return which worker takes the next connection."""
        own = self._worker.place.index
        has_room = self._has_room()
        if not has_room:
            self._say(False)
        found = self._worker.counts.least(time.monotonic())
        if found is None or (has_room and not passes(self._connections() + len(self._tasks), found[1])):
            return own
        return found[0]

    def _go_on(self, number: int, listening: socket.socket) -> None:
        if listening in self._listening:
            self._loop.add_reader(listening.fileno(), self._accept, number, listening)

    def _pass(self, index: int, number: int, sock: socket.socket) -> bool:
        """Give a socket to another worker. False when it does not take it: it has ended, or its queue is full."""
        assert self._from_others is not None
        rights = socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [sock.fileno()])
        head = number.to_bytes(HEAD_BYTES, "big")
        try:
            self._from_others.sendmsg([head], [rights], 0, self._worker.path(SOCKETS, index))
        except OSError:
            return False
        sock.close()
        self.passed += 1
        return True

    def _take(self, from_others: socket.socket) -> None:
        for _ in range(ACCEPTED_MAX):
            try:
                head, descriptors, _, _ = socket.recv_fds(from_others, HEAD_BYTES, 1)
            except OSError:
                return
            for descriptor in descriptors:
                self._serve(int.from_bytes(head, "big"), socket.socket(fileno=descriptor))

    def _serve(self, number: int, sock: socket.socket) -> None:
        make = self._makers.get(number)
        if make is None:  # this worker's listeners are closed
            sock.close()
            return
        sock.setblocking(False)
        task = self._loop.create_task(self._connect(make, sock))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, make: MakeProtocol, sock: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(make, sock)
        except OSError as error:  # the client has gone
            self._log.debug("connection not opened", reason=error.strerror or str(error))
            sock.close()

    def close(self) -> None:
        """Take no more connections."""
        if self._telling is not None:
            self._telling.cancel()
            self._say(False)
        for sock in (*self._listening, *([] if self._from_others is None else [self._from_others])):
            if sock.fileno() >= 0:
                self._loop.remove_reader(sock.fileno())
                sock.close()
        self._listening.clear()
        self._makers.clear()
        self._from_others = None
