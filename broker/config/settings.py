"""Every configuration key as a field of a frozen dataclass: the field's name is the key in YAML.

Durations are seconds, sizes are bytes. `Settings()` is the configuration of a file that sets nothing. Nothing here
reads a file: `loader.load` does. The fields are the source of docs/configuration.md (scripts/build_docs).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from broker.config.addresses import LOOPBACK_HOST, Address
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
    Text,
    Whole,
    WholeOrAuto,
    described,
    extension,
    setting,
)
from broker.config.settings_listeners import DEFAULT_MQTT_PORT, ApiListener, ListenerSettings
from broker.config.settings_mqtt import COUNT_MAX
from broker.config.settings_mqtt import MqttSettings as MqttSettings  # noqa: PLC0414 (exported: it is part of Settings)

# Where clients connect, as long as the file names no listener: those of other machines only when they are authenticated.
DEFAULT_LISTENERS_WITH_AUTH: Final = (ListenerSettings(Address("tcp", "", DEFAULT_MQTT_PORT)),)
WORKERS_MAX: Final = 64
DEFAULT_REDIS_ADDR: Final = Address("tcp", "127.0.0.1", 6379)


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """The API over gRPC and REST. Without an address there is none."""

    grpc: tuple[ApiListener, ...] = setting((), "Addresses of the gRPC API.", Sections())
    http: tuple[ApiListener, ...] = setting((), "Addresses of the REST API.", Sections())
    token_file: str = extension(
        "",
        "File of the tokens that calls of the API and the metrics need, on every address; a relative path starts at the "
        "configuration file. `gmqttd token` writes it; it is read again at a reload. Empty: no tokens are needed.",
        Text("/etc/gmqtt/tokens.yml"),
    )
    dashboard: bool = extension(
        True,
        "Whether the addresses of `http` serve the page of the node at `/`. On an address that is not a loopback one it needs "
        "token_file, for the login.",
        Flag(),
    )

    def listeners(self) -> Iterator[tuple[str, ApiListener]]:
        """Yield each address with its key."""
        for kind, listeners in (("grpc", self.grpc), ("http", self.http)):
            for index, listener in enumerate(listeners):
                yield f"api.{kind}[{index}]", listener


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """The redis store, for `persistence.type: redis`."""

    addr: Address = setting(
        DEFAULT_REDIS_ADDR, "Address of the redis server.", AddressText("127.0.0.1:6379", 6379, to_connect=True)
    )
    max_idle: int = setting(1000, "No effect: a node has one connection.", Whole(0, COUNT_MAX, 1000))
    max_active: int = setting(0, "No effect: a node has one connection.", Whole(0, COUNT_MAX, 0))
    idle_timeout: float = setting(240.0, "No effect: the connection stays open.", Duration(0.0, "240s"))
    password: str = setting("", "Password of the redis server.", Text("secret"), secret=True)
    database: int = setting(0, "Number of the database.", Whole(0, COUNT_MAX, 0))
    key_prefix: str = extension(
        "gmqttd", "Beginning of all keys. Nodes that share a database need one each.", Text("node1", 100, is_name=True)
    )


@dataclass(frozen=True, slots=True)
class PersistenceSettings:
    """The store of sessions, subscriptions, queues and retained messages (docs/stores.md)."""

    type: str | None = setting(
        None,
        "`memory`: state is lost when the node ends. `sqlite`: a file in `data_dir`. `redis`: a redis server.",
        Choice(("memory", "sqlite", "redis")),
        default_text="`sqlite` with a `data_dir`, else `memory`",
    )
    redis: RedisSettings = setting(RedisSettings(), "The redis store.", Section())


@dataclass(frozen=True, slots=True)
class TopicAliasManagerSettings:
    """The choice of topic aliases towards clients of MQTT 5 that have a Topic Alias Maximum."""

    type: str = setting(
        "fifo",
        "`fifo`: when all aliases of a client are given, the next topic gets the oldest one. Topics of 4 to 1,024 bytes "
        "get an alias, at most 1,024 of a client.",
        Choice(("fifo",)),
    )


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The log, written to standard error."""

    level: str = setting(
        "info",
        "Lowest level that is written.",
        Choice(("debug", "info", "warn", "error")),
        "debug adds the packet dump, and the clients above the bound of `clients`.",
    )
    format: str = setting(
        "text", "`text` for people, `json` for programs: one object a line.", Choice(("text", "json"))
    )
    clients: bool = extension(
        True,
        "Whether clients that connect, disconnect or are refused are logged, at level info.",
        Flag(),
        "At most 100 lines a second at level info, the others are counted. A line takes some 10 µs.",
    )
    dump_packet: bool = setting(
        False,
        "Whether every MQTT packet of new connections is logged, at level debug.",
        Flag(),
        "It writes payloads into the log and is slow: for debugging only.",
    )


@dataclass(frozen=True, slots=True)
class Settings:
    """The whole file."""

    listeners: tuple[ListenerSettings, ...] = setting(
        (ListenerSettings(Address("tcp", LOOPBACK_HOST, DEFAULT_MQTT_PORT)),),
        "Where clients connect.",
        Sections(),
        default_text='`[{address: "127.0.0.1:1883"}]`; with the plugin `auth` `[{address: ":1883"}]`, every interface',
    )
    api: ApiSettings = setting(ApiSettings(), "The API.", Section())
    mqtt: MqttSettings = setting(MqttSettings(), "Features that clients are offered, and limits.", Section())
    data_dir: str = extension(
        "",
        "Folder for what outlives the node; the folder above it must exist, and a relative path starts at the "
        "configuration file. Each node needs one of its own.",
        Text("/var/lib/gmqttd"),
    )
    persistence: PersistenceSettings = setting(PersistenceSettings(), "Where state is kept.", Section())
    topic_alias_manager: TopicAliasManagerSettings = setting(
        TopicAliasManagerSettings(), "Topic aliases towards clients.", Section()
    )
    plugins: Any = field(
        default_factory=lambda: plugins_class()(),  # noqa: PLW0108 (the plugins are looked up when a file is read)
        metadata=described(Setting("Keys of the plugins, each below its plugin's name.", Section(plugins_class))),
    )
    plugin_order: tuple[str, ...] = setting(
        (),
        "The plugins that run, in the order of their loading: names of installed plugins. Without another "
        "distribution these are `auth` (who may connect), `admin` (clients, subscriptions and publishing over the API), "
        "`prometheus` (metrics), `event_log`, `kafka` (the log for Kafka clients), `federation` (other nodes) and "
        "`links` (other clusters).",
        Sequence(Text("admin", 100, is_name=True)),
    )
    workers: str = extension(
        "1",
        "Number of processes that serve the clients of this node: 1, more, or `auto` for as many as there are cores. They are "
        "nodes of a federation on this machine (docs/operations.md).",
        WholeOrAuto(1, WORKERS_MAX, 4),
        "Each takes its own memory, and a message to a client of another one costs what a stream between nodes does.",
    )
    pid_file: str = setting(
        "",
        "File for the process id, which `gmqttd reload` needs; its folder must exist. Empty: no file.",
        Text("/run/gmqttd.pid"),
    )
    log: LogSettings = setting(LogSettings(), "The log.", Section())

    @property
    def store_type(self) -> str:
        """Return `persistence.type`, or the store that is meant where it is not set."""
        return self.persistence.type or ("sqlite" if self.data_dir else "memory")
