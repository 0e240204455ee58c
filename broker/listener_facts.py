"""Facts that the rest of the broker knows about the listener of a connection."""

# compiled with mypyc
from __future__ import annotations

from typing import Final


class ListenerFacts:
    """name             the listener's address: HOST:PORT, or the path of a Unix socket
    transport        "tcp", "tls", "ws", "wss" or "unix"
    message_rate, byte_rate  most messages and bytes a second of one connection; 0 is no limit
    is_own           connections of the node itself: no decider is asked who they are
    is_node          connections of other nodes of the cluster, which only consume from queues; no decider is asked either
    node_names       names that the certificate of such a node has proved; None where it needs none
    clients          connected clients by MQTT version as CONNECT has it: 3, 4 and 5
    allow_anonymous  whether clients without credentials may connect here. None: the settings of authentication decide
    """

    def __init__(
        self,
        name: str,
        transport: str,
        allow_anonymous: bool | None = None,
        message_rate: int = 0,
        byte_rate: int = 0,
        is_own: bool = False,
        clients: list[int] | None = None,
        is_node: bool = False,
        node_names: tuple[str, ...] | None = None,
    ) -> None:
        self.name = name
        self.transport = transport
        self.allow_anonymous = allow_anonymous
        self.message_rate = message_rate
        self.byte_rate = byte_rate
        self.clients = [0] * 6 if clients is None else clients
        self.is_own = is_own
        self.is_node = is_node
        self.node_names = node_names


NO_LISTENER: Final = ListenerFacts("", "tcp")  # of a connection that no listener accepted: a simulated client
