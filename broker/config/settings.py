"""Every configuration key as a field of a frozen dataclass: the field's name is the key in YAML.

Durations are seconds, sizes are bytes. `Settings()` is the configuration of a file that sets nothing. Nothing here
reads a file: `loader.load` does. The annotations are the source of docs/configuration.md (scripts/build_docs).
"""

from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from broker.config.addresses import Address
from broker.config.installed import plugins_class
from broker.config.setting import (
    AddressText,
    Choice,
    Duration,
    Flag,
    Section,
    Sections,
    Sequence,
    Setting,
    Source,
    Text,
    Whole,
)
from broker.config.settings_mqtt import COUNT_MAX
from broker.config.settings_mqtt import MqttSettings as MqttSettings  # noqa: PLC0414 (exported: it is part of Settings)

DEFAULT_MQTT_PORT: Final = 1883
DEFAULT_REDIS_ADDR: Final = Address("tcp", "127.0.0.1", 6379)
NOT_SERVED: Final = "this listener is not opened"


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Files of TLS. A listener with `tls` is never opened without it."""

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
    """MQTT over WebSocket."""

    path: Annotated[str, Setting("Path of the URL.", Text("/mqtt"))] = "/"


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """One address on which clients connect."""

    address: Annotated[
        Address,
        Setting(
            "Address to listen on. An empty host means every interface.",
            AddressText(":1883", DEFAULT_MQTT_PORT, listens=True),
            required=True,
        ),
    ]
    tls: Annotated[
        TlsSettings | None, Setting("Encrypts the connections.", Section(), later=NOT_SERVED, is_security=True)
    ] = None
    websocket: Annotated[
        WebsocketSettings | None, Setting("Speaks MQTT over WebSocket.", Section(), later=NOT_SERVED)
    ] = None

    @property
    def is_served(self) -> bool:
        """False with TLS and WebSocket, which are not supported yet. A listener with TLS is never opened in plain text."""
        return self.tls is None and self.websocket is None


@dataclass(frozen=True, slots=True)
class ApiListener:
    """One address of the API."""

    address: Annotated[
        Address,
        Setting(
            "Address to listen on: `tcp://HOST:PORT`, `HOST:PORT` or `unix:///PATH`. Whoever reaches it can publish, "
            "disconnect clients and change the membership: use a private address.",
            AddressText("tcp://127.0.0.1:8084", unix_allowed=True, listens=True),
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
    tls: Annotated[
        TlsSettings | None, Setting("Encrypts the connections.", Section(), later=NOT_SERVED, is_security=True)
    ] = None
    allowed_hosts: Annotated[
        tuple[str, ...],
        Setting(
            "For `api.http` only: host names, without port, under which browsers and programs may call the API beside "
            "`localhost` and IP addresses. A listener on a loopback address refuses all others (DNS rebinding); any "
            "other listener does when this list is set.",
            Sequence(Text("gmqttd.example.com")),
            source=Source.EXTENSION,
        ),
    ] = ()

    @property
    def is_served(self) -> bool:
        """False with TLS, which is not supported yet. An address with TLS is never opened in plain text."""
        return self.tls is None


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """The API over gRPC and REST. Without an address there is none."""

    grpc: Annotated[tuple[ApiListener, ...], Setting("Addresses of the gRPC API.", Sections())] = ()
    http: Annotated[tuple[ApiListener, ...], Setting("Addresses of the REST API.", Sections())] = ()


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """The redis store, for `persistence.type: redis`."""

    addr: Annotated[
        Address, Setting("Address of the redis server.", AddressText("127.0.0.1:6379", 6379, to_connect=True))
    ] = DEFAULT_REDIS_ADDR
    max_idle: Annotated[int, Setting("Most idle connections.", Whole(0, COUNT_MAX, 1000))] = 1000
    max_active: Annotated[int, Setting("Most connections. 0: no limit.", Whole(0, COUNT_MAX, 0))] = 0
    idle_timeout: Annotated[
        float, Setting("Time after which an idle connection is closed. 0: never.", Duration(0.0, "240s"))
    ] = 240.0
    password: Annotated[str, Setting("Password of the redis server.", Text("secret"), secret=True)] = ""
    database: Annotated[int, Setting("Number of the database.", Whole(0, COUNT_MAX, 0))] = 0


@dataclass(frozen=True, slots=True)
class PersistenceSettings:
    """Where sessions, subscriptions, queues and retained messages are kept."""

    type: Annotated[
        str,
        Setting(
            "`memory`: state is lost when the node ends.",
            Choice(("memory", "redis")),
            later_words=(("redis", "everything is kept in memory and lost when the node ends"),),
        ),
    ] = "memory"
    redis: Annotated[RedisSettings, Setting("The redis store.", Section(), later="everything is kept in memory")] = (
        RedisSettings()
    )


@dataclass(frozen=True, slots=True)
class TopicAliasManagerSettings:
    """How the broker chooses topic aliases towards clients of MQTT 5 that have a Topic Alias Maximum."""

    type: Annotated[
        str,
        Setting(
            "`fifo`: when all aliases of a client are given, the next topic gets the oldest one. Topics of 4 to 1,024 bytes "
            "get an alias, at most 1,024 of a client.",
            Choice(("fifo",)),
        ),
    ] = "fifo"


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The log, written to standard error."""

    level: Annotated[
        str,
        Setting(
            "Lowest level that is written.",
            Choice(("debug", "info", "warn", "error")),
            "debug adds the packet dump, and the clients above the bound of `clients`.",
        ),
    ] = "info"
    format: Annotated[
        str, Setting("`text` for people, `json` for programs: one object a line.", Choice(("text", "json")))
    ] = "text"
    clients: Annotated[
        bool,
        Setting(
            "Whether clients that connect, disconnect or are refused are logged, at level info.",
            Flag(),
            "At most 100 lines a second at level info, the others are counted. A line takes some 10 µs.",
            source=Source.EXTENSION,
        ),
    ] = True
    dump_packet: Annotated[
        bool,
        Setting(
            "Whether every MQTT packet of new connections is logged, at level debug.",
            Flag(),
            "It writes payloads into the log and is slow: for debugging only.",
        ),
    ] = False


def _plugin_defaults() -> object:
    return plugins_class()()


@dataclass(frozen=True, slots=True)
class Settings:
    """The whole file."""

    listeners: Annotated[tuple[ListenerSettings, ...], Setting("Where clients connect.", Sections())] = (
        ListenerSettings(Address("tcp", "", DEFAULT_MQTT_PORT)),
    )
    api: Annotated[ApiSettings, Setting("The API.", Section())] = ApiSettings()
    mqtt: Annotated[MqttSettings, Setting("Features that clients are offered, and limits.", Section())] = field(
        default_factory=MqttSettings
    )
    persistence: Annotated[PersistenceSettings, Setting("Where state is kept.", Section())] = PersistenceSettings()
    topic_alias_manager: Annotated[TopicAliasManagerSettings, Setting("Topic aliases towards clients.", Section())] = (
        TopicAliasManagerSettings()
    )
    plugins: Annotated[Any, Setting("Keys of the plugins, each below its plugin's name.", Section(plugins_class))] = (
        field(default_factory=_plugin_defaults)
    )
    plugin_order: Annotated[
        tuple[str, ...],
        Setting(
            "The plugins that run, in the order of their loading: names of installed plugins. Without another "
            "distribution these are `admin` (clients, subscriptions and publishing over the API) and `federation`.",
            Sequence(Text("admin", 100, is_name=True)),
        ),
    ] = ()
    pid_file: Annotated[
        str,
        Setting(
            "File for the process id, which `gmqttd reload` needs; its folder must exist. Empty: no file.",
            Text("/run/gmqttd.pid"),
        ),
    ] = ""
    log: Annotated[LogSettings, Setting("The log.", Section())] = LogSettings()
