"""NodeService: what this node is and does, and the level of its log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from google.protobuf.empty_pb2 import Empty

from broker import __version__
from broker.api.errors import invalid_argument
from broker.api.fields import timestamp
from broker.api.merging import Merged
from broker.api.pb.admin_pb2 import (
    Alarm,
    Configuration,
    LogLevelRequest,
    Node,
    NodeAlarms,
    NodeEvent,
    NodeRates,
    Series,
    WatchEventsRequest,
)
from broker.api.pb.admin_pb2_grpc import NodeServiceServicer
from broker.api.recent_events import RecentEvents
from broker.api.relays import EventRelay
from broker.api.siblings import Siblings
from broker.api.tokens import Role
from broker.config.printer import effective_yaml
from broker.metrics.broker_metrics import QOS
from broker.metrics.figures import Numbers
from broker.metrics.rates import INTERVAL, Rates
from broker.server.form import running_form
from broker.server.host import DROPPED, REFUSED
from broker.server.log_listeners import LOG_LISTENERS
from broker.server.logging import get_logger, setup_logging

if TYPE_CHECKING:
    from broker.server.host import Host

LEVELS: Final = ("debug", "info", "warn", "error")
TOTALS: Final = (
    *("messages_received", "messages_sent", "bytes_received", "bytes_sent"),
    *("messages_dropped", "clients_connected"),
)
GAUGES: Final = ("clients", "sessions", "messages_waiting")


class NodeService(NodeServiceServicer):
    roles: Final = {
        "Get": Role.READ,
        "Alarms": Role.READ,
        "Rates": Role.READ,
        "Events": Role.READ,
        "GetConfiguration": Role.ADMIN,
        "SetLogLevel": Role.ADMIN,
    }
    for_workers: Final = {
        "Get": Merged.node,
        "Alarms": Merged.alarms,
        "SetLogLevel": Merged.at_each,
    }

    def __init__(self, server: Host, siblings: Siblings | None = None) -> None:
        self._server = server
        self._form = running_form()
        self._log = get_logger("api")
        self._rates = Rates(TOTALS, GAUGES)
        self._timer: asyncio.TimerHandle | None = None
        self._events = RecentEvents(LOG_LISTENERS, server.loop)
        self._relay = None if siblings is None else EventRelay(siblings, self._events, self._log)

    def start(self) -> None:
        """Keep the lines of the log from now on, and a sample of the rates at each interval."""
        self._events.start()
        self._sample()

    def stop(self) -> None:
        self._events.stop()
        if self._relay is not None:
            self._relay.stop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _sample(self) -> None:
        server = self._server
        totals, present = server.node_numbers()
        values = (
            sum(by_qos(totals, "messages_received_")),
            sum(by_qos(totals, "messages_sent_")),
            totals["bytes_received"],
            totals["bytes_sent"],
            sum(by_reason(totals, DROPPED).values()),
            totals["clients_connected"],
            *(present[name] for name in GAUGES),
        )
        self._rates.sample(values, server.now())
        self._timer = server.loop.call_later(INTERVAL, self._sample)

    async def Alarms(self, request: Empty, context: object) -> NodeAlarms:
        found = await self._server.alarms()
        return NodeAlarms(alarms=[Alarm(level=alarm.level, text=alarm.text) for alarm in found])

    async def Rates(self, request: Empty, context: object) -> NodeRates:
        rates = self._rates
        return NodeRates(
            newest=timestamp(int(self._server.wall_time(rates.newest))),
            interval_seconds=INTERVAL,
            series=[Series(name=name, values=values) for name, values in rates.series().items()],
        )

    async def Events(self, request: WatchEventsRequest, context: object) -> AsyncIterator[NodeEvent]:
        async with nullcontext() if self._relay is None else self._relay.watched():
            async for event in self._events.watch(request.after):
                yield NodeEvent(number=event.number, time=timestamp(event.time), level=event.level, line=event.line)

    async def Get(self, request: Empty, context: object) -> Node:
        server = self._server
        broker = server.broker
        found = server.figures()
        totals = found.totals
        now = server.now()
        return Node(
            node_name=server.members.node_name,
            version=__version__,
            form=self._form.name,
            form_reason=self._form.reason,
            started_at=timestamp(int(server.wall_time(server.started_at))),
            uptime_seconds=now - server.started_at,
            not_ready=server.not_ready(),
            listeners=server.listener_addresses(),
            log_level=server.settings.log.level,
            clients_connected=found.present["clients"],
            sessions=found.present["sessions"],
            subscriptions=found.present["subscriptions"],
            retained_messages=len(broker.retained),
            messages_waiting=found.present["messages_waiting"],
            messages_received=by_qos(totals, "messages_received_"),
            messages_sent=by_qos(totals, "messages_sent_"),
            bytes_received=totals["bytes_received"],
            bytes_sent=totals["bytes_sent"],
            dropped=by_reason(totals, DROPPED),
            refused=by_reason(totals, REFUSED),
            plugins=server.settings.plugin_order,
        )

    async def GetConfiguration(self, request: Empty, context: object) -> Configuration:
        return Configuration(yaml=effective_yaml(self._server.settings))

    async def SetLogLevel(self, request: LogLevelRequest, context: object) -> Empty:
        if request.level not in LEVELS:
            raise invalid_argument(f'level "{request.level[:20]}" is not one of {", ".join(LEVELS)}')
        server = self._server
        log = replace(server.settings.log, level=request.level)
        server.settings = replace(server.settings, log=log)
        setup_logging(log)
        server.observe_clients()
        self._log.warning("the level of the log was changed by the API", level=request.level)
        return Empty()


def by_qos(totals: Numbers, name: str) -> list[int]:
    return [totals[name + qos] for qos in QOS]


def by_reason(totals: Numbers, kind: str) -> dict[str, int]:
    """Return those that are not zero."""
    return {name.removeprefix(kind): count for name, count in totals.items() if count and name.startswith(kind)}
