"""The event streams of other nodes share this: the node, the loop, the log, and the streams that are open."""

# compiled with mypyc
from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from mypy_extensions import mypyc_attr

from broker.config.addresses import host_of
from broker.places import Places
from broker.server.turns import Turns
from federation.node import Node
from federation.refusals import Refusals
from federation.stream.served_stream import ServedStream
from federation.trust import Caller


class AwaitsStore(Protocol):
    """A connection whose acknowledgements wait for the store."""

    def carry_out(self) -> None:
        """The store may have more than before: write what is due."""


class StreamShell(Protocol):
    """An event stream of either kind."""

    @property
    def core(self) -> ServedStream: ...

    def carry_out(self) -> None:
        """The core was called from outside: write what it wants written."""


@mypyc_attr(allow_interpreted_subclasses=True)
class StreamHost:
    """`changed` is called after each event that may have changed the broker. Where there are `turns`, the batches of a direct
    stream are one: what they brought for receivers here is written at once.

    acks_due  streams whose acknowledgements wait for the store: each is to `carry_out` at the end of a turn
    """

    def __init__(
        self,
        node: Node,
        bytes_max: int,
        changed: Callable[[], None],
        log: Any,
        turns: Turns | None = None,
        refusals: Refusals | None = None,
    ) -> None:
        self.node = node
        self.bytes_max = bytes_max
        self.changed = changed
        self.turns = turns
        self.log = log
        self.loop = asyncio.get_running_loop()
        self.connections: Places[asyncio.BaseTransport] = Places()
        self.connections_refused = 0
        self.is_stopping = False
        self.acks_due: dict[AwaitsStore, None] = {}
        self.refusals = refusals or Refusals()
        self._streams: dict[StreamShell, None] = {}

    def stream_opened(self, stream: StreamShell) -> None:
        """A stream begins; its receiver has ended an older one."""
        self._streams[stream] = None
        self.carry_out()
        self.changed()

    def stream_closed(self, stream: StreamShell) -> None:
        self._streams.pop(stream, None)

    def carry_out(self) -> None:
        """Streams may have been ended by their receivers: those of nodes that left, and replaced ones."""
        for stream in list(self._streams):
            if stream.core.is_over:
                stream.carry_out()

    def end_streams(self) -> None:
        """This node stops."""
        self.is_stopping = True
        for stream in list(self._streams):
            stream.core.end("this node is stopping")
        self.carry_out()

    def refused(self, reason: str) -> None:
        """A connection that is no event stream: counted, and told to those who look closely."""
        self.connections_refused += 1
        self.log.debug("connection is not an event stream", reason=reason)

    def distrusted(self, word: str, addr: str, reason: str) -> None:
        """Somebody has not proved what it says, or cannot. `word` is one of trust.REFUSALS, `addr` is HOST:PORT."""
        self.connections_refused += 1
        left_out = self.refusals.note(word, host_of(addr), reason, self.loop.time())
        if left_out >= 0:
            more = {"left_out_before": left_out} if left_out else {}
            self.log.warning("refused a node", addr=addr, reason=reason, **more)

    def distrusted_caller(self, caller: Caller, reason: str) -> None:
        self.distrusted(caller.refusal, caller.addr, reason)
