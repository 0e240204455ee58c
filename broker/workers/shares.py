"""The settings of one worker: its part of the limits of the node, its folders, and the addresses that it opens.

Worker 0 has the name, the store, the event log and the addresses of the node, so that a node without workers becomes one with
workers by its next start. Each further one has folders of its own beside or below those.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Final, Protocol, runtime_checkable

from broker.config.addresses import Address
from broker.config.durations import format_size, parse_size
from broker.config.settings import ApiSettings, Settings
from broker.config.settings_listeners import ListenerSettings

PORT_STEP: Final = 10  # between the ports of two workers, where each has one of its own
FOLDER_PREFIX: Final = "worker-"  # of the folder of a worker below data_dir
EVENT_LOG: Final = "event_log"  # the plugin
FEDERATION: Final = "federation"  # the plugin by which workers are nodes of one federation
MEMORY_BYTES_LEAST: Final = 64 * 2**20  # of mqtt.max_memory


@dataclass(frozen=True, slots=True)
class Place:
    """One worker among those of its node.

    index         0 .. count - 1; greater for one that only gives away what it has
    count         workers that serve
    is_member     the file names the plugin federation: each worker is a member of it
    gossip_ports  of all workers by index, on the loopback address: for the gossip of a node that is no member
    gossip_key    of that gossip, in base64
    """

    index: int
    count: int
    is_member: bool
    gossip_ports: dict[int, int]
    gossip_key: str

    @property
    def is_leaving(self) -> bool:
        return self.index >= self.count

    def name(self, node_name: str) -> str:
        """Return the name of the worker as a node: that of the node for worker 0, NAME/INDEX for others."""
        return worker_name(node_name, self.index)

    def siblings(self, own_name: str) -> dict[str, int]:
        """Return the names of the other workers, with their indexes. `own_name` is that of this one."""
        node_name = self.node_name(own_name)
        return {worker_name(node_name, index): index for index in self.gossip_ports if index != self.index}

    def node_name(self, own_name: str) -> str:
        """Return the name of the node from that of this worker."""
        return own_name.removesuffix(f"/{self.index}") if self.index else own_name


@runtime_checkable
class ForWorkers(Protocol):
    """A plugin's settings class whose values differ between the workers of a node."""

    def for_worker(self, place: Place, settings: Settings) -> Any:
        """Return the settings of this worker; None for one that runs without the plugin. `settings` are those of the file."""


def worker_name(node_name: str, index: int) -> str:
    return f"{node_name}/{index}" if index else node_name


def worker_folder(folder: str, index: int) -> str:
    """Return the folder of a worker for what the node keeps in `folder`; a relative one stays relative."""
    return f"{folder.rstrip('/')}/{FOLDER_PREFIX}{index}" if folder and index else folder


def moved(address: Address, index: int) -> Address:
    """Return the address of a worker in place of the node's one: PORT_STEP further for each worker."""
    return replace(address, port=address.port + index * PORT_STEP)


def moved_if_any(address: Address | None, index: int) -> Address | None:
    """Port 0, that of the listener, stays."""
    return moved(address, index) if address is not None and address.port else address


def beside(path: str, index: int) -> str:
    """Return the file or folder of a worker in place of the node's one, in the same folder."""
    return f"{path.rstrip('/')}.{index}" if path and index else path


def share(limit: int, count: int, index: int) -> int:
    """Return the part of a limit that a worker has: all parts are the limit together. 0, no limit, stays 0; a limit below the
    number of workers becomes 1 for each."""
    return max(1, limit // count + (index < limit % count)) if limit else 0


def share_up(limit: int, count: int) -> int:
    """Return the part of a limit that one client or address may use up at one worker: rounded up. 0 stays 0."""
    return -(-limit // count)


def memory_share(text: str, count: int) -> str:
    """Return the part of `max_memory`, rounded down to whole percents, or to no less than the setting allows."""
    if text.endswith("%"):
        return f"{max(1, int(text[:-1]) // count)}%"
    return "0" if text == "0" else format_size(max(MEMORY_BYTES_LEAST, parse_size(text) // count))


def worker_settings(settings: Settings, place: Place) -> Settings:
    """Return the settings with which a worker runs, from those of the file."""
    count, index = place.count, place.index
    sections: dict[str, Any] = {}
    order = settings.plugin_order if place.is_member else (FEDERATION, *settings.plugin_order)
    for one in fields(settings.plugins):
        section = getattr(settings.plugins, one.name)
        if isinstance(section, ForWorkers):
            found = section.for_worker(place, settings)
            if found is None:
                order = tuple(name for name in order if name != one.name)
            else:
                sections[one.name] = found
    mqtt = settings.mqtt
    return replace(
        settings,
        listeners=() if place.is_leaving else tuple(_listener(one, place) for one in settings.listeners),
        api=settings.api if index == 0 else _api(settings, place),
        mqtt=replace(
            mqtt,
            max_sessions=mqtt.max_sessions if place.is_leaving else share(mqtt.max_sessions, count, index),
            max_unaccepted_bytes=max(2**20, mqtt.max_unaccepted_bytes // count),
            max_memory=memory_share(mqtt.max_memory, count),
        ),
        data_dir=worker_folder(settings.data_dir, index),
        persistence=replace(
            settings.persistence,
            redis=replace(settings.persistence.redis, key_prefix=beside(settings.persistence.redis.key_prefix, index)),
        ),
        plugins=replace(settings.plugins, **sections),
        plugin_order=order,
        pid_file="",
    )


def _api(settings: Settings, place: Place) -> ApiSettings:
    """Worker 0 has the API. Another one with an event log has an address over gRPC, too: readers ask each log for itself."""
    api = settings.api
    if EVENT_LOG not in settings.plugin_order:
        return ApiSettings()
    grpc = tuple(replace(one, address=moved(one.address, place.index)) for one in api.grpc if not one.address.is_unix)
    return ApiSettings(grpc=grpc, token_file=api.token_file)


def _listener(listener: ListenerSettings, place: Place) -> ListenerSettings:
    count, index = place.count, place.index
    return replace(
        listener,
        address=moved(listener.address, index) if listener.each_worker else listener.address,
        max_connections=share(listener.max_connections, count, index),
        max_connections_per_address=share_up(listener.max_connections_per_address, count),
        max_connect_rate=share(listener.max_connect_rate, count, index),
        max_connect_rate_per_address=share_up(listener.max_connect_rate_per_address, count),
    )
