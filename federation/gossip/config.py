"""Settings of the gossip, each with its formula and its cost (wire-gossip 6.1). Times are in seconds, sizes in bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from federation.gossip.addresses import EVERYWHERE, Networks


@dataclass(frozen=True, slots=True)
class GossipConfig:
    """The defaults are the LAN profile of memberlist. All nodes of a cluster should use the same settings."""

    probe_interval: float = 1.0
    """Time between probes. Each probes one member, so a crash is noticed after about one interval in a cluster of any size.
    A lower value finds crashes sooner and costs packets in proportion."""

    probe_timeout: float = 0.5
    """Wait for the direct ack before other members are asked to ping. About the 99th percentile of round trips, and at most
    probe_interval."""

    indirect_checks: int = 3
    """Members asked to ping a member that did not ack. A higher value tolerates more lossy paths and costs that many packets
    for each failed probe."""

    suspicion_mult: int = 4
    """Shortest time from suspect to dead: suspicion_mult * max(1, log10(N)) * probe_interval.
    A lower value declares slow nodes dead."""

    suspicion_max_timeout_mult: int = 6
    """Longest time from suspect to dead, as a multiple of the shortest, when no other member confirms the suspicion."""

    retransmit_mult: int = 4
    """Each broadcast is sent retransmit_mult * ceil(log10(N+1)) times. A lower value saves packets and loses broadcasts on
    lossy networks."""

    gossip_interval: float = 0.2
    """Time between packets that carry only broadcasts. Pings and acks carry broadcasts too. A lower value spreads them faster
    and costs packets."""

    gossip_nodes: int = 3
    """Members that get broadcasts at each gossip interval."""

    gossip_to_the_dead_time: float = 30.0
    """Time for which dead members keep their table entry and still get broadcasts, so that they can refute them."""

    push_pull_interval: float = 30.0
    """Time between push-pulls with one random member; above 32 members it grows with log2(N) (wire-gossip 6.8)."""

    dead_node_reclaim_time: float = 0.0
    """A dead member's name may return from another address after this time. 0: only after its table entry was removed
    (wire-gossip 6.6)."""

    awareness_max_multiplier: int = 8
    """A node that misses acks may be slow itself; it probes up to this many times more slowly."""

    tcp_timeout: float = 10.0
    """Longest time for one whole exchange over a stream."""

    packet_bytes_max: int = 1400
    """Largest datagram sent. Datagrams above the path's MTU are fragmented and lost more easily."""

    compression: bool = False
    """Whether messages are compressed that get shorter. All nodes read compressed messages."""

    networks: Networks = EVERYWHERE
    """Networks of members. Datagrams and streams from elsewhere, and members elsewhere, are dropped and counted."""

    @property
    def broadcast_bytes_max(self) -> int:
        """Longest message that fits into a datagram with a CRC, as user message in a compound; others are not queued."""
        return self.packet_bytes_max - 10


LAN: Final = GossipConfig()
WAN: Final = GossipConfig(
    probe_interval=5.0,
    probe_timeout=3.0,
    suspicion_mult=6,
    gossip_interval=0.5,
    gossip_nodes=4,
    gossip_to_the_dead_time=60.0,
    push_pull_interval=60.0,
    tcp_timeout=30.0,
)
LOCAL: Final = GossipConfig(
    probe_timeout=0.2,
    indirect_checks=1,
    suspicion_mult=3,
    retransmit_mult=2,
    gossip_interval=0.1,
    gossip_to_the_dead_time=15.0,
    push_pull_interval=15.0,
    tcp_timeout=1.0,
)
