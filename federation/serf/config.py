"""Settings of one Serf node (wire-gossip 8.10). Times are in seconds, sizes in bytes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from federation.gossip.addresses import pack_ip
from federation.gossip.config import LAN, GossipConfig
from federation.gossip.members import is_node_name
from federation.gossip.msgpack_fields import NAME_BYTES_MAX
from federation.serf.tags import encode_tags

VALIDATED_NAME_MAX: Final = 128
"""Characters of a name that members with Serf's ValidateNodeNames take."""
_VALIDATED_NAME: Final = re.compile(r"[A-Za-z0-9.-]*")


def is_validated_name(name: str) -> bool:
    """Return whether members that validate names take this one. Serf does not validate by default (wire-gossip 8.1)."""
    return len(name) <= VALIDATED_NAME_MAX and _VALIDATED_NAME.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class SerfConfig:
    """Raises ValueError for a name, an address or tags that other nodes would not accept."""

    node_name: str
    """Unique in the cluster; UTF-8, at most 255 bytes."""

    advertise_ip: str
    """The IP address at which other nodes reach this one, as text."""

    advertise_port: int
    """UDP and TCP port at which other nodes reach this one."""

    tags: dict[str, str] = field(default_factory=dict)
    """Sent to all nodes; at most 512 bytes encoded (wire-gossip 7.1)."""

    profile: GossipConfig = LAN
    """Intervals and timeouts of the gossip."""

    encrypt_keys: tuple[bytes, ...] = ()
    """Keys of the gossip, of 16, 24 or 32 bytes; the first one encrypts. Without any nothing is encrypted."""

    keeps_keys: bool = False
    """The owner keeps changed keys: the answer to a key query waits for that (Serf.keys_kept)."""

    verify_incoming: bool = True
    """False: with keys, what is not encrypted is taken, too."""

    verify_outgoing: bool = True
    """False: in spite of keys, nothing that is sent is encrypted."""

    label: str = ""
    """Name of the cluster on each datagram and stream, at most 255 bytes; others are dropped. Serf's agents have none."""

    broadcast_timeout: float = 5.0
    """Longest wait for a broadcast of this node's leave to be sent to its limit."""

    leave_propagate_delay: float = 1.0
    """After its leave was broadcast this node answers pings for this time, while the others spread the leave."""

    reap_interval: float = 15.0
    """Time between two removals of members that failed or left long ago."""

    reconnect_interval: float = 30.0
    """Time between two attempts to reach a failed member again."""

    reconnect_timeout: float = 24 * 3600.0
    """A member that failed this long ago is forgotten."""

    tombstone_timeout: float = 24 * 3600.0
    """A member that left this long ago is forgotten."""

    recent_intent_timeout: float = 300.0
    """Time for which intents about unknown names are kept: an intent may arrive before its member."""

    def __post_init__(self) -> None:
        if not self.node_name:
            raise ValueError("node_name is empty; give each node its own name")
        if not is_node_name(self.node_name):
            raise ValueError(f"node_name {self.node_name!a} has a control character; letters, digits, - and . are safe")
        if len(self.node_name.encode()) > NAME_BYTES_MAX:
            raise ValueError(f"node_name is longer than {NAME_BYTES_MAX} bytes")
        try:
            pack_ip(self.advertise_ip)
        except ValueError:
            raise ValueError(f"advertised address {self.advertise_ip!r} is not an IP address like 192.0.2.1") from None
        if not 0 < self.advertise_port < 65536:
            raise ValueError(f"advertised port {self.advertise_port} is not between 1 and 65535")
        encode_tags(self.tags)
