"""Every configuration key as a field of a frozen dataclass: the field's name is the key in YAML.

Durations are seconds, sizes are bytes. `Settings()` is the configuration of an empty file. Nothing here reads a file:
`loader.load` does. The annotations are the source of docs/configuration.md (scripts/build_docs).
"""

import socket
from dataclasses import dataclass, field
from typing import Annotated, Final

from broker.config.addresses import Address
from broker.config.setting import (
    AddressText,
    Choice,
    Duration,
    Flag,
    Section,
    Sections,
    Sequence,
    Setting,
    Size,
    Source,
    Text,
    Whole,
)

DEFAULT_MQTT_PORT: Final = 1883
DEFAULT_FEDERATION_PORT: Final = 8901
DEFAULT_GOSSIP_PORT: Final = 8902
COUNT_MAX: Final = 2**31 - 1
BYTES_MAX: Final = 2**40

NOT_SERVED: Final = "this listener is not opened"


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Files of TLS. Not there yet: a listener with `tls` is not opened, rather than opened without it."""

    cacert: Annotated[
        str,
        Setting(
            "File with the certificates of the authorities that clients are checked against.", Text("/etc/gmqtt/ca.pem")
        ),
    ] = ""
    cert: Annotated[str, Setting("File with the server's certificate.", Text("/etc/gmqtt/cert.pem"))] = ""
    key: Annotated[str, Setting("File with the key of that certificate.", Text("/etc/gmqtt/key.pem"))] = ""
    verify: Annotated[bool, Setting("Whether clients must show a certificate.", Flag())] = False


@dataclass(frozen=True, slots=True)
class WebsocketSettings:
    """MQTT over WebSocket. Not there yet: such a listener is not opened."""

    path: Annotated[str, Setting("Path of the URL on which MQTT is spoken.", Text("/mqtt"))] = "/"


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """One address on which clients connect."""

    address: Annotated[
        Address,
        Setting(
            "Address to listen on. An empty host means every interface.",
            AddressText(":1883", DEFAULT_MQTT_PORT),
            required=True,
        ),
    ]
    tls: Annotated[TlsSettings | None, Setting("Encrypts the connections.", Section(), later=NOT_SERVED)] = None
    websocket: Annotated[
        WebsocketSettings | None, Setting("Speaks MQTT over WebSocket.", Section(), later=NOT_SERVED)
    ] = None

    @property
    def is_served(self) -> bool:
        """False while TLS and WebSocket are not there: what was to be encrypted is never opened in plain text."""
        return self.tls is None and self.websocket is None


@dataclass(frozen=True, slots=True)
class ApiListener:
    """One address of the API."""

    address: Annotated[
        Address,
        Setting(
            "Address to listen on: `tcp://HOST:PORT`, `HOST:PORT` or `unix:///PATH`. Everybody who can reach it "
            "can publish, disconnect clients and change the membership: keep it on a private address.",
            AddressText("tcp://127.0.0.1:8084", unix_allowed=True),
            required=True,
        ),
    ]
    map: Annotated[
        Address | None,
        Setting(
            "For `api.http` only: the gRPC address whose services this REST address offers.",
            AddressText("tcp://127.0.0.1:8084", unix_allowed=True),
            default_text="the services of this node",
        ),
    ] = None
    tls: Annotated[TlsSettings | None, Setting("Encrypts the connections.", Section(), later=NOT_SERVED)] = None

    @property
    def is_served(self) -> bool:
        """False while TLS is not there: what was to be encrypted is never opened in plain text."""
        return self.tls is None


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """The API over gRPC and REST. Without an address there is none."""

    grpc: Annotated[tuple[ApiListener, ...], Setting("Addresses of the gRPC API.", Sections())] = ()
    http: Annotated[tuple[ApiListener, ...], Setting("Addresses of the REST API.", Sections())] = ()


@dataclass(frozen=True, slots=True)
class MqttSettings:
    """What the broker offers to its clients, and its limits."""

    session_expiry: Annotated[
        float,
        Setting(
            "Longest time that a session is kept after its connection ended; a client that asks for more gets this. "
            "Sessions of MQTT 3.1.1 without clean session get exactly this.",
            Duration(0.0, "2h"),
            "Raising it keeps the queues of clients that never come back in memory for longer; "
            "lowering it loses messages of clients that are away for longer.",
        ),
    ] = 7200.0
    session_expiry_check_timer: Annotated[
        float,
        Setting(
            "How often expired sessions are looked for.",
            Duration(0.001, "20s"),
            "Raising it frees their memory later; lowering it costs a look at each session that often.",
            aliases=("session_expiry_check_interval",),
        ),
    ] = 20.0
    message_expiry: Annotated[
        float,
        Setting(
            "Longest life of a message in a queue; a message with a longer or no expiry of its own gets this. 0: no limit.",
            Duration(0.0, "2h"),
            "Raising it brings older messages to clients that return; lowering it drops (and counts) more of them.",
        ),
    ] = 7200.0
    inflight_expiry: Annotated[
        float,
        Setting(
            "Age from which a message that was sent but not acknowledged may be dropped when its queue is full.",
            Duration(0.0, "30s"),
            "Raising it keeps slow receivers' messages and drops newer ones instead; "
            "lowering it may drop what a receiver is just about to acknowledge.",
        ),
    ] = 30.0
    max_packet_size: Annotated[
        int,
        Setting(
            "Largest packet that a client may send, in bytes with its header. Larger ones close the connection (0x95) "
            "before their content is read. MQTT itself allows 268435460.",
            Size(16, 2**32 - 1, "1MiB"),
            "Raising it lets one client make the broker hold that much memory; lowering it refuses large messages.",
        ),
    ] = 268_435_456
    server_receive_maximum: Annotated[
        int,
        Setting(
            "How many QoS 1 and 2 messages a client may have sent without their acknowledgement (Receive Maximum of the server).",
            Whole(1, 65535, 100),
            "Raising it lets fast publishers run further ahead and take more memory; lowering it costs them round trips.",
        ),
    ] = 100
    max_keepalive: Annotated[
        int,
        Setting(
            "Longest keep alive in seconds; a client that asks for more, or for none, gets this. Clients of MQTT 5 are "
            "told so; to those of 3.1.1 it applies only from what they themselves asked for. 0: no limit.",
            Whole(0, 65535, 300),
            "Raising it notices dead connections later; lowering it costs a ping of each idle client that often.",
        ),
    ] = 300
    topic_alias_maximum: Annotated[
        int,
        Setting(
            "Highest topic alias that a client may use, and the most that the broker uses towards it. 0: none.",
            Whole(0, 65535, 10),
            "Raising it saves bytes of long topics and takes memory for each connection.",
        ),
    ] = 10
    subscription_identifier_available: Annotated[
        bool, Setting("Whether subscriptions may carry an identifier (MQTT 5).", Flag())
    ] = True
    wildcard_subscription_available: Annotated[bool, Setting("Whether filters may contain `+` and `#`.", Flag())] = True
    shared_subscription_available: Annotated[
        bool, Setting("Whether `$share/GROUP/FILTER` may be subscribed.", Flag())
    ] = True
    maximum_qos: Annotated[
        int,
        Setting(
            "Highest quality of service of a PUBLISH, and of a subscription.",
            Whole(0, 2, 2),
            "Lowering it saves state of in-flight messages and refuses publishers that need more.",
        ),
    ] = 2
    retain_available: Annotated[bool, Setting("Whether messages may be retained.", Flag())] = True
    max_queued_messages: Annotated[
        int,
        Setting(
            "Most messages that wait for one session, those in flight included. A full queue drops by the rule of "
            "the session's queue and counts each drop.",
            Whole(1, COUNT_MAX, 1000),
            "Raising it lets each slow or absent client take more memory; lowering it drops earlier.",
        ),
    ] = 1000
    max_inflight: Annotated[
        int,
        Setting(
            "Most QoS 1 and 2 messages on the way to one client without acknowledgement; "
            "the client's Receive Maximum may lower it. At most max_queued_messages.",
            Whole(1, 65535, 100),
            "Raising it is faster over long distances and repeats more after a reconnect; lowering it costs round trips.",
        ),
    ] = 100
    queue_qos0_messages: Annotated[
        bool,
        Setting("Whether QoS 0 messages are kept for sessions that are away, as far as their queue has room.", Flag()),
    ] = True
    delivery_mode: Annotated[
        str,
        Setting(
            "What a client gets whose filters overlap: `onlyonce` one copy at the highest QoS of them, "
            "`overlap` one copy for each.",
            Choice(("onlyonce", "overlap")),
        ),
    ] = "onlyonce"
    allow_zero_length_clientid: Annotated[
        bool, Setting("Whether a client may leave its identifier empty and get one from the broker.", Flag())
    ] = True
    connect_timeout: Annotated[
        float,
        Setting(
            "Time within which a new connection must have sent its CONNECT, and any connection the rest of a packet "
            "that it began. Past it the connection is closed.",
            Duration(0.001, "10s"),
            "Raising it lets idle strangers hold file descriptors for longer; lowering it loses clients on very slow lines.",
            source=Source.EXTENSION,
        ),
    ] = 10.0
    max_connections: Annotated[
        int,
        Setting(
            "Most connections at one time; the next one gets 0x97 (quota exceeded) or is closed. 0: as many as there are file descriptors.",
            Whole(0, COUNT_MAX, 10000),
            "Raising it needs about 6 kB of memory for each idle connection; lowering it protects those that are there.",
            source=Source.EXTENSION,
        ),
    ] = 0
    max_subscriptions_per_client: Annotated[
        int,
        Setting(
            "Most subscriptions of one session; more are answered with 0x97 (quota exceeded) and change nothing.",
            Whole(1, COUNT_MAX, 10000),
            "Raising it lets one client fill the topic tree of every node.",
            source=Source.EXTENSION,
        ),
    ] = 10_000
    max_topic_levels: Annotated[
        int,
        Setting(
            "Most levels of a topic or filter (one more than its slashes).",
            Whole(1, 65535, 128),
            "Raising it makes the worst match deeper: its time grows with the levels.",
            source=Source.EXTENSION,
        ),
    ] = 128
    max_queued_bytes: Annotated[
        int,
        Setting(
            "Most bytes of messages that wait for one session, beside max_queued_messages. Drops are counted.",
            Size(1024, BYTES_MAX, "16MiB"),
            "Raising it lets each slow or absent client take more memory; lowering it drops large messages earlier.",
            source=Source.EXTENSION,
        ),
    ] = 16 * 2**20
    publisher_hold_max: Annotated[
        float,
        Setting(
            "Longest time that a QoS 0 publisher is not read because a receiver of its messages is full; "
            "past it messages to that receiver are dropped and counted. 0: drop at once.",
            Duration(0.0, "200ms"),
            "Raising it loses less when receivers are slow for a moment and lets one slow receiver slow its publishers down.",
            source=Source.EXTENSION,
        ),
    ] = 0.2
    max_retained_messages: Annotated[
        int,
        Setting(
            "Most retained messages of the node; at the limit new topics are not retained (counted), known ones still change.",
            Whole(0, COUNT_MAX, 1000000),
            "Raising it lets publishers fill more memory, on every node of the federation.",
            source=Source.EXTENSION,
        ),
    ] = 1_000_000
    write_buffer_high: Annotated[
        int,
        Setting(
            "Bytes written to a connection but not taken by its network from which it counts as full.",
            Size(4096, 2**30, "256KiB"),
            "Raising it takes memory for each slow receiver; lowering it makes fast receivers full in bursts.",
            source=Source.EXTENSION,
        ),
    ] = 256 * 2**10


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """The redis store. Only with `persistence.type: redis`, which is not there yet."""

    addr: Annotated[Address, Setting("Address of the redis server.", AddressText("127.0.0.1:6379", 6379))] = Address(
        "tcp", "127.0.0.1", 6379
    )
    max_idle: Annotated[int, Setting("Most idle connections to it.", Whole(0, COUNT_MAX, 1000))] = 1000
    max_active: Annotated[int, Setting("Most connections to it. 0: no limit.", Whole(0, COUNT_MAX, 0))] = 0
    idle_timeout: Annotated[
        float, Setting("Time after which an idle connection to it is closed. 0: never.", Duration(0.0, "240s"))
    ] = 240.0
    password: Annotated[str, Setting("Its password.", Text("secret"), secret=True)] = ""
    database: Annotated[int, Setting("Number of its database.", Whole(0, COUNT_MAX, 0))] = 0


@dataclass(frozen=True, slots=True)
class PersistenceSettings:
    """Where sessions, queues, subscriptions and retained messages are kept."""

    type: Annotated[
        str,
        Setting(
            "`memory`: lost when the node ends.",
            Choice(("memory", "redis")),
            later_words=(("redis", "everything is kept in memory and lost when the node ends"),),
        ),
    ] = "memory"
    redis: Annotated[RedisSettings, Setting("The redis store.", Section(), later="everything is kept in memory")] = (
        RedisSettings()
    )


@dataclass(frozen=True, slots=True)
class TopicAliasManagerSettings:
    """How the broker chooses topic aliases towards clients (MQTT 5)."""

    type: Annotated[str, Setting("`fifo`: the oldest alias is given to the next topic.", Choice(("fifo",)))] = "fifo"


@dataclass(frozen=True, slots=True)
class PrometheusSettings:
    """Metrics for Prometheus. Not there yet: nothing listens."""

    path: Annotated[str, Setting("Path of the metrics.", Text("/metrics"), later="no metrics are served")] = "/metrics"
    listen_address: Annotated[
        Address, Setting("Address to listen on.", AddressText(":8082", 8082), later="no metrics are served")
    ] = Address("tcp", "", 8082)


@dataclass(frozen=True, slots=True)
class AuthSettings:
    """Users and passwords. Not there yet: every client is let in."""

    hash: Annotated[
        str,
        Setting(
            "How passwords are kept in the file.",
            Choice(("plain", "md5", "sha256", "bcrypt")),
            later="every client is let in",
        ),
    ] = "md5"
    password_file: Annotated[
        str,
        Setting(
            "File with a YAML list of `{username, password}`; a relative path starts at the configuration file.",
            Text("./gmqtt_password.yml"),
            later="every client is let in",
        ),
    ] = "./gmqtt_password.yml"


@dataclass(frozen=True, slots=True)
class AdminEndpointSettings:
    """Former keys of the admin plugin. gmqttd reads them and opens nothing: its addresses are in `api`."""

    enable: Annotated[bool, Setting("Former key.", Flag(), later="use api.http and api.grpc")] = True
    http_addr: Annotated[str, Setting("Former key.", Text("127.0.0.1:8083"), later="use api.http and api.grpc")] = ""


@dataclass(frozen=True, slots=True)
class AdminSettings:
    """The admin plugin: clients, subscriptions and publishing over the API. It has no keys of its own that matter."""

    http: Annotated[AdminEndpointSettings, Setting("Former key.", Section(), later="use api.http")] = (
        AdminEndpointSettings()
    )
    grpc: Annotated[AdminEndpointSettings, Setting("Former key.", Section(), later="use api.grpc")] = (
        AdminEndpointSettings()
    )


@dataclass(frozen=True, slots=True)
class FederationSettings:
    """The federation of this node with others. Only where `plugin_order` has `federation`."""

    node_name: Annotated[
        str,
        Setting(
            "Name of the node, which no other member may have. Other nodes keep what they know of this one under it: "
            "a node that comes back keeps its name.",
            Text("node1", 128),
            default_text="the host name",
        ),
    ] = field(default_factory=socket.gethostname)
    fed_addr: Annotated[
        Address,
        Setting(
            "Address that the event streams of other nodes come in on (gRPC).",
            AddressText(":8901", DEFAULT_FEDERATION_PORT),
        ),
    ] = Address("tcp", "", DEFAULT_FEDERATION_PORT)
    advertise_fed_addr: Annotated[
        Address | None,
        Setting(
            "The address that other nodes are told to use instead of fed_addr. An empty host, or 0.0.0.0, becomes the "
            "machine's private IPv4 address.",
            AddressText("192.168.0.10:8901", DEFAULT_FEDERATION_PORT),
            default_text="fed_addr",
        ),
    ] = None
    gossip_addr: Annotated[
        Address,
        Setting("Address of the membership's gossip, UDP and TCP.", AddressText(":8902", DEFAULT_GOSSIP_PORT)),
    ] = Address("tcp", "", DEFAULT_GOSSIP_PORT)
    advertise_gossip_addr: Annotated[
        Address | None,
        Setting(
            "The address that other nodes are told to use instead of gossip_addr; as advertise_fed_addr.",
            AddressText("192.168.0.10:8902", DEFAULT_GOSSIP_PORT),
            default_text="gossip_addr",
        ),
    ] = None
    retry_join: Annotated[
        tuple[Address, ...],
        Setting(
            "Gossip addresses of nodes to join at start. One that answers is enough to know all others.",
            Sequence(AddressText("192.168.0.11:8902", DEFAULT_GOSSIP_PORT)),
        ),
    ] = ()
    retry_interval: Annotated[
        float,
        Setting(
            "Time between two tries to join.",
            Duration(0.001, "5s"),
            "Raising it finds the others later; lowering it sends more to hosts that do not answer.",
        ),
    ] = 5.0
    retry_timeout: Annotated[
        float,
        Setting(
            "Time to have joined all of retry_join; past it, retry_timeout_action.",
            Duration(0.001, "1m"),
            "Raising it waits longer before it is reported that a node stands alone.",
        ),
    ] = 60.0
    retry_timeout_action: Annotated[
        str,
        Setting(
            "What happens after retry_timeout. `continue`: an error is logged and the tries go on, because a node serves "
            "its own clients whether or not another node answers. `exit`: the node stops with status 1, as gmqttd does, "
            "for a supervisor that is to notice.",
            Choice(("continue", "exit")),
            source=Source.EXTENSION,
        ),
    ] = "continue"
    snapshot_path: Annotated[
        str,
        Setting(
            "File that remembers the members over a restart.",
            Text("/var/lib/gmqtt/serf.snapshot"),
            later="only retry_join is joined at start",
        ),
    ] = ""
    rejoin_after_leave: Annotated[
        bool,
        Setting(
            "Whether a node that left joins again the members that its snapshot remembers.",
            Flag(),
            later="only retry_join is joined at start",
        ),
    ] = False
    outbox_bytes_max: Annotated[
        int,
        Setting(
            "Most bytes of events that wait for one other node.",
            Size(65536, BYTES_MAX, "64MiB"),
            "Raising it bridges longer absences of a node and takes up to that memory for each of them.",
            source=Source.EXTENSION,
        ),
    ] = 64 * 2**20
    outbox_age_max: Annotated[
        float,
        Setting(
            "Longest time that events wait for a node that is away; then they are dropped and counted, and it gets the "
            "full state when it returns.",
            Duration(0.001, "5m"),
            "Raising it bridges longer absences and delivers older messages after them.",
            source=Source.EXTENSION,
        ),
    ] = 300.0
    outbox_policy: Annotated[
        str,
        Setting(
            "Which messages are dropped (and counted) at outbox_bytes_max: the oldest ones or the new ones.",
            Choice(("drop_oldest", "drop_newest")),
            source=Source.EXTENSION,
        ),
    ] = "drop_oldest"
    batch: Annotated[
        bool,
        Setting(
            "Whether events travel in batches to nodes that can read them. Others always get single events.",
            Flag(),
            "Without it an event costs about a hundred times the processor time.",
            source=Source.EXTENSION,
        ),
    ] = True


@dataclass(frozen=True, slots=True)
class PluginsSettings:
    """Keys of the plugins. A plugin runs only where `plugin_order` names it."""

    prometheus: Annotated[PrometheusSettings, Setting("Metrics.", Section())] = PrometheusSettings()
    auth: Annotated[AuthSettings, Setting("Users and passwords.", Section())] = AuthSettings()
    admin: Annotated[AdminSettings, Setting("Clients, subscriptions and publishing over the API.", Section())] = (
        AdminSettings()
    )
    federation: Annotated[FederationSettings, Setting("Nodes that act as one broker.", Section())] = field(
        default_factory=FederationSettings
    )


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The log, written to standard error."""

    level: Annotated[
        str,
        Setting(
            "Lowest level that is written.",
            Choice(("debug", "info", "warn", "error")),
            "debug costs time for each packet.",
        ),
    ] = "info"
    format: Annotated[
        str, Setting("`text` for people, `json` for programs: one object a line.", Choice(("text", "json")))
    ] = "text"
    dump_packet: Annotated[
        bool,
        Setting(
            "Whether every MQTT packet is logged, at level debug.",
            Flag(),
            "It writes contents of messages into the log and is slow: for debugging only.",
        ),
    ] = False


@dataclass(frozen=True, slots=True)
class Settings:
    """The whole file."""

    listeners: Annotated[tuple[ListenerSettings, ...], Setting("Where clients connect.", Sections())] = (
        ListenerSettings(Address("tcp", "", DEFAULT_MQTT_PORT)),
    )
    api: Annotated[ApiSettings, Setting("The API.", Section())] = ApiSettings()
    mqtt: Annotated[MqttSettings, Setting("What clients are offered, and limits.", Section())] = MqttSettings()
    persistence: Annotated[PersistenceSettings, Setting("Where state is kept.", Section())] = PersistenceSettings()
    topic_alias_manager: Annotated[TopicAliasManagerSettings, Setting("Topic aliases towards clients.", Section())] = (
        TopicAliasManagerSettings()
    )
    plugins: Annotated[PluginsSettings, Setting("Keys of the plugins.", Section())] = field(
        default_factory=PluginsSettings
    )
    plugin_order: Annotated[
        tuple[str, ...],
        Setting(
            "The plugins that run, in the order of their loading: auth, prometheus, admin, federation.",
            Sequence(Choice(("auth", "prometheus", "admin", "federation"))),
            later_words=(
                ("auth", "every client is let in without a password"),
                ("prometheus", "no metrics are served"),
            ),
        ),
    ] = ()
    pid_file: Annotated[
        str,
        Setting(
            "File for the process id, which `gmqttd reload` needs. Without it there is none.",
            Text("/run/gmqttd.pid"),
        ),
    ] = ""
    log: Annotated[LogSettings, Setting("The log.", Section())] = LogSettings()
