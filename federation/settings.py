"""The keys of `plugins.federation`: those of the Go broker, and extensions."""

# not compiled: values that are read at the start
# not a core: asks the system for its name
from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from broker.config.addresses import Address, is_loopback
from broker.config.setting import (
    AddressText,
    Choice,
    Duration,
    Flag,
    Section,
    Sequence,
    Setting,
    Size,
    Text,
    Whole,
    described,
    extension,
    setting,
)
from broker.config.settings_listeners import TlsSettings
from broker.server.start_error import StartError
from broker.workers.shares import Place, moved, moved_if_any
from federation.gossip.sealing import LABEL_BYTES_MAX
from federation.gossip_settings import PROFILES, GossipSettings, gossip_key_faults, network_faults
from federation.of_workers import alone, among_others
from federation.serf.config import VALIDATED_NAME_MAX, is_validated_name
from federation.tags import REFERENCE_CHARS_MAX, ZONE_CHARS_MAX
from federation.trust import DEFAULT_FEDERATION_PORT, DEFAULT_TLS_PORT, node_of

if TYPE_CHECKING:
    from broker.config.settings import Settings

DEFAULT_GOSSIP_PORT: Final = 8902
DEFAULT_RPC_PORT: Final = 7373
DEFAULT_FED_ADDR: Final = Address("tcp", "", DEFAULT_FEDERATION_PORT)
DEFAULT_GOSSIP_ADDR: Final = Address("tcp", "", DEFAULT_GOSSIP_PORT)
DEFAULT_TLS_ADDR: Final = Address("tcp", "", DEFAULT_TLS_PORT)
OUTBOX_BYTES_MAX: Final = 2**40


@dataclass(frozen=True, slots=True)
class FederationTlsSettings:
    """TLS 1.3 between nodes, with a certificate on both sides: event streams, definitions, links and their jobs. SIGHUP reads
    the files again: new connections use the new ones, open streams stay. Relative paths begin at the configuration file."""

    cert: str = extension(
        "",
        "File with the certificate of this node, and behind it those that lead to its authority. One of its DNS names is "
        "node_name, letter by letter.",
        Text("/etc/gmqtt/node1.pem"),
    )
    key: str = extension("", "File with the key of that certificate, without a password.", Text("/etc/gmqtt/node1.key"))
    cacert: str = extension(
        "",
        "File with the certificates of the authorities of all nodes. Who has a certificate of theirs is a node: use one "
        "that signs nothing else.",
        Text("/etc/gmqtt/ca.pem"),
        aliases=("ca",),
    )
    crl: str = extension(
        "",
        "File with the revocation list of that authority; certificates in it are refused.",
        Text("/etc/gmqtt/crl.pem"),
    )
    addr: Address = extension(
        DEFAULT_TLS_ADDR,
        "Address for everything that other nodes with TLS send.",
        AddressText(":8903", DEFAULT_TLS_PORT, listens=True),
    )
    advertise_addr: Address | None = extension(
        None,
        "Address that is told to other nodes instead of addr; as advertise_fed_addr.",
        AddressText("192.168.0.10:8903", DEFAULT_TLS_PORT),
        default_text="addr",
    )

    def files(self, path_of: Callable[[str], str]) -> TlsSettings:
        """Return the section as the contexts of TLS are made of one. `path_of` is as that of Host."""
        return TlsSettings(
            cert=path_of(self.cert),
            key=path_of(self.key),
            cacert=path_of(self.cacert),
            crl=path_of(self.crl) if self.crl else "",
            verify=True,
            min_version="1.3",
        )

    def broken_rules(self) -> Iterator[tuple[str, str]]:
        """Every broken rule as (".KEY", text)."""
        for name in ("cert", "key", "cacert"):
            if not getattr(self, name):
                yield f".{name}", "is missing; TLS between nodes needs cert, key and cacert (`gmqttd cert` makes them)"


@dataclass(frozen=True, slots=True)
class ReplicationSettings:
    """Copies of this node's store on other nodes, for nodes with a store that share sessions."""

    copies: int = extension(
        2,
        "Number of stores that have the durable sessions of this node, with their messages: its own, and those of so many "
        "others as there are, up to this. 1: its own alone.",
        Whole(1, 3, 2),
        "Each further copy costs CPU and disk of another node, and its time to answer.",
    )
    when_short: str = extension(
        "serve",
        "What happens while there are fewer copies, because a node is away or slow. `serve`: the node goes on, and shows it. "
        "`hold`: it refuses QoS 1 and 2 messages that must be stored, as with a full disk.",
        Choice(("serve", "hold")),
    )
    adopt_after: float = extension(
        30.0,
        "How long a node is away until a keeper of its copy goes on with its sessions. It does so at once when one of their "
        "clients connects to another node, and when the node comes back with an empty store.",
        Duration(0.0, "30s"),
        "Lowering it moves sessions for nodes that are only restarted.",
    )


@dataclass(frozen=True, slots=True)
class FederationSettings:
    """The federation of this node with others."""

    node_name: str = field(
        default_factory=socket.gethostname,
        metadata=described(
            Setting(
                "Name of the node, which no other member may have. Other nodes keep their outbox for this node under it, so a "
                "node that comes back keeps its name.",
                Text("node1", 128, is_name=True),
                default_text="the host name",
            )
        ),
    )
    fed_addr: Address = setting(
        DEFAULT_FED_ADDR,
        "Address for the event streams of other nodes, without TLS. With `tls` it takes the Go broker's stream alone, and "
        "with require_tls it is not opened.",
        AddressText(":8901", DEFAULT_FEDERATION_PORT, listens=True),
    )
    advertise_fed_addr: Address | None = setting(
        None,
        "Address that is told to other nodes instead of fed_addr. An empty host, or 0.0.0.0, becomes the machine's "
        "private IPv4 address.",
        AddressText("192.168.0.10:8901", DEFAULT_FEDERATION_PORT),
        default_text="fed_addr",
    )
    tls: FederationTlsSettings | None = extension(
        None,
        "Encrypts and authenticates what nodes send each other, on an address of its own.",
        Section(),
        default_text="no TLS",
    )
    require_tls: bool = extension(
        False,
        "Whether this node has to do with members with TLS alone: fed_addr is not opened, and members without TLS, Go "
        "brokers among them, get nothing.",
        Flag(),
    )
    allow_plain_secrets: bool = extension(
        False,
        "Whether nodes without `tls` exchange definitions of links that have user names and passwords where fed_addr is not "
        "a loopback address. Nothing is encrypted there and nobody is authenticated; without it such a definition stays at "
        "the node that it was written on. A start warns of it.",
        Flag(),
    )
    gossip_addr: Address = setting(
        DEFAULT_GOSSIP_ADDR,
        "Address of the gossip, UDP and TCP.",
        AddressText(":8902", DEFAULT_GOSSIP_PORT, listens=True),
    )
    advertise_gossip_addr: Address | None = setting(
        None,
        "Address that is told to other nodes instead of gossip_addr; as advertise_fed_addr.",
        AddressText("192.168.0.10:8902", DEFAULT_GOSSIP_PORT),
        default_text="gossip_addr",
    )
    encrypt_keys: tuple[str, ...] = extension(
        (),
        "Keys of the gossip in base64, of 16, 24 or 32 bytes, as `gmqttd keygen` and `serf keygen` print them. The first one "
        "encrypts, each of them decrypts. Changes by `gmqttctl keys` are lost with the process; with keyring_file they stay.",
        Sequence(Text("KEY")),
        default_text="not encrypted",
        secret=True,
    )
    keyring_file: str = extension(
        "",
        "File with these keys instead, of mode 0600: a JSON list, the first key first, as that of `serf agent`. Changes by "
        "`gmqttctl keys` and `serf keys` are written to it.",
        Text("/var/lib/gmqttd/keyring.json"),
    )
    gossip_verify_incoming: bool = extension(
        True,
        "Whether gossip that is not encrypted is refused, on a node with keys. `false` is for the time in which a cluster "
        "becomes encrypted.",
        Flag(),
    )
    gossip_verify_outgoing: bool = extension(
        True,
        "Whether gossip is encrypted that is sent, on a node with keys. `false` is for the time in which a cluster becomes "
        "encrypted.",
        Flag(),
    )
    gossip_label: str = extension(
        "",
        "Name of the cluster on each packet of gossip; packets with another one, or without one, are refused. No secret: with "
        "keys it keeps clusters apart that have the same ones. Members by Serf's agents and by the Go broker have none.",
        Text("berlin", LABEL_BYTES_MAX),
        default_text="no label",
    )
    gossip_cidrs_allowed: tuple[str, ...] = extension(
        (),
        "Networks from which gossip is taken, and whose addresses members may have. The address of a packet can be forged "
        "where the network lets it through.",
        Sequence(Text("10.0.0.0/8")),
        default_text="all",
    )
    gossip_profile: str = extension(
        "lan",
        "Intervals and timeouts of memberlist's profile of this name: for a local network, for networks that are far apart, "
        "for one machine. Use one on all nodes.",
        Choice(tuple(PROFILES)),
        "`wan` notices a crash some 30 s later than `lan`, and takes slow members for failed less often.",
    )
    gossip: GossipSettings = extension(
        GossipSettings(),
        "Single values that differ from gossip_profile.",
        Section(),
        default_text="those of gossip_profile",
    )
    rpc_addr: Address | None = extension(
        None,
        "Address for the command `serf` of Serf's agents (`serf members -rpc-addr=…`) and libraries of that protocol: members, "
        "events, queries, keys, the log. Nothing is encrypted there; keep it on loopback.",
        AddressText("127.0.0.1:7373", DEFAULT_RPC_PORT, listens=True),
        default_text="not opened",
    )
    rpc_auth: str = extension(
        "",
        "Key that clients of rpc_addr give (`serf -rpc-auth=…`).",
        Text("KEY"),
        default_text="no key",
        secret=True,
    )
    retry_join: tuple[Address, ...] = setting(
        (),
        "Nodes to join at start: gossip addresses, names of hosts, or `srv+NAME` for DNS records of the type SRV, as a "
        "headless service of Kubernetes has them. A name is asked for all its addresses at each attempt. One node that "
        "answers is enough to know all others.",
        Sequence(AddressText("192.168.0.11:8902", DEFAULT_GOSSIP_PORT, to_connect=True, srv_allowed=True)),
    )
    retry_interval: float = setting(
        5.0,
        "Time between two attempts to join.",
        Duration(0.001, "5s"),
        "Raising it finds the others later; lowering it sends more to hosts that do not answer.",
    )
    retry_timeout: float = setting(
        60.0,
        "Longest time to join the nodes of retry_join; then retry_timeout_action.",
        Duration(0.001, "1m"),
        "Raising it reports later that a node stands alone.",
    )
    retry_timeout_action: str = extension(
        "continue",
        "What happens after retry_timeout. `continue`: an error is logged and the attempts go on; the node serves its own "
        "clients meanwhile. `exit`: a node that reached none of them stops with status 1, as the Go broker does, so "
        "that a supervisor notices.",
        Choice(("continue", "exit")),
    )
    reconnect_interval: float = extension(
        30.0,
        "Time between two attempts to reach a failed member again. The members together make one for each of them.",
        Duration(0.1, "30s"),
        "Lowering it finds members sooner that come back by themselves, and costs a connection each time.",
    )
    reconnect_timeout: float = extension(
        86_400.0,
        "How long a failed member is remembered, and attempts to reach it go on.",
        Duration(1.0, "24h"),
        "Use one value on all nodes.",
    )
    tombstone_timeout: float = extension(
        86_400.0,
        "How long a member that left is remembered. `force_leave` with prune forgets one at once.",
        Duration(1.0, "24h"),
        "Lowering it below the longest absence of a node lets that node bring a member back that left meanwhile.",
    )
    snapshot_path: str = setting(
        "",
        "File with the members, as Serf writes it, for the join after a restart without retry_join. A relative path begins at "
        "the configuration file. No snapshot when it is empty.",
        Text("/var/lib/gmqtt/serf.snapshot"),
    )
    rejoin_after_leave: bool = setting(
        False,
        "Whether a node that left joins the members in its snapshot again when it starts. A node leaves when it is stopped "
        "(SIGTERM), so without this the snapshot serves after a crash.",
        Flag(),
    )
    outbox_bytes_max: int = extension(
        64 * 2**20,
        "Most bytes of events in the outbox for one other node.",
        Size(65536, OUTBOX_BYTES_MAX, "64MiB"),
        "Raising it bridges longer absences and takes up to that memory for each node.",
    )
    outbox_age_max: float = extension(
        86_400.0,
        "Longest time that events wait for a node that is away. Then they are dropped and counted, and the node gets the "
        "full state when it returns.",
        Duration(0.001, "24h"),
        "Raising it bridges longer absences and delivers older messages after them.",
    )
    outbox_policy: str = extension(
        "drop_oldest",
        "Which events are dropped, and counted, at outbox_bytes_max: the oldest or the new ones.",
        Choice(("drop_oldest", "drop_newest")),
    )
    retained_tombstone_age: float = extension(
        30 * 86_400.0,
        "How long a node remembers that a retained message was deleted, or has expired. A node that was away for longer, "
        "with its store, brings the message back.",
        Duration(1.0, "720h"),
        "Use one value on all nodes. Raising it takes memory: 65,536 topics at most, with 16 MiB.",
    )
    startup_wait: float = extension(
        5.0,
        "Longest time after a start in which a node with a store waits for the interest of the other nodes before it "
        "takes QoS 1 and 2 messages. A node that has nobody to join does not wait.",
        Duration(0.0, "5s"),
        "Lowering it may lose messages for subscriptions that were made on other nodes while this one was down.",
    )
    suback_wait: str = extension(
        "peers",
        "What the answer to a SUBSCRIBE of a durable session waits for, on a node with a store. `peers`: the nodes that are "
        "reached know of it, so that each message that is published there afterwards comes. `local`: this node alone.",
        Choice(("peers", "local")),
    )
    session_scope: str = extension(
        "federation",
        "Where a client identifier is unique. `federation`: a client that connects to another node finds its session there, "
        "and its old connection ends. `node`: each node has a session of its own, as the Go broker's nodes have.",
        Choice(("federation", "node")),
    )
    claim_wait: float = extension(
        0.25,
        "Longest time that a client waits for the answers of other nodes before it is let in. What a node has that did not "
        "answer follows when it does. It waits 5 s for a node that, as far as is known here, has its session, and is reached. "
        "Within startup_wait of a start it waits for nodes that are away, too; and where this "
        "node has its session, within startup_wait of a start, or of the return of a keeper of its copy, for that keeper, "
        "which may have gone on with the session.",
        Duration(0.0, "250ms"),
        "Without answers of other nodes a client begins a new session.",
    )
    replication: ReplicationSettings = extension(
        ReplicationSettings(),
        "Copies of durable sessions on other nodes, which outlive the loss of this node's disk.",
        Section(),
        default_text="copies: 2",
    )
    zone: str = extension(
        "",
        "Where this node stands: a rack, a room, a data centre. It is told as the tag `zone`; copies of the node's store go to "
        "members of other zones first.",
        Text("room-2", ZONE_CHARS_MAX),
        default_text="none",
    )
    stabilization_time: float = extension(
        10.0,
        "How long a member lives until it counts for copies as older ones do. Before, it is chosen only where no older one "
        "is there, and where zones are told, only in a zone without a copy.",
        Duration(0.0, "10s"),
        "Lowering it places copies on members that soon may be gone.",
    )
    server_reference: str = extension(
        "",
        "Where clients reach this node: what nodes that are drained tell their clients (the property Server Reference of "
        "MQTT 5), as host:port or in any other form that the clients know.",
        Text("mqtt2.example.com:1883", REFERENCE_CHARS_MAX),
        default_text="not told",
    )
    batch: bool = extension(
        True,
        "Whether events travel in batches to nodes that understand them. The Go broker always gets single events.",
        Flag(),
        "Without it an event costs about a hundred times the processor time.",
    )

    def for_worker(self, place: Place, settings: Settings) -> FederationSettings:
        """As `broker.workers.shares.ForWorkers`."""
        if not place.is_member:
            log = getattr(settings.plugins, "event_log", None)
            return FederationSettings(**alone(place, self.node_name if log is None else log.node_name))
        index, tls = place.index, self.tls
        if tls is not None:
            told = moved_if_any(tls.advertise_addr, index)
            tls = replace(tls, addr=moved(tls.addr, index), advertise_addr=told)
        return replace(self, tls=tls, rpc_addr=None if index else self.rpc_addr, **among_others(self, place))

    @property
    def is_local(self) -> bool:
        """Return whether only programs of this machine reach this node on fed_addr."""
        addresses = (self.fed_addr, self.advertise_fed_addr or self.fed_addr)
        return all(is_loopback(address.host) for address in addresses)

    @property
    def shares_secrets(self) -> bool:
        """Return whether what other nodes get may have secrets."""
        return self.tls is not None or self.allow_plain_secrets or self.is_local

    @property
    def encrypts_gossip(self) -> bool:
        """Return whether the gossip has keys."""
        return bool(self.encrypt_keys or self.keyring_file)

    def broken_rules(self) -> Iterator[tuple[str, str]]:
        """Every broken rule as (key, text)."""
        if self.tls is not None:
            for below, text in self.tls.broken_rules():
                yield f"tls{below}", text
        elif self.require_tls:
            yield "require_tls", "this node has no TLS itself; set tls: {cert: FILE, key: FILE, cacert: FILE}"
        yield from gossip_key_faults(self.encrypt_keys, self.keyring_file)
        yield from network_faults(self.gossip_cidrs_allowed)
        for below, text in self.gossip.broken_rules(self.gossip_profile):
            yield f"gossip{below}", text

    def closed_keys(self) -> tuple[str, ...]:
        """As `broker.config.rules.ClosesAddresses`."""
        return ("fed_addr",) if self.require_tls else ()

    def unusable_files(self, key: str, path_of: Callable[[str], str]) -> Iterator[str]:
        """As `broker.server.named_files.NamesFiles`."""
        from federation.shell.keyring_file import KeyringFile
        from federation.shell.node_tls import NodeTls
        from federation.shell.snapshot_file import check_snapshot

        if self.tls is not None:
            try:
                NodeTls(self.tls.files(path_of), self.node_name, f"{key}.tls").renew()
            except StartError as error:
                yield str(error)
        if self.keyring_file:
            try:
                KeyringFile(path_of(self.keyring_file), f"{key}.keyring_file").read()
            except StartError as error:
                yield str(error)
        if self.snapshot_path:
            try:
                check_snapshot(Path(path_of(self.snapshot_path)), f"{key}.snapshot_path")
            except StartError as error:
                yield str(error)

    def start_warnings(self, settings: Settings, path_of: Callable[[str], str]) -> Iterator[str]:
        """As `broker.server.named_files.WarnsAtStart`."""
        if not is_validated_name(node_of(self.node_name)):
            yield (
                f"node_name: {self.node_name!a} is dropped by members that validate names (Serf's ValidateNodeNames): use "
                f"letters, digits, - and . alone, {VALIDATED_NAME_MAX} at most"
            )
        for name in ("gossip_verify_incoming", "gossip_verify_outgoing"):
            if getattr(self, name):
                continue
            if not self.encrypts_gossip:
                yield f"{name}: it means nothing without keys; set encrypt_keys or keyring_file, or leave it out"
            elif name == "gossip_verify_incoming":
                yield (
                    f"{name}: whoever reaches {self.gossip_addr} can name members, as without keys; set it to true when all "
                    "members encrypt"
                )
        if self.rpc_auth and self.rpc_addr is None:
            yield "rpc_auth: it means nothing without rpc_addr; set that, or leave rpc_auth out"
        if self.require_tls and self.fed_addr != DEFAULT_FED_ADDR:
            yield "fed_addr: it is not opened, because require_tls is true; leave the key out"
        if self.allow_plain_secrets and not self.is_local and not self.require_tls:
            yield (
                f"allow_plain_secrets: whoever reaches {self.fed_addr} can read and write the passwords of upstreams: nodes "
                "exchange them unencrypted and unauthenticated; leave the key out where the network is not private"
            )
