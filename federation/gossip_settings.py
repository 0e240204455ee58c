"""The keys `plugins.federation.gossip`: values of a profile of memberlist that are set otherwise. And rules of its keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Final

from broker.config.setting import Duration, Flag, Whole, extension
from federation.gossip.addresses import Networks
from federation.gossip.config import LAN, LOCAL, WAN, GossipConfig
from federation.gossip.keyring import KEYS_MAX, KeyRefused, parse_key

PROFILES: Final = {"lan": LAN, "wan": WAN, "local": LOCAL}


@dataclass(frozen=True, slots=True)
class GossipSettings:
    """Values of the gossip that differ from gossip_profile. All nodes of a cluster use the same ones: where they differ, slow
    nodes are taken for failed by fast ones. N is the number of members. An empty value is that of the profile."""

    probe_interval: float | None = extension(
        None,
        "Time between two probes of a node. Each node probes one member, so a crash is noticed after about this time with "
        "any N, and each node sends and gets about 2 / probe_interval packets a second.",
        Duration(0.01, "1s"),
        "Lowering it finds crashes sooner and costs packets in proportion.",
        default_text="lan 1s, wan 5s, local 1s",
    )
    probe_timeout: float | None = extension(
        None,
        "Wait for the answer to a probe before other members are asked to probe: about the 99th percentile of the round "
        "trips, and at most probe_interval.",
        Duration(0.001, "500ms"),
        "Lowering it costs packets of others for each slow answer; raising it leaves them less time.",
        default_text="lan 500ms, wan 3s, local 200ms",
    )
    indirect_checks: int | None = extension(
        None,
        "Members that are asked to probe one that does not answer.",
        Whole(0, 100, 3),
        "Raising it tolerates more loss, by that many packets for each failed probe.",
        default_text="lan 3, wan 3, local 1",
    )
    suspicion_mult: int | None = extension(
        None,
        "A member that is suspected has at least suspicion_mult x max(1, log10 N) x probe_interval to refute it.",
        Whole(1, 1000, 4),
        "Lowering it finds crashes sooner, and takes slow members for failed.",
        default_text="lan 4, wan 6, local 3",
    )
    suspicion_max_timeout_mult: int | None = extension(
        None,
        "The longest time to refute is suspicion_max_timeout_mult times the shortest. It shrinks to that with each member "
        "that suspects the same.",
        Whole(1, 1000, 6),
        "Lowering it finds crashes sooner where few members notice them, and takes members for failed that only this node "
        "does not reach.",
        default_text="6",
    )
    retransmit_mult: int | None = extension(
        None,
        "Each news is sent retransmit_mult x ceil(log10(N + 1)) times by each node.",
        Whole(1, 100, 4),
        "Lowering it saves packets and loses news where packets are lost; push-pulls bring them later.",
        default_text="lan 4, wan 4, local 2",
    )
    gossip_interval: float | None = extension(
        None,
        "Time between two packets with news alone; they also travel with probes. All know of a news after about "
        "gossip_interval x log N.",
        Duration(0.01, "200ms"),
        "Lowering it spreads news faster and costs packets while there are news.",
        default_text="lan 200ms, wan 500ms, local 100ms",
    )
    gossip_nodes: int | None = extension(
        None,
        "Members that get news at each gossip_interval.",
        Whole(1, 100, 3),
        "Raising it spreads news faster, by that many packets.",
        default_text="lan 3, wan 4, local 3",
    )
    gossip_to_the_dead_time: float | None = extension(
        None,
        "How long a member that failed still gets news, so that it can refute its failure, and keeps its place among those "
        "that are probed.",
        Duration(0.0, "30s"),
        "Raising it costs packets to members that are gone.",
        default_text="lan 30s, wan 1m, local 15s",
    )
    push_pull_interval: float | None = extension(
        None,
        "Time between two exchanges of everything with one random member; with N above 32 times ceil(log2 N - log2 32) + 1.",
        Duration(0.1, "30s"),
        "Lowering it brings lost news sooner and costs a stream of about 100 bytes for each member.",
        default_text="lan 30s, wan 1m, local 15s",
    )
    dead_node_reclaim_time: float | None = extension(
        None,
        "How long a member has failed until another node may have its name at another address without a proof. 0: not "
        "before the member is forgotten.",
        Duration(0.0, "30s"),
        "Raising it from 0 lets a node with a new address come back sooner, and another one take its name.",
        default_text="0",
    )
    awareness_max_multiplier: int | None = extension(
        None,
        "A node that misses answers may be slow itself: it probes up to this many times more slowly.",
        Whole(1, 100, 8),
        "Lowering it lets a slow node suspect others sooner.",
        default_text="8",
    )
    tcp_timeout: float | None = extension(
        None,
        "Longest time of an exchange over a stream.",
        Duration(0.1, "10s"),
        "Lowering it fails joins over slow networks.",
        default_text="lan 10s, wan 30s, local 1s",
    )
    packet_bytes_max: int | None = extension(
        None,
        "Largest packet that is sent, with encryption and label (memberlist's UDPBufferSize).",
        Whole(1280, 65_507, 1400),
        "Above what the network takes in one piece, packets are fragmented and lost more easily.",
        default_text="1400",
    )
    compression: bool | None = extension(
        None,
        "Whether packets and streams of 256 to 65,536 bytes are compressed where that makes them shorter (memberlist's "
        "EnableCompression). All members read both.",
        Flag(),
        "It halves what is sent while there are news, and costs some 0.15 µs for each byte at both ends.",
        default_text="false",
    )

    def broken_rules(self, profile: str) -> Iterator[tuple[str, str]]:
        """Every broken rule as (".KEY", text). `profile` is one of PROFILES."""
        config = self.config(profile, ())
        if config.probe_timeout > config.probe_interval:
            yield (
                ".probe_timeout",
                f"{config.probe_timeout:g} s is longer than probe_interval ({config.probe_interval:g} s); the answer of a "
                "probe would come after its end",
            )

    def config(self, profile: str, cidrs: tuple[str, ...]) -> GossipConfig:
        """The values of the gossip, with these networks of members."""
        own = {each.name: getattr(self, each.name) for each in fields(self)}
        given = {name: value for name, value in own.items() if value is not None}
        return replace(PROFILES[profile], networks=Networks(cidrs), **given)


def gossip_key_faults(texts: tuple[str, ...], keyring_file: str) -> Iterator[tuple[str, str]]:
    """Every fault of the keys of the gossip as (key, text). The texts have no keys."""
    if texts and keyring_file:
        yield "encrypt_keys", "stands beside keyring_file, which has the keys; leave one of them out"
    found: set[bytes] = set()
    for index, text in enumerate(texts):
        try:
            key = parse_key(text)
        except KeyRefused as error:
            yield f"encrypt_keys[{index}]", str(error)
            continue
        if key in found:
            yield f"encrypt_keys[{index}]", "is in the list already; leave one of them out"
        found.add(key)
    if len(texts) > KEYS_MAX:
        yield "encrypt_keys", f"has {len(texts)} keys; at most {KEYS_MAX} are possible"


def network_faults(cidrs: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Every fault of gossip_cidrs_allowed as (key, text)."""
    for index, cidr in enumerate(cidrs):
        try:
            Networks([cidr])
        except ValueError as error:
            yield f"gossip_cidrs_allowed[{index}]", f"is not a network such as 10.0.0.0/8: {error}"
