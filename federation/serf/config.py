"""Settings of one Serf node (sections 6.1 and 8.12). Times are seconds, sizes bytes."""

from __future__ import annotations

from dataclasses import dataclass, field

from federation.gossip.addresses import pack_ip
from federation.gossip.config import LAN, GossipConfig
from federation.gossip.msgpack_fields import NAME_BYTES_MAX
from federation.serf.tags import encode_tags


@dataclass(frozen=True, slots=True)
class SerfConfig:
    """ValueError at once for a name, address or tags that no other node could take."""

    node_name: str
    """Unique in the cluster; UTF-8, at most 255 bytes."""

    advertise_ip: str
    """The IP address at which other nodes reach this one, as text."""

    advertise_port: int
    """UDP and TCP port at which other nodes reach this one."""

    tags: dict[str, str] = field(default_factory=dict)
    """What all nodes should know about this one; at most 512 bytes encoded (section 7.1)."""

    profile: GossipConfig = LAN
    """Pace and patience of the gossip."""

    broadcast_timeout: float = 5.0
    """Longest wait for a broadcast of our leave to be sent to the limit."""

    leave_propagate_delay: float = 1.0
    """After a leave we stay so long, answering pings, while the news spreads."""

    reap_interval: float = 15.0
    """How often the member table is cleaned of the long failed and the long left."""

    reconnect_interval: float = 30.0
    """How often we may try to reach one failed member again."""

    reconnect_timeout: float = 24 * 3600.0
    """A member that has failed for so long is forgotten."""

    tombstone_timeout: float = 24 * 3600.0
    """A member that left so long ago is forgotten."""

    recent_intent_timeout: float = 300.0
    """Intents about unknown names are kept so long: a member's intent may arrive before the member."""

    query_timeout_mult: int = 16
    """Default timeout of a query: query_timeout_mult * gossip_interval * ceil(log10(alive members + 1))."""

    query_bytes_max: int = 1024
    """Encoded query."""

    query_response_bytes_max: int = 1024
    """Encoded answer to a query."""

    user_event_bytes_max: int = 512
    """Encoded user event."""

    def __post_init__(self) -> None:
        if not self.node_name:
            raise ValueError("node_name is empty; give each node its own name")
        if len(self.node_name.encode()) > NAME_BYTES_MAX:
            raise ValueError(f"node_name is longer than {NAME_BYTES_MAX} bytes")
        try:
            pack_ip(self.advertise_ip)
        except ValueError:
            raise ValueError(f"advertised address {self.advertise_ip!r} is not an IP address like 192.0.2.1") from None
        if not 0 < self.advertise_port < 65536:
            raise ValueError(f"advertised port {self.advertise_port} is not between 1 and 65535")
        encode_tags(self.tags)
