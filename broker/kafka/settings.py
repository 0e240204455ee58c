"""The keys of `plugins.kafka`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from broker.config.addresses import Address
from broker.config.setting import AddressText, Entries, EntryFault, Section, Sequence, Whole, extension
from broker.config.settings_listeners import TlsSettings
from broker.errors import MqttError
from broker.routing.names import check_topic_filter
from broker.workers.shares import moved, moved_if_any

if TYPE_CHECKING:
    from broker.config.settings import Settings
    from broker.workers.shares import Place

DEFAULT_KAFKA_PORT: Final = 9092
TOPIC_CHARS_MAX: Final = 249  # of the name of a topic, as Kafka allows
TOPIC_CHARS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
FILTER_EXAMPLE: Final = "sensors/#"
DEFAULT_TOPICS: Final = (("mqtt", "#"),)


def check_topic(name: str, body: Any) -> list[tuple[str, str]]:
    """As Entries.check: a Kafka topic and its topic filter. Raises EntryFault."""
    if not 0 < len(name) <= TOPIC_CHARS_MAX or name in (".", "..") or not TOPIC_CHARS.issuperset(name):
        raise EntryFault(
            "", f'"{name}" is no name of a Kafka topic: 1 to {TOPIC_CHARS_MAX} letters, digits, dots, _ and -'
        )
    if not isinstance(body, str):
        raise EntryFault("", f"it is not a topic filter as text; for example {FILTER_EXAMPLE}")
    try:
        check_topic_filter(body.encode())
    except MqttError as error:
        raise EntryFault("", f'"{body}" is not a topic filter: {error.text}') from None
    if body.startswith("$share/"):
        raise EntryFault("", f'"{body}" is shared; name the topic filter without $share/name/')
    return []


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """The event log over Kafka's protocol, read only. It needs the plugin `event_log`."""

    listeners: tuple[Address, ...] = extension(
        (Address("tcp", "", DEFAULT_KAFKA_PORT),),
        "Addresses for Kafka clients. Whoever reaches them reads messages, within the rules of the plugin `auth` where it "
        "is on.",
        Sequence(AddressText(":9092", DEFAULT_KAFKA_PORT, listens=True)),
        default_text='[":9092"]',
    )
    advertised: Address | None = extension(
        None,
        "Address that this node tells clients: every client must reach every node.",
        AddressText("10.0.0.1:9092", DEFAULT_KAFKA_PORT),
        default_text="the first of `listeners`; an unspecified host becomes the private IPv4 address of the machine",
    )
    tls: TlsSettings | None = extension(None, "Encrypts the connections.", Section(), default_text="no TLS")
    topics: tuple[tuple[str, Any], ...] = extension(
        (),
        "The topics that Kafka clients see: the name of each, and the topic filter of its messages. Use the same on all "
        "nodes. Empty: the topic `mqtt` with all messages.",
        Entries(check_topic, "a topic filter", "{sensors: sensors/#}"),
    )
    max_connections: int = extension(
        1_000,
        "Most connections at one time; at the bound the oldest that has not logged in is closed, or else the new one, and "
        "counted.",
        Whole(1, 100_000, 1000),
        "Raising it takes up to 1 MiB of memory for a connection that sends a large request.",
    )

    def for_worker(self, place: Place, settings: Settings) -> KafkaSettings:
        """As `broker.workers.shares.ForWorkers`: each worker is a broker of Kafka with the records of its own log."""
        index = place.index
        listeners = tuple(moved(address, index) for address in self.listeners)
        return replace(self, listeners=listeners, advertised=moved_if_any(self.advertised, index))

    @property
    def topic_filters(self) -> dict[str, bytes]:
        """The filter of each topic by its name."""
        return {name: body.encode() for name, body in self.topics or DEFAULT_TOPICS}

    def broken_rules(self) -> Iterator[tuple[str, str]]:
        """Every broken rule as (key, text)."""
        if not self.listeners:
            yield "listeners", 'the list is empty; for example [":9092"]'
        if self.tls is not None:
            for below, text in self.tls.broken_rules():
                yield f"tls{below}", text

    def unusable_files(self, key: str, path_of: Callable[[str], str]) -> Iterator[str]:
        """As `broker.server.named_files.NamesFiles`. The paths of TLS start at the current folder."""
        from broker.server.tls_context import tls_fault

        return tls_fault(self.tls, f"{key}.tls")
