"""Settings of the gossip (section 6.1), each with its formula and its price. Times are seconds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GossipConfig:
    """The defaults are the LAN profile. All nodes of a cluster should run the same one."""

    probe_interval: float = 1.0
    """One random member is probed each interval, so a crash is noticed after about one interval in a cluster of any size.
    Lower finds crashes sooner and costs packets in proportion."""

    probe_timeout: float = 0.5
    """Wait for the direct ack before asking others to ping. About the 99th percentile of round trips, and at most the
    interval."""

    indirect_checks: int = 3
    """Members asked to ping for us. More tolerates more lossy paths and costs that many packets per failed probe."""

    suspicion_mult: int = 4
    """Shortest time from suspect to dead: suspicion_mult * max(1, log10(N)) * probe_interval.
    Lower declares slow nodes dead."""

    suspicion_max_timeout_mult: int = 6
    """Longest time from suspect to dead, as a multiple of the shortest, when nobody confirms the suspicion."""

    retransmit_mult: int = 4
    """Each broadcast leaves retransmit_mult * ceil(log10(N+1)) times. Lower saves packets and loses news on lossy networks."""

    gossip_interval: float = 0.2
    """Broadcasts that found no ping or ack to ride on leave at this pace. Lower spreads news faster and costs packets."""

    gossip_nodes: int = 3
    """Members that get a batch of broadcasts each gossip interval."""

    gossip_to_the_dead_time: float = 30.0
    """Dead members are still told what is said about them (so that they can refute) and keep their table entry so long."""

    push_pull_interval: float = 30.0
    """Full state exchange with one random member; above 32 members the interval grows with log2(N) (section 6.8)."""

    dead_node_reclaim_time: float = 0.0
    """A dead name may return from another address after this time. 0: not before its table entry is gone (section 6.6)."""

    awareness_max_multiplier: int = 8
    """A node that misses acks thinks that it is slow itself and probes up to this many times more slowly."""

    tcp_timeout: float = 10.0
    """Limit for one whole exchange over a stream."""

    packet_bytes_max: int = 1400
    """Largest datagram sent. Above the path's MTU datagrams are fragmented and lost more easily."""


LAN = GossipConfig()

WAN = GossipConfig(
    tcp_timeout=30.0,
    suspicion_mult=6,
    push_pull_interval=60.0,
    probe_timeout=3.0,
    probe_interval=5.0,
    gossip_nodes=4,
    gossip_interval=0.5,
    gossip_to_the_dead_time=60.0,
)

LOCAL = GossipConfig(
    tcp_timeout=1.0,
    indirect_checks=1,
    retransmit_mult=2,
    suspicion_mult=3,
    push_pull_interval=15.0,
    probe_timeout=0.2,
    gossip_interval=0.1,
    gossip_to_the_dead_time=15.0,
)
