"""The connections to one other node, as its sender wants them: one attempt at a time, and now and then a probe.

No rule of the streams is here: which stream an attempt takes, and when the next one begins, is the sender's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from broker.config.addresses import parse_address
from broker.server.tls_transport import TlsError
from federation.shell.dialer import Dialer
from federation.shell.direct_client import DirectConnection
from federation.shell.go_client import GoCall
from federation.shell.outlet_flush import PeerWriter
from federation.stream.direct_client import DirectClient, DirectProbe
from federation.stream.sender import PeerSender
from federation.stream.state import State
from federation.stream.stream_choice import StreamKind

NOT_YET_JOINED: Final = "has not yet joined"
"""End of the refusal by a node that does not know this one as a member yet (wire-federation 2)."""
PROBE_READ_BYTES: Final = 1024
JOINING_SECONDS: Final = 5.0
"""Time after a member appears in which this refusal is no warning: the gossip of a join takes about a second."""


class PeerClient:
    """`follow` must be called after each call to the sender from outside that may have changed its state; `changed` is called
    after those made here, and `acked` after each acknowledgement on a direct stream."""

    def __init__(
        self,
        node_name: str,
        sender: PeerSender,
        changed: Callable[[], None],
        acked: Callable[[], None],
        log: Any,
        dialer: Dialer | None = None,
    ) -> None:
        self.sender = sender
        self.writer = PeerWriter()
        self.expects_end = False  # this node leaves: the end of the stream is no fault
        self._node_name = node_name
        self._changed_outside = changed
        self._acked = acked
        self._log = log
        self._dialer = dialer
        self._loop = asyncio.get_running_loop()
        self._attempt = 0
        self._probe = 0
        self._connection: DirectConnection | None = None
        self._task: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()  # of the attempt, of a probe, and cancelled ones that still end
        self._streaming_attempt = 0  # the last one that was logged
        self._told = ""  # the last reason that was logged
        self._joining_until = self._loop.time() + JOINING_SECONDS

    def follow(self) -> None:
        """Do what the sender's state asks: one attempt, or none."""
        sender = self.sender
        if sender.state is State.HELLO and sender.attempt != self._attempt:
            self._end_attempt()
            self._attempt = sender.attempt
            if sender.choice.kind is StreamKind.DIRECT:
                self._task = self._start(self._connect_direct(DirectClient(self._node_name, sender, self._loop.time())))
            else:
                call = GoCall(self._node_name, sender, self._changed, self._log, self._dialer)
                self.writer.flush_go = call.flush
                self._task = self._start(call.run())
        elif sender.state is State.STREAMING:
            if sender.attempt != self._streaming_attempt:
                self._tell_streaming()
            if sender.choice.probe != self._probe:
                self._probe = sender.choice.probe
                self._start(self._connect_probe(DirectProbe(sender, self._loop.time())))
        elif sender.state in (State.STOPPED, State.BACKOFF):
            if sender.state is State.BACKOFF:
                self._tell_lost(sender.reason)
            self._end_attempt()

    async def stop(self) -> None:
        self._end_attempt()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _end_attempt(self) -> None:
        self.writer.direct = None
        self.writer.flush_go = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
        self._task = None

    def _changed(self) -> None:
        self.follow()
        self._changed_outside()

    # --- direct streams

    async def _connect_direct(self, core: DirectClient) -> None:
        connection = DirectConnection(core, self._changed, self._acked, self._failed)
        self._connection = connection
        self.writer.direct = connection
        try:
            if self.sender.choice.is_tls:
                assert self._dialer is not None
                await self._dialer.connect(self.sender.name, self.sender.addr, lambda: connection)
            else:
                address = parse_address(self.sender.addr)
                if address.is_unix:  # another worker of this node
                    await self._loop.create_unix_connection(lambda: connection, address.path)
                else:
                    await self._loop.create_connection(lambda: connection, address.host, address.port)
        except TlsError as error:
            core.connection_lost(str(error), self._loop.time())
            self._changed()
        except OSError as error:
            core.connection_lost(f"cannot connect: {error.strerror or error}", self._loop.time())
            self._changed()
        except Exception as error:  # a fault of ours
            self._failed(error)
            core.connection_lost("internal error", self._loop.time())
            self._changed()

    async def _connect_probe(self, core: DirectProbe) -> None:
        """Ask whether direct streams get through by now. Where nobody answers, the next probe may find somebody."""
        address = parse_address(self.sender.addr)
        writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout_at(core.next_timeout()):
                reader, writer = await asyncio.open_connection(address.host, address.port)
                writer.write(core.data_to_send())
                while not core.is_over:
                    data = await reader.read(PROBE_READ_BYTES)
                    if not data:
                        return
                    core.receive_data(data, self._loop.time())
            self._changed()
        except OSError:  # TimeoutError is one
            return
        finally:
            if writer is not None:
                writer.transport.abort()

    def _failed(self, error: Exception) -> None:
        self._log.error("fault in an event stream", node=self.sender.name, exc_info=error)

    # --- what is logged

    def _tell_streaming(self) -> None:
        sender = self.sender
        self._streaming_attempt = sender.attempt
        self._told = ""
        self._log.info(
            "event stream to a node",
            node=sender.name,
            addr=sender.addr,
            kind=sender.choice.kind.value,
            tls=sender.choice.is_tls,
            clean_start=sender.resume_id == 0,
        )

    def _tell_lost(self, reason: str) -> None:
        """Log a reason once, not for each attempt. The refusals of a healthy join are no warning."""
        if reason == self._told or self.expects_end:
            return
        log = self._log.warning
        if reason.endswith(NOT_YET_JOINED) and self._loop.time() < self._joining_until:
            log = self._log.debug
        else:
            self._told = reason
        log("no event stream to a node", node=self.sender.name, addr=self.sender.addr, reason=reason)
