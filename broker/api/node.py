"""NodeService: what this node is and does, and the level of its log."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from google.protobuf.empty_pb2 import Empty

from broker import __version__
from broker.api.errors import invalid_argument
from broker.api.fields import timestamp
from broker.api.pb.admin_pb2 import LogLevelRequest, Node
from broker.api.pb.admin_pb2_grpc import NodeServiceServicer
from broker.api.tokens import Role
from broker.metrics.broker_metrics import waiting_copies
from broker.server.form import running_form
from broker.server.logging import get_logger, setup_logging

if TYPE_CHECKING:
    from broker.server.host import Host

LEVELS: Final = ("debug", "info", "warn", "error")


class NodeService(NodeServiceServicer):
    roles: Final = {"Get": Role.READ, "SetLogLevel": Role.ADMIN}

    def __init__(self, server: Host) -> None:
        self._server = server
        self._form = running_form()
        self._log = get_logger("api")

    async def Get(self, request: Empty, context: object) -> Node:
        server = self._server
        broker = server.broker
        found = broker.counters
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
            clients_connected=found.clients_connected - found.clients_disconnected,
            sessions=len(broker.sessions),
            subscriptions=found.subscriptions,
            retained_messages=len(broker.retained),
            messages_waiting=waiting_copies(found),
            messages_received=found.messages_received,
            messages_sent=found.messages_sent,
            bytes_received=found.bytes_received,
            bytes_sent=found.bytes_sent,
            dropped={reason: count for reason, count in server.lost_messages().items() if count},
            refused={reason: count for reason, count in server.refused_input().items() if count},
        )

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
