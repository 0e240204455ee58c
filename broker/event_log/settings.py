"""The keys of `plugins.event_log`."""

# not a core: asks the system for its name
from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from broker.config.addresses import Address
from broker.config.setting import (
    AddressText,
    Choice,
    Duration,
    Section,
    Sequence,
    Setting,
    Size,
    Text,
    described,
    extension,
)
from broker.errors import MqttError
from broker.routing.names import check_topic_filter
from broker.workers.shares import beside, moved_if_any, share

if TYPE_CHECKING:
    from broker.config.settings import Settings
    from broker.workers.shares import Place

SEGMENT_BYTES_MIN: Final = 2**16
SEGMENT_BYTES_MAX: Final = 2**30
LOG_BYTES_MAX: Final = 2**50
DEFAULT_GRPC_PORT: Final = 8084
FILTERS_EXAMPLE: Final = "sensors/#"


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    """Records are kept so long. Whole segments are removed, oldest first."""

    age: float = extension(
        7 * 86_400.0,
        "A segment is removed when its newest record is older. 0: no limit.",
        Duration(0.0, "168h"),
        "Raising it keeps more on disk.",
    )
    bytes: int = extension(
        10 * 2**30,
        "The oldest segments are removed while all of them take more. 0: no limit.",
        Size(0, LOG_BYTES_MAX, "10GiB"),
    )


@dataclass(frozen=True, slots=True)
class HoldSettings:
    """The hold of a group of readers extends the retention so far. A hold that would keep more is released."""

    max_age: float = extension(
        30 * 86_400.0,
        "As retention.age, for segments that a group of readers holds. 0: no limit.",
        Duration(0.0, "720h"),
    )
    max_bytes: int = extension(
        20 * 2**30,
        "As retention.bytes, for segments that a group of readers holds. 0: no limit.",
        Size(0, LOG_BYTES_MAX, "20GiB"),
    )


@dataclass(frozen=True, slots=True)
class EventLogSettings:
    """The event log of this node, which pipelines read."""

    dir: str = extension(
        "/var/lib/gmqttd/event_log",
        "Folder of the log. It is made when its parent exists; a relative path starts at the configuration file. No other "
        "process may use it.",
        Text("/var/lib/gmqttd/event_log", is_name=True),
    )
    node_name: str = field(
        default_factory=socket.gethostname,
        metadata=described(
            Setting(
                "Name of the node in the records. With the plugin federation it is that plugin's node_name, whatever stands "
                "here.",
                Text("node1", 128, is_name=True),
                default_text="the host name",
                is_extension=True,
            )
        ),
    )
    advertise_addr: Address | None = extension(
        None,
        "Address of this node's gRPC API that other nodes tell readers of the log. An empty host, or 0.0.0.0, becomes the "
        "machine's private IPv4 address, and port 0 the port of the API.",
        AddressText("192.168.0.10:8084", DEFAULT_GRPC_PORT),
        default_text="the first TCP address of api.grpc",
    )
    topics: tuple[str, ...] = extension(
        ("#",), "Topic filters of the messages that are logged.", Sequence(Text(FILTERS_EXAMPLE))
    )
    exclude: tuple[str, ...] = extension(
        (),
        "Topic filters of messages that are not logged though `topics` matches them.",
        Sequence(Text(FILTERS_EXAMPLE)),
    )
    retention: RetentionSettings = extension(RetentionSettings(), "How long records are kept.", Section())
    segment_bytes: int = extension(
        64 * 2**20,
        "Size at which a segment is closed and the next one begins.",
        Size(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX, "64MiB"),
        "Raising it removes records in larger portions, and takes longer to check at a start after a crash.",
    )
    sync: str = extension(
        "commit",
        "When records are on disk. `commit`: before the PUBACK or PUBREC of their message. `interval`: after sync_interval "
        "or 1 MiB; a crash of the machine loses what came since, which readers see as a new log id. `none`: when the "
        "operating system writes them.",
        Choice(("commit", "interval", "none")),
    )
    sync_interval: float = extension(
        1.0,
        "Longest time until a record is written and can be read, with sync `interval` or `none`.",
        Duration(0.001, "1s"),
        "Lowering it writes and syncs more often.",
    )
    hold: HoldSettings = extension(HoldSettings(), "How far a group of readers extends the retention.", Section())
    on_full: str = extension(
        "stop_logging",
        "What happens while the disk takes no records. `stop_logging`: messages pass without being logged, which is "
        "counted. `refuse_publishes`: a publish with QoS 1 or 2 gets Quota exceeded (MQTT 5) or waits (MQTT 3.1.1), one "
        "with QoS 0 is dropped and counted.",
        Choice(("stop_logging", "refuse_publishes")),
    )

    staged_bytes: int = extension(
        8 * 2**30,
        "Most disk space of rows that pipelines have staged on this node and that are not published yet. Staging is "
        "refused past it, and where it would leave less than 64 MiB of the disk for the log.",
        Size(2**20, LOG_BYTES_MAX, "8GiB"),
        "Raising it takes larger batches; lowering it keeps more of the disk for the log.",
    )

    def for_worker(self, place: Place, settings: Settings) -> EventLogSettings:
        """As `broker.workers.shares.ForWorkers`: each worker has a log of its own, a partition of the node's, and its part of
        the disk that the node's may take. A query stages at one worker, which has the bound for it of the node."""

        def part(limit: int, least: int) -> int:
            return max(least, share(limit, place.count, place.index)) if limit else 0

        kept = part(self.retention.bytes, 2 * SEGMENT_BYTES_MIN)
        return replace(
            self,
            dir=beside(self.dir, place.index),
            advertise_addr=moved_if_any(self.advertise_addr, place.index),
            segment_bytes=min(self.segment_bytes, kept // 2) if kept else self.segment_bytes,
            retention=replace(self.retention, bytes=kept),
            hold=replace(self.hold, max_bytes=part(self.hold.max_bytes, kept)),
        )

    def broken_rules(self) -> Iterator[tuple[str, str]]:
        """Every broken rule between the keys, as (key, text)."""
        for name, filters in (("topics", self.topics), ("exclude", self.exclude)):
            for index, topic_filter in enumerate(filters):
                try:
                    check_topic_filter(topic_filter.encode())
                except MqttError as error:
                    yield f"{name}[{index}]", f'"{topic_filter}" is not a topic filter: {error.text}'
                else:
                    if topic_filter.startswith("$share/"):
                        yield (
                            f"{name}[{index}]",
                            f'"{topic_filter}" is shared; name the topic filter without $share/name/',
                        )
        if not self.topics:
            yield "topics", 'the list is empty, so nothing would be logged; for example ["#"]'
        retention, hold = self.retention, self.hold
        if 0 < retention.bytes < 2 * self.segment_bytes:
            yield (
                "retention.bytes",
                f"{retention.bytes} is less than two segments ({2 * self.segment_bytes}); raise it, or lower segment_bytes",
            )
        if hold.max_age > 0 and not 0 < retention.age <= hold.max_age:
            yield "hold.max_age", "it is shorter than retention.age, which it extends; raise it, or give 0 for no limit"
        if hold.max_bytes > 0 and not 0 < retention.bytes <= hold.max_bytes:
            yield (
                "hold.max_bytes",
                "it is less than retention.bytes, which it extends; raise it, or give 0 for no limit",
            )
